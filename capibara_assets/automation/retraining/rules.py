"""The decision whether the automation trains a domain again, from counted facts and the deployment's rules."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from capibara_assets.deployment.file import DayBudget, Retraining
from capibara_assets.domains import Domain
from capibara_assets.training.monitoring.progress import duration

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class TrainingAttempt:
    """One training of a domain, whoever started it, and whether it succeeded.

    Attributes:
        began: Unix time.
        ended: Unix time; None while it goes on.
        usd_per_hour: price of the dearest target of its domain; None: no price is known.
    """

    domain: Domain
    run_id: str
    began: float
    ended: float | None
    usd_per_hour: float | None

    def hours(self, now: float) -> float:
        """How long it took so far."""
        return max(0.0, (self.ended or now) - self.began) / HOUR


@dataclass(frozen=True)
class Facts:
    """Facts about a domain's trainings.

    Attributes:
        pending: whether an input of its training has changed since it was trained, or it never was.
        new: train examples that were not in the dataset that it was trained on; None: the dataset is the same.
        failed_at: when its last training ended without a result made of the present dataset (Unix time), else None.
        last_end: when its last training ended (Unix time), None where none did.
        running: since when it trains (Unix time), None where it does not.
    """

    domain: Domain
    pending: bool
    new: int | None = None
    failed_at: float | None = None
    last_end: float | None = None
    running: float | None = None


@dataclass(frozen=True)
class TrainingDecision:
    """Whether a domain's training is held back, and why, for people.

    Attributes:
        held: it is due, and the rules say not now.
        ready: it is due, and the rules allow it.
    """

    domain: Domain
    held: bool
    ready: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.domain}: {self.reason}"


def decide(facts: Facts, rule: Retraining, spent: "str | None", *, now: float, next_tick: float) -> TrainingDecision:
    """Decide whether a domain may be trained now; the first reason against it counts.

    Args:
        spent: what `day_spent` says of the budget of all domains.
        next_tick: Unix time of the automation's next tick.
    """
    needed, cool = rule.new_examples or 0, (rule.cool_down_hours or 0) * HOUR
    if facts.running is not None:
        return TrainingDecision(facts.domain, False, False, f"is training since {clock(facts.running)}")
    if not facts.pending:
        return TrainingDecision(facts.domain, False, False, "trained on the data there is")
    if facts.new is not None and facts.new < needed:
        words = f"{facts.new:,} of {needed:,} new examples, next look {clock(next_tick)}"
        return TrainingDecision(facts.domain, True, False, words)
    if facts.last_end is not None and abs(now - facts.last_end) < cool:  # an end to come: the clock was set back
        until = clock(facts.last_end + cool)
        words = f"trained until {clock(facts.last_end)}, cools down {duration(cool)}, next look {until}"
        return TrainingDecision(facts.domain, True, False, words)
    if spent is not None:
        return TrainingDecision(facts.domain, True, False, spent)
    if facts.failed_at is not None:
        words = f"its training failed at {clock(facts.failed_at)}; it starts with the next new data, or by hand"
        return TrainingDecision(facts.domain, False, False, words)
    what = "its plan or another input changed" if facts.new is None else f"{facts.new:,} new examples"
    return TrainingDecision(
        facts.domain, False, True, f"{what}, may train" + (f" ({needed:,} needed)" if needed else "")
    )


def day_spent(budget: DayBudget, attempts: Sequence[TrainingAttempt], now: float) -> str | None:
    """The exhausted daily budget, its cause, and when it resets; None if no budget is exhausted.

    The day is the last 24 hours. A training counts in full until a day after its end, also one that failed or was
    started by hand; none starts once the sum reaches the limit, so the last one may exceed it.
    """
    recent = _recent(attempts, now)
    if budget.usd is not None and any(one.usd_per_hour is None for one in recent):
        names = ", ".join(sorted({one.domain.value for one in recent if one.usd_per_hour is None}))
        return (
            f"automation.per_day.usd is set, and there is no price for the targets of {names}: give `usd_per_hour` in"
            " the deployment's file, or a budget in hours"
        )
    amounts = {
        "trainings": (budget.trainings, [1.0] * len(recent)),
        "hours": (budget.hours, [one.hours(now) for one in recent]),
        "USD": (budget.usd, [one.hours(now) * (one.usd_per_hour or 0.0) for one in recent]),
    }
    for unit, (limit, each) in amounts.items():
        if limit is not None and sum(each) >= limit:
            left, at = sum(each), now
            for one, amount in zip(recent, each, strict=True):
                left, at = left - amount, (one.ended or now) + DAY
                if left < limit:
                    break
            return f"{sum(each):.4g} of {limit:g} {unit} a day are spent, next look {clock(at)}"
    return None


def last_spender(budget: DayBudget, attempts: Sequence[TrainingAttempt], now: float) -> TrainingAttempt | None:
    """The training that exhausted the day's budget (it identifies the notice); None if none is exhausted."""
    return _recent(attempts, now)[-1] if day_spent(budget, attempts, now) and attempts else None


def grant(
    decisions: Mapping[Domain, TrainingDecision],
    facts: Mapping[Domain, Facts],
    budget: DayBudget,
    attempts: Sequence[TrainingAttempt],
    now: float,
) -> dict[Domain, TrainingDecision]:
    """Limit the ready domains to the day's remaining trainings; the longest waiting goes first."""
    ready = sorted((d for d, one in decisions.items() if one.ready), key=lambda d: facts[d].last_end or 0.0)
    left = len(ready) if budget.trainings is None else max(0, budget.trainings - len(_recent(attempts, now)))
    words = f"the day's last training goes to {', '.join(ready[:left])}"
    late = {domain: replace(decisions[domain], held=True, ready=False, reason=words) for domain in ready[left:]}
    return {**decisions, **late}


def _recent(attempts: Sequence[TrainingAttempt], now: float) -> list[TrainingAttempt]:
    """The trainings of the last 24 hours, by their end, those that go on last."""
    recent = [one for one in attempts if abs(now - (one.ended or now)) < DAY]  # to come: the clock was set back
    return sorted(recent, key=lambda one: (one.ended or now, one.began, one.run_id))


def clock(at: float) -> str:
    """Local time of day, `14:05`; of another day than today with the date."""
    own = time.localtime(at)
    today = own[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if today else "%d %b %H:%M", own)
