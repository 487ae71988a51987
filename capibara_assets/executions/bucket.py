"""The sandboxes of one partition, whole: redacted, labelled, scored, and turned into rows of the table."""

import bisect
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.executions.classify import classify_session
from capibara_assets.executions.garbage import rare_collections
from capibara_assets.executions.intake import RECORD_FIELDS, unpack
from capibara_assets.executions.quality import score
from capibara_assets.executions.readers import Recorded
from capibara_assets.executions.redact import redact_sessions
from capibara_assets.executions.repairs import find_repairs
from capibara_assets.executions.schema import Execution
from capibara_assets.executions.signals import code_facts
from capibara_assets.executions.spill import Spill
from capibara_assets.storage.records import conform, polars_schema

VERDICT = {
    "execution_id": pl.String(),
    "content": pl.Binary(),
    "source_file": pl.String(),
    "line": pl.Int64(),
    "offset": pl.Int64(),
    "copy_now": pl.Int64(),
}
LABELS = ("domains", "confidence", "evidence", "quality")
_values = attrgetter(*RECORD_FIELDS)


@dataclass(slots=True)
class _Row:
    """One execution under way."""

    record: Recorded
    verdict: tuple[Any, ...]  # in the order of VERDICT
    secrets: int = -1  # -1: to be redacted


def schema(labelled: bool) -> dict[str, pl.DataType]:
    """Columns of the executions, with labels and score or (for the bench) without."""
    return {name: kind for name, kind in polars_schema(Execution).items() if labelled or name not in LABELS}


def finish_bucket(
    spill: Spill, bucket: int, ranges: Sequence[str], base: Path | None, labelled: bool, also: Sequence[str]
) -> None:
    """Adds the bucket's executions to the partitions of `out`, by ranges of ids that begin at `ranges`."""
    wanted = {row[1]: row for row in spill.frame("verdicts", bucket, VERDICT).select(list(VERDICT)).iter_rows()}
    rows: dict[bytes, _Row] = {}
    for content, flags, blob in spill.read("records", bucket):
        if content in wanted and content not in rows:
            rows[content] = _Row(unpack(blob, flags), wanted[content])
    spill.drop("records", bucket)
    spill.drop("verdicts", bucket)
    missing = {row[0]: row for content, row in wanted.items() if content not in rows}
    sessions: dict[str, list[_Row]] = {}
    for row in [*rows.values(), *_remembered(missing, base)]:
        sessions.setdefault(row.record.sandbox_id, []).append(row)
    for session in sessions.values():
        session.sort(key=lambda row: (row.record.timestamp, row.record.execution_id))
    if sessions:
        frame = _frame([sessions[sandbox] for sandbox in sorted(sessions)], labelled, also).sort("execution_id")
        _add_by_range(spill, frame, ranges)


def _remembered(missing: Mapping[str, tuple[Any, ...]], base: Path | None) -> list[_Row]:
    """Executions whose lines cannot be read again, from the last table: redacted already."""
    if not missing:
        return []
    if base is None:
        raise RuntimeError(f"{len(missing)} executions are in the index and nowhere else")
    held = pl.scan_parquet(base).filter(pl.col("execution_id").is_in(list(missing))).collect()
    rows = []
    for row in held.iter_rows(named=True):
        record = Recorded(**{name: row[name] for name in (*RECORD_FIELDS, "flags")})
        rows.append(_Row(record, missing[record.execution_id], row["secrets"]))
    return rows


def _frame(sessions: Sequence[Sequence[_Row]], labelled: bool, also: Sequence[str]) -> pl.DataFrame:
    """Rows of whole sandboxes."""
    fresh = [[row for row in session if row.secrets < 0] for session in sessions]
    for rows, counts in zip(
        fresh, redact_sessions([[row.record for row in rows] for rows in fresh], also), strict=True
    ):
        for row, count in zip(rows, counts, strict=True):
            row.secrets = count
    every = [row for session in sessions for row in session]
    values = [_values(row.record) for row in every]
    columns: dict[str, Any] = dict(zip(RECORD_FIELDS, zip(*values, strict=True), strict=True))
    columns |= {
        "flags": lists([row.record.flags for row in every]),
        "secrets": [row.secrets for row in every],
        "record_digest": [hashlib.sha256(orjson.dumps(row)).hexdigest() for row in values],
        "source_file": [row.verdict[2] for row in every],
        "source_line": [row.verdict[3] for row in every],
        "source_offset": [row.verdict[4] for row in every],
    }
    if not labelled:
        return pl.DataFrame(columns, schema_overrides=schema(False)).select(list(schema(False)))
    with rare_collections():
        labels = [label for session in sessions for label in classify_session([row.record for row in session])]
    columns |= {
        "domains": lists([[str(domain) for domain in label.domains] for label in labels]),
        "confidence": [label.confidence for label in labels],
        "evidence": [label.evidence for label in labels],
        "quality": [
            score(row.record, code_facts(row.record.language, row.record.code), row.verdict[5]) for row in every
        ],
    }
    frame = conform(Execution, pl.DataFrame(columns, schema_overrides=schema(True)))
    return with_debug(frame, find_repairs(frame))


def lists(values: Sequence[Sequence[str]]) -> pl.Series:
    """A column of lists of words; Polars builds one from nested lists thirty times slower."""
    joined = pl.Series(["\n".join(words) for words in values], dtype=pl.String).str.split("\n")
    return joined.list.eval(pl.element().filter(pl.element() != ""))


def with_debug(executions: pl.DataFrame, repairs: pl.DataFrame) -> pl.DataFrame:
    """`executions` with the label `debug` on both executions of each repair pair, and on no others."""
    ids = pl.concat([repairs["failing_execution_id"], repairs["fixed_execution_id"]]).unique()
    others = pl.col("domains").list.set_difference([str(Domain.DEBUG)])
    paired = pl.col("execution_id").is_in(ids.implode())
    labelled = pl.when(paired).then(pl.concat_list(others, pl.lit([str(Domain.DEBUG)]))).otherwise(others)
    return executions.with_columns(labelled.alias("domains"))


def _add_by_range(spill: Spill, frame: pl.DataFrame, ranges: Sequence[str]) -> None:
    """Slices of a sorted frame to the range that each id falls in."""
    ids = frame["execution_id"]
    cuts = [bisect.bisect_left(ids, start) for start in ranges[1:]]  # type: ignore[arg-type]
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(frame)], strict=True)):
        if begin < end:
            spill.add_frame("out", number, frame.slice(begin, end - begin))
