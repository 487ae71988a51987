"""A disk that forgets: every change a store made, recorded in order, and what a crash may leave of a part of them.

The model is POSIX at its strictest, stricter than ext4 or xfs: bytes are on disk once their file was synced after them,
names once their folder was synced after them, each without the other; until then any part of them may be there, in any
order, writes by sectors of 512 bytes (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014).
"""

import errno
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from capibara_assets.checkpoints.store import files

SECTOR = 512
Loss = Literal["killed", "lost", "torn", "reordered"]
LOSSES: tuple[Loss, ...] = ("killed", "lost", "torn", "reordered")

CALLS = ("create", "pwrite", "sync", "close", "link", "rename", "unlink", "make_folder", "sync_folder")
NEEDS_ROOM = ("create", "pwrite", "sync", "link", "rename", "make_folder", "sync_folder")


@dataclass(frozen=True)
class Change:
    """One call. `inode` numbers files in the order they were made; paths are relative to the recorder's root.

    `seen`: of a sync, how many changes had been made when it began, which are all that it covers; else the position.
    """

    call: str
    path: str = ""
    source: str = ""
    inode: int = -1
    offset: int = 0
    data: bytes = field(default=b"", repr=False)
    seen: int = 0
    note: Any = None


class Recorder:
    """Records the store's changes below a root, of all threads, in the order in which they were done.

    Every sync takes `sync_s` seconds longer, as on a slow disk: other threads get ahead meanwhile. Right before call
    number `at`, `meanwhile` is done: what another process does in between.
    """

    def __init__(
        self, root: Path, sync_s: float = 0.0, at: int | None = None, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        self.root, self._sync_s, self._at, self._meanwhile = root, sync_s, at, meanwhile
        self._calls = 0
        self.changes: list[Change] = []
        self._lock = threading.Lock()
        self._inodes = 0
        self._open: dict[int, int] = {}
        self._names: dict[str, int] = {}

    def note(self, note: Any) -> None:
        """What the writer knows at this point: a save returned, a retirement began."""
        with self._lock:
            self.changes.append(Change("note", note=note))

    @contextmanager
    def recording(self) -> Iterator["Recorder"]:
        """Stands between the store and `files` while the block runs."""
        with replaced({name: self._recorded(name, getattr(files, name)) for name in CALLS}):
            yield self

    def _recorded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                number, self._calls = self._calls, self._calls + 1
            if number == self._at:
                self._meanwhile()
            if name in ("sync", "sync_folder"):  # takes long: others go on meanwhile, and are not covered
                with self._lock:
                    began, inode = len(self.changes), self._open.get(arguments[0], -1)
                time.sleep(self._sync_s)
                result = call(*arguments, **named)
                with self._lock:
                    path = "" if name == "sync" else self._relative(arguments[0])
                    self.changes.append(Change(name, path=path, inode=inode, seen=began))
                return result
            with self._lock:
                result = call(*arguments, **named)
                change = self._change(name, arguments, result)
                if change is not None:
                    self.changes.append(change)
                return result

        return recorded

    def _change(self, name: str, arguments: tuple[Any, ...], result: Any) -> Change | None:
        match name:
            case "create":
                inode, self._inodes = self._inodes, self._inodes + 1
                path = self._relative(arguments[0])
                self._open[result] = self._names[path] = inode
                return Change(name, path=path, inode=inode)
            case "pwrite":
                fd, data, offset = arguments
                return Change(name, inode=self._open[fd], offset=offset, data=bytes(data))
            case "close":
                del self._open[arguments[0]]
                return None
            case "link" | "rename":
                source, path = map(self._relative, arguments)
                inode = self._names[path] = self._names[source]
                if name == "rename":
                    del self._names[source]
                return Change(name, path=path, source=source, inode=inode)
            case "unlink":
                path = self._relative(arguments[0])
                return Change(name, path=path) if self._names.pop(path, None) is not None else None
            case _:
                return Change(name, path=self._relative(arguments[0]))

    def _relative(self, path: Path) -> str:
        return Path(path).relative_to(self.root).as_posix()


@dataclass(frozen=True)
class Tree:
    """What is on a disk: folders, and files with their bytes, by path relative to the root."""

    folders: frozenset[str]
    files: dict[str, bytes]

    def write(self, root: Path) -> None:
        """Into a new folder."""
        root.mkdir(parents=True)
        for folder in sorted(self.folders):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (root / name).write_bytes(data)


def left_by_crash(changes: list[Change], loss: Loss, chance: random.Random) -> Tree:
    """What a crash right after (or, a write: in the middle of) the last of these changes may leave.

    `killed`: the process died, the system went on: everything is there, the last write up to any byte.
    The others are losses of power. `lost`: nothing that was not synced. `torn`: names are all there, of writes that
    were not synced any sectors. `reordered`: any part of the names, too.
    """
    names = _kept_names(changes, loss, chance)
    found: dict[str, int] = {}
    folders = {""}
    for change in names:
        match change.call:
            case "create" | "link":
                found[change.path] = change.inode
            case "rename":
                if found.get(change.source) == change.inode:
                    del found[change.source]
                found[change.path] = change.inode
            case "unlink":
                found.pop(change.path, None)
            case "make_folder":
                folders.add("" if change.path == "." else change.path)
    reachable = {folder for folder in folders if _ancestors(folder) <= folders}
    contents = {inode: _content(changes, inode, loss, chance) for inode in sorted(set(found.values()))}
    return Tree(
        frozenset(reachable - {""}),
        {path: contents[inode] for path, inode in found.items() if _folder(path) in reachable},
    )


def _kept_names(changes: list[Change], loss: Loss, chance: random.Random) -> list[Change]:
    """The changes of names that are on disk: those whose folder was synced later, and what luck left of the others."""
    synced: dict[str, int] = {}  # folder -> how many changes its last sync covers
    for change in changes:
        if change.call == "sync_folder":
            folder = "" if change.path == "." else change.path
            synced[folder] = max(change.seen, synced.get(folder, 0))
    kept = []
    for position, change in enumerate(changes):
        if change.call not in ("create", "link", "rename", "unlink", "make_folder"):
            continue
        durable = change.path == "." or synced.get(_folder(change.path), 0) > position
        if durable or loss in ("killed", "torn") or (loss == "reordered" and chance.random() < 0.5):
            kept.append(change)
    return kept


def _content(changes: list[Change], inode: int, loss: Loss, chance: random.Random) -> bytes:
    """Bytes of a file: all that a later sync covered, and of the rest what the kind of loss leaves."""
    covered = max((c.seen for c in changes if c.call == "sync" and c.inode == inode), default=0)
    content = bytearray()
    extent = 0
    for position, change in enumerate(changes):
        if change.call != "pwrite" or change.inode != inode:
            continue
        extent = max(extent, change.offset + len(change.data))
        if loss == "killed":
            cut = chance.randrange(len(change.data) + 1) if position == len(changes) - 1 else len(change.data)
            put(content, change.offset, change.data[:cut])
        elif position < covered:
            put(content, change.offset, change.data)
        elif loss != "lost":
            share = chance.choice((0.0, 0.5, 1.0)) if loss == "reordered" else chance.random()
            for start, end in sectors(change.offset, len(change.data)):
                if chance.random() < share:
                    put(content, start, change.data[start - change.offset : end - change.offset])
    if loss in ("torn", "reordered") and len(content) < extent and chance.random() < 0.5:
        content.extend(bytes(extent - len(content)))  # the length was on disk before the bytes: zeros
    return bytes(content)


def put(content: bytearray, offset: int, data: bytes) -> None:
    """Write bytes into others, which are extended by zeros up to there."""
    if not data:
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def sectors(start: int, length: int) -> Iterator[tuple[int, int]]:
    """Ranges of a write, cut where sectors of the file begin."""
    end = start + length
    while start < end:
        cut = min(end, (start // SECTOR + 1) * SECTOR)
        yield start, cut
        start = cut


def _ancestors(folder: str) -> set[str]:
    parts = folder.split("/") if folder else []
    return {"/".join(parts[:count]) for count in range(len(parts))} | {""}


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


@contextmanager
def replaced(calls: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Functions of `files` replaced while the block runs."""
    before = {name: getattr(files, name) for name in calls}
    try:
        for name, call in calls.items():
            setattr(files, name, call)
        yield
    finally:
        for name, call in before.items():
            setattr(files, name, call)


@contextmanager
def full_disk(after: int, calls: int) -> Iterator[list[str]]:
    """ENOSPC from the call number `after` (of those that need room) on, `calls` times; a write leaves a part of it.

    The list fills with the names of the calls that failed.
    """
    failed: list[str] = []
    lock, count = threading.Lock(), 0

    def failing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            with lock:
                number, count = count, count + 1
                if after <= number < after + calls:
                    failed.append(name)
            if not after <= number < after + calls:
                return call(*arguments, **named)
            if name == "pwrite":
                fd, data, offset = arguments
                call(fd, bytes(data)[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return maybe

    with replaced({name: failing(name, getattr(files, name)) for name in NEEDS_ROOM}):
        yield failed


@contextmanager
def killed_at(number: int, chance: random.Random) -> Iterator[None]:
    """This process dies by SIGKILL at its call number `number`: before it, after it, or in the middle of a write."""
    lock, count = threading.Lock(), 0
    moment = chance.choice(("before", "middle", "after"))
    share = chance.random()

    def deadly(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            with lock:
                mine, count = count == number, count + 1
            if not mine:
                return call(*arguments, **named)
            if name == "pwrite" and moment == "middle":
                fd, data, offset = arguments
                call(fd, bytes(data)[: int(len(data) * share)], offset)
            elif moment == "after":
                call(*arguments, **named)
            os.kill(os.getpid(), signal.SIGKILL)
            return None  # never

        return maybe

    with replaced({name: deadly(name, getattr(files, name)) for name in CALLS}):
        yield
