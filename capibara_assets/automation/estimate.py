"""Progress of a run and its estimated remaining time, from the last duration of each result."""

import time
from collections.abc import Callable, Mapping, Sequence

from capibara_assets.automation.outcome import Report, RunOutcome, Task
from capibara_assets.domains import WHOLE
from capibara_assets.training.monitoring.progress import duration


class Progress:
    """Reports, after each task in which something was made, how many have ended and an estimate of the rest.

    The rest is what its results took before, at the pace of this run so far: that accounts for another machine, for
    lanes and for waiting. Results that turn out to be current take nothing, so it is an upper end of what is known;
    results that were never made, and whose other domains were not either, are not in it.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        took: Mapping[tuple[str, str], float],
        report: Report,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._expected = {number: _seconds(task, took) for number, task in enumerate(tasks)}
        self._tasks, self._took, self._report, self._clock = tasks, took, report, clock
        self._started, self._left, self._done = clock(), set(self._expected), 0.0

    def ended(self, number: int, outcome: RunOutcome) -> None:
        """Record the end of a task; prints a line if it produced something and tasks remain."""
        self._left.discard(number)
        self._done += sum(self._took.get(step, 0.0) for step in outcome.seconds)
        if outcome.seconds and self._left:
            whole, elapsed = len(self._expected), self._clock() - self._started
            self._report(f"{whole - len(self._left)} of {whole} parts, {duration(elapsed)} so far{self._rest(elapsed)}")

    def _rest(self, elapsed: float) -> str:
        known = [self._expected[number] for number in self._left]
        seconds = sum(one for one in known if one is not None)
        if not seconds or not self._done:
            return ""
        return f", at most about {duration(seconds * elapsed / self._done)} left"


def _seconds(task: Task, took: Mapping[tuple[str, str], float]) -> float | None:
    """What a task's results took before; None where nothing is known of any."""
    steps = [(name, str(task.partition or WHOLE)) for name in task.assets]
    known = [took[step] for step in steps if step in took]
    return sum(known) if known else None
