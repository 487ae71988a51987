"""Folders in which each event or message of an agent's session is a file of its own: each is read as one log.

OpenHands keeps `events/0.json`, `events/1.json`, .., and its software agent SDK `events/event-00000-<uuid>.json`. An
action and the observation that answers it are two files, so that neither is an execution by itself.

Strands Agents keep `messages/message_0.json`, .., as others do that number messages: a call and its answer are two.

opencode keeps `message/<session>/<message>.json` and beside it `part/<message>/<part>.json` (in older versions
`part/<session>/<message>/<part>.json`); a message with its parts is a line, as in its export.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from stat import S_ISDIR
from typing import Any, BinaryIO

from capibara_assets.executions.formats.agents.trajectories.openhands_events import is_event

EVENTS, COPIES = "events", "event_cache"  # OpenHands keeps events in the former, pages of copies in the latter
MESSAGES, PARTS = "message", "part"  # opencode's folders, one beside the other
_NAME = re.compile(r"(?:(?:event|message|msg)[-_])?(\d+)(?:-[0-9a-fA-F-]{8,})?\.json")
_ROLES = ("user", "assistant", "system", "tool")
_MESSAGE, _PART = re.compile(r"msg_\w+\.json"), re.compile(r"prt_\w+\.json")  # in order of time
_SNIFFED = 5  # events of which one is of a kind that is known
_LARGEST = 4 << 20  # bytes of an event by which a folder is told


def event_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of a folder's names that are events of one log, in their order; none where it is no such folder."""
    names = list(names)
    if folder.parent.name == MESSAGES:
        return sorted(filter(_MESSAGE.fullmatch, names))
    events = _numbered(names)
    return events if any(_holds_event(folder / name) for name in events[:_SNIFFED]) else []


def _numbered(names: Iterable[str]) -> list[str]:
    numbered = ((int(match[1]), name) for name in names if (match := _NAME.fullmatch(name)))
    return [name for _, name in sorted(numbered)]


def open_log(path: Path) -> BinaryIO:
    """A log's bytes: of a file, or of a folder of events as JSON lines. Raises OSError."""
    try:
        return path.open("rb")
    except IsADirectoryError:
        # one that is being written stays an unended last line
        return io.BytesIO(b"\n".join(_line(event) for event in _events(path)))


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
    return [(file.name, file.stat()) for event in _events(folder) for file in event]


def _events(folder: Path) -> list[list[Path]]:
    """The files of each line of a folder's log: an event's one, or a message's and those of its parts."""
    if folder.parent.name == MESSAGES:
        return [[folder / name, *_parts(folder, name)] for name in event_files(folder, _files_in(folder))]
    return [[folder / name] for name in _numbered(_files_in(folder))]


def _parts(folder: Path, message: str) -> list[Path]:
    """The parts of a message, in their order."""
    every, own = folder.parent.parent / PARTS, message.removesuffix(".json")
    held = next((place for place in (every / own, every / folder.name / own) if place.is_dir()), None)
    return [] if held is None else [held / name for name in sorted(filter(_PART.fullmatch, _files_in(held)))]


def _files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_file()]


def _line(event: list[Path]) -> bytes:
    # line feeds in JSON stand between its values alone
    told, *parts = (file.read_bytes().strip().replace(b"\n", b" ") for file in event)
    return b'{"info": %s, "parts": [%s]}' % (told, b", ".join(parts)) if event[0].name.startswith("msg_") else told


def _holds_event(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:  # a pipe would be waited for
            return False
        value = json.loads(path.read_bytes(), strict=False)
        return is_event(value) or _is_message(value) or (isinstance(value, dict) and _is_message(value.get("message")))
    except (OSError, ValueError, RecursionError):
        return False


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("role") in _ROLES and isinstance(value.get("content"), list)
