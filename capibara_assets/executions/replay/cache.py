"""Cache of replay verdicts: one line each in one file, with digests and verdicts only, no code and no output.

A reason's name (a module, a variable) is stored as its position in the code. Writers append whole lines, so several may
write at once; a line with a wrong checksum is skipped and counted, and its verdict is computed again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.executions.replay.verdicts import REASONS, ReplayFinding
from capibara_assets.storage.digests import canonical_json, sha256_bytes

FILE = "replay-verdicts.jsonl"
_SUM = 16  # hex digits of a line's checksum


@dataclass(frozen=True)
class CachedVerdict:
    """One verdict: the finding (None: the recorded output came again) and the digest of the output."""

    finding: ReplayFinding | None
    output_digest: str | None


class ReplayVerdictCache:
    """The cached verdicts in a folder; the file is read once, when the cache is opened.

    Raises:
        InputError: the folder or its file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self.damaged = 0
        self._lines: dict[str, dict[str, Any]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            data = self._path.read_bytes() if self._path.exists() else b""
        except OSError as error:
            raise InputError(
                f"cannot use the cache of re-execution verdicts {self._path}: {error.strerror}. "
                "Remove it (verdicts are made again) or give another folder"
            ) from error
        self._torn = bool(data) and not data.endswith(b"\n")
        for line in data.split(b"\n"):
            if line:
                self._read(line)

    def _read(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            checksum = entry.pop("sum")
            sound = checksum == _checksum(entry) and (entry["kind"] is None or entry["kind"] in REASONS)
        except (ValueError, KeyError, TypeError, AttributeError):
            sound = False
        if sound:
            self._lines[entry["key"]] = entry
        else:
            self.damaged += 1

    def get(self, key: str, cells: Sequence[str]) -> CachedVerdict | None:
        """The verdict under a key; names are restored from `cells`. None when there is none."""
        entry = self._lines.get(key)
        if entry is None:
            return None
        if entry["kind"] is None:
            return CachedVerdict(None, entry["output"])
        name = entry["error"]
        if entry["place"] is not None:
            cell, start, stop = entry["place"]
            name = cells[cell][start:stop]
        return CachedVerdict(ReplayFinding(entry["kind"], name, entry["early"]), entry["output"])

    def add(self, verdicts: Mapping[str, tuple[CachedVerdict, Sequence[str]]]) -> None:
        """Appends verdicts (key -> verdict and the cells it is about)."""
        if not verdicts:
            return
        lines = [_line(key, verdict, cells) for key, (verdict, cells) in verdicts.items()]
        data = (b"\n" if self._torn else b"") + b"".join(lines)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)
        self._torn = False


def _line(key: str, verdict: CachedVerdict, cells: Sequence[str]) -> bytes:
    finding = verdict.finding
    name = finding.name if finding else None
    place = None if name is None else _place(name, cells)
    entry = {
        "key": key,
        "kind": finding.kind if finding else None,
        "early": finding.early if finding else False,
        "place": place,
        "error": name if place is None else None,  # a well-known error class: no text of the code
        "output": verdict.output_digest,
    }
    return canonical_json(entry | {"sum": _checksum(entry)})


def _place(name: str, cells: Sequence[str]) -> list[int] | None:
    for number, cell in enumerate(cells):
        start = cell.find(name)
        if start >= 0:
            return [number, start, start + len(name)]
    return None


def _checksum(entry: Mapping[str, Any]) -> str:
    return sha256_bytes(canonical_json(dict(entry)))[:_SUM]
