"""Files opened for reads of ranges, on a disk and on an object store."""

import os
from pathlib import Path
from typing import Any, Protocol

from capibara_assets.errors import IntegrityError
from capibara_assets.storage.foreign import open_stored


class RangeReader(Protocol):
    """A file open for reading, closed with its last use; safe to use from several threads."""

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset`. Raises IntegrityError: the file is too short; FileNotFoundError: deleted."""
        ...

    def will_read(self, offset: int, length: int) -> None:
        """Hint that this range is read soon."""
        ...


class LocalRangeReader:
    """A local file open for reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = open_stored(path)

    def read_into(self, view: memoryview, offset: int) -> None:
        while view:
            got = os.preadv(self._fd, [view], offset)
            if not got:
                raise IntegrityError(f"{self._path} ends at byte {offset}, {len(view)} bytes early: it was cut off")
            view, offset = view[got:], offset + got

    def will_read(self, offset: int, length: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, offset, length, os.POSIX_FADV_WILLNEED)

    def __del__(self) -> None:
        # with its last user: another thread may still be reading
        if (fd := getattr(self, "_fd", -1)) >= 0:
            os.close(fd)


class RemoteRangeReader:
    """An object read by ranges."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self._path = fs, path

    def read_into(self, view: memoryview, offset: int) -> None:
        if not view:
            return
        data = self._fs.cat_file(self._path, start=offset, end=offset + len(view))
        if len(data) != len(view):
            raise IntegrityError(f"{self._path} ends {len(view) - len(data)} bytes early: it was cut off")
        view[:] = data

    def will_read(self, offset: int, length: int) -> None:
        """Nothing to do: object stores take no hints."""
