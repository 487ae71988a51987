"""Folders brought back from checkpoints, each for as long as a process of this machine uses it.

They are copies: one may go whenever nobody holds it, and is made again when it is asked for.
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
"""Folders that this process uses -> descriptor whose lock says so; the system lets go however the process ends."""
_lock = threading.Lock()


def hold(folder: Path) -> Path:
    """Makes `<root>/<asset>/<partition>/<digest>`, and sees that no other process removes it before this one ends.

    Only this user may look into the root. Can be called again.
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
    """Removes every `<root>/<asset>/<partition>/<digest>` that no process holds; returns how many."""
    removed = 0
    for folder in sorted(path for path in root.glob("*/*/*") if path.is_dir()):
        gone = folder.with_name(f"{_GONE}{uuid.uuid4().hex}")
        if folder.name.startswith(_GONE):  # of one that was killed while it removed this
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
def let_go() -> None:
    """Ends this process's use of all that it held; what nobody else holds goes."""
    with _lock:
        folders = list(_held)
        for descriptor in _held.values():
            os.close(descriptor)
        _held.clear()
    for root in {folder.parents[2] for folder in folders}:
        with suppress(OSError):  # at the end of a process: the next one that looks removes it
            evict(root)


def _locked(folder: Path, how: int) -> int | None:
    """A descriptor that holds the lock; None if another one has it, or the folder went away meanwhile."""
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
