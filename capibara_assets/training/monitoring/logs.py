"""Event logs on disk: found below a folder, and followed while they grow."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.training.monitoring.events import EVENTS, read_events
from capibara_assets.training.monitoring.views import Event, MetricPoint, PointBuilder, current_view

_COMMON = frozenset({"voters", "result", "out", "content"})  # folder names that say nothing about whose log it is


@dataclass(frozen=True)
class RunInfo:
    """Whose log it is.

    Attributes:
        run: short name of the training; the same inputs give the same one.
        name: for people, unique among the logs found together, such as `python/voter-0`.
        attempt: the newest one.
    """

    run: str
    name: str
    attempt: int

    @property
    def group(self) -> str:
        """What the voters of one domain have in common."""
        return self.name.rpartition("/")[0]


@dataclass(frozen=True)
class Log:
    """A log that was found."""

    path: Path
    info: RunInfo


def find_logs(place: Path) -> list[Log]:
    """The logs at or below a path, by name; of copies of one log the longest.

    Raises:
        InputError: there is none, or the file is none.
    """
    if not place.exists():
        raise InputError(f"{place} does not exist: give the output of a training or its {EVENTS}")
    logs = logs_of([place] if place.is_file() else sorted(place.rglob(EVENTS)))
    if not logs:
        raise InputError(f"no training log in {place}: it has no {EVENTS} with an event in it")
    return logs


def logs_of(files: Iterable[Path]) -> list[Log]:
    """The logs that files hold, by name; of copies of one log the longest."""
    longest: dict[str, Log] = {}
    for file in files:
        if any(part.startswith(".") and part.endswith(".part") for part in file.parts):
            continue  # being written
        if (info := describe(file)) is None:
            continue
        other = longest.get(info.run)
        if other is None or file.stat().st_size > other.path.stat().st_size:
            longest[info.run] = Log(file, info)
    return _named_apart(list(longest.values()))


def describe(file: Path) -> RunInfo | None:
    """Whose log a file is; None while it says nothing yet.

    Raises:
        InputError: it is no log.
    """
    view = current_view(read_events(file))
    if not view:
        if file.name != EVENTS:
            raise InputError(f"{file} is no training log: it holds no event")
        return None
    run = next((event["run"] for event in reversed(view) if "part" not in event), view[0]["run"])
    attempt = max(event["attempt"] for event in view)
    started = next((event for event in reversed(view) if "voter" in event and "domain" in event), None)
    if started is not None:
        name = f"{started['domain']}/{started['voter']}"
    else:
        name = next((part for part in reversed(file.parent.parts) if part not in _COMMON and part.strip("/")), run)
    return RunInfo(run, name, attempt)


def _named_apart(logs: list[Log]) -> list[Log]:
    """Logs of one name (the same voter trained on other inputs) get their run's id behind it."""
    names = [log.info.name for log in logs]
    apart = [
        log
        if names.count(log.info.name) == 1
        else Log(log.path, RunInfo(log.info.run, f"{log.info.name}-{log.info.run[:8]}", log.info.attempt))
        for log in logs
    ]
    return sorted(apart, key=lambda log: log.info.name)


@dataclass(frozen=True)
class LogUpdate:
    """What a log says since the last time.

    Attributes:
        restarted: what was said before no longer counts: the log is at its first look, or a new attempt began.
    """

    restarted: bool
    attempt: int
    points: list[MetricPoint]


class LogFollower:
    """Reads what is new in a log; where a new attempt began, all that counts."""

    def __init__(self, path: Path):
        self._path, self._offset = path, 0
        self._attempts = dict[str, int]()  # of each part
        self._measured, self._last = PointBuilder(), dict[tuple[str, str], int]()

    def news(self) -> LogUpdate | None:
        """What is new; None where nothing is."""
        events = self._read()
        if not events:
            return None
        known = self._attempts
        again = not known or any(event["attempt"] != known.get(_part(event), event["attempt"]) for event in events)
        if again:
            self._offset, self._measured, self._last = 0, PointBuilder(), {}
            events = current_view(self._read())
        self._attempts |= {_part(event): event["attempt"] for event in events}
        points = []
        for event in events:
            key = _part(event), event["event"]
            if event["step"] <= self._last.get(key, -1):
                continue  # measured again where this attempt goes on
            point = self._measured.point(event)
            if point is not None:
                self._last[key] = event["step"]
                points.append(point)
        return LogUpdate(again, max(self._attempts.values()), points) if points or again else None

    def forget(self) -> None:
        """Tell everything again the next time."""
        self._attempts.clear()
        self._offset = 0

    def _read(self) -> list[Event]:
        """Whole lines since the last time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        events = []
        for line in whole.splitlines():
            with suppress(ValueError):  # cut off by a kill, and ended by the next attempt
                events.append(json.loads(line))
        return events


def _part(event: Event) -> str:
    """The part of a voter that an event is about; empty for the whole."""
    return str(event.get("part", ""))
