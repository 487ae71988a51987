"""Traces of a record: pieces of its text that nothing else holds, and the files that contain one of them."""

import bz2
import gzip
import json
import lzma
import mmap
import re
import sqlite3
import subprocess
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import polars as pl
import zstandard

TEXTS = ("code", "task", "stdout", "stderr", "result_text", "error_value", "traceback")
"""Columns of Execution that hold what a record says; its licence and source are attribution and stay with adapters."""
_PLAIN = re.compile(r"[A-Za-z0-9_ .,:;=()\[\]{}+*/%@#!?$^~|-]{12,}")  # the same in UTF-8, JSON, HTML and SQL
_PIECE = 40  # characters of a piece: previews cut long cells
_SHORTEST = 12
_PHRASES = ("Traceback (most recent call last)",)  # common to many records
_EACH = 24  # pieces to search for, per record and column
_BZIP2, _XZ, _ZIP, _SEALED = b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04", 1  # the last: a member under a password
_GZIP, _ZSTD, _PARQUET, _ARROW = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1"
_WAIT_S = 20.0
_SHARED_INDEX = "-shm"  # of a database with a write-ahead log: SQLite's locks are on it, and it holds no text
_SECTOR = 512  # bytes of the smallest page
_ROWS = 16_384
_BLOCK = 1 << 20


def pieces(executions: pl.DataFrame) -> list[str]:
    """Pieces of the records' text that identify a copy, with their ids; longest first."""
    by_text: set[str] = {name for name in executions["execution_id"] if len(name) >= _SHORTEST}
    for row in executions.select(column for column in TEXTS if column in executions.columns).iter_rows():
        for text in row:
            by_text |= set(sorted(_of_text(text or ""), key=lambda piece: (-len(piece), piece))[:_EACH])
    return sorted(by_text, key=lambda piece: (-len(piece), piece))


def telling(candidates: Sequence[str], others: Iterable[pl.DataFrame]) -> list[str]:
    """The pieces that occur in no other table, so that every occurrence comes from the record.

    Args:
        others: tables that stay; all their text columns are searched.
    """
    left = [piece for piece in candidates if len(piece) >= _SHORTEST]
    for frame in others:
        for column in frame.select(pl.col(pl.String)).get_columns():
            if not left:
                return []
            matched = column.drop_nulls().str.extract_many(left, overlapping=True).explode().drop_nulls().unique()
            common = set(matched.to_list())
            left = [piece for piece in left if piece not in common]
    return left


def holding(folder: Path, needles: Sequence[str], skip: Sequence[Path] = ()) -> list[Path]:
    """Files below a folder that contain one of the needles, raw or decompressed and decoded; sorted.

    Args:
        skip: folders and files that are left out.
    """
    if not needles or not folder.exists():
        return []
    files = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        path
        for path in files
        if not any(path.is_relative_to(other) for other in skip) and (holds(path, needles) if path.exists() else False)
    ]


def holds(path: Path, needles: Sequence[str]) -> bool:
    """Whether a file contains one of the needles: in its bytes, or decoded (compressed, a table or a database)."""
    wanted = [needle.encode("utf-8") for needle in needles]
    try:
        if path.stat().st_size == 0 or path.name.endswith(_SHARED_INDEX):
            return False
        if is_database(path):
            return any(needle in text for text in _of_database(path) for needle in wanted)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = _text_of_tensors(data) if path.suffix == ".safetensors" else len(data)
            if any(data.find(needle, 0, end) >= 0 for needle in wanted):
                return True
            head = bytes(data[:16])
        return any(needle in text for text in _decoded(path, head) for needle in wanted)
    except FileNotFoundError:
        return False  # gone since it was listed


def readings(path: Path) -> Iterator[bytes]:
    """A file in overlapping blocks: raw bytes, and the decoded content of compressed files, tables and databases."""
    if path.name.endswith(_SHARED_INDEX):
        return
    try:
        if is_database(path):
            yield from _of_database(path)
            return
        with path.open("rb") as file:
            head = file.read(16)
            file.seek(0)
            if path.suffix == ".safetensors":
                yield file.read(min(path.stat().st_size, 8 + int.from_bytes(head[:8], "little")))
            else:
                yield from _blocks(file)
        yield from _decoded(path, head)
    except FileNotFoundError:
        return  # gone since it was listed


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database, as SQLite says.

    Whoever opens such a file without SQLite and closes it drops all locks of this process on it (POSIX), also those of
    a transaction that another part of the process has under way: https://sqlite.org/howtocorrupt.html, 2.2.
    So what cannot be one by its size alone, which is of whole pages, is not asked about at all.
    """
    size = path.stat().st_size
    if not size or size % _SECTOR:
        return False
    try:
        with closing(_reader(path)) as database:
            return database.execute("PRAGMA schema_version").fetchone() is not None
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode != sqlite3.SQLITE_CANTOPEN  # only a database is locked, or to be rolled back
    except sqlite3.DatabaseError:
        return False


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_WAIT_S)


def _of_database(path: Path) -> Iterator[bytes]:
    """Its bytes, read by a process of their own, whose locks are its own; and its rows: long values are split."""
    with subprocess.Popen(["cat", str(path.absolute())], stdout=subprocess.PIPE) as reading:
        yield from _blocks(reading.stdout)
    with closing(_reader(path)) as database:
        yield from _rows(database)


def _text_of_tensors(data: mmap.mmap) -> int:
    """Offset at which the header of a safetensors file ends; numbers follow."""
    return min(len(data), 8 + int.from_bytes(data[:8], "little"))


def _decoded(path: Path, head: bytes) -> Iterator[bytes]:
    for magic, opened in ((_GZIP, gzip.open), (_BZIP2, bz2.open), (_XZ, lzma.open)):
        if head.startswith(magic):
            with opened(path, "rb") as stream:
                yield from _blocks(stream)
    if head.startswith(_ZIP) and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.flag_bits & _SEALED:
                    with archive.open(member) as stream:
                        yield from _blocks(stream)
    if head.startswith(_ZSTD):
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            yield from _blocks(stream)
    elif head.startswith(_PARQUET):
        scan = pl.scan_parquet(path)
        rows = scan.select(pl.len()).collect().item()
        for start in range(0, rows, _ROWS):
            yield from _texts(scan.slice(start, _ROWS).collect())
    elif head.startswith(_ARROW):
        yield from _texts(pl.read_ipc(path))


def _blocks(stream: object) -> Iterator[bytes]:
    """Overlapping blocks, so that no needle is missed at a border."""
    before = b""
    while block := stream.read(_BLOCK):  # type: ignore[attr-defined]
        yield before + block
        before = block[-4 * _PIECE :]


def _texts(frame: pl.DataFrame) -> Iterator[bytes]:
    for column in frame.get_columns():
        if column.dtype == pl.String:
            yield "\n".join(column.drop_nulls()).encode("utf-8")
        elif column.dtype == pl.Binary:
            yield b"\n".join(column.drop_nulls())
        elif column.dtype.is_nested():
            yield json.dumps(column.to_list(), default=str, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _rows(database: sqlite3.Connection) -> Iterator[bytes]:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for name in tables:
        for row in database.execute('SELECT * FROM "{}"'.format(name.replace('"', '""'))):
            texts = [value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value for value in row]
            yield b"\n".join(value for value in texts if isinstance(value, bytes))


def _of_text(text: str) -> set[str]:
    stretches = set()
    for line in text.splitlines():
        for match in _PLAIN.findall(line):
            stretch = match.strip()
            stretches |= {stretch[at : at + _PIECE].strip() for at in range(0, len(stretch), _PIECE)}
    whole = {piece for piece in stretches if len(piece) >= _SHORTEST and not piece.startswith(_PHRASES)}
    if not whole and len(text.strip()) >= _SHORTEST:
        line = max(text.splitlines(), key=len).strip()
        return {piece for piece in (line[:_PIECE], json.dumps(line)[1 : _PIECE + 1]) if len(piece) >= _SHORTEST}
    return whole
