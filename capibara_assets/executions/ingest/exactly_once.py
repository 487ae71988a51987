"""Exactly once: of all lines that hold an execution, which one the table takes, whatever was read when.

A pure function of the lines that are known, so that the same logs give the same table after any history of looks: of
one id the earliest execution (by time, then content) is taken; equal ones are duplicates, whose first place (by path
and line) is named; others conflict. Done by partitions of ids, then of code (for novelty), in bounded memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from capibara_assets.executions.ingest.forgotten import NOTHING, Forgotten
from capibara_assets.executions.ingest.intake import INDEX, partitions
from capibara_assets.executions.ingest.spill import Spill

# what is known of a line before this look: whether its file is gone, and which copy of its code it was in the table
KNOWN: dict[str, pl.DataType] = INDEX | {"gone": pl.Boolean(), "copy": pl.Int64()}
_ORDER = ("timestamp", "content", "gone", "file", "line", "part")


@dataclass
class Settled:
    """What was decided: totals, what became of the lines of each file, and the lines in conflict."""

    executions: int = 0
    ids: list[str] = field(default_factory=list)  # a sample of them
    left: set[str] = field(default_factory=set)  # sandboxes that lose a line to another one
    by_file: list[pl.DataFrame] = field(default_factory=list)  # file, kept, duplicates
    conflicts: list[pl.DataFrame] = field(default_factory=list)  # execution_id, file, line, offset, at_file, at_line
    forgotten: list[tuple[int, int]] = field(default_factory=list)  # file, line of what tombstones keep out


def settle(
    spill: Spill, indexes: int, sample: int, stale: bool, forgotten: Forgotten = NOTHING, checked: bool = False
) -> Settled:
    """Reads `index` partitions; leaves `taken` (with the column `copy_now`) and `others`, all other lines.

    Args:
        sample: about one id in so many is kept in the sample.
        stale: what is remembered of files that are gone was read by other code, and gives way to any line.
        forgotten: what must not come back; a sandbox that loses a line to it is made anew.
        checked: the last table was made under the same tombstones: only what it does not hold is asked about.
    """
    order = ("execution_id", "gone", *_ORDER) if stale else ("execution_id", *_ORDER)
    settled = Settled()
    for part in range(indexes):
        rows = spill.frame("index", part, KNOWN)
        spill.drop("index", part)
        if forgotten:
            rows = _without(rows, forgotten, checked, settled)
        _settle_ids(spill, part, rows.sort(order), indexes, settled, sample)
    spill.flush()
    for part in range(indexes):
        rows = spill.frame("by_code", part, KNOWN).sort("code", "timestamp", "execution_id")
        spill.drop("by_code", part)
        copy = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("code")
        spill.add("taken", part, rows.with_columns(copy_now=copy))
    spill.flush()
    return settled


def _without(rows: pl.DataFrame, forgotten: Forgotten, checked: bool, settled: Settled) -> pl.DataFrame:
    suspect = rows.filter(pl.col("copy").is_null()) if checked else rows
    gone = forgotten.of_lines(suspect)
    dropped = suspect.filter(gone)
    settled.left |= set(dropped.filter(pl.col("copy").is_not_null())["sandbox_id"])
    settled.forgotten += dropped.filter(~pl.col("gone")).select("file", "line").rows()
    stay = rows.filter(pl.col("copy").is_not_null()) if checked else rows.clear()
    return pl.concat([stay, suspect.filter(~gone)])


def _settle_ids(spill: Spill, part: int, rows: pl.DataFrame, indexes: int, settled: Settled, sample: int) -> None:
    first = rows["execution_id"].is_first_distinct()
    others = rows.filter(~first)
    settled.left |= set(others.filter(pl.col("copy").is_not_null())["sandbox_id"])
    # of files that are gone only what the table holds is remembered
    others = others.filter(~pl.col("gone"))
    taken = rows.filter(first)
    settled.executions += taken.height
    settled.ids += taken["execution_id"].gather_every(sample).to_list()
    at = taken.select("execution_id", at_content="content", at_file="file", at_line="line")
    marked = others.join(at, on="execution_id").with_columns(same=pl.col("content") == pl.col("at_content"))
    kept = taken.filter(~pl.col("gone")).select("file", kept=1, duplicates=0)
    settled.by_file.append(
        pl.concat([kept, marked.select("file", kept=0, duplicates=pl.col("same").cast(pl.Int32))])
        .group_by("file")
        .agg(pl.col("kept", "duplicates").cast(pl.Int64).sum())
    )
    conflict = marked.filter(~pl.col("same"))
    settled.conflicts.append(conflict.select("execution_id", "file", "line", "offset", "at_file", "at_line"))
    for code_part, frame in partitions(taken.select(list(KNOWN)), "code", indexes):
        spill.add("by_code", code_part, frame)
    spill.add("others", part, others.select(list(KNOWN)).with_columns(copy=pl.lit(None, dtype=pl.Int64)))


def taken(spill: Spill, indexes: int) -> Iterator[pl.DataFrame]:
    """What the table takes, by partitions: what is KNOWN (`copy` from the last table) and `copy_now`."""
    for part in range(indexes):
        yield spill.frame("taken", part, KNOWN | {"copy_now": pl.Int64()})


def lines(spill: Spill, indexes: int) -> Iterator[pl.DataFrame]:
    """All lines, as the next look wants to know them."""
    for frame in taken(spill, indexes):
        yield frame.with_columns(copy=pl.col("copy_now")).drop("copy_now")
    for part in range(indexes):
        yield spill.frame("others", part, KNOWN)
