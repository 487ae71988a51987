"""Losses of power for any writer: its system calls, recorded by strace, and what a disk may keep of a part of them.

`python -m capibara_assets_tests.reliability.power SCENARIO FOLDER`, under strace, is the process that is recorded. The
model is that of `checkpoints/drills/disk.py`, for whatever process and library writes: POSIX at its strictest. Bytes
are on disk once their file was synced after them, names once their folder was synced after them; until then any part
of them may be there, in any order.
"""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from capibara_assets_tests.checkpoints.drills.disk import Tree, put, sectors
from capibara_assets_tests.reliability import careless
from capibara_assets_tests.reliability.system_calls import SCENARIOS, Scenario

PowerLoss = Literal["lost", "torn", "reordered"]
"""`lost`: nothing that was not synced is there. `torn`: names are, of bytes some. `reordered`: of names, too."""


CARELESS = "careless"
WRITERS = SCENARIOS | {
    CARELESS: Scenario(
        lambda folder: careless.write(folder, "a"),
        lambda folder: careless.write(folder, "b"),
        lambda folder: (folder / "whole").read_text(),
    )
}
_HERE = "capibara_assets_tests.reliability.power"
_MODULES = {CARELESS: (careless.__name__,)}
"""What runs as a process of its own, where it is not this module."""
_UNMODELLED = ("writev", "pwritev", "truncate", "fallocate", "copy_file_range", "symlink", "symlinkat", "creat", "open")
_CALLS = (
    *("openat", "write", "pwrite64", "ftruncate", "fsync", "fdatasync", "sendfile", "lseek", "mkdir", "rmdir"),
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", *_UNMODELLED),
)
_LINE = re.compile(r"(\w+)\((.*)\) += (\d+)(?:<\S*>)?(?: \(.*\))?$")
_BYTES = r"((?:\\x[0-9a-f]{2})*)"
_OPENED = re.compile(rf"(\w+)<{_BYTES}>")
_TEXT = re.compile(rf'"{_BYTES}"$')
_ROOT = 0


@dataclass(frozen=True)
class Change:
    """One change of a disk, or a sync.

    Attributes:
        names: (folder, name, file before, file after) of all names that it changes at once, that of the target last.
        inode: the file or folder whose bytes are written, cut, or synced.
        size: that it is cut or extended to.
        seen: of a sync, how many changes had been made when it began, which are all that it covers.
    """

    names: tuple[tuple[int, str, int | None, int | None], ...] = ()
    inode: int = -1
    offset: int = 0
    data: bytes = field(default=b"", repr=False)
    size: int | None = None
    seen: int | None = None


@dataclass
class _Opened:
    inode: int
    append: bool
    at: int = 0


@dataclass
class Disk:
    """Folders (names -> numbers of files and folders) and files (number -> bytes); the root is number 0."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {_ROOT: {}})
    files: dict[int, bytearray] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> "Disk":
        """What is below a folder; files of several names are one."""
        disk, known = cls(), dict[int, int]()
        for folder, names, files in os.walk(root):
            inode = disk.find(Path(folder).relative_to(root).parts)
            assert inode is not None
            for name in (*names, *files):
                path = Path(folder) / name
                number = known.setdefault(path.stat().st_ino, len(disk.folders) + len(disk.files))
                disk.folders[inode][name] = number
                if name in names:
                    disk.folders[number] = {}
                else:
                    disk.files[number] = bytearray(path.read_bytes())
        return disk

    def find(self, parts: tuple[str, ...]) -> int | None:
        inode: int | None = _ROOT
        for part in parts:
            inode = self.folders.get(inode, {}).get(part) if inode is not None else None
        return inode

    def copy(self) -> "Disk":
        return Disk(
            {number: dict(names) for number, names in self.folders.items()},
            {number: bytearray(data) for number, data in self.files.items()},
        )

    def rename(self, change: Change) -> None:
        """Make a change of names; a name that is another file's by now stays."""
        for folder, name, before, after in change.names:
            names = self.folders[folder]
            if after is not None:
                names[name] = after
            elif names.get(name) == before:
                del names[name]

    def tree(self) -> Tree:
        """What can be reached from the root."""
        folders, files = set[str](), dict[str, bytes]()

        def walk(inode: int, at: str) -> None:
            for name, number in self.folders.get(inode, {}).items():
                if number in self.files:
                    files[f"{at}{name}"] = bytes(self.files[number])
                else:
                    folders.add(f"{at}{name}")
                    walk(number, f"{at}{name}/")

        walk(_ROOT, "")
        return Tree(frozenset(folders), files)


@dataclass
class Recorder:
    """Turns the lines of strace into changes of a disk."""

    root: Path
    disk: Disk
    changes: list[Change] = field(default_factory=list)
    _opened: dict[str, _Opened] = field(default_factory=dict)
    _begun: dict[str, tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._next = len(self.disk.folders) + len(self.disk.files)

    def add(self, line: str) -> None:
        process, text = line.rstrip("\n").split(maxsplit=1)
        began = len(self.changes)
        if text.endswith("<unfinished ...>"):
            self._begun[process] = text.removesuffix("<unfinished ...>").rstrip(), began
            return
        if text.startswith("<... "):
            head, began = self._begun.pop(process)
            tail = text.partition(" resumed>")[2]
            text = head + (" " if head.endswith(",") and not tail.startswith(" ") else "") + tail
        if (match := _LINE.match(text)) is None or match[1] not in _CALLS:
            return  # it failed, a signal, the end of a process
        call, result = match[1], match[3]
        arguments = match[2].split(", ")
        if call in _UNMODELLED:
            if any(self._inside(path) is not None for path in _paths(arguments)):
                raise RuntimeError(f"the model of the disk does not know {call}: {text[:200]}")
            return
        getattr(self, f"_{call}", self._two_paths)(arguments, int(result), began)

    def _openat(self, arguments: list[str], result: int, _: int) -> None:
        path, flags = next(_paths(arguments[:2])), arguments[2].split("|")
        if (parts := self._inside(path)) is None:
            self._opened.pop(str(result), None)
            return
        inode = self.disk.find(parts)
        if inode is None:
            inode = self._new(parts)
            self.disk.files[inode] = bytearray()
        elif "O_TRUNC" in flags:
            self._cut(inode, 0)
        self._opened[str(result)] = _Opened(inode, "O_APPEND" in flags)

    def _write(self, arguments: list[str], result: int, _: int) -> None:
        if (opened := self._file(arguments[0])) is not None:
            at = len(self.disk.files[opened.inode]) if opened.append else opened.at
            self._put(opened.inode, at, _data(arguments[1])[:result])
            opened.at = at + result

    def _pwrite64(self, arguments: list[str], result: int, _: int) -> None:
        if (opened := self._file(arguments[0])) is not None:
            self._put(opened.inode, int(arguments[3]), _data(arguments[1])[:result])

    def _sendfile(self, arguments: list[str], result: int, _: int) -> None:
        if (opened := self._file(arguments[0])) is None or result == 0:
            return
        source = self._file(arguments[1])
        if source is None:
            raise RuntimeError("bytes are copied from outside the folder: the model of the disk does not have them")
        start = int(arguments[2].split("]")[0].strip("["))
        self._put(opened.inode, opened.at, bytes(self.disk.files[source.inode][start : start + result]))
        opened.at += result

    def _lseek(self, arguments: list[str], result: int, _: int) -> None:
        if (opened := self._file(arguments[0])) is not None:
            opened.at = result

    def _ftruncate(self, arguments: list[str], result: int, _: int) -> None:
        if (opened := self._file(arguments[0])) is not None:
            self._cut(opened.inode, int(arguments[1]))

    def _fsync(self, arguments: list[str], result: int, began: int) -> None:
        if (opened := self._file(arguments[0])) is not None:
            self.changes.append(Change(inode=opened.inode, seen=began))

    _fdatasync = _fsync

    def _mkdir(self, arguments: list[str], result: int, _: int) -> None:
        if (parts := self._inside(next(_paths(arguments[:1])))) is not None:
            self.disk.folders[self._new(parts)] = {}

    def _unlink(self, arguments: list[str], result: int, _: int) -> None:
        if (parts := self._inside(next(_paths(arguments)))) is not None:
            folder, name, inode = self._name(parts)
            self._change(Change(names=((folder, name, inode, None),)))

    _unlinkat = _rmdir = _unlink

    def _two_paths(self, arguments: list[str], result: int, _: int) -> None:
        source, target = (self._inside(path) for path in _paths(arguments))
        if source is None and target is None:
            return
        if source is None or target is None:
            raise RuntimeError(f"a file comes from outside the folder, or leaves it: {list(_paths(arguments))}")
        folder, name, inode = self._name(source)
        new_folder, new_name, before = self._name(target)
        gone = () if self._linking else ((folder, name, inode, None),)
        self._change(Change(names=(*gone, (new_folder, new_name, before, inode))))

    _linking = False

    def _link(self, arguments: list[str], result: int, began: int) -> None:
        self._linking = True
        try:
            self._two_paths(arguments, result, began)
        finally:
            self._linking = False

    _linkat = _link

    def _new(self, parts: tuple[str, ...]) -> int:
        folder, name, before = self._name(parts)
        inode, self._next = self._next, self._next + 1
        self._change(Change(names=((folder, name, before, inode),)))
        return inode

    def _name(self, parts: tuple[str, ...]) -> tuple[int, str, int | None]:
        folder = self.disk.find(parts[:-1])
        assert folder is not None, parts
        return folder, parts[-1], self.disk.folders[folder].get(parts[-1])

    def _change(self, change: Change) -> None:
        self.disk.rename(change)
        self.changes.append(change)

    def _put(self, inode: int, at: int, data: bytes) -> None:
        put(self.disk.files[inode], at, data)
        self.changes.append(Change(inode=inode, offset=at, data=data))

    def _cut(self, inode: int, size: int) -> None:
        _resize(self.disk.files[inode], size)
        self.changes.append(Change(inode=inode, size=size))

    def _file(self, argument: str) -> _Opened | None:
        """What a descriptor stands for, below the root."""
        if (match := _OPENED.match(argument)) is None or self._inside(_text(match[2])) is None:
            return None
        parts, known = self._inside(_text(match[2])), self._opened.get(match[1])
        inode = self.disk.find(parts or ())
        if known is None or (inode is not None and known.inode != inode):  # a copy of another descriptor
            assert inode is not None, argument
            known = self._opened[match[1]] = _Opened(inode, append=False)
        return known

    def _inside(self, path: str) -> tuple[str, ...] | None:
        """Parts of a path below the root; None: it is elsewhere."""
        normal = os.path.normpath(path)
        if normal == str(self.root):
            return ()
        return Path(normal).relative_to(self.root).parts if normal.startswith(f"{self.root}/") else None


@dataclass(frozen=True)
class Recording:
    """What a process changed.

    Attributes:
        before: the disk when it began.
        made: numbers of the folders that it made.
    """

    before: Disk
    changes: list[Change]
    made: frozenset[int]

    def left(self, point: int, loss: PowerLoss, chance: random.Random) -> Tree:
        """What a loss of power after so many changes may leave."""
        changes, disk = self.changes[:point], self.before.copy()
        disk.folders |= {number: {} for number in self.made}
        covered: dict[int, int] = {}
        for change in changes:
            if change.seen is not None:
                covered[change.inode] = max(change.seen, covered.get(change.inode, 0))
        for position, change in enumerate(changes):
            if change.names and (inode := change.names[-1][3]) is not None and inode not in disk.folders:
                disk.files.setdefault(inode, bytearray())
            folder = change.names[-1][0] if change.names else change.inode
            durable = position < covered.get(folder, 0)
            if change.names:
                if durable or loss == "torn" or (loss == "reordered" and chance.random() < 0.5):
                    disk.rename(change)
            elif change.seen is None:
                _change_bytes(disk.files[change.inode], change, durable, loss, chance)
        return disk.tree()


def _change_bytes(content: bytearray, change: Change, durable: bool, loss: PowerLoss, chance: random.Random) -> None:
    if durable:
        put(content, change.offset, change.data) if change.size is None else _resize(content, change.size)
    elif loss == "lost":
        return
    elif change.size is not None:
        if chance.random() < 0.5:
            _resize(content, change.size)
    else:
        share = chance.choice((0.0, 0.5, 1.0))
        for start, end in sectors(change.offset, len(change.data)):
            if chance.random() < share:
                put(content, start, change.data[start - change.offset : end - change.offset])
        if chance.random() < 0.5:  # the length was on disk before the bytes: zeros
            content.extend(bytes(max(0, change.offset + len(change.data) - len(content))))


def record(scenario: str, folder: Path) -> Recording:
    """The changes of a scenario's writer in a folder.

    Raises:
        RuntimeError: they do not add up to what is there afterwards.
    """
    before = Disk.of(folder)
    recorder = Recorder(folder, before.copy())
    with TemporaryDirectory() as beside:
        output = Path(beside) / "calls"
        command = [
            *("strace", "-f", "--seccomp-bpf", "-qqq", "-y", "-xx", "-s", str(1 << 28)),
            *("-o", str(output), "--signal=none"),
            *("-e", f"trace={','.join(_CALLS)}"),
            *(sys.executable, "-m", *_MODULES.get(scenario, (_HERE, scenario)), str(folder)),
        ]
        subprocess.run(command, check=True, capture_output=True)
        with output.open() as lines:
            for line in lines:
                recorder.add(line)
    there, modelled = Disk.of(folder).tree(), recorder.disk.tree()
    if there != modelled:
        odd = {name for name, _ in there.files.items() ^ modelled.files.items()} or there.folders ^ modelled.folders
        raise RuntimeError(f"what was recorded is not what is there: {sorted(odd)}")
    return Recording(before, recorder.changes, frozenset(recorder.disk.folders.keys() - before.folders.keys()))


def _paths(arguments: list[str]) -> Iterator[str]:
    """The paths among a call's arguments; one that stands behind an open folder lies in it."""
    folder = ""
    for argument in arguments:
        if (opened := _OPENED.match(argument)) is not None:
            folder = _text(opened[2])
        elif (text := _TEXT.match(argument)) is not None:
            yield os.path.join(folder, _text(text[1]))  # noqa: PTH118 - joins of strings as the kernel does it
            folder = ""


def _data(argument: str) -> bytes:
    return bytes.fromhex(argument.strip('"').replace("\\x", ""))


def _text(escaped: str) -> str:
    return os.fsdecode(bytes.fromhex(escaped.replace("\\x", "")))


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


if __name__ == "__main__":
    WRITERS[sys.argv[1]].write(Path(sys.argv[2]))
