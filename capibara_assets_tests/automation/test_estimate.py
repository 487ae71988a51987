"""How far a run is: parts that have ended, and an estimate of the rest at the pace of this run."""

from capibara_assets.automation.estimate import Progress
from capibara_assets.automation.outcome import RunOutcome, Task
from capibara_assets.domains import Domain

TASKS = [Task(("a", "b"), Domain.PYTHON), Task(("a", "b"), Domain.SQL), Task(("c",), None), Task(("d",), None)]
TOOK = {("a", "python"): 10.0, ("b", "python"): 20.0, ("a", "sql"): 40.0, ("c", "_"): 5.0}


def lines_of(*made: tuple[int, dict[tuple[str, str], float]], seconds: float = 60.0) -> list[str]:
    lines, times = list[str](), iter(range(0, 10_000, int(seconds)))
    progress = Progress(TASKS, TOOK, lines.append, clock=lambda: float(next(times)))
    for number, steps in made:
        progress.ended(number, RunOutcome(seconds=steps))
    return lines


def test_the_rest_is_what_it_took_before_at_this_runs_pace():
    python = {("a", "python"): 1.0, ("b", "python"): 1.0}
    # 30 s of before took 60 s now: the 45 s of the rest take 90
    assert lines_of((0, python)) == ["1 of 4 parts, 60 s so far, at most about 90 s left"]


def test_what_was_current_is_no_line_and_no_pace():
    assert lines_of((0, {}), (1, {("a", "sql"): 1.0})) == ["2 of 4 parts, 60 s so far, at most about 8 s left"]


def test_what_is_not_known_is_not_estimated():
    assert lines_of((3, {("d", "_"): 1.0})) == ["1 of 4 parts, 60 s so far"]


def test_the_last_part_leaves_nothing_to_say():
    assert len(lines_of(*((number, {("a", "sql"): 1.0}) for number in range(4)))) == 3
