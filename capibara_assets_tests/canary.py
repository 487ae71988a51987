"""A record planted in the logs, and a search for it in every byte of a folder, whatever form the bytes have."""

import gzip
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

CANARY = "kanarienvogel7391"
FAILED, MENDED = "canary-failed-0001", "canary-mended-0002"
_FAILING = f'''def {CANARY}_mean(values):
    """Return the mean of the {CANARY} values, or zero when there is none."""
    return sum(values) / len(values)

print({CANARY}_mean([1, 2, 3]), "{CANARY}")
print({CANARY}_mean([]), "{CANARY}")
'''
_MENDED = _FAILING.replace("return sum", "if not values:\n        return 0.0\n    return sum")
_TASK = f"Write a function {CANARY}_mean that returns the mean of a list of numbers, or zero when the list is empty."
_TRACEBACK = f"""Traceback (most recent call last):
  File "<cell>", line 6, in <module>
    print({CANARY}_mean([]), "{CANARY}")
  File "<cell>", line 3, in {CANARY}_mean
    return sum(values) / len(values)
ZeroDivisionError: division by zero"""


def plant(logs: Path, tenant: str | None = None) -> None:
    """A failure with the canary in code, output and traceback, its repair, a copy of both and a torn copy."""
    error = {"name": "ZeroDivisionError", "value": "division by zero", "traceback": _TRACEBACK}
    lines = [
        _record(FAILED, "2026-10-20T10:00:00.000Z", _FAILING, [f"2.0 {CANARY}\n"], error, tenant),
        _record(MENDED, "2026-10-20T10:01:00.000Z", _MENDED, [f"2.0 {CANARY}\n", f"0.0 {CANARY}\n"], None, tenant),
    ]
    (logs / "canary.jsonl").write_text("".join(lines))
    (logs / "copy.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    (logs / "torn.jsonl").write_text(lines[1][:-30] + "\n" + lines[0][60:])


def told() -> str:
    """What the canary's record says, as a log, a report or a cache would quote it."""
    return f"{_FAILING}\n{_TRACEBACK}\n"


def _record(
    execution_id: str, moment: str, code: str, stdout: list[str], error: dict[str, str] | None, tenant: str | None
) -> str:
    record: dict[str, Any] = {
        **({} if tenant is None else {"tenant": tenant}),
        "sandbox_id": "icanarysandbox000001",
        "execution_id": execution_id,
        "timestamp": moment,
        "template_id": "code-interpreter-v1",
        "language": "python",
        "task": _TASK,
        "code": code,
        "execution": {"results": [], "logs": json.dumps({"stdout": stdout, "stderr": []}), "error": error},
        "execution_count": 1,
        "duration_ms": 2.0,
        "timeout_s": 10,
    }
    return json.dumps(record) + "\n"


def singing(folder: Path, words: tuple[str, ...] = (CANARY, FAILED, MENDED), tokenizer: Any = None) -> list[str]:
    """Files below a folder that hold one of the words, also where they are compressed, tables, databases or tokens."""
    wanted = [word.encode() for word in words]
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(word in text for text in _readings(path, tokenizer) for word in wanted)
    ]


def _readings(path: Path, tokenizer: Any) -> Iterator[bytes]:
    data = path.read_bytes()
    yield data
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    elif data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    elif data[:4] == b"\x28\xb5\x2f\xfd":
        yield zstandard.ZstdDecompressor().decompressobj().decompress(data)
    elif data[:4] == b"PAR1":
        yield _written(pl.read_parquet(path), tokenizer)
    elif data[:6] == b"ARROW1":
        yield _written(pl.read_ipc(path), tokenizer)
    elif path.suffix == ".safetensors" or path.parent.name == "manifests":  # frames anywhere: packs and their manifests
        yield from _frames(data)
    elif data[:15] == b"SQLite format 3":
        with closing(sqlite3.connect(path)) as database:
            yield "\n".join(database.iterdump()).encode("utf-8", "surrogatepass")
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                for row in database.execute(f'SELECT * FROM "{table}"'):  # the dump writes blobs in hex
                    yield from (value for value in row if isinstance(value, bytes))


def _frames(data: bytes) -> Iterator[bytes]:
    at = -1
    while (at := data.find(b"\x28\xb5\x2f\xfd", at + 1)) >= 0:
        with suppress(zstandard.ZstdError):  # four bytes of a weight that look like the beginning of a frame
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])


def _written(frame: pl.DataFrame, tokenizer: Any) -> bytes:
    texts = [repr(row) for row in frame.iter_rows()]
    for column in frame.get_columns():
        if tokenizer is not None and column.dtype.is_nested() and column.dtype == pl.List(pl.Int32):
            texts += [tokenizer.decode([token for token in ids if token >= 0]) for ids in column.drop_nulls()]
    return "\n".join(texts).encode("utf-8", "surrogatepass")
