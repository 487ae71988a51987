"""The training log: one JSON line per event, append-only, keyed by (run, attempt, step)."""

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from capibara_assets.errors import named
from capibara_assets.storage.journal import append, read_lines

EVENTS = "events.jsonl"
_LAST_EXACT = 2**53
Report = Callable[[dict[str, Any]], None]
"""Receives an event."""


class EventLog:
    """Appends events to a file and passes each on to a listener.

    A resumed run is a new attempt: steps that the former one did after its resume point appear again under the new
    attempt's number; nothing is rewritten. A line that a kill cut off is terminated and ignored.
    """

    def __init__(self, path: Path, run: str, listener: Report, *, writes: bool = True):
        """Open a log for a new attempt.

        Args:
            run: id of the run.
            listener: receives each event written.
            writes: False for ranks that write no log.
        """
        events = read_events(path)
        self._path, self._run, self._listener, self._writes = path, run, listener, writes
        self.attempt = 1 + max((event["attempt"] for event in events), default=0)
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, event: str, step: int, **values: Any) -> None:
        """Append an event with the current time; NaN and infinity become strings, which JSON lacks as numbers."""
        if not self._writes:
            return
        line = {
            "run": self._run,
            "attempt": self.attempt,
            "step": step,
            "event": event,
            "time": round(time.time(), 3),
            **{key: _plain(value) for key, value in values.items()},
        }
        append(self._path, json.dumps(line, allow_nan=False).encode())
        self._listener(line)

    def relay(self, line: dict[str, Any]) -> None:
        """Pass on an event of a part of this voter's training; one that the part has logged is appended, unchanged."""
        if not self._writes:
            return
        if "attempt" in line:
            append(self._path, json.dumps(line, allow_nan=False).encode())
        self._listener(line)


def read_events(path: Path) -> list[dict[str, Any]]:
    """All whole events of a log, in order; empty where there is no log."""
    return list(read_lines(path).entries.values())


def why_no_event(event: Mapping[str, Any]) -> str | None:
    """What is wrong with an event of a log that anybody may have written; None where nothing is.

    Exporters copy step and time as they are, and take other numbers for float64.
    """
    if "run" in event and (missing := [name for name in ("attempt", "event", "step", "time") if name not in event]):
        return f"it has no {missing[0]}"
    for name in ("step", "attempt"):
        if name in event and (type(event[name]) is not int or not 0 <= event[name] <= _LAST_EXACT):
            return f"{name} is {_said(event[name])}, expected a whole number up to {_LAST_EXACT:,}"
    if "time" in event and not _is_number(event["time"]):
        return f"time is {_said(event['time'])}, expected seconds"
    figures = event.get("figures", {})
    if not isinstance(figures, dict):
        return "figures is no object"
    large = (name for name, value in {**figures, **event}.items() if type(value) is int and not _is_number(value))
    return next((f"{name} is no number that float64 has" for name in large), None)


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:
        return False


def _said(value: Any) -> str:
    return "too large or below 0" if type(value) is int else named(str(value)[:60])


def _plain(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
