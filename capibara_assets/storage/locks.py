"""Lock files: one process at a time, others wait."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capibara_assets.storage.jsonfiles import make_folders


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Wait for the lock of a file (created if needed), and hold it."""
    make_folders(file.parent)
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go of by the system however the process ends
        yield
