"""Where a checkpoint store lies: a local folder, or an object store such as gs://, through the same few operations.

Names are relative POSIX paths. A name appears with all of its bytes or not at all, and on a disk it is durable when the
call returns (unless told otherwise).
"""

import errno
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from upath import UPath

from capibara_assets.checkpoints.store import files
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.commit import no_room
from capibara_assets.storage.digests import sha256_bytes

PARTS = "parts"
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
Entries = list[tuple[str, dict[str, Any]]]  # in the classes below, `list` is a method


class Place(Protocol):
    """The operations a store needs of where it lies."""

    @property
    def root(self) -> str:
        """The address, for messages and lineage."""
        ...

    @property
    def parts(self) -> Path:
        """Local folder for files that are being written."""
        ...

    @property
    def file_mode(self) -> int:
        """Mode of new files there, less the umask."""
        ...

    def read(self, name: str) -> bytes:
        """All bytes. Raises FileNotFoundError."""
        ...

    def size(self, name: str) -> int:
        """Bytes under a name. Raises FileNotFoundError."""
        ...

    def open(self, name: str) -> "Reading":
        """For reads of ranges. Raises FileNotFoundError."""
        ...

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """Write a new name; False, and nothing done, if it is there. One of many writers at once gets True."""
        ...

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a name, over what is there."""
        ...

    def publish(self, part: Path, name: str) -> None:
        """Give a finished, synced file of `parts` its name, which nobody else uses; the part is gone then."""
        ...

    def list(self, folder: str) -> Mapping[str, int]:
        """Names right below a folder with their sizes, files only; none if there is no such folder."""
        ...

    def folders(self, folder: str) -> tuple[str, ...]:
        """Names of the folders right below a folder, sorted."""
        ...

    def settle(self, folder: str) -> None:
        """Wait until every name that is in a folder now is durable, also those that others are just putting there.

        Whoever relies on what another process made needs it: that process may still be waiting for its own sync.
        """
        ...

    def delete(self, name: str, *, durable: bool = False) -> None:
        """Take a name away; one that is not there is fine."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Take a folder away if it is empty; one that is not, or is not there, is fine."""
        ...


class Reading(Protocol):
    """A name that is open for reading, closed with its last use; safe to use from several threads at once."""

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset` on. Raises IntegrityError: it ends before that; FileNotFoundError: it is gone."""
        ...

    def will_read(self, offset: int, length: int) -> None:
        """A hint that this range comes soon."""
        ...


def open_place(
    root: str | UPath | Path,
    *,
    work: Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
    private: bool = False,
) -> Place:
    """The place at an address.

    Args:
        work: local folder for files on their way; a remote place needs one.
        private: files and folders are readable by their owner alone (local places).

    Raises:
        InputError: a remote place without `work`.
    """
    if str(root).startswith(("gs:", "gcs:")):
        # as in storage/store.py: gcsfs otherwise asks for the bucket's type over gRPC, and hangs where there is none
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    location = UPath(root, **dict(storage_options or {}))
    if location.protocol in ("", "file", "local"):
        return LocalPlace(Path(location.path).absolute(), private)
    if work is None:
        raise InputError(f"the checkpoint store {root} is remote: name a local folder for work in progress")
    # one folder per store: whose parts are abandoned is for the store's own leases to say
    return RemotePlace(location, Path(work).absolute() / PARTS / sha256_bytes(str(location).encode())[:16])


@contextmanager
def room(place: Place) -> Iterator[None]:
    """A full disk, or one that may not be written to, becomes an InputError."""
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSED:
            raise InputError(f"cannot write to {place.root}: {error.strerror} ({error.filename})") from error
        raise no_room(error, place.root) or error from error


class LocalPlace:
    """A folder on a disk."""

    def __init__(self, root: Path, private: bool = False) -> None:
        self._root = root
        self._file_mode = files.PRIVATE_FILE if private else 0o666
        self._folder_mode = files.PRIVATE_FOLDER if private else 0o777
        self._settled: set[Path] = set()  # folders whose own names this process knows to be durable

    @property
    def root(self) -> str:
        return str(self._root)

    @property
    def parts(self) -> Path:
        return self._folder(PARTS)

    @property
    def file_mode(self) -> int:
        """Mode that new files get, less the umask."""
        return self._file_mode

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def size(self, name: str) -> int:
        return (self._root / name).stat().st_size

    def open(self, name: str) -> "LocalReading":
        return LocalReading(self._root / name)

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        with self._written(data, durable) as part:
            target = self._target(name)
            try:
                files.link(part, target)
            except FileExistsError:
                return False
            if durable:
                files.sync_folder(target.parent)
            return True

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        with self._written(data, durable) as part:
            target = self._target(name)
            files.rename(part, target)
            if durable:
                files.sync_folder(target.parent)

    def publish(self, part: Path, name: str) -> None:
        with room(self):
            target = self._target(name)
            files.rename(part, target)
            files.sync_folder(target.parent)

    def list(self, folder: str) -> Mapping[str, int]:
        found = {}
        try:
            with os.scandir(self._root / folder) as entries:
                for entry in entries:
                    try:
                        if entry.is_file(follow_symlinks=False):
                            found[entry.name] = entry.stat(follow_symlinks=False).st_size
                    except FileNotFoundError:
                        continue  # it went while we looked
        except FileNotFoundError:
            return {}
        return found

    def folders(self, folder: str) -> tuple[str, ...]:
        try:
            with os.scandir(self._root / folder) as entries:
                return tuple(sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))
        except FileNotFoundError:
            return ()

    def settle(self, folder: str) -> None:
        with room(self):
            files.sync_folder(self._folder(folder))

    def delete(self, name: str, *, durable: bool = False) -> None:
        path = self._root / name
        with room(self):
            files.unlink(path)
            if durable:
                files.sync_folder(path.parent)

    def delete_folder(self, folder: str) -> None:
        path = self._root / folder
        with room(self):
            files.remove_folder(path)
            files.sync_folder(path.parent)

    @contextmanager
    def _written(self, data: bytes, durable: bool) -> Iterator[Path]:
        """A part file with these bytes; its name is gone afterwards."""
        with room(self):
            part = self.parts / f"{uuid.uuid4().hex}.part"
            try:
                fd = files.create(part, self._file_mode)
                try:
                    files.pwrite(fd, data, 0)
                    if durable:
                        files.sync(fd)
                finally:
                    files.close(fd)
                yield part
            except FileNotFoundError as error:
                if part.exists():
                    raise
                raise InputError(
                    f"{part} was swept up before it was in its place: this process stood still for too long (was it "
                    "suspended?); nothing was written, do it again"
                ) from error
            finally:
                files.unlink(part)

    def _target(self, name: str) -> Path:
        folder, _, file = name.rpartition("/")
        return self._folder(folder) / file

    def _folder(self, name: str) -> Path:
        """A folder below the root; made, durably, where it is not there."""
        path = self._root / name if name else self._root
        self._make(path)
        return path

    def _make(self, path: Path) -> None:
        inside = self._root in path.parents
        if path.is_dir() and (not inside or path in self._settled):
            return
        self._make(path.parent)
        with room(self):
            # it may be there: whoever made it may still be waiting for the sync
            files.make_folder(path, self._folder_mode)
            files.sync_folder(path.parent)
        self._settled.add(path)


class LocalReading:
    """A local file that is open for reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

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
        # with its last user: another thread may be reading when the first is done with it
        if (fd := getattr(self, "_fd", -1)) >= 0:
            os.close(fd)


class RemotePlace:
    """A folder of an object store, through fsspec: objects appear whole, and are created on a condition."""

    def __init__(self, root: UPath, parts: Path) -> None:
        self._root = root
        self._fs = root.fs
        self._base = root.path.rstrip("/")
        self._parts = parts

    @property
    def root(self) -> str:
        return str(self._root)

    @property
    def parts(self) -> Path:
        self._parts.mkdir(parents=True, exist_ok=True)
        return self._parts

    @property
    def file_mode(self) -> int:
        """Parts of what may be a sealed store lie in a folder of this user alone."""
        return files.PRIVATE_FILE

    def read(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(f"{self._base}/{name}"))

    def size(self, name: str) -> int:
        self._fs.invalidate_cache()
        return int(self._fs.info(f"{self._base}/{name}")["size"])

    def open(self, name: str) -> "RemoteReading":
        return RemoteReading(self._fs, f"{self._base}/{name}")

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        try:
            self._fs.pipe_file(f"{self._base}/{name}", data, mode="create")
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._fs.pipe_file(f"{self._base}/{name}", data)

    def publish(self, part: Path, name: str) -> None:
        self._fs.put_file(str(part), f"{self._base}/{name}")
        files.unlink(part)

    def list(self, folder: str) -> Mapping[str, int]:
        return {name: int(entry["size"] or 0) for name, entry in self._entries(folder) if entry["type"] != "directory"}

    def folders(self, folder: str) -> tuple[str, ...]:
        return tuple(sorted(name for name, entry in self._entries(folder) if entry["type"] == "directory"))

    def settle(self, folder: str) -> None:
        """Objects are durable once they can be seen."""

    def delete(self, name: str, *, durable: bool = False) -> None:
        try:
            self._fs.rm_file(f"{self._base}/{name}")
        except FileNotFoundError:
            return

    def delete_folder(self, folder: str) -> None:
        """Object stores have none."""

    def _entries(self, folder: str) -> Entries:
        path = f"{self._base}/{folder}".rstrip("/")
        try:
            found = self._fs.ls(path, detail=True, refresh=True)
        except FileNotFoundError:
            return []
        # a folder may list itself, as a marker object
        return [(entry["name"].rstrip("/").rpartition("/")[2], entry) for entry in found
                if entry["name"].strip("/") != path.strip("/")]  # fmt: skip


class RemoteReading:
    """An object that is read by ranges."""

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
        """Object stores take no hints."""
