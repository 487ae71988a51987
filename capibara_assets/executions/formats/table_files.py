"""Tables in files: the rows of an SQLite database or a Parquet file as JSON lines, which readers of logs understand.

Agents' programs keep sessions in SQLite (a row a message, whose parts are JSON in a column), data sets of trajectories
are Parquet. A row becomes an object of its columns; text of a column that is JSON is parsed, since what a call was
given and answered stands in it. Nothing of a database's own code runs: no view, trigger or virtual table is asked.
"""

import io
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import polars as pl

SQLITE, PARQUET = b"SQLite format 3\0", b"PAR1"
_JOURNAL = slice(18, 20)  # of the header: how the file is written and read; 2 is WAL, which bytes in memory have not
_SHADOW = ("sqlite_", "libsql_")  # names of tables that the library keeps for itself
_STEPS = 200_000_000  # of SQLite's machine, for all tables: more is a file made to last


def is_table_file(head: bytes) -> bool:
    """Whether a file that begins like this is a database or a Parquet file."""
    return head.startswith((SQLITE, PARQUET))


def table_lines(data: bytes, most: int) -> bytes | None:
    """The rows as JSON lines, in the order of their tables and keys; None where the file cannot be read.

    Args:
        data: the whole file.
        most: bytes of lines; rows behind them are left out, and the answer is None, as of a file that is too large.
    """
    lines, size = list[bytes](), 0
    try:
        for row in _sqlite_rows(data) if data.startswith(SQLITE) else _parquet_rows(data):
            lines.append(json.dumps({name: _parsed(value) for name, value in row.items()}, default=str).encode("ascii"))
            size += len(lines[-1]) + 1
            if size > most:
                return None
    except (sqlite3.Error, pl.exceptions.PolarsError, OSError, ValueError, RecursionError):
        return None
    return b"\n".join([*lines, b""])


def _sqlite_rows(data: bytes) -> Iterator[dict[str, Any]]:
    if len(data) > _JOURNAL.stop and data[_JOURNAL] == b"\2\2":
        data = data[: _JOURNAL.start] + b"\1\1" + data[_JOURNAL.stop :]
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        left = iter(range(_STEPS // 10_000))
        connection.set_progress_handler(lambda: next(left, None) is None, 10_000)
        tables = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY rowid"
        ).fetchall()
        for name, made in tables:
            if str(name).startswith(_SHADOW) or not str(made).upper().startswith("CREATE TABLE"):
                continue  # a virtual table is code of an extension
            found = connection.execute('SELECT * FROM "{}"'.format(str(name).replace('"', '""')))
            columns = [column[0] for column in found.description]
            for values in found:
                yield {"table": name, **dict(zip(columns, map(_text, values), strict=True))}
    finally:
        connection.close()


def _text(value: Any) -> Any:
    """A cell's value; bytes are text where they are UTF-8, as VS Code's programs keep JSON, and else left out."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _parquet_rows(data: bytes) -> Iterator[dict[str, Any]]:
    for part in pl.read_parquet(io.BytesIO(data)).iter_slices(1_000):
        yield from part.iter_rows(named=True)


def _parsed(value: Any) -> Any:
    """A column's value, parsed where it is JSON; texts inside it stay: one may be what a program printed."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value, strict=False)
        except (ValueError, RecursionError):
            return value
    return _without_null(value)


def _without_null(value: Any) -> Any:
    """Structs hold every field of each of their rows; those of others are null."""
    if isinstance(value, dict):
        return {name: _without_null(inner) for name, inner in value.items() if inner is not None}
    return list(map(_without_null, value)) if isinstance(value, list) else value
