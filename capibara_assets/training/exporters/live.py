"""Exports a running training: a thread per exporter follows the event log, so that none can delay the training.

Threads are only woken: what an exporter has not written yet waits in the log, not in memory. A failure is reported
once, counted, and retried later from the start of the log; an exporter that hangs is abandoned.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capibara_assets.training.exporters import Exporter
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.monitoring.logs import LogFollower, RunInfo, describe
from capibara_assets.training.monitoring.views import current_view

Say = Callable[[str], None]
Make = Callable[[], Exporter]

EXPORT_THREAD = "export to"
"""Prefix of the threads' names."""

_EVERY_S = 2.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 600.0


@dataclass
class _FollowedLog:
    """A log and its exporter; `begun`: whether all points read so far have been written."""

    follower: LogFollower
    exporter: Exporter
    begun: bool = False


@dataclass
class Copier:
    """Copies logs to exporters of one kind, as far as the logs have grown; also replays whole logs.

    Attributes:
        failures: number of exceptions so far.
    """

    kind: str
    make: Make
    failures: int = 0
    _logs: dict[Path, _FollowedLog] = field(default_factory=dict)

    @property
    def unwritten(self) -> list[Path]:
        """Logs that were asked for and of which nothing was written."""
        return [path for path, followed in self._logs.items() if not followed.begun]

    def copy_new(self, paths: Sequence[Path], names: dict[Path, str] | None = None) -> Exception | None:
        """Write the new points of each log.

        Args:
            names: log -> its run's name, where the runs' own names are not unique.

        Returns:
            The first exception; its log will be written again from the start, other logs are not affected.
        """
        first: Exception | None = None
        for path in paths:
            try:
                self._copy_log(path, (names or {}).get(path))
            except Exception as error:  # noqa: BLE001 - of any library; counted, returned, retried
                self.failures += 1
                first = first or error
                followed = self._logs.get(path)
                if followed:
                    followed.begun = False
                    followed.follower.reset()
        return first

    def close(self) -> Exception | None:
        """End all exporters; the first exception, if any."""
        first: Exception | None = None
        for path, followed in self._logs.items():
            try:
                view = current_view(read_events(path))
                followed.exporter.close(finished=any(event["event"] == "finished" for event in view))
            except Exception as error:  # noqa: BLE001 - as above
                self.failures += 1
                first = first or error
        self._logs.clear()
        return first

    def _copy_log(self, path: Path, name: str | None) -> None:
        followed = self._logs.get(path)
        if followed is None:
            followed = self._logs[path] = _FollowedLog(LogFollower(path), self.make())
        update = followed.follower.read_new()
        if update is None:
            return
        if update.restarted or not followed.begun:
            info = describe(path)
            if info is None:
                return
            followed.exporter.begin(RunInfo(info.run, name or info.name, update.attempt))
            followed.begun = True
        followed.exporter.write(update.points)


class LiveExport:
    """All exporters of a running training. `notice` only sets a dictionary entry and a flag."""

    def __init__(self, logs: Mapping[str, Path], makers: Mapping[str, Make], say: Say, every_s: float = _EVERY_S):
        """Start a thread for each kind of exporter.

        Args:
            logs: voter -> its event log.
            makers: kind -> factory of its exporters.
            say: logs each kind's first failure.
            every_s: seconds between two reads of a log.
        """
        self._logs, self._say, self._every_s = logs, say, every_s
        self._paths: dict[Path, None] = {}
        self._ended = threading.Event()
        self._wakes = {kind: threading.Event() for kind in makers}
        self._copiers = {kind: Copier(kind, make) for kind, make in makers.items()}
        self._missed = {kind: list[Path]() for kind in makers}
        self._threads = {
            kind: threading.Thread(target=self._follow, args=(kind,), name=f"{EXPORT_THREAD} {kind}", daemon=True)
            for kind in makers
        }
        for thread in self._threads.values():
            thread.start()

    def notice(self, event: dict[str, Any]) -> None:
        """Wake the threads: an event was written to the log of its voter."""
        if "attempt" in event:
            self._paths.setdefault(self._logs[event["voter"]])
            for wake in self._wakes.values():
                wake.set()

    def close(self, wait_s: float = 10.0) -> list[str]:
        """Write the remaining points, for `wait_s` seconds at most; returns the kinds that hang and were abandoned."""
        self._ended.set()
        for wake in self._wakes.values():
            wake.set()
        deadline = time.monotonic() + wait_s
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        hung = [kind for kind, thread in self._threads.items() if thread.is_alive()]
        for kind in hung:
            self._say(f"export to {kind} hangs and was abandoned{_LATER.format(kind=kind)}")
        for kind, copier in self._copiers.items():
            if kind in hung:
                continue
            if copier.failures > 1:
                self._say(f"export to {kind} failed {copier.failures} times{_LATER.format(kind=kind)}")
            elif missed := self._missed[kind]:
                self._say(f"export to {kind} found nothing to write in {', '.join(map(str, missed))}")
        return hung

    @property
    def failures(self) -> dict[str, int]:
        """Number of failures so far, by kind."""
        return {kind: copier.failures for kind, copier in self._copiers.items()}

    def _follow(self, kind: str) -> None:
        copier, wake = self._copiers[kind], self._wakes[kind]
        wait = _FIRST_WAIT_S
        while True:
            wake.wait()
            wake.clear()
            last = self._ended.is_set()
            error = copier.copy_new(list(self._paths))
            if error is not None:
                if copier.failures == 1:
                    self._say(
                        f"export to {kind} failed: {type(error).__name__}: {error}; training goes on, "
                        f"it is tried again{_LATER.format(kind=kind)}"
                    )
                self._ended.wait(wait)
                wait = min(2 * wait, _LONGEST_WAIT_S)
                wake.set()
            if last:
                self._missed[kind] = copier.unwritten
                copier.close()
                return
            self._ended.wait(self._every_s)


_LATER = "; `capibara metrics export OUTPUT --to {kind}` makes it again from the log"
