"""Deduplication: of all lines that hold an execution, the one line per execution id whose row enters the table.

The choice is a pure function of the known lines, so the same logs give the same table after any sequence of ingest
runs. Per id the earliest execution (by time, then content) is kept; equal ones count as duplicates, as does one whose
outcome was not known yet, and the first place (by path and line) is named as the source; others conflict. It is
computed by partitions of ids, then of code (for novelty), so memory stays bounded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from capibara_assets.executions.ingest.forgotten import NOTHING, Forgotten
from capibara_assets.executions.ingest.intake import INDEX, UNSURE, split_by_hash
from capibara_assets.executions.ingest.spill import Spill

# what is known of a line before this run: whether its file is gone, and which copy of its code it was in the table
KNOWN: dict[str, pl.DataType] = INDEX | {"gone": pl.Boolean(), "copy": pl.Int64()}
_ORDER = ("timestamp", "content", "gone", "file", "line", "part")


@dataclass
class Deduplication:
    """Which lines were kept: totals, counts by file, lines in conflict, and the sandboxes that lost a line."""

    executions: int = 0
    ids: list[str] = field(default_factory=list)  # a sample of the kept ids
    losing_sandboxes: set[str] = field(default_factory=set)  # with a line in the last table that is not kept now
    by_file: list[pl.DataFrame] = field(default_factory=list)  # file, kept, duplicates
    conflicts: list[pl.DataFrame] = field(default_factory=list)  # execution_id, file, line, offset, at_file, at_line
    forgotten: list[tuple[int, int]] = field(default_factory=list)  # (file, line) that tombstones keep out


def resolve_duplicates(
    spill: Spill,
    indexes: int,
    sample: int,
    stale: bool,
    forgotten: Forgotten = NOTHING,
    checked: bool = False,
    left: pl.Series | None = None,
) -> Deduplication:
    """Splits the spilled `index` into `kept` (with the column `copy_now`) and `others`, the lines that are not kept.

    Args:
        sample: about one id in so many enters the sample.
        stale: what is remembered of files that are gone was read by another version, and yields to any line.
        forgotten: what must not come back; a sandbox that loses a line to it is rebuilt.
        checked: the last table was made under the same tombstones, so only lines outside it are checked.
        left: ids in the last table of tenants that were forgotten since.
    """
    order = ("execution_id", "gone", *_ORDER) if stale else ("execution_id", *_ORDER)
    result = Deduplication()
    for part in range(indexes):
        rows = spill.frame("index", part, KNOWN)
        spill.drop("index", part)
        if forgotten:
            rows = _without_forgotten(rows, forgotten, checked, left, result)
        _resolve_ids(spill, part, rows.sort(order), indexes, result, sample)
    spill.flush()
    for part in range(indexes):
        rows = spill.frame("by_code", part, KNOWN).sort("code", "timestamp", "execution_id")
        spill.drop("by_code", part)
        copy = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("code")
        spill.add("kept", part, rows.with_columns(copy_now=copy))
    spill.flush()
    return result


def _without_forgotten(
    rows: pl.DataFrame, forgotten: Forgotten, checked: bool, left: pl.Series | None, result: Deduplication
) -> pl.DataFrame:
    suspect = rows.filter(pl.col("copy").is_null()) if checked else rows
    gone = forgotten.of_lines(suspect)
    if left is not None:
        gone = gone | suspect["execution_id"].is_in(left.implode())
    dropped = suspect.filter(gone)
    result.losing_sandboxes |= set(dropped.filter(pl.col("copy").is_not_null())["sandbox_id"])
    result.forgotten += dropped.filter(~pl.col("gone")).select("file", "line").rows()
    stay = rows.filter(pl.col("copy").is_not_null()) if checked else rows.clear()
    return pl.concat([stay, suspect.filter(~gone)])


def _resolve_ids(spill: Spill, part: int, rows: pl.DataFrame, indexes: int, result: Deduplication, sample: int) -> None:
    """Keeps the first of the sorted `rows` with each id, and counts the others as duplicates or conflicts."""
    first = rows["execution_id"].is_first_distinct()
    others = rows.filter(~first)
    result.losing_sandboxes |= set(others.filter(pl.col("copy").is_not_null())["sandbox_id"])
    # of files that are gone only what the table holds is remembered
    others = others.filter(~pl.col("gone"))
    kept = rows.filter(first)
    result.executions += kept.height
    result.ids += kept["execution_id"].gather_every(sample).to_list()
    at = kept.select("execution_id", at_content="content", at_file="file", at_line="line")
    marked = others.join(at, on="execution_id").with_columns(
        same=(pl.col("content") == pl.col("at_content")) | pl.col("content").bin.starts_with(UNSURE)
    )
    counted = kept.filter(~pl.col("gone")).select("file", kept=1, duplicates=0)
    result.by_file.append(
        pl.concat([counted, marked.select("file", kept=0, duplicates=pl.col("same").cast(pl.Int32))])
        .group_by("file")
        .agg(pl.col("kept", "duplicates").cast(pl.Int64).sum())
    )
    conflict = marked.filter(~pl.col("same"))
    result.conflicts.append(conflict.select("execution_id", "file", "line", "offset", "at_file", "at_line"))
    for code_part, frame in split_by_hash(kept.select(list(KNOWN)), "code", indexes):
        spill.add("by_code", code_part, frame)
    spill.add("others", part, others.select(list(KNOWN)).with_columns(copy=pl.lit(None, dtype=pl.Int64)))


def kept_lines(spill: Spill, indexes: int) -> Iterator[pl.DataFrame]:
    """The kept lines by partitions: columns of KNOWN (`copy` as in the last table) and `copy_now`."""
    for part in range(indexes):
        yield spill.frame("kept", part, KNOWN | {"copy_now": pl.Int64()})


def index_rows(spill: Spill, indexes: int) -> Iterator[pl.DataFrame]:
    """All lines, kept or not, as rows of the ledger's index."""
    for frame in kept_lines(spill, indexes):
        yield frame.with_columns(copy=pl.col("copy_now")).drop("copy_now")
    for part in range(indexes):
        yield spill.frame("others", part, KNOWN)
