"""Folders in which each event of an agent's session is a file of its own: each is read as one log, a line a file.

OpenHands keeps `events/0.json`, `events/1.json`, .., and its software agent SDK `events/event-00000-<uuid>.json`. An
action and the observation that answers it are two files, so that neither is an execution by itself.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from stat import S_ISDIR
from typing import BinaryIO

from capibara_assets.executions.formats.agents.trajectories.openhands_events import is_event

EVENTS, COPIES = "events", "event_cache"  # OpenHands keeps events in the former, pages of copies in the latter
_NAME = re.compile(r"(?:event-)?(\d+)(?:-[0-9a-fA-F-]{8,})?\.json")
_SNIFFED = 5  # events of which one is of a kind that is known
_LARGEST = 4 << 20  # bytes of an event by which a folder is told


def event_files(names: Iterable[str]) -> list[str]:
    """The names that are numbers of events, in their order."""
    numbered = ((int(match[1]), name) for name in names if (match := _NAME.fullmatch(name)))
    return [name for _, name in sorted(numbered)]


def is_event_folder(folder: Path, names: Iterable[str]) -> bool:
    """Whether the numbered ones of the files in a folder hold an event each, by what the first few say."""
    return any(_holds_event(folder / name) for name in event_files(names)[:_SNIFFED])


def open_log(path: Path) -> BinaryIO:
    """A log's bytes: of a file, or of a folder of events as JSON lines. Raises OSError."""
    try:
        return path.open("rb")
    except IsADirectoryError:
        files = _files_in(path)
        # one that is being written stays an unended last line; line feeds in JSON stand between its values alone
        return io.BytesIO(b"\n".join(file.read_bytes().strip().replace(b"\n", b" ") for file in files))


def size_of(path: Path) -> int:
    """Bytes of a log. Raises OSError."""
    status = path.stat()
    if not S_ISDIR(status.st_mode):
        return status.st_size
    return sum(one.st_size for _, one in _statuses(path))


def signature(path: Path, status: os.stat_result) -> tuple[int, ...]:
    """Inode, mtime and ctime in ns: changes whenever a log's bytes do, since no program can set ctime back.

    Of a folder of events the newest of their times, and a digest of all of them. Raises OSError.
    """
    if not S_ISDIR(status.st_mode):
        return (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    events = [(name, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in _statuses(path)]
    digest = hashlib.sha256(json.dumps(events).encode("ascii")).digest()
    return (status.st_ino, *(max((event[n] for event in events), default=0) for n in (3, 4)), *digest[:8])


def _statuses(folder: Path) -> list[tuple[str, os.stat_result]]:
    return [(file.name, file.stat()) for file in _files_in(folder)]


def _files_in(folder: Path) -> list[Path]:
    return [folder / name for name in event_files(path.name for path in folder.iterdir() if path.is_file())]


def _holds_event(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:  # a pipe would be waited for
            return False
        return is_event(json.loads(path.read_bytes(), strict=False))
    except (OSError, ValueError, RecursionError):
        return False
