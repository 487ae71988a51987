"""Quarantined lines, read again from their log: to add id conflicts to the quarantine, and to retry what is in it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.executions.formats.detection import read_parts
from capibara_assets.executions.formats.envelope_reader import Fault, Recorded
from capibara_assets.executions.formats.lines import LineReader, LogLine
from capibara_assets.executions.formats.opening import lines_at, source_lines
from capibara_assets.executions.ingest.file_plan import ReadPlan
from capibara_assets.executions.ingest.intake import quarantine_row, shown_reason
from capibara_assets.executions.secrets.redact import keyed_digest
from capibara_assets.processes.progress import tracked

CONFLICT = "conflicting_execution_id"


def conflict_rows(
    conflicts: pl.DataFrame, plan: ReadPlan, earlier: pl.DataFrame, now: datetime
) -> list[dict[str, Any]]:
    """Quarantine rows for lines whose execution id belongs to another execution.

    Conflicts are known only after all lines were read, so these lines are read a second time for their text. A conflict
    that has a row in `earlier`, the previous run's quarantine, keeps that row and is not read.
    """
    before = {(row["file"], row["line"], row["detail"]): row for row in earlier.iter_rows(named=True)}
    rows: list[dict[str, Any]] = []
    for (number,), lost in conflicts.partition_by("file", as_dict=True).items():
        name = plan.names[int(number)]
        fresh = []
        for row in lost.iter_rows(named=True):
            holder = f"{plan.names[row['at_file']]}:{row['at_line']}"
            detail = f"the execution id {row['execution_id']!r} belongs to another execution ({holder})"
            if (known := before.get((name, row["line"], detail))) is not None:
                rows.append(known)
            else:
                fresh.append((row["line"], row["offset"], row["execution_id"], detail))
        texts = _texts(plan.paths[name], {line: offset for line, offset, *_ in fresh}, now) if fresh else {}
        for line, offset, execution_id, detail in fresh:
            text = texts.get((line, execution_id), b"")
            rows.append(quarantine_row(name, line, offset, Fault(CONFLICT, detail), text))
    return rows


def _texts(path: Path, wanted: dict[int, int], now: datetime) -> dict[tuple[int, str], bytes]:
    """(line, execution id) -> the bytes that hold the execution; none where the file is gone."""
    texts: dict[tuple[int, str], bytes] = {}
    with suppress(FileNotFoundError):
        for line in lines_at(path, wanted):
            for part in read_parts(line.data, now):
                if isinstance(part.content, Recorded):
                    texts[line.number, part.content.execution_id] = part.data
    return texts


def read_lines(path: Path, wanted: set[int]) -> Iterator[LogLine]:
    """The lines of a log with these numbers (a document is line 1); none where the file is gone."""
    last = max(wanted, default=0)
    try:
        for line in source_lines(LineReader(path)):
            if line.number in wanted:
                yield line
            if line.number >= last:
                return
    except FileNotFoundError:
        return


# --- retry: the quarantine keeps redacted text, so only the source line can show whether it is valid now ------------


@dataclass(frozen=True)
class RetriedLine:
    """A quarantined line after it was read again; `outcome`: `valid`, a reason, `other_content`, or `source_gone`."""

    quarantine_id: str
    file: str
    line: int
    reason: str
    outcome: str


def retry(folder: Path, rows: Sequence[Mapping[str, Any]], now: datetime) -> list[RetriedLine]:
    """Reads the source lines of quarantine `rows` again, from their files below `folder`."""
    by_file: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_file.setdefault(row["file"], []).append(row)
    retried = []
    for name, of_file in tracked(sorted(by_file.items()), "files"):
        lines = {line.number: line.data for line in read_lines(folder / name, {row["line"] for row in of_file})}
        retried += [
            RetriedLine(
                row["quarantine_id"], name, row["line"], row["reason"], _outcome(folder / name, row, lines, now)
            )
            for row in of_file
        ]
    return retried


def _outcome(path: Path, row: Mapping[str, Any], lines: Mapping[int, bytes], now: datetime) -> str:
    if not path.is_file():
        return "source_gone"
    if row["line"] == 0:
        return str(row["reason"])  # about the file as a whole: only the next ingest run can judge that again
    data = lines.get(row["line"])
    if data is None:
        return "source_gone"
    parts = list(read_parts(data, now))
    # a line that says something else now is judged by what it says; one part of several by its own bytes
    same = [part for part in parts if keyed_digest(part.data) == row["digest"]] or parts
    faults = [shown_reason(part.content) for part in same if isinstance(part.content, Fault)]
    if faults:
        return faults[0]
    if row["reason"] == CONFLICT and keyed_digest(data) == row["digest"]:
        return CONFLICT  # valid in itself; only the next ingest run knows all ids
    return "valid" if any(isinstance(part.content, Recorded) for part in same) else "other_content"


def files_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The distinct files that quarantine rows are about, sorted."""
    return sorted({row["file"] for row in rows})
