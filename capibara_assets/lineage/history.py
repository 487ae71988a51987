"""Remove a record's traces from Dagster's run and event databases: values are rewritten, and old pages emptied.

Works on any SQL database through SQLAlchemy: every text column of every table is read. Events keep their form, so that
Dagster still reads them; an event that published a removed artifact loses all its previews, tables of counts and
documents, whether they show the record or others: a table by source names one that only the record had.
"""

import json
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sql

from capibara_assets.errors import InputError
from capibara_assets.lineage.traces import contains, holds, is_database
from capibara_assets.storage.jsonfiles import parse_json, write_bytes_atomic
from capibara_assets.storage.mirror import file_system

NOTE = "(removed: a record was forgotten)"
_TELLING = ("records", "md_str", "data")  # entries of tables, Markdown and JSON, which show what a result holds
_READ_LATER = ("inputs", "checkpoints", "cost", "outcome")  # JSON of the result itself, which later stages read
_WAIT_S = 20.0


@dataclass(frozen=True)
class Traces:
    """Search terms: pieces of text that only the record contains, and digests of removed artifacts."""

    needles: tuple[str, ...]
    digests: frozenset[str]
    note: str = NOTE
    """What takes their place."""

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Each value to rewrite contains one of them."""
        return (*self.needles, *sorted(self.digests))


def rewritten(value: str, traces: Traces) -> str:
    """A stored value without the traces; the same object if it contains none.

    JSON keeps its form: strings become the note, previews of removed artifacts become a text entry. In other text the
    lines with a trace become the note.
    """
    try:
        document = parse_json(value)
    except ValueError:
        document = None
    if not isinstance(document, dict | list):
        if not _has_needle(value, traces):
            return value
        return "\n".join(traces.note if _has_needle(line, traces) else line for line in value.split("\n"))
    changed = _walk(document, traces)
    return value if changed == document else json.dumps(changed)


def scrub(connection: sql.Connection, traces: Traces, *, write: bool = True) -> int:
    """Rewrite every value that holds a trace, in every table with a primary key; returns their number.

    Args:
        write: False: only count.
    """
    if not traces.words:
        return 0
    count = 0
    for column in text_columns(connection):
        changes = [
            (row, new)
            for row, text in stored_texts(connection, column)
            if contains(text, traces.words) and (new := rewritten(text, traces)) != text
        ]
        for row, new in changes if write else ():
            connection.execute(sql.update(column.table).where(row).values({column.name: new}))
        count += len(changes)
    return count


def text_columns(connection: sql.Connection) -> Iterator[sql.Column[Any]]:
    """The columns of text of every table with a primary key."""
    for table in _tables(connection):
        yield from (one for one in table.columns if table.primary_key.columns and isinstance(one.type, sql.String))


def stored_texts(connection: sql.Connection, column: sql.Column[Any]) -> Iterator[tuple[sql.ColumnElement[bool], str]]:
    """The texts in a column, each with the condition that its row meets."""
    keys = list(column.table.primary_key.columns)
    rows = connection.execute(sql.select(*keys, column).where(column.is_not(None)))
    for *key, value in rows.yield_per(1000):
        if isinstance(value, str):
            yield sql.and_(*(one == part for one, part in zip(keys, key, strict=True))), value


def compact_server(connection: sql.Connection) -> None:
    """Rewrite the tables of a PostgreSQL database, so that old row versions are gone.

    Args:
        connection: that commits each statement by itself.
    """
    if connection.dialect.name == "postgresql":
        for table in _tables(connection):
            connection.execute(sql.text(f'VACUUM (FULL) "{table.name}"'))


def scrub_objects(location: str, traces: Traces, *, write: bool = True) -> list[str]:
    """Rewrite log files with traces in a folder of an object store; returns their names."""
    system, _ = file_system(location)
    rewritten_names = []
    for name in objects(location):
        text = system.cat_file(name).decode("utf-8", "surrogateescape")
        if (new := rewritten(text, traces)) != text:
            rewritten_names.append(name)
            if write:
                system.pipe_file(name, new.encode("utf-8", "surrogateescape"))
    return rewritten_names


def objects(location: str) -> list[str]:
    """The objects below a folder on an object store, with its scheme, sorted."""
    system, root = file_system(location)
    system.invalidate_cache()  # a listing from before another process wrote
    return [f"{location.partition('://')[0]}://{name.lstrip('/')}" for name in sorted(system.find(root))]


def objects_holding(location: str, needles: Sequence[str]) -> list[str]:
    """The objects below a folder on an object store that hold one of the needles, in any form; sorted.

    One is fetched at a time. A location without objects holds nothing.
    """
    if not needles:
        return []
    system, _ = file_system(location)
    holding = []
    with TemporaryDirectory() as folder:
        for name in objects(location):
            path = Path(folder) / f"object{Path(name).suffix}"  # the form of a file is told by its suffix, too
            try:
                system.get_file(name, str(path))
            except FileNotFoundError:
                continue  # gone since it was listed
            if holds(path, needles):
                holding.append(name)
            path.unlink()
    return holding


def scrub_text(path: Path, traces: Traces) -> None:
    """Replace lines (in JSON documents: strings) with traces in a log file by the note, atomically."""
    text = path.read_text("utf-8", "surrogateescape")
    write_bytes_atomic(path, rewritten(text, traces).encode("utf-8", "surrogateescape"))


def databases(folder: Path) -> list[Path]:
    """The SQLite files below a folder, sorted."""
    return [path for path in sorted(folder.rglob("*.db")) if path.is_file() and is_database(path)]


def scrub_files(folder: Path, traces: Traces, *, write: bool = True) -> dict[Path, int]:
    """Scrub every SQLite file below a folder, free pages and old logs included: file -> values rewritten.

    Raises:
        InputError: another process holds a database open for longer than 20 seconds.
    """
    counts = {}
    for path in databases(folder):
        engine = sql.create_engine(f"sqlite:///{path}", poolclass=sql.NullPool, connect_args={"timeout": _WAIT_S})
        try:
            with engine.begin() as connection:
                connection.execute(sql.text("PRAGMA secure_delete = ON"))
                changed = scrub(connection, traces, write=write)
        except sql.exc.OperationalError as error:
            raise _held_open(path) from error
        finally:
            engine.dispose()
        if write and (changed or _has_slack(path, traces)):
            compact(path)
        if changed:
            counts[path] = changed
    return counts


def compact(path: Path) -> None:
    """Rewrite a SQLite file without its free pages, and empty its write-ahead log.

    Raises:
        InputError: another process holds the database open for longer than 20 seconds.
    """
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            with closing(sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)) as database:
                database.execute("VACUUM")
                busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            raise _held_open(path) from error
        if not busy:
            return
        if time.monotonic() > deadline:
            raise _held_open(path)
        time.sleep(0.2)


def _held_open(path: Path) -> InputError:
    return InputError(f"{path} is held by another process: stop `capibara ui` and the daemon, then forget again")


def _has_slack(path: Path, traces: Traces) -> bool:
    """Whether a SQLite file holds old bytes: free pages, a write-ahead log, or a trace outside of values."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        return True
    with closing(sqlite3.connect(path, timeout=_WAIT_S)) as database:
        (free,) = database.execute("PRAGMA freelist_count").fetchone()
    return bool(free) or holds(path, traces.needles)


def _tables(connection: sql.Connection) -> Iterator[sql.Table]:
    metadata = sql.MetaData()
    metadata.reflect(connection)
    yield from metadata.sorted_tables


def _walk(value: Any, traces: Traces) -> Any:
    if isinstance(value, dict):
        changed = {
            (traces.note if _has_needle(key, traces) else key): _walk(item, traces) for key, item in value.items()
        }
        entries = changed.get("metadata_entries")
        if isinstance(entries, list) and _published_removed(entries, traces.digests):
            changed["metadata_entries"] = [_without_preview(entry) for entry in entries]
        return changed
    if isinstance(value, list):
        return [_walk(item, traces) for item in value]
    if isinstance(value, str) and _has_needle(value, traces):
        try:
            inner = parse_json(value)
        except ValueError:
            return traces.note
        return json.dumps(_walk(inner, traces)) if isinstance(inner, dict | list) else traces.note
    return value


def _published_removed(entries: Sequence[Any], digests: Collection[str]) -> bool:
    texts = (entry.get("entry_data", {}).get("text") for entry in entries if isinstance(entry, dict))
    return any(text in digests for text in texts if isinstance(text, str))


def _without_preview(entry: Any) -> Any:
    data = entry.get("entry_data") if isinstance(entry, dict) else None
    if not isinstance(data, dict) or entry.get("label") in _READ_LATER or not any(name in data for name in _TELLING):
        return entry
    return {**entry, "entry_data": {"__class__": "TextMetadataEntryData", "text": NOTE}}


def _has_needle(text: str, traces: Traces) -> bool:
    return contains(text, traces.needles)
