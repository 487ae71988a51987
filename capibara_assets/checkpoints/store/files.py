"""Every change that a checkpoint store makes to the local file system, one system call per function.

The store calls these as `files.pwrite(...)`, looked up at call time, so that a test can record the writes and their
order, replay a part of them, and let any of them fail.
"""

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path

Data = bytes | bytearray | memoryview

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def create(path: Path, mode: int = 0o666) -> int:
    """Descriptor of a new, empty file. Raises FileExistsError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def pwrite(fd: int, data: Data, offset: int) -> None:
    """Write all of `data` at `offset`."""
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def sync(fd: int) -> None:
    """Wait until the content of a file is on disk."""
    os.fsync(fd)


def close(fd: int) -> None:
    """Close a descriptor."""
    os.close(fd)


def link(source: Path, target: Path) -> None:
    """Give a file a second name. Raises FileExistsError: `target` exists."""
    os.link(source, target)


def rename(source: Path, target: Path) -> None:
    """Rename a file atomically, replacing `target`."""
    os.rename(source, target)  # noqa: PTH104 - one system call each


def unlink(path: Path) -> None:
    """Delete a file if it exists."""
    path.unlink(missing_ok=True)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder if it does not exist."""
    path.mkdir(mode, exist_ok=True)


def remove_folder(path: Path) -> None:
    """Delete a folder if it exists and is empty."""
    try:
        path.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_back(fd: int, offset: int, length: int) -> None:
    """Start writing a range to disk without waiting, so that the sync at the end is short. A hint."""
    if _sync_file_range is not None:
        _sync_file_range(fd, offset, length, _WRITE)


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The C library's sync_file_range, which Linux has and Python's os module lacks."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_sync_file_range = _find_sync_file_range()
