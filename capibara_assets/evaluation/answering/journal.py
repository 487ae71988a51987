"""The journal of answers: one JSON line per answer, from which an interrupted evaluation resumes."""

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

    def __init__(self, path: Path, descriptor: int, lines: dict[str, Mapping[str, Any]]):
        self._path, self._file = path, descriptor
        self.lines = lines
        """Key → line; of two lines with one key the first."""

    def append(self, key: str, line: Mapping[str, Any]) -> None:
        """Write a line in one call; after a kill it is whole, or torn, and the next reader drops a torn line.

        Raises:
            OSError: the disk is full, or the file cannot be written.
        """
        data = json.dumps({"key": key, **line}, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
        if os.write(self._file, data) != len(data):
            raise OSError(f"short write to {self._path}: is the disk full?")
        self.lines[key] = {"key": key, **line}


@contextmanager
def open_journal(path: Path) -> Iterator[AnswerJournal]:
    """Open a journal for appending and read it; a torn last line is cut off.

    Raises:
        InputError: another process writes to it, or a complete line is not a journal line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go of by the system when the process ends
        except BlockingIOError as error:
            raise InputError(
                f"{path} is in use by another evaluation: wait for it, or use another work folder"
            ) from error
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        lines = _lines(path, data[:whole])
        if whole < len(data):
            os.ftruncate(descriptor, whole)
        yield AnswerJournal(path, descriptor, lines)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lines(path: Path, data: bytes) -> dict[str, Mapping[str, Any]]:
    lines: dict[str, Mapping[str, Any]] = {}
    for number, text in enumerate(data.splitlines(), start=1):
        try:
            line = json.loads(text)
            lines.setdefault(line["key"], line)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}, line {number}: not a line of this journal ({error}): remove the file to start anew"
            ) from error
    return lines
