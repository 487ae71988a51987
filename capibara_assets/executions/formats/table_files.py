"""Tables in files: the rows of a database, of Parquet or of a text as JSON lines, which readers of logs understand.

Agents' programs keep sessions in SQLite (a row a message, whose parts are JSON in a column), data sets of trajectories
are Parquet. A row becomes an object of its columns; text of a column that is JSON is parsed, since what a call was
given and answered stands in it. Nothing of a database's own code runs: no view, trigger or virtual table is asked.
What cannot be read of a file is told in a last line that is no JSON, so that it stands in the quarantine.
"""

import io
import json
import math
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from capibara_assets.executions.formats.text_tables import NOT_READ, is_text_table, text_rows

SQLITE, PARQUET = b"SQLite format 3\0", b"PAR1"
_JOURNAL = slice(18, 20)  # of the header: how the file is written and read; 2 is WAL, which bytes in memory have not
_SHADOW = ("sqlite_", "libsql_")  # names of tables that the library keeps for itself
_STEPS = 200_000_000  # of SQLite's machine, for all tables: more is a file made to last
_GZIP, _ZSTD = _PACKED = (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd")
_MOST_CELL = 32 << 20  # bytes of a blob: more is no message
_RATIO, _ROOM = 100, 1 << 16  # of packed text to its bytes, and bytes more for short ones
_MOST_ROWS = 1_000_000  # a file of a few kilobytes may stand for billions
_BUBBLE = re.compile(r"(?:bubbleId|composerData):([\w-]{8,64})(?::[\w-]{8,64})?")
_TIMES = ("created_at", "createdAt", "time_created", "timestamp", "created", "ts", "start_time")


def is_packed_table(head: bytes) -> bool:
    """Whether a file that begins like this is a database or a Parquet file."""
    return head.startswith((SQLITE, PARQUET))


def is_table_file(head: bytes) -> bool:
    """Whether a file that begins like this is a table: a database, Parquet, CSV or a dump."""
    return is_packed_table(head) or is_text_table(head)


def table_lines(data: bytes, most: int) -> bytes:
    """The rows as JSON lines, in the order of their tables, there of their times, else of their keys.

    Args:
        data: the whole file.
        most: bytes of lines; rows behind them are left out, which the last line says, as of what is damaged.
    """
    lines, size, problems = list[bytes](), 0, list[str]()
    for row in _rows(data, problems):
        try:
            lines.append(json.dumps({name: _parsed(value) for name, value in row.items()}, default=str).encode("ascii"))
        except (TypeError, ValueError, RecursionError) as error:  # keys that are no text; nested too deeply
            problems.append(f"a row: {error}")
            continue
        size += len(lines[-1]) + 1
        if size > most:
            lines.pop()
            problems.append(f"more than {most} bytes of rows")
            break
    told = bool(lines) or is_packed_table(data)  # text that is no table may be anything
    return b"\n".join([*lines, *(NOT_READ + said.encode() for said in dict.fromkeys(problems) if told), b""])


def _rows(data: bytes, problems: list[str]) -> Iterable[dict[str, Any]]:
    if data.startswith(SQLITE):
        return _sqlite_rows(data, problems)
    return _parquet_rows(data, problems) if data.startswith(PARQUET) else _in_time(text_rows(data, problems))


def _sqlite_rows(data: bytes, problems: list[str]) -> Iterator[dict[str, Any]]:
    if len(data) > _JOURNAL.stop and data[_JOURNAL] == b"\2\2":
        data = data[: _JOURNAL.start] + b"\1\1" + data[_JOURNAL.stop :]
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA writable_schema = ON")  # what it takes for unsafe of a schema hides no table
        connection.execute("PRAGMA query_only = ON")
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        left = iter(range(_STEPS // 10_000))
        connection.set_progress_handler(lambda: next(left, None) is None, 10_000)
        tables = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY rowid"
        ).fetchall()
    except (sqlite3.Error, MemoryError) as error:
        problems.append(str(error))
        tables = []
    for name, made in tables:
        if str(name).startswith(_SHADOW) or not str(made).upper().startswith("CREATE TABLE"):
            continue  # a virtual table is code of an extension
        yield from _in_time(_rows_of(connection, str(name), problems))
    connection.close()


def _rows_of(connection: sqlite3.Connection, name: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """A table's rows, as far as they can be read."""
    table = _quoted(name)
    try:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        asked = ", ".join(
            f"CASE WHEN typeof({column}) = 'blob' AND length({column}) > {_MOST_CELL} THEN NULL ELSE {column} END"
            for column in map(_quoted, columns)
        )
        for values in connection.execute(f"SELECT {asked} FROM {table}"):
            yield {"table": name, **_of_conversation(dict(zip(columns, map(_text, values), strict=True)))}
    except (sqlite3.Error, OverflowError, MemoryError) as error:
        problems.append(f"table {name}: {error}")


def _of_conversation(row: dict[str, Any]) -> dict[str, Any]:
    """A row; of Cursor's messages, whose keys alone name their conversation, with that and their time.

    Every row gets a time, since rows are put in order where each has one.
    """
    key = _BUBBLE.fullmatch(str(row.get("key"))) if row.keys() == {"key", "value"} else None
    if key is None:
        return row
    value = _parsed(row["value"])
    sent = value.get("createdAt") if isinstance(value, dict) else None
    return {"conversation_id": key[1], "createdAt": sent if isinstance(sent, str) else "", **row}


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _in_time(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by their times where each has one; a program may write them in any order."""
    kept = list(rows)
    for name in _TIMES if kept else ():
        times = [row.get(name) for row in kept]
        kinds = {str if isinstance(time, str) else float if isinstance(time, int | float) else None for time in times}
        if len(kinds) == 1 and None not in kinds:
            order = sorted(range(len(kept)), key=lambda place: (times[place], place))
            return [kept[place] for place in order]
    return kept


def _text(value: Any) -> Any:
    """A cell's value; bytes are text where they are UTF-8, as VS Code's programs keep JSON, and else left out.

    Zed packs its threads with zstd.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not isinstance(value, bytes):
        return value
    try:
        return (_unpacked(value) if value.startswith(_PACKED) else value).decode("utf-8")
    except (UnicodeDecodeError, zstandard.ZstdError, zlib.error):
        return None


def _unpacked(value: bytes) -> bytes:
    """What zstd or gzip packed, cut off where it is more than any text packs."""
    most = min(_MOST_CELL, _RATIO * len(value) + _ROOM)
    if value.startswith(_ZSTD):
        with zstandard.ZstdDecompressor(max_window_size=_MOST_CELL).stream_reader(value) as reader:
            return reader.read(most)
    return zlib.decompressobj(wbits=31).decompress(value, most)


def _parquet_rows(data: bytes, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of a Parquet file that has a column of text, a batch at a time; times and what is rare as text."""
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        if not any(map(_holds_text, file.schema_arrow.types)) or file.metadata.num_rows > _MOST_ROWS:
            return
        for batch in file.iter_batches(batch_size=256):
            columns = [_plain(column) for column in batch.columns]
            for values in zip(*columns, strict=True):
                yield dict(zip(batch.schema.names, values, strict=True))
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError, MemoryError) as error:
        problems.append(str(error).split("\n", 1)[0][:200])


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_text(kind.field(place).type) for place in range(kind.num_fields))
    if pa.types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _plain(column: pa.Array) -> list[Any]:
    """A column's values; of a kind that Python or JSON has not, as Arrow writes them, and else nothing."""
    kind = column.type
    if pa.types.is_temporal(kind):
        try:
            return list(column.cast(pa.string()).to_pylist())
        except pa.ArrowException:
            return [None] * len(column)
    return [_text(value) if isinstance(value, bytes | float) else value for value in column.to_pylist()]


def _parsed(value: Any) -> Any:
    """A column's value, parsed where it is JSON; texts inside it stay: one may be what a program printed.

    So may a list of numbers be, which stays text.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            parsed = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            return value
        return parsed if isinstance(parsed, dict) or any(isinstance(item, dict | str) for item in parsed) else value
    return _without_null(value)


def _without_null(value: Any) -> Any:
    """Structs hold every field of each of their rows; those of others are null."""
    if isinstance(value, dict):
        return {name: _without_null(inner) for name, inner in value.items() if inner is not None}
    return list(map(_without_null, value)) if isinstance(value, list) else value
