"""Read columns of a published table, and resolve abbreviated ids."""

import difflib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.storage.artifact import Artifact

_NAMED = 5


def columns(artifact: Artifact, table: str, names: Sequence[str]) -> pl.DataFrame:
    """Read the named columns of a table, if present; only these are read from a local file."""
    relative = f"{table}.parquet"
    if artifact.path.protocol in ("", "file", "local"):
        source: Path | io.BytesIO = Path(artifact.path.path) / relative
    else:
        source = io.BytesIO(artifact.read_bytes(relative))
    scan = pl.scan_parquet(source)
    there = scan.collect_schema().names()
    return scan.select([name for name in names if name in there]).collect()


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
