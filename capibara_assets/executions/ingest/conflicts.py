"""Lines whose execution id belongs to another execution: known once all lines are, so read again for the quarantine."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.executions.formats.detection import read_parts
from capibara_assets.executions.formats.envelope_reader import Fault, Recorded
from capibara_assets.executions.formats.lines import Line, LineReader
from capibara_assets.executions.ingest.file_plan import Plan
from capibara_assets.executions.ingest.intake import quarantined

CONFLICT = "conflicting_execution_id"


def conflict_rows(conflicts: pl.DataFrame, planned: Plan, held: pl.DataFrame, now: datetime) -> list[dict[str, Any]]:
    """Rows of the quarantine for lines in conflict; those that it `held` before are kept as they are."""
    before = {(row["file"], row["line"], row["detail"]): row for row in held.iter_rows(named=True)}
    rows: list[dict[str, Any]] = []
    for (number,), lost in conflicts.partition_by("file", as_dict=True).items():
        name = planned.names[int(number)]
        fresh = []
        for row in lost.iter_rows(named=True):
            holder = f"{planned.names[row['at_file']]}:{row['at_line']}"
            detail = f"the execution id {row['execution_id']!r} belongs to another execution ({holder})"
            known = before.get((name, row["line"], detail))
            if known is not None:
                rows.append(known)
            else:
                fresh.append((row["line"], row["offset"], row["execution_id"], detail))
        texts = _texts(planned.paths[name], {line for line, *_ in fresh}, now) if fresh else {}
        for line, offset, execution_id, detail in fresh:
            rows.append(quarantined(name, line, offset, Fault(CONFLICT, detail), texts.get((line, execution_id), b"")))
    return rows


def _texts(path: Path, wanted: set[int], now: datetime) -> dict[tuple[int, str], bytes]:
    """(line, execution id) -> the bytes that hold the execution."""
    found: dict[tuple[int, str], bytes] = {}
    for line in read_lines(path, wanted):
        for part in read_parts(line.data, now):
            if isinstance(part.found, Recorded):
                found[line.number, part.found.execution_id] = part.data
    return found


def read_lines(path: Path, wanted: set[int]) -> Iterator[Line]:
    """Some lines of a log as the ingest sees them (a document is line 1); none where the file is gone."""
    from capibara_assets.executions.ingest.intake import source_lines

    last = max(wanted, default=0)
    try:
        for line in source_lines(LineReader(path)):
            if line.number in wanted:
                yield line
            if line.number >= last:
                return
    except FileNotFoundError:
        return
