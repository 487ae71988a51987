"""Answers as they are given, a JSON line each: what a killed evaluation goes on from."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError


class AnswerJournal:
    """An append-only file of lines with a `key` each; one writer at a time."""

    def __init__(self, path: Path, descriptor: int, found: dict[str, Mapping[str, Any]]):
        self._path, self._file = path, descriptor
        self.found = found
        """Key → line, of what was there; of two with one key the first."""

    def append(self, key: str, line: Mapping[str, Any]) -> None:
        """Write a line, all at once; after a kill it is there, or its torn beginning, which the next reader drops.

        Raises:
            OSError: the disk is full, or the file cannot be written.
        """
        data = json.dumps({"key": key, **line}, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
        if os.write(self._file, data) != len(data):
            raise OSError(f"short write to {self._path}: is the disk full?")
        self.found[key] = {"key": key, **line}


@contextmanager
def open_journal(path: Path) -> Iterator[AnswerJournal]:
    """Open for appending, with what it holds; a torn last line is cut off.

    Raises:
        InputError: another process writes to it, or a whole line is not one of a journal.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go of by the system when the process ends
        except BlockingIOError as error:
            raise InputError(f"{path} is in use by another evaluation: wait for it, or take another folder") from error
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        found = _lines(path, data[:whole])
        if whole < len(data):
            os.ftruncate(descriptor, whole)
        yield AnswerJournal(path, descriptor, found)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lines(path: Path, data: bytes) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for number, text in enumerate(data.splitlines(), start=1):
        try:
            line = json.loads(text)
            found.setdefault(line["key"], line)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}, line {number}: not a line of this journal ({error}): remove the file to start anew"
            ) from error
    return found
