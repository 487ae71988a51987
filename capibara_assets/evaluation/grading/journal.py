"""The journal of grades: one JSON line per verdict, from which an interrupted grading resumes."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from capibara_assets.errors import InputError
from capibara_assets.evaluation.grading.plan import ItemCalibration, Verdict
from capibara_assets.executions.recording.journal import Journal
from capibara_assets.storage.digests import canonical_json, sha256_bytes

_SUM = 16


class GradeJournal:
    """An append-only file of verdicts, keyed by a digest of everything they depend on; read once, when opened.

    Attributes:
        damaged: lines that are not whole (of a killed grading); their verdicts are graded again.

    Raises:
        InputError: the file cannot be read, or its name does not end in `.jsonl`.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix != ".jsonl":
            raise InputError(f"{path} is no name for a journal of grades: it has to end in .jsonl")
        self._journal = Journal(path)
        self.damaged = 0
        self._lines: dict[str, dict[str, Any]] = {}
        parts = sorted(path.parent.glob(f"{path.stem}.*.jsonl")) if path.parent.is_dir() else []
        for part in (path, *parts):
            try:
                data = part.read_bytes() if part.exists() else b""
            except OSError as error:
                raise InputError(f"cannot read the journal of grades {part}: {error.strerror}") from error
            for line in data.split(b"\n"):
                if line:
                    self._read(line)

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

    def close(self) -> None:
        """Close the file."""
        self._journal.close()

    def _add(self, key: str, entry: Mapping[str, Any]) -> None:
        line = {"key": key, **entry}
        self._journal.append(canonical_json(line | {"sum": _checksum(line)}).rstrip(b"\n"), datetime.now(UTC))

    def _read(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            whole = entry.pop("sum") == _checksum(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if whole:
            self._lines[entry["key"]] = entry
        else:
            self.damaged += 1


def _checksum(entry: Mapping[str, Any]) -> str:
    return sha256_bytes(canonical_json(dict(entry)))[:_SUM]
