"""Temporary copies of folders restored from checkpoints, kept while a process of this machine uses them.

A copy that no process holds may be removed at any time; it is restored again when it is needed.
"""

import atexit
import os
import shutil
import threading
import uuid
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

_GONE = ".gone-"
_held: dict[Path, int] = {}
"""Folders that this process uses -> descriptor of its lock, which the system releases however the process ends."""
_lock = threading.Lock()


def hold(folder: Path) -> Path:
    """Create `<root>/<asset>/<partition>/<digest>` and lock it against removal until this process ends; returns it.

    Only this user may read the root. Can be called again.
    """
    with _lock:
        while folder not in _held or not _is_open(folder, _held[folder]):
            if (stale := _held.pop(folder, None)) is not None:
                os.close(stale)
            folder.parents[2].mkdir(mode=0o700, parents=True, exist_ok=True)  # what it copies may lie encrypted
            folder.mkdir(parents=True, exist_ok=True)
            if (descriptor := _locked(folder, LOCK_SH)) is not None:
                _held[folder] = descriptor
    return folder


def evict(root: Path) -> int:
    """Remove every `<root>/<asset>/<partition>/<digest>` that no process holds; returns how many."""
    removed = 0
    for folder in sorted(path for path in root.glob("*/*/*") if path.is_dir()):
        gone = folder.with_name(f"{_GONE}{uuid.uuid4().hex}")
        if folder.name.startswith(_GONE):  # left by a process that was killed while it removed this
            gone = folder
        else:
            descriptor = _locked(folder, LOCK_EX | LOCK_NB)
            if descriptor is None:
                continue
            try:
                folder.rename(gone)
            finally:
                os.close(descriptor)
        shutil.rmtree(gone, ignore_errors=True)
        removed += 1
    return removed


@atexit.register
def release() -> None:
    """Release every folder that this process holds, and remove those that no other process holds."""
    with _lock:
        folders = list(_held)
        for descriptor in _held.values():
            os.close(descriptor)
        _held.clear()
    for root in {folder.parents[2] for folder in folders}:
        with suppress(OSError):  # at the end of a process: the next `evict` removes it
            evict(root)


def _locked(folder: Path, how: int) -> int | None:
    """A descriptor that holds the lock; None if another process has it, or the folder was removed meanwhile."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        flock(descriptor, how)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if _is_open(folder, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _is_open(folder: Path, descriptor: int) -> bool:
    """Whether the folder of this name is still the one that was opened."""
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
