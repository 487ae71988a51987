"""Cache on disk of pure functions of a program text, so that one new log does not cause all history to be parsed again.

A function marked `of_text` gives the same result with and without the cache. The cache holds text of records: it is one
Parquet file below the store's work folder, where `forget` finds it, may be deleted at any time, and holds only what the
last run requested, so that nothing of a forgotten record outlasts the next run.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, lru_cache, wraps
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from capibara_assets.storage.digests import canonical_json

ValueT = TypeVar("ValueT")

# Raise it with every change of what a function `of_text`, or `datasets.readings`, gives for a text:
# test_readers_version.py says when.
READERS_VERSION = "1"

_IN_MEMORY = 16_384
_PARSERS = ("numpy", "tree-sitter", "tree-sitter-javascript", "sqlglot")
_SCHEMA = {"key": pl.Binary(), "value": pl.Binary(), "sum": pl.Binary()}


@dataclass
class _Cache:
    """The entries of one cache file, and the requests since it was opened."""

    known: dict[bytes, tuple[bytes, bytes]]  # key -> value as JSON and its checksum
    asked: dict[tuple[str, str, str], Callable[[], bytes]] = field(default_factory=dict)

    def find(self, key: bytes) -> bytes | None:
        value, checksum = self.known.get(key, (b"", b""))
        return value if checksum and checksum == _checksum(key, value) else None


_open: ContextVar[_Cache | None] = ContextVar("kept", default=None)


def of_text(
    name: str, encode: Callable[[ValueT], Any], decode: Callable[[Any], ValueT]
) -> Callable[[Callable[[str, str], ValueT]], Callable[[str, str], ValueT]]:
    """Decorator that caches a pure function of (code, language) in memory and, within `keeping`, on disk.

    Args:
        name: part of the cache key. Keep it when the function moves or is renamed: another name starts an empty cache.
        encode: the function's value as JSON.
        decode: the inverse of `encode`.
    """

    def mark(function: Callable[[str, str], ValueT]) -> Callable[[str, str], ValueT]:
        @lru_cache(maxsize=_IN_MEMORY)
        def made(code: str, language: str) -> ValueT:
            if (kept := _open.get()) is not None and (cached := kept.find(_key(name, code, language))) is not None:
                return decode(json.loads(cached))
            return function(code, language)

        @wraps(function)
        def asked(code: str, language: str) -> ValueT:
            value = made(code, language)
            if (kept := _open.get()) is not None and (name, code, language) not in kept.asked:
                kept.asked[name, code, language] = lambda: canonical_json(encode(value))
            return value

        asked.cache_clear = made.cache_clear  # type: ignore[attr-defined]
        return asked

    return mark


@contextmanager
def keeping(folder: Path | None) -> Iterator[None]:
    """Context in which functions `of_text` use the cache in this folder; None: no cache on disk.

    Afterwards the folder holds exactly what was requested in the block; a block that fails leaves it unchanged.
    """
    if folder is None:
        yield
        return
    path = folder / f"texts-{program_digest()[:32]}.parquet"
    kept = _Cache(_load(path))
    token = _open.set(kept)
    try:
        yield
    finally:
        _open.reset(token)
    _save(path, kept)


@cache
def program_digest() -> str:
    """Digest of the versions that cached values depend on: `READERS_VERSION`, Python and the parsers."""
    parsers = [f"{package} {version(package)}" for package in _PARSERS]
    return sha256("\n".join([sys.version, *parsers, READERS_VERSION]).encode()).hexdigest()


def _load(path: Path) -> dict[bytes, tuple[bytes, bytes]]:
    """The entries of a cache file; none where there is no file or it cannot be read."""
    try:
        rows = pl.read_parquet(path, memory_map=False)
    except (FileNotFoundError, pl.exceptions.PolarsError):
        return {}
    if dict(rows.schema) != _SCHEMA:
        return {}
    return {key: (value, checksum) for key, value, checksum in rows.drop_nulls().iter_rows()}


def _save(path: Path, kept: _Cache) -> None:
    rows: dict[bytes, tuple[bytes, bytes]] = {}
    for (name, code, language), value in kept.asked.items():
        key = _key(name, code, language)
        cached = kept.find(key)
        data = cached if cached is not None else value()
        rows[key] = (data, _checksum(key, data))
    if rows != kept.known:
        listed = [(key, *row) for key, row in sorted(rows.items())]
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
            written = Path(folder) / path.name
            pl.DataFrame(listed, schema=_SCHEMA, orient="row").write_parquet(written)
            written.replace(path)
    for other in path.parent.glob("texts-*.parquet"):
        if other != path:
            other.unlink(missing_ok=True)


def _key(name: str, code: str, language: str) -> bytes:
    return sha256(f"{name}\n{language}\n{code}".encode("utf-8", "surrogatepass")).digest()


def _checksum(key: bytes, value: bytes) -> bytes:
    return sha256(key + value).digest()[:8]
