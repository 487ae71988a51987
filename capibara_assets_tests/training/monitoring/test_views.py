"""What counts of a log with several attempts, held against a simulated training that was killed at random."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.training.monitoring.views import current_view, perplexity, points_of, series_of


def event(kind: str, attempt: int, step: int, **values: Any) -> dict[str, Any]:
    return {"run": "r", "attempt": attempt, "step": step, "event": kind, "time": float(attempt * 1000 + step)} | values


def training(kills: list[tuple[int, int]], total: int = 12, every: int = 3) -> list[dict[str, Any]]:
    """A log of a training that is killed after a number of steps and goes on from a point some steps before.

    Args:
        kills: steps done in an attempt, and steps that its newest resume point lies back.
        every: steps between validations.
    """
    events, step = [], 0
    for attempt, (steps, back) in enumerate([*kills, (total, 0)], start=1):
        if attempt > 1 and step:
            events.append(event("resumed", attempt, step))
        events.append(event("started", attempt, step, steps=total))
        if step % every == 0:
            events.append(event("validation", attempt, step, of=total, validation_loss=5.0 - step / 10))
        for _ in range(steps):
            if step == total:
                break
            step += 1
            events.append(event("step", attempt, step, of=total, loss=4.0 - step / 10, by=attempt))
            if step % every == 0:
                events.append(event("validation", attempt, step, of=total, validation_loss=5.0 - step / 10))
        if attempt <= len(kills):
            step = max(0, step - back)
    return events


KILLS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), max_size=5)


@given(KILLS)
def test_a_killed_training_shows_the_figures_of_an_undisturbed_one(kills: list[tuple[int, int]]) -> None:
    seen = series_of(points_of(current_view(training(kills))))
    expected = series_of(points_of(current_view(training([]))))
    assert seen["train/loss"] == expected["train/loss"]
    assert seen["validation/loss"] == expected["validation/loss"]
    assert seen["train/perplexity"] == [(step, math.exp(loss)) for step, loss in expected["train/loss"]]


@given(KILLS)
def test_steps_never_go_backwards_and_a_view_is_its_own_view(kills: list[tuple[int, int]]) -> None:
    events = training(kills)
    view = current_view(events)
    steps = [event["step"] for event in view if event["event"] == "step"]
    assert steps == sorted(set(steps))
    assert current_view(view) == view
    assert all(event in events for event in view)


@given(KILLS, st.integers(0, 60))
def test_at_any_moment_an_attempt_shows_nothing_of_older_ones_after_its_start(
    kills: list[tuple[int, int]], cut: int
) -> None:
    events = training(kills)[: cut + 1]
    view = current_view(events)
    newest = max(event["attempt"] for event in events)
    start = next(event["step"] for event in events if event["attempt"] == newest)
    assert all(event["attempt"] == newest for event in view if event["step"] > start)
    # ... and everything before it is there, once.
    assert [event["step"] for event in view if event["event"] == "step" and event["step"] <= start] == list(
        range(1, start + 1)
    )


def test_an_attempt_that_never_started_replaces_nothing() -> None:
    events = [event("started", 1, 0), event("step", 1, 1, loss=1.0), event("validation", 2, 0, validation_loss=2.0)]
    assert event("step", 1, 1, loss=1.0) in current_view(events)


def test_other_runs_in_the_log_are_no_part_of_the_view() -> None:
    other = event("step", 1, 5, loss=9.0) | {"run": "other"}
    own = [event("started", 2, 0), event("step", 2, 1, loss=1.0)]
    assert current_view([other, *own]) == own
    assert current_view([other, *own], "other") == [other]
    assert current_view([]) == []


def test_figures_get_names_groups_and_counts() -> None:
    (step, skipped, again, validation) = points_of(
        [
            event("step", 1, 1, of=9, loss=2.0, tokens_per_s=10, level="general", memory_mib=3.5, better=True),
            event("skipped", 1, 2, of=9, loss="nan", examples=["e1"]),
            event("skipped", 1, 3, of=9, loss="inf", examples=["e2"]),
            event("validation", 1, 3, of=9, validation_loss=0.5),
        ]
    )
    assert step.values == {
        "train/loss": 2.0,
        "train/perplexity": math.exp(2.0),
        "speed/tokens_per_s": 10.0,
        "hardware/memory_mib": 3.5,
    }
    assert [skipped.values, again.values] == [{"guards/skipped_steps": 1.0}, {"guards/skipped_steps": 2.0}]
    assert validation.values == {"validation/loss": 0.5, "validation/perplexity": math.exp(0.5)}
    assert perplexity(1e6) is None
