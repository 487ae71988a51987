"""The decision to train again: what holds a domain back, what the day has left, and the words for it."""

import time

import pytest

from capibara_assets.automation.retraining.rules import (
    DAY,
    HOUR,
    Facts,
    TrainingAttempt,
    TrainingDecision,
    clock,
    day_spent,
    decide,
    grant,
    last_spender,
)
from capibara_assets.deployment.file import DayBudget, Retraining
from capibara_assets.domains import Domain

NOW = time.mktime((2031, 5, 6, 14, 0, 0, 0, 0, -1))
LOOK = NOW + DAY - 4 * HOUR  # a training that ended four hours ago leaves the day
RULE = Retraining(new_examples=50, cool_down_hours=2)


def decided(spent: str | None = None, rule: Retraining = RULE, **known) -> TrainingDecision:
    facts = Facts(Domain.PYTHON, **{"pending": True, "new": 61, **known})
    return decide(facts, rule, spent, now=NOW, next_tick=NOW + 300)


def attempt(hours_ago: float, took: float | None = 1.0, price: float | None = 2.0, run: str = "r") -> TrainingAttempt:
    began = NOW - hours_ago * HOUR
    return TrainingAttempt(Domain.PYTHON, run, began, None if took is None else began + took * HOUR, price)


@pytest.mark.parametrize(
    ("known", "held", "ready", "words"),
    [
        ({}, False, True, "python: 61 new examples, may train (50 needed)"),
        ({"new": 12}, True, False, "python: 12 of 50 new examples, next look"),
        ({"new": 50, "last_end": NOW - 3 * HOUR}, False, True, "python: 50 new examples"),
        ({"last_end": NOW - HOUR}, True, False, "cools down 2.0 h, next look"),
        ({"last_end": NOW + HOUR}, True, False, "cools down 2.0 h, next look"),  # the clock was set back
        ({"last_end": NOW + 24 * HOUR}, False, True, "python: 61 new examples, may train"),  # by a day
        ({"new": None}, False, True, "python: its plan or another input changed, may train"),
        ({"pending": False, "new": None, "last_end": NOW - 1}, False, False, "trained on the data there is"),
        ({"new": 12, "running": NOW - HOUR}, False, False, "is training since"),
        ({"failed_at": NOW - 3 * HOUR, "last_end": NOW - 3 * HOUR}, False, False, "its training failed at"),
    ],
)
def test_a_domain_waits_for_examples_and_time_and_says_so(known: dict, held: bool, ready: bool, words: str):
    found = decided(**known)
    assert (found.held, found.ready) == (held, ready) and words in str(found)


def test_the_end_of_a_cool_down_is_when_the_automation_looks_again():
    assert decided(last_end=NOW - HOUR).reason.endswith(clock(NOW + HOUR))
    assert decided(new=1).reason.endswith(clock(NOW + 300))


def test_without_rules_nothing_is_held_back():
    found = decided(rule=Retraining(), new=0, last_end=NOW - 1)
    assert found.ready and not found.held


@pytest.mark.parametrize(
    ("budget", "attempts", "words"),
    [
        ({"trainings": 2}, [attempt(5), attempt(3)], f"2 of 2 trainings a day are spent, next look {clock(LOOK)}"),
        ({"trainings": 2}, [attempt(30), attempt(3)], None),
        ({"trainings": 2}, [attempt(3), attempt(1, took=None)], "2 of 2 trainings"),  # one goes on: it counts
        ({"hours": 3}, [attempt(5, took=2), attempt(2, took=1.5)], "3.5 of 3 hours"),
        ({"hours": 3}, [attempt(5, took=2)], None),
        ({"usd": 4}, [attempt(5, took=2)], "4 of 4 USD"),
        ({"usd": 4}, [attempt(5, took=1)], None),
        ({"usd": 4}, [attempt(5, price=None)], "there is no price for the targets of python: give `usd_per_hour`"),
        ({}, [attempt(5)] * 9, None),
    ],
)  # fmt: skip
def test_a_day_has_a_budget_of_trainings_hours_and_money(
    budget: dict, attempts: list[TrainingAttempt], words: str | None
):
    found = day_spent(DayBudget(**budget), attempts, NOW)
    assert found is None if words is None else words in (found or "")


def test_the_next_look_is_when_enough_of_the_day_is_over():
    """Three trainings where two are allowed: it takes two of them to leave the day."""
    attempts = [attempt(9, run="a"), attempt(7, run="b"), attempt(5, run="c")]
    assert (day_spent(DayBudget(trainings=2), attempts, NOW) or "").endswith(clock(NOW + DAY - 6 * HOUR))
    spender = last_spender(DayBudget(trainings=2), attempts, NOW)
    assert spender is not None and spender.run_id == "c"
    assert last_spender(DayBudget(trainings=4), attempts, NOW) is None


def test_domains_that_are_due_together_share_what_is_left_of_the_day():
    facts = {
        Domain.PYTHON: Facts(Domain.PYTHON, True, new=60, last_end=NOW - 5 * HOUR),
        Domain.SQL: Facts(Domain.SQL, True, new=60, last_end=NOW - 9 * HOUR),
        Domain.ML: Facts(Domain.ML, True, new=6),
    }
    alone = {one: decide(known, RULE, None, now=NOW, next_tick=NOW) for one, known in facts.items()}
    granted = grant(alone, facts, DayBudget(trainings=2), [attempt(4)], NOW)
    assert [one for one, found in granted.items() if found.ready] == [Domain.SQL], "it waits longest"
    assert granted[Domain.PYTHON].held and "the day's last training goes to sql" in str(granted[Domain.PYTHON])
    assert "6 of 50" in str(granted[Domain.ML])
