"""Event logs on disk: finding them below a folder, and following them while they grow."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.storage.foreign import require_plain
from capibara_assets.storage.journal import parsed
from capibara_assets.training.monitoring.events import EVENTS, read_events, why_no_event
from capibara_assets.training.monitoring.views import Event, MetricPoint, PointBuilder, current_view

_COMMON = frozenset({"voters", "result", "out", "content"})  # folder names that do not identify a run


@dataclass(frozen=True)
class RunInfo:
    """The run that a log belongs to.

    Attributes:
        run: id of the training; the same inputs give the same one.
        name: for people, unique among logs found together, such as `python/voter-0`.
        attempt: number of the newest attempt.
    """

    run: str
    name: str
    attempt: int

    @property
    def group(self) -> str:
        """The part of the name that the voters of one domain share."""
        return self.name.rpartition("/")[0]


@dataclass(frozen=True)
class Log:
    """An event log and the run it belongs to."""

    path: Path
    info: RunInfo


def find_logs(place: Path) -> list[Log]:
    """Find the logs at or below a path, sorted by name; of copies of one log the longest.

    Raises:
        InputError: there is none, or the file is no log.
    """
    if not place.exists():
        raise InputError(f"{place} does not exist: give the output of a training or its {EVENTS}")
    require_plain(place)
    logs = logs_of([place] if place.is_file() else sorted(place.rglob(EVENTS)))
    if not logs:
        raise InputError(f"no training log in {place}: it has no {EVENTS} with an event in it")
    return logs


def logs_of(files: Iterable[Path]) -> list[Log]:
    """The logs in files, sorted by name; of copies of one log the longest."""
    longest: dict[str, Log] = {}
    for file in files:
        if any(part.startswith(".") and part.endswith(".part") for part in file.parts):
            continue  # being written
        if (info := describe(file)) is None:
            continue
        other = longest.get(info.run)
        if other is None or file.stat().st_size > other.path.stat().st_size:
            longest[info.run] = Log(file, info)
    return _with_unique_names(list(longest.values()))


def describe(file: Path) -> RunInfo | None:
    """The run that a log belongs to; None while the log is empty.

    Raises:
        InputError: the file is no log.
    """
    events = read_events(file)
    for number, event in enumerate(events, 1):
        if (why := why_no_event(event)) is not None:
            raise InputError(f"{file}, event {number}: {why}: it is no training log, or was changed")
    view = current_view(events)
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


def _with_unique_names(logs: list[Log]) -> list[Log]:
    """Append the run's id to names that several logs share (the same voter trained on other inputs)."""
    names = [log.info.name for log in logs]
    unique = [
        log
        if names.count(log.info.name) == 1
        else Log(log.path, RunInfo(log.info.run, f"{log.info.name}-{log.info.run[:8]}", log.info.attempt))
        for log in logs
    ]
    return sorted(unique, key=lambda log: log.info.name)


@dataclass(frozen=True)
class LogUpdate:
    """The new points of a log since the last read.

    Attributes:
        restarted: whether earlier points no longer count: at the first read, and when a new attempt began.
    """

    restarted: bool
    attempt: int
    points: list[MetricPoint]


class LogFollower:
    """Reads the new points of a log; after the start of a new attempt, all current ones."""

    def __init__(self, path: Path):
        self._path, self._offset = path, 0
        self._attempts = dict[str, int]()  # of each part
        self._measured, self._last = PointBuilder(), dict[tuple[str, str], int]()

    def read_new(self) -> LogUpdate | None:
        """The new points; None if there are none."""
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
                continue  # measured again by the attempt that resumed
            point = self._measured.point(event)
            if point is not None:
                self._last[key] = event["step"]
                points.append(point)
        return LogUpdate(again, max(self._attempts.values()), points) if points or again else None

    def reset(self) -> None:
        """Start again from the beginning of the log at the next read."""
        self._attempts.clear()
        self._offset = 0

    def _read(self) -> list[Event]:
        """The events of whole lines since the last read."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(parsed(whole).entries.values())


def _part(event: Event) -> str:
    """Name of the part of a voter that an event is about; empty for the voter itself."""
    return str(event.get("part", ""))
