"""Append-only files of JSON lines, which survive a crash and which several processes may write at once.

A line is one `write`. What a kill or a full disk left of a line is ended by the next one that is written; no reader
takes it for a line, and where it stands is said.
"""

import fcntl
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.foreign import open_stored, read_stored
from capibara_assets.storage.jsonfiles import parse_json

_ON_ITS_WAY_S = 0.0002
_SUM = 16
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JournalLines:
    """Result of reading a journal.

    Attributes:
        entries: number of a line, from 1 -> its object.
        damaged: number of a line that is no JSON object -> what is wrong with it; a torn last line is one.
    """

    entries: dict[int, dict[str, Any]] = field(default_factory=dict)
    damaged: dict[int, str] = field(default_factory=dict)


def append(path: Path, line: bytes) -> None:
    """Append a line (without its newline) to a journal, creating it if needed.

    Raises:
        OSError: the file cannot be written, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = open_stored(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        append_to(descriptor, line)
    finally:
        os.close(descriptor)


def append_to(descriptor: int, line: bytes) -> None:
    """As `append`, to a file that is open for reading and appending."""
    # a line that another writer, or we on a full disk, left torn must not swallow this one
    data = (b"\n" if _torn(descriptor) else b"") + line + b"\n"
    if os.write(descriptor, data) != len(data):
        raise OSError("a line was written in part only: is the disk full?")


def read_lines(path: Path) -> JournalLines:
    """The lines of a journal; empty if there is no file."""
    try:
        return parsed(read_stored(path, sys.maxsize))
    except FileNotFoundError:
        return JournalLines()


def parsed(data: bytes) -> JournalLines:
    """The lines in the bytes of a journal; empty ones, which only end a torn line, count but are not reported."""
    lines = JournalLines()
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line:
            continue
        try:
            entry = parse_json(line)
        except ValueError as error:
            lines.damaged[number] = str(error)
            continue
        if isinstance(entry, dict):
            lines.entries[number] = entry
        else:
            lines.damaged[number] = f"a {type(entry).__name__}, not an object"
    return lines


def summed(entry: Mapping[str, Any]) -> bytes:
    """The line of an object that has a `key`, with a checksum of all else in it as `sum`."""
    return canonical_json({**entry, "sum": _checksum(entry)}).rstrip(b"\n")


def undamaged(path: Path, lines: JournalLines) -> JournalLines:
    """The lines of `summed` in a file, without their checksums; warns of those that are damaged, edited or without."""
    found = JournalLines(damaged=dict(lines.damaged))
    for number, entry in lines.entries.items():
        said = entry.pop("sum", None)
        try:
            whole = said == _checksum(entry) and isinstance(entry.get("key"), str)
        except ValueError:  # NaN, which no checksum is of
            whole = False
        if whole:
            found.entries[number] = entry
        else:
            found.damaged[number] = "its checksum does not fit" if said is not None else "it has no checksum"
    if found.damaged:
        first = min(found.damaged)
        many = f"{len(found.damaged)} damaged line{'s' * (len(found.damaged) > 1)} left out"
        _warn(f"{path}: {many} (first: line {first}: {found.damaged[first]}); what was there is made again")
    return found


@cache  # once, however often the file is opened meanwhile
def _warn(said: str) -> None:
    _log.warning(said)


def _checksum(entry: Mapping[str, Any]) -> str:
    return sha256_bytes(canonical_json(dict(entry)))[:_SUM]


@contextmanager
def opened_alone(path: Path) -> Iterator[tuple[int, JournalLines]]:
    """Open a journal that has one writer at a time: its descriptor and its lines. A torn last line is cut off.

    Raises:
        BlockingIOError: another process has it open in this way.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = open_stored(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go of by the system when the process ends
        data = read_stored(path, sys.maxsize)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(descriptor, whole)
        yield descriptor, parsed(data[:whole])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _torn(descriptor: int) -> bool:
    """Whether the file ends inside a line and stays so: another writer's line may be on its way into the file."""
    if not _ends_inside_a_line(descriptor):
        return False
    time.sleep(_ON_ITS_WAY_S)
    return _ends_inside_a_line(descriptor)


def _ends_inside_a_line(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
