"""Quarantined lines read again from their source: what is kept of them is redacted, only the source can be mended."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from capibara_assets.executions.formats.detection import read_parts
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets.executions.ingest.conflicts import CONFLICT, read_lines
from capibara_assets.executions.secrets.redact import keyed_digest


@dataclass(frozen=True)
class Retried:
    """What a quarantined line holds now: `valid`, a reason, `other_content`, or `source_gone`."""

    quarantine_id: str
    file: str
    line: int
    reason: str
    outcome: str


def retry(folder: Path, rows: Sequence[Mapping[str, Any]], now: datetime) -> list[Retried]:
    """Reads the lines of quarantine `rows` again, from their files below `folder`."""
    by_file: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_file.setdefault(row["file"], []).append(row)
    found = []
    for name, of_file in sorted(by_file.items()):
        lines = {line.number: line.data for line in read_lines(folder / name, {row["line"] for row in of_file})}
        found += [
            Retried(row["quarantine_id"], name, row["line"], row["reason"], _outcome(folder / name, row, lines, now))
            for row in of_file
        ]
    return found


def _outcome(path: Path, row: Mapping[str, Any], lines: Mapping[int, bytes], now: datetime) -> str:
    if not path.is_file():
        return "source_gone"
    if row["line"] == 0:
        return str(row["reason"])  # of the file as a whole: the next look judges it again
    data = lines.get(row["line"])
    if data is None:
        return "source_gone"
    parts = list(read_parts(data, now))
    # a line that says something else now is judged by what it says; one part of several by its own bytes
    same = [part for part in parts if keyed_digest(part.data) == row["digest"]] or parts
    faults = [part.found.reason for part in same if isinstance(part.found, Fault)]
    if faults:
        return faults[0]
    if row["reason"] == CONFLICT and keyed_digest(data) == row["digest"]:
        return CONFLICT  # valid in itself; only the next look knows all ids
    return "valid" if any(isinstance(part.found, Recorded) for part in same) else "other_content"


def files_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({row["file"] for row in rows})
