"""Read columns of a published table, or of every table and ledger of a kind; resolve ids and tenants."""

import difflib
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import polars as pl

from capibara_assets.errors import InputError, named, nearest
from capibara_assets.executions.ingest.forgotten import tenants_named
from capibara_assets.executions.ingest.ledger import Ledger, ledger_table
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.foreign import stored_table

ROWS = ("e2b_logs", "e2b_executions", "e2b_patterns")
"""Assets with whole executions, the ledger's source first."""
_NAMED = 5


def columns(artifact: Artifact, table: str, names: Sequence[str]) -> pl.DataFrame:
    """Read the named columns of a table, if present; only these are read from a local file.

    Raises:
        IntegrityError: the table is missing or damaged.
    """
    relative = f"{table}.parquet"
    if not artifact.is_local:
        return _selected(pl.scan_parquet(io.BytesIO(artifact.read_bytes(relative))), names).collect()
    with stored_table(Path(artifact.path.path) / relative, "materialize the asset again to replace it") as scan:
        return _selected(scan, names).collect()


def _selected(scan: pl.LazyFrame, names: Sequence[str]) -> pl.LazyFrame:
    there = scan.collect_schema().names()
    return scan.select([name for name in names if name in there])


def one_of(what: str, wanted: str, known: Iterable[str], hint: str) -> str:
    """The one id that is, or begins with, `wanted`; else the one of which a later part does (`file/sql-00042`).

    Raises:
        InputError: no id matches, or several do; the message names the nearest ones.
    """
    ids = sorted(set(known))
    if wanted in ids:
        return wanted
    begin = [name for name in ids if name.startswith(wanted)] or [name for name in ids if f"/{wanted}" in name]
    if len(begin) == 1:
        return begin[0]
    if begin:
        shown = ", ".join(begin[:_NAMED]) + (" …" if len(begin) > _NAMED else "")
        raise InputError(f"{what} {wanted!r} begins {len(begin)} ids: {shown}; give more of it")
    near = difflib.get_close_matches(wanted, ids[:200_000], n=3, cutoff=0.5)
    known_text = f"the nearest of {len(ids)}: {', '.join(near)}" if near else f"there are {len(ids)}"
    raise InputError(f"no {what} {wanted!r}: {known_text}; {hint}")


def executions_of(
    artifacts: Iterable[Artifact], ledgers: Iterable[Ledger], wanted: Sequence[str], which: pl.Expr
) -> Iterator[pl.DataFrame]:
    """Rows of every table with whole executions, by their artifacts and then by the ledgers' generations."""
    for artifact in artifacts:
        if artifact.name in ROWS:
            yield columns(artifact, "executions", wanted).filter(which)
    for ledger in ledgers:
        for generation in ledger.root.glob("generations/*/executions.parquet"):
            with ledger_table(generation) as scan:
                yield _selected(scan, wanted).filter(which).collect()


def quarantined(every: Sequence[Artifact], ledgers: Sequence[Ledger], wanted: list[str]) -> pl.DataFrame:
    """The rows of every quarantine."""
    frames = [columns(artifact, "quarantine", wanted) for artifact in every if artifact.name == "e2b_logs"]
    for path in (path for ledger in ledgers for path in ledger.root.glob("generations/*/quarantine.parquet")):
        with ledger_table(path) as scan:
            frames.append(scan.select(wanted).collect())
    if not frames:
        return pl.DataFrame(schema={name: pl.Int64 if name == "line" else pl.String for name in wanted})
    return pl.concat(frames).unique(maintain_order=True)


def tenant_executions(tenant: str, every: Sequence[Artifact], ledgers: Sequence[Ledger], known: bool) -> set[str]:
    """Ids of a tenant's executions in every table and ledger. Raises InputError: none names it, nor is it `known`."""
    frames = list(executions_of(every, ledgers, ["execution_id", "tenant"], pl.col("tenant").is_not_null()))
    ids = {name for frame in frames for name in frame.filter(tenant=tenant)["execution_id"]}
    if ids or known:
        return ids
    names = {name for frame in frames for name in frame["tenant"].unique()}
    imports = [columns(artifact, "lines", ["tenant"]) for artifact in every if artifact.name == "imported_examples"]
    names |= {name for frame in imports for name in frame["tenant"].drop_nulls().unique()}
    damaged = {name for text in quarantined(every, ledgers, ["text"])["text"] for name in tenants_named(text)}
    if tenant not in names | damaged:
        near = nearest(tenant, names | damaged)
        raise InputError(
            f"no tenant {named(tenant)!r} in any table, ledger or tombstone{near}: nothing was forgotten; records name "
            f"theirs in the field `tenant`, where {len(names)} are named"
        )
    return ids
