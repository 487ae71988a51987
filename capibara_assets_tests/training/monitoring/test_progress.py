"""Lines and tables for people: when they come, and what time and steps they say are left."""

from typing import Any

from capibara_assets.training.monitoring.progress import VoterTable, duration, progress_lines

ABOUT: dict[str, Any] = {
    "precision": "fp32",
    "load_seconds": 1.0,
    "base_parameters": 20,
    "modules": ["q_proj"],
    "new_layers": [],
    "unread_layers": [],
    "left_out": 0,
    "truncated": 0,
}


def event(kind: str, time: float, step: int, **values: Any) -> dict[str, Any]:
    return {"domain": "sql", "voter": "voter-0", "event": kind, "time": time, "step": step} | values


def started(step: int = 0) -> dict[str, Any]:
    return event("started", 100.0, step, steps=100, examples=9, parameters=10, **ABOUT)


def did(step: int, time: float, **values: Any) -> dict[str, Any]:
    figures = {"loss": 2.0, "learning_rate": 1e-3, "gradient_norm": 0.5, "tokens_per_s": 1000.0, "memory_mib": 300.0}
    return event("step", time, step, of=100, micro_steps=3, **figures) | values


def said(every: int, seconds_per_step: float, steps: int) -> list[int]:
    """Steps that get a line."""
    line = progress_lines(every)
    line(started())
    return [step for step in range(1, steps + 1) if line(did(step, 100.0 + step * seconds_per_step))]


def test_a_line_comes_after_so_many_steps_or_ten_seconds_but_not_ten_a_second() -> None:
    assert said(10, 0.5, 60) == [10, 20, 30, 40, 50, 60]
    assert said(10, 4.0, 12) == [3, 6, 9, 12], "slow steps: every ten seconds"
    assert said(10, 0.01, 400) == [10, 210], "fast ones: one in two seconds"


def test_what_is_left_follows_from_the_measured_speed_in_steps_and_micro_steps() -> None:
    line = progress_lines(10)
    line(started(step=20))  # resumed there: what came before is no measure of now
    for step in range(21, 40):
        line(did(step, 100.0 + (step - 20) * 0.5))
    told = line(did(40, 110.0))
    assert told is not None
    assert told.startswith("sql/voter-0 40/100 loss 2.0000 perplexity 7.39 lr 1.00e-03 gradient 0.50 1,000 tokens/s")
    assert told.endswith("300 MiB, 60 steps (180 micro-steps), 30 s left")


def test_the_table_has_the_newest_of_each_voter() -> None:
    standing = VoterTable()
    for one in (
        started(),
        did(1, 101.0),
        did(2, 102.0, loss="nan"),
        event("validation", 102.0, 2, validation_loss=1.5),
    ):
        standing.notice(one)
    standing.notice(started() | {"voter": "voter-1"})
    standing.notice(event("failed", 103.0, 0, error="x") | {"voter": "voter-1"})
    first, second = standing.rows()
    assert first | {
        "state": "training", "step": 2, "steps": 100, "loss": "nan", "validation_loss": 1.5, "perplexity": 7.3891,
        "seconds_left": 98.0, "micro_steps_left": 294, "tokens_per_s": 1000.0,
    } == first  # fmt: skip
    assert second == {"voter": "voter-1", "state": "failed", "step": 0, "steps": 100}


def test_durations_are_short() -> None:
    assert [duration(seconds) for seconds in (4.6, 119.4, 600, 9000)] == ["5 s", "119 s", "10 min", "2.5 h"]
