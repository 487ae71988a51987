"""Redacts, labels and scores the whole sandboxes of one bucket, and makes them rows of the executions table."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets.executions.ingest.intake import RECORD_FIELDS, SPILLED, record_digest
from capibara_assets.executions.ingest.ledger import ledger_table
from capibara_assets.executions.ingest.spill import Spill
from capibara_assets.executions.labels.classify import classify_session
from capibara_assets.executions.labels.signals import code_facts
from capibara_assets.executions.parsing import rare_collections
from capibara_assets.executions.patterns.repairs import find_repairs
from capibara_assets.executions.quality import score
from capibara_assets.executions.schema import Execution
from capibara_assets.executions.secrets.prefilter import may_hold_secrets
from capibara_assets.executions.secrets.redact import TEXTS, digest_key, redact_sessions, redacted_names
from capibara_assets.executions.secrets.seen import SeenSecrets, seen_rows
from capibara_assets.storage.records import conform, polars_schema

KEPT_LINE = {
    "execution_id": pl.String(),
    "content": pl.Binary(),
    "source_file": pl.String(),
    "line": pl.Int64(),
    "offset": pl.Int64(),
    "copy_now": pl.Int64(),
}
OF_A_BUCKET = {"kept_lines": KEPT_LINE, "records": SPILLED}
"""Name in the spill -> columns: what nobody needs once the rows of a bucket are written."""
LABELS = ("domains", "confidence", "evidence", "quality")
_SESSION_ORDER = ("sandbox_id", "timestamp", "execution_id")
_recorded = (*RECORD_FIELDS, "flags")
_NAMES = ("agent_id", "tenant", "context_id", "template_id", "licence", "bullet_ids")
SHOWN_NAMES = ("tenant", "licence")
"""Of the names those that the last gate searches."""
NAMES = {"name": pl.String()}


def schema(labelled: bool) -> dict[str, pl.DataType]:
    """Columns of the executions table, with or without the labels and the score."""
    return {name: kind for name, kind in polars_schema(Execution).items() if labelled or name not in LABELS}


def write_sandbox_rows(
    spill: Spill, bucket: int, ranges: Sequence[str], base: Path | None, labelled: bool, also: Sequence[str]
) -> None:
    """Adds the rows of one bucket of sandboxes to the spill's `out`, by ranges of execution ids.

    Args:
        ranges: the first id of each range.
        base: the last table, which has the executions whose lines cannot be read again.
        also: personal data to redact beside secrets.
    """
    kept, read = (spill.once(name, bucket, columns) for name, columns in OF_A_BUCKET.items())
    # equal executions, also where as many kept lines are gone with their file
    read = read.join(kept, on="content", how="semi").unique("content", keep="any")
    missing = kept.join(read, on="content", how="anti")
    before = _from_last_table(missing, base)
    held = before.filter(pl.col("secrets") > 0).select(*_recorded, "content", "record_digest", "secrets")
    # where nothing was replaced the table says what was read: what is found in other lines is replaced there, too
    found: set[tuple[str, str]] = set()
    fresh = redacted(pl.concat([read, _as_read(before.filter(secrets=0))]), also, found)
    spill.add("seen", 0, seen_rows(found, digest_key()))
    fresh = fresh.with_columns(bullet_ids=lists(fresh["bullet_ids"].fill_null("")))
    rows = pl.concat([fresh, held.select(fresh.columns)]).join(kept.drop("execution_id"), on="content")
    if not rows.is_empty():
        shown = pl.concat([rows[name].rename("name") for name in SHOWN_NAMES]).drop_nulls().unique()
        spill.add("names", 0, shown.to_frame())
        rows = rows.rename({"line": "source_line", "offset": "source_offset"})
        frame = _labelled(rows) if labelled else rows
        _add_by_range(spill, frame.select(list(schema(labelled))).sort("execution_id"), ranges)


def redacted(frame: pl.DataFrame, also: Sequence[str], found: set[tuple[str, str]]) -> pl.DataFrame:
    """Replaces the secrets in rows of whole sandboxes; the new column `secrets` counts them, `flags` becomes a list.

    Only sandboxes in which the prefilter suspects a secret are examined record by record.

    Args:
        found: receives the (value, kind) of what is replaced.
    """
    plain = [_plain_names(frame[name]) for name in _NAMES]
    renamed = pl.DataFrame([name.ne_missing(frame[name.name]) for name in plain])
    frame = frame.with_columns(
        pl.col("timestamp").cast(pl.Datetime("us", "UTC")),
        *plain,
        flags=lists(frame["flags"]),
        secrets=pl.lit(0, dtype=pl.Int64),
        suspect=pl.Series(may_hold_secrets(_joined(frame).to_list(), also), dtype=pl.Boolean),
        renamed=renamed.select(pl.any_horizontal(pl.all())).to_series(),
    )
    near = (pl.col("suspect") | pl.col("renamed")).any().over("sandbox_id")
    clean = frame.filter(~near).drop("suspect", "renamed")
    held = frame.filter(near).sort(_SESSION_ORDER)
    if held.is_empty():
        return clean
    records = _records(held)
    sessions = [list(session) for _, session in groupby(records, attrgetter("sandbox_id"))]
    counts = [count for session in redact_sessions(sessions, also, held["suspect"], found) for count in session]
    columns: dict[str, Any] = {name: [getattr(record, name) for record in records] for name in TEXTS}
    counts = [count + renamed for count, renamed in zip(counts, held["renamed"], strict=True)]
    columns |= {"secrets": counts, "record_digest": [record_digest(record) for record in records]}
    replaced = held.with_columns(
        pl.Series(name, values, dtype=held.schema[name], strict=True) for name, values in columns.items()
    )
    return pl.concat([clean, replaced.select(clean.columns)])


def redacted_elsewhere(frame: pl.DataFrame, seen: SeenSecrets) -> pl.DataFrame:
    """Replaces, in rows of the table, the values that the session of another row showed to be secrets."""
    if not seen or frame.is_empty():
        return frame
    near = seen.holding(_joined(frame))
    if not near.any():
        return frame
    held = frame.filter(near)
    texts = {name: [text and seen.replaced(text) for text in held[name]] for name in TEXTS}
    counts = [len(seen.find(text)) for text in _joined(held)]
    held = held.with_columns(
        *(pl.Series(name, values, dtype=held.schema[name]) for name, values in texts.items()),
        secrets=held["secrets"] + pl.Series(counts, dtype=pl.Int64),
    )
    held = held.with_columns(record_digest=pl.Series([record_digest(record) for record in _records(held)]))
    return pl.concat([frame.filter(~near), held])


def _plain_names(names: pl.Series) -> pl.Series:
    """Names (of tenants, agents, bullets, licences), of which one that is a secret gets another."""
    changed = redacted_names(names.drop_nulls().unique().to_list())
    return names.replace(changed) if changed else names


def lists(joined: pl.Series) -> pl.Series:
    """Splits words joined by line feeds into a column of lists: thirty times cheaper than converting nested lists."""
    if not (joined != "").any():
        return pl.Series(joined.name, [[]], dtype=pl.List(pl.String)).new_from_index(0, len(joined))
    return joined.str.split("\n").list.eval(pl.element().filter(pl.element() != ""))


def with_debug(executions: pl.DataFrame, repairs: pl.DataFrame) -> pl.DataFrame:
    """`executions` with the domain `debug` on both executions of each repair pair, and on no others."""
    ids = pl.concat([repairs["failing_execution_id"], repairs["fixed_execution_id"]]).unique()
    others = pl.col("domains").list.set_difference([str(Domain.DEBUG)])
    paired = pl.col("execution_id").is_in(ids.implode())
    labelled = pl.when(paired).then(pl.concat_list(others, pl.lit([str(Domain.DEBUG)]))).otherwise(others)
    return executions.with_columns(labelled.alias("domains"))


def _joined(frame: pl.DataFrame) -> pl.Series:
    """All texts of each execution, joined by line feeds."""
    return frame.select(pl.concat_str(TEXTS, separator="\n", ignore_nulls=True)).to_series()


def _from_last_table(missing: pl.DataFrame, base: Path | None) -> pl.DataFrame:
    """The last table's rows of executions that were not read now. Raises RuntimeError: there is no table."""
    columns = [*_recorded, "secrets", "record_digest"]
    if missing.is_empty():
        types = polars_schema(Execution)
        return pl.DataFrame(schema={name: types[name] for name in columns} | {"content": KEPT_LINE["content"]})
    if base is None:
        raise RuntimeError(f"{len(missing)} executions are in the index and nowhere else")
    ids = missing["execution_id"].implode()
    with ledger_table(base) as table:
        if "bullet_ids" not in table.collect_schema():  # written before Execution version 2
            table = table.with_columns(bullet_ids=pl.lit([], dtype=pl.List(pl.String)))
        found = table.select(columns).filter(pl.col("execution_id").is_in(ids)).collect()
    return found.join(missing.select("execution_id", "content"), on="execution_id")


def _as_read(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the table as they came from their lines."""
    bullets = pl.col("bullet_ids")
    return rows.with_columns(
        timestamp=pl.col("timestamp").dt.epoch("us"),
        flags=pl.col("flags").list.join("\n"),
        bullet_ids=pl.when(bullets.list.len() > 0).then(bullets.list.join("\n")),
    ).select(list(SPILLED))


def _records(frame: pl.DataFrame) -> list[Recorded]:
    return [Recorded(*row) for row in frame.select(_recorded).iter_rows()]


def _labelled(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds domains, confidence, evidence and quality to rows of whole sandboxes."""
    frame = frame.sort(_SESSION_ORDER)
    records = _records(frame)
    with rare_collections():
        sessions = groupby(records, attrgetter("sandbox_id"))
        labels = [label for _, session in sessions for label in classify_session(list(session))]
    frame = frame.with_columns(
        domains=lists(_joined_words([str(domain) for domain in label.domains] for label in labels)),
        confidence=pl.Series([label.confidence for label in labels], dtype=pl.Float64),
        evidence=pl.Series([label.evidence for label in labels], dtype=pl.String),
        quality=_quality(records, frame["copy_now"]),
    )
    frame = conform(Execution, frame.select(list(schema(True))))
    return with_debug(frame, find_repairs(frame))


def _quality(records: Iterable[Recorded], copies: pl.Series) -> pl.Series:
    facts = ((record, code_facts(record.language, record.code)) for record in records)
    scores = [score(record, fact, copy) for (record, fact), copy in zip(facts, copies, strict=True)]
    return pl.Series("quality", scores, dtype=pl.Float64)


def scored_again(rows: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Rows of the table, scored again where they became another copy of their code (`execution_id`, `copy_now`)."""
    moved = rows.join(copies, on="execution_id")
    if moved.is_empty():
        return rows
    moved = moved.with_columns(_quality(_records(moved), moved["copy_now"])).select(rows.columns)
    return pl.concat([rows.join(copies, on="execution_id", how="anti"), moved])


def _joined_words(values: Iterable[Sequence[str]]) -> pl.Series:
    return pl.Series(["\n".join(words) for words in values], dtype=pl.String)


def _add_by_range(spill: Spill, frame: pl.DataFrame, ranges: Sequence[str]) -> None:
    """Adds slices of a frame, sorted by id, to the partition of each range of ids."""
    cuts = frame["execution_id"].search_sorted(pl.Series(ranges[1:], dtype=pl.String)).to_list()
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(frame)], strict=True)):
        if begin < end:
            spill.add("out", number, frame.slice(begin, end - begin))
