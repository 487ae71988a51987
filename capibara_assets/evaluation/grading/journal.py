"""The journal of grades: one JSON line per verdict, from which an interrupted grading resumes."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from capibara_assets.errors import InputError
from capibara_assets.evaluation.grading.plan import ItemCalibration, Verdict
from capibara_assets.storage.journal import append, read_lines, summed, undamaged


class GradeJournal:
    """An append-only file of verdicts, keyed by a digest of everything they depend on; read once, when opened.

    Attributes:
        damaged: lines that are not whole (of a killed grading) or were edited; their verdicts are graded again.

    Raises:
        InputError: the file cannot be read, or its name does not end in `.jsonl`.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix != ".jsonl":
            raise InputError(f"{path} is no name for a journal of grades: it has to end in .jsonl")
        self._path = path
        self.damaged = 0
        self._lines: dict[str, dict[str, Any]] = {}
        # journals of grades were continued in `.1`, `.2`, … when they were full
        for part in (path, *sorted(path.parent.glob(f"{path.stem}.*.jsonl"))):
            try:
                lines = undamaged(part, read_lines(part))
            except OSError as error:
                raise InputError(f"cannot read the journal of grades {part}: {error.strerror}") from error
            self.damaged += len(lines.damaged)
            self._lines |= {entry["key"]: entry for entry in lines.entries.values()}

    def verdict(self, key: str) -> tuple[Verdict, str] | None:
        """The verdict kept under a key, and its detail."""
        entry = self._lines.get(key, {})
        return (entry["verdict"], entry["detail"]) if entry.get("verdict") in get_args(Verdict) else None

    def calibration(self, key: str) -> ItemCalibration | None:
        """The calibration kept under a key."""
        entry = self._lines.get(key)
        if entry is None or "layout" not in entry:
            return None
        return ItemCalibration(entry["layout"], tuple(entry["whole"]), entry["known"], entry["why_not"])

    def add_verdict(self, key: str, verdict: tuple[Verdict, str]) -> None:
        """Raises OSError where the file cannot be written."""
        self._add(key, {"verdict": verdict[0], "detail": verdict[1]})

    def add_calibration(self, key: str, calibration: ItemCalibration) -> None:
        """Raises OSError where the file cannot be written."""
        self._add(key, asdict(calibration))

    def _add(self, key: str, entry: Mapping[str, Any]) -> None:
        append(self._path, summed({"key": key, **entry}))
