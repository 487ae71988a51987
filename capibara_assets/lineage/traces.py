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

from capibara_assets.storage.foreign import read_by_library

TEXTS = ("code", "task", "stdout", "stderr", "result_text", "error_value", "traceback")
"""Columns of Execution that hold what a record says; its licence and source are attribution and stay with adapters."""
_PLAIN = re.compile(r"[A-Za-z0-9_ .,:;=()\[\]{}+*/%@#!?$^~|-]{12,}")  # the same in UTF-8, JSON, HTML and SQL
_PIECE = 40  # characters of a piece: previews cut long cells
_SHORTEST = 12
_PHRASES = ("Traceback (most recent call last)",)  # common to many records
_EACH = 24  # pieces to search for, per record and column
_FEWEST, _OF_MANY, _MOST = 96, 4, 20_000  # needles: of all records where they are few, of each of many, and of all
_ONE_BY_ONE = 1 << 28  # words times bytes that are faster searched word by word than in one pass for all
_BZIP2, _XZ, _ZIP, _SEALED = b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04", 1  # the last: a member under a password
_GZIP, _ZSTD, _PARQUET, _ARROW = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1"
_WAIT_S = 20.0
_SHARED_INDEX = "-shm"  # of a database with a write-ahead log: SQLite's locks are on it, and it holds no text
_SECTOR = 512  # bytes of the smallest page
_ROWS = 16_384
_BLOCK = 1 << 20
_WINDOW = 1 << 24  # bytes that are searched for many needles at once


def pieces(executions: pl.DataFrame) -> list[list[str]]:
    """Of each record the pieces of its text that identify a copy, with its id; longest first."""
    named = [column for column in TEXTS if column in executions.columns]
    each = max(2, min(_EACH, _MOST // max(1, executions.height)))
    found = []
    for name, *texts in executions.select("execution_id", *named).iter_rows():
        own = {piece for text in texts for piece in _longest_first(_of_text(text or ""))[:each]}
        found.append(_longest_first(own | ({name} if len(name) >= _SHORTEST else set())))
    return found


def needles(candidates: Sequence[Sequence[str]], telling: Sequence[str]) -> list[str]:
    """Pieces to search for: as many of each record, so that none of many goes without; longest first.

    Args:
        candidates: the pieces of each record.
        telling: those that nothing else holds.
    """
    count, there = max(1, len(candidates)), set(telling)
    each = max(-(-_FEWEST // count), min(_OF_MANY, _MOST // count), 1)
    return _longest_first({piece for own in candidates for piece in [one for one in own if one in there][:each]})


def contains(text: str, words: Sequence[str]) -> bool:
    """Whether a text contains one of the words; in one pass where both are many."""
    if len(words) * len(text) < _ONE_BY_ONE:
        return any(word in text for word in words)
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return bool(pl.Series([plain]).str.contains_any(list(words))[0])


def telling(candidates: Iterable[str], others: Iterable[pl.DataFrame]) -> list[str]:
    """The pieces that occur in no other table, so that every occurrence comes from the record.

    Args:
        others: tables that stay; all their text columns are searched.
    """
    left = _longest_first({piece for piece in candidates if len(piece) >= _SHORTEST})
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
    if not wanted:
        return False
    try:
        if path.stat().st_size == 0 or path.name.endswith(_SHARED_INDEX):
            return False
        if is_database(path):
            return any(_has(text, wanted) for text in _of_database(path))
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = _text_of_tensors(data) if path.suffix == ".safetensors" else len(data)
            if _mapped(data, end, wanted):
                return True
            head = bytes(data[:16])
        return any(_has(text, wanted) for text in _decoded(path, head))
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


def _mapped(data: mmap.mmap, end: int, wanted: Sequence[bytes]) -> bool:
    if len(wanted) * end < _ONE_BY_ONE:
        return any(data.find(needle, 0, end) >= 0 for needle in wanted)
    over = max(map(len, wanted))
    return any(_has(data[at : min(at + _WINDOW + over, end)], wanted) for at in range(0, end, _WINDOW))


def _has(text: bytes, wanted: Sequence[bytes]) -> bool:
    if len(wanted) * len(text) < _ONE_BY_ONE:
        return any(needle in text for needle in wanted)
    # Latin-1 has a character for each byte, so that the search for words of text finds bytes
    return contains(text.decode("latin-1"), [needle.decode("latin-1") for needle in wanted])


def _text_of_tensors(data: mmap.mmap) -> int:
    """Offset at which the header of a safetensors file ends; numbers follow."""
    return min(len(data), 8 + int.from_bytes(data[:8], "little"))


def _decoded(path: Path, head: bytes) -> Iterator[bytes]:
    with read_by_library(f"{path} cannot be searched, since it is damaged (remove it, or mend it)"):
        yield from _decompressed(path, head)


def _decompressed(path: Path, head: bytes) -> Iterator[bytes]:
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


def _longest_first(found: Iterable[str]) -> list[str]:
    return sorted(found, key=lambda piece: (-len(piece), piece))


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
