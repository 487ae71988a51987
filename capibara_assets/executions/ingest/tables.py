"""Writes the tables of one ingest run in the order of their keys, a range of keys at a time."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from capibara_assets.domains import DOMAINS
from capibara_assets.executions.ingest.duplicates import KNOWN, Deduplication, index_rows, kept_lines
from capibara_assets.executions.ingest.file_plan import ReadPlan
from capibara_assets.executions.ingest.forgotten import NOTHING, Forgotten, count_forgotten
from capibara_assets.executions.ingest.intake import FileRead
from capibara_assets.executions.ingest.ledger import (
    EXECUTIONS,
    FILES,
    INDEX,
    QUARANTINE,
    SEEN_SECRETS,
    SUMMARY,
    LedgerGeneration,
    ledger_table,
)
from capibara_assets.executions.ingest.quarantine import CONFLICT, conflict_rows
from capibara_assets.executions.ingest.sandbox_rows import NAMES, SHOWN_NAMES, redacted_elsewhere, schema, scored_again
from capibara_assets.executions.ingest.spill import Spill
from capibara_assets.executions.schema import LogFile, Quarantined
from capibara_assets.executions.secrets.redact import digest_key, redaction_report
from capibara_assets.executions.secrets.seen import SEEN, SeenSecrets, seen_rows
from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.storage.records import conform, polars_schema

ROW_GROUP = 16_384


@dataclass(frozen=True)
class TableInputs:
    """Everything that the tables are made from."""

    spill: Spill
    indexes: int
    plan: ReadPlan
    deduplication: Deduplication
    reads: dict[str, FileRead]
    ranges: list[str]
    base: LedgerGeneration | None
    changed: set[str] | None  # sandboxes whose rows are rebuilt; None: all
    forgotten: Forgotten = NOTHING


def write_tables(folder: Path, inputs: TableInputs, labelled: bool, now: datetime) -> dict[str, Any]:
    """Writes executions, quarantine, files, index and summary to `folder`; returns the summary."""
    seen, new = _seen(inputs)
    seen.write_parquet(folder / SEEN_SECRETS)
    known = SeenSecrets.of(seen, digest_key())
    fresh = SeenSecrets.of(new, digest_key())
    write_sorted(folder / EXECUTIONS, schema(labelled), lambda: _executions(inputs, labelled, known, fresh))
    quarantine = _quarantine(inputs, now)
    quarantine = quarantine.with_columns(
        pl.Series("text", [known.replaced(t) for t in quarantine["text"]], dtype=pl.String)
    )
    quarantine.write_parquet(folder / QUARANTINE, row_group_size=ROW_GROUP)
    files = _files(inputs, quarantine)
    files.write_parquet(folder / FILES)
    write_sorted(folder / INDEX, KNOWN, lambda: index_rows(inputs.spill, inputs.indexes))
    entries: Counter[str] = Counter()
    for read in inputs.reads.values():
        entries.update(read.known)
    summary = _summary(pl.scan_parquet(folder / EXECUTIONS), quarantine, files, labelled)
    summary |= {"known": dict(sorted(entries.items()))}
    write_json_atomic(folder / SUMMARY, summary)
    return summary


def write_sorted(path: Path, columns: dict[str, Any], frames: Callable[[], Iterator[pl.DataFrame]]) -> None:
    """Writes frames in their order as one Parquet file with equal row groups: its bytes depend on the rows alone."""

    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        held = pl.DataFrame(schema=columns)
        for frame in frames():
            held = pl.concat([held, frame.select(list(columns))])
            while len(held) >= ROW_GROUP:
                yield held.head(ROW_GROUP).rechunk()
                held = held.slice(ROW_GROUP)
        yield held.rechunk()

    rows = register_io_source(source, schema=columns)
    rows.sink_parquet(path, compression="zstd", compression_level=1, row_group_size=ROW_GROUP, maintain_order=True)


def _seen(inputs: TableInputs) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The values that were redacted so far, and those of them that the last table's rows were not searched for.

    A value that names an execution, a sandbox, a file or a tenant is none of them: called a secret by another author,
    it would disappear from everybody's texts, or stop everybody's tables.
    """
    # of two names for one value the telling one stays
    found = inputs.spill.frame("seen", 0, SEEN).sort("digest", pl.col("kind") == "SECRET", "kind")
    before = inputs.base.seen() if inputs.base else pl.DataFrame(schema=SEEN)
    new = found.unique("digest", keep="first").join(before, on="digest", how="anti").sort("digest")
    for lines in kept_lines(inputs.spill, inputs.indexes) if new.height else ():
        lengths = new["length"].implode()
        names = pl.concat([lines["execution_id"], lines["sandbox_id"]]).unique()
        names = names.filter(names.str.len_chars().is_in(lengths))
        new = new.join(seen_rows(((name, "") for name in names), digest_key()), on="digest", how="anti")
    seen = pl.concat([before, new])
    if not (in_names := seen_rows(_in_names(inputs, SeenSecrets.of(seen, digest_key())), digest_key())).is_empty():
        seen, new = (rows.join(in_names, on="digest", how="anti") for rows in (seen, new))
    return seen.sort("digest"), new


def _in_names(inputs: TableInputs, known: SeenSecrets) -> Iterator[tuple[str, str]]:
    """The known values that are in a name of a file, a tenant or a licence, with no kind."""
    if not known:
        return
    names = [pl.Series(inputs.plan.names, dtype=pl.String), inputs.spill.frame("names", 0, NAMES)["name"]]
    if inputs.base:
        with ledger_table(inputs.base.executions) as table:
            told = table.select(SHOWN_NAMES).unique().collect()
        names += [told[name].drop_nulls() for name in SHOWN_NAMES]
    every = pl.concat([each.rename("name") for each in names]).unique()
    for name in every.filter(known.holding(every)):
        yield from ((name[one.start : one.end], "") for one in known.find(name))


def _executions(inputs: TableInputs, labelled: bool, known: SeenSecrets, fresh: SeenSecrets) -> Iterator[pl.DataFrame]:
    """The table's rows by ranges of ids: new ones, and those of the last table whose sandbox has not changed.

    Args:
        known: values that were redacted in any session, to be replaced in new rows.
        fresh: those of them that are to be replaced in the last table's rows.
    """
    columns = schema(labelled)
    changed = pl.Series("sandbox_id", sorted(inputs.changed or ()), dtype=pl.String).to_frame()
    before = _by_range(inputs.base.executions, inputs.ranges) if inputs.base else None
    moved = pl.col("copy") != pl.col("copy_now")
    lines = kept_lines(inputs.spill, inputs.indexes) if before is not None else iter(())
    copies = [rows.filter(moved).select("execution_id", "copy_now") for rows in lines]
    for number in range(len(inputs.ranges)):
        frame = redacted_elsewhere(inputs.spill.frame("out", number, columns), known)
        inputs.spill.drop("out", number)
        if before is not None:
            old = next(before).join(changed, on="sandbox_id", how="anti")
            old = scored_again(old, pl.concat(copies)) if labelled else old
            frame = pl.concat([frame, redacted_elsewhere(old.select(list(columns)), fresh)])
        yield frame.sort("execution_id")


def _by_range(table: Path, ranges: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The rows of a table that is sorted by execution id, a range at a time; each of its row groups is read once."""
    with ledger_table(table) as scan:
        rows, at = scan.select(pl.len()).collect().item(), 0
        held = scan.head(0).collect()
        for end in (*ranges[1:], None):
            while at < rows and (end is None or held.is_empty() or held["execution_id"][-1] < end):
                held = pl.concat([held, scan.slice(at, ROW_GROUP).collect()])
                at += ROW_GROUP
            cut = held.height if end is None else held["execution_id"].search_sorted(end)
            yield held.head(cut)
            held = held.slice(cut)


def _quarantine(inputs: TableInputs, now: datetime) -> pl.DataFrame:
    """Faults of this run, those of the last run in lines that were not read again, and lines with a conflicting id."""
    columns = polars_schema(Quarantined)
    frames = [inputs.spill.frame("quarantine", 0, columns)]
    held = pl.DataFrame(schema=columns)
    if inputs.base is not None:
        with ledger_table(inputs.base.quarantine) as table:
            held = table.collect()
        stands = pl.DataFrame(
            list(inputs.plan.kept.items()), schema={"file": pl.String, "until": pl.Int64}, orient="row"
        )
        held = held.join(stands, on="file").filter(pl.col("line") < pl.col("until")).select(list(columns))
        # faults of a whole file are found again where its end is read
        whole_again = [task.name for task in inputs.plan.tasks]
        held = held.filter((pl.col("line") > 0) | ~pl.col("file").is_in(whole_again))
        frames.append(held.filter(pl.col("reason") != CONFLICT))
    conflicts = pl.concat(inputs.deduplication.conflicts)
    rows = conflict_rows(conflicts, inputs.plan, held.filter(pl.col("reason") == CONFLICT), now)
    frames.append(pl.DataFrame(rows, schema=columns))
    every = pl.concat(frames).unique("quarantine_id", keep="any")
    if inputs.forgotten:
        gone = inputs.forgotten.of_quarantine(every)
        count_forgotten(inputs.reads, every.filter(gone).select("file", "line").filter(pl.col("line") > 0).rows())
        every = every.filter(~gone)
    return conform(Quarantined, every)


def _files(inputs: TableInputs, quarantine: pl.DataFrame) -> pl.DataFrame:
    """A row of LogFile for each file."""
    numbers = {name: number for number, name in enumerate(inputs.plan.names)}
    counted = pl.concat(inputs.deduplication.by_file).group_by("file").sum()
    kept_by_file = {row[0]: row[1:] for row in counted.select("file", "kept", "duplicates").iter_rows()}
    faults = dict(quarantine["file"].value_counts().iter_rows())
    rows = []
    for name, read in inputs.reads.items():
        kept, duplicates = kept_by_file.get(numbers[name], (0, 0))
        rows.append(
            {
                "path": name,
                "kind": read.kind,
                "bytes": read.size,
                "digest": read.digest,
                "lines": read.lines + read.last_lines,
                "kept": kept,
                "quarantined": faults.get(name, 0),
                "duplicates": duplicates,
                "ignored": read.ignored + read.last_ignored,
                "pending": read.pending,
                "forgotten": read.forgotten + read.last_forgotten,
            }
        )
    return conform(LogFile, pl.DataFrame(rows, schema=polars_schema(LogFile)))


def _by_kind(executions: pl.LazyFrame) -> dict[str, dict[str, int]]:
    """Kind -> places, distinct values and sandboxes of the secrets that were replaced; never a secret."""
    return {row.pop("kind"): row for row in redaction_report(executions).iter_rows(named=True)}


def _summary(executions: pl.LazyFrame, quarantine: pl.DataFrame, files: pl.DataFrame, labelled: bool) -> dict[str, Any]:
    """Counts for the run's report."""

    def by(column: str) -> dict[str, int]:
        counted = executions.group_by(column).agg(pl.len()).collect(engine="streaming")
        return {name: int(n) for name, n in sorted(counted.iter_rows())}

    totals = executions.select(
        executions=pl.len(),
        sandboxes=pl.col("sandbox_id").n_unique(),
        secrets=pl.col("secrets").sum(),
        newest=pl.col("timestamp").max(),
    ).collect(engine="streaming")
    row = totals.row(0, named=True)
    summary: dict[str, Any] = {
        "executions": row["executions"],
        "sandboxes": row["sandboxes"],
        "quarantined": len(quarantine),
        "reasons": dict(sorted(Counter(quarantine["reason"].to_list()).items())),
        "files": len(files),
        "logs": int((files["kind"] == "executions").sum()),
        "lines": int(files["lines"].sum()),
        "duplicates": int(files["duplicates"].sum()),
        "ignored": int(files["ignored"].sum()),
        "pending": int(files["pending"].sum()),
        "forgotten": int(files["forgotten"].sum()),
        "secrets": int(row["secrets"]),
        "secrets_by_kind": _by_kind(executions) if row["secrets"] else {},
        "by_outcome": by("outcome"),
        "by_language": by("language"),
        "newest": None if row["newest"] is None else row["newest"].isoformat(),
    }
    if labelled:
        label = pl.col("domains")
        counted = executions.select(
            *(label.list.contains(str(domain)).sum().alias(str(domain)) for domain in DOMAINS),
            no_domain=(label.list.len() == 0).sum(),
        ).collect(engine="streaming")
        by_domain = {name: int(value) for name, value in counted.row(0, named=True).items()}
        summary |= {"no_domain": by_domain.pop("no_domain"), "by_domain": by_domain}
    return summary
