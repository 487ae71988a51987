"""Locks of files and folders: one process at a time, or several that share, and others wait."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capibara_assets.storage.foreign import open_stored
from capibara_assets.storage.jsonfiles import make_folders


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Wait for the lock of a file (created if needed), and hold it."""
    make_folders(file.parent)
    with os.fdopen(open_stored(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go of by the system however the process ends
        yield


@contextmanager
def folder_locked(folder: Path, how: int) -> Iterator[None]:
    """Hold a folder by LOCK_SH or LOCK_EX; nothing is written into it.

    Raises:
        FileNotFoundError: it is gone.
        BlockingIOError: others hold it, and `how` includes LOCK_NB.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, how)
        yield
    finally:
        fcntl.flock(opened, fcntl.LOCK_UN)  # a child that was forked meanwhile has the same folder open
        os.close(opened)
