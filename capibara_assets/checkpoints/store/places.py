"""File operations of a checkpoint store, on a local folder or an object store such as gs://.

Names are relative POSIX paths. A name appears with all of its bytes or not at all, and on a disk it is durable when the
call returns (unless told otherwise).
"""

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from upath import UPath

from capibara_assets.checkpoints.store import files
from capibara_assets.errors import InputError
from capibara_assets.storage.commit import no_room
from capibara_assets.storage.conditional import has_generations, replace_seen, seen
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.foreign import read_stored
from capibara_assets.storage.mirror import prepare_buckets
from capibara_assets.storage.ranges import LocalRangeReader, RangeReader, RemoteRangeReader

PARTS = "parts"
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
Entries = list[tuple[str, dict[str, Any]]]  # in the classes below, `list` is a method


class StorePlace(Protocol):
    """The file operations that a checkpoint store needs."""

    @property
    def root(self) -> str:
        """Address, for messages and lineage."""
        ...

    @property
    def parts(self) -> Path:
        """Local folder for files that are being written."""
        ...

    @property
    def file_mode(self) -> int:
        """Mode of new files, less the umask."""
        ...

    def read(self, name: str) -> bytes:
        """All bytes of a document. Raises FileNotFoundError; IntegrityError: it is no file of a document's size."""
        ...

    def size(self, name: str) -> int:
        """Size of a file in bytes. Raises FileNotFoundError."""
        ...

    def open(self, name: str) -> RangeReader:
        """Open a file for reads of ranges. Raises FileNotFoundError; IntegrityError: it is no file."""
        ...

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """Write a new file; False, and no effect, if the name exists. Exactly one of concurrent writers gets True."""
        ...

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file, replacing an existing one."""
        ...

    def swap(self, name: str, former: bytes, data: bytes) -> bool:
        """Replace a file that contains `former`, durably; False, without effect, if its content differs.

        Exactly one of concurrent writers gets True, on a disk and on gs://; elsewhere the last one has its way.
        """
        ...

    def publish(self, part: Path, name: str) -> None:
        """Move a finished, synced file of `parts` to its final, unique name."""
        ...

    def list(self, folder: str) -> Mapping[str, int]:
        """Name -> size of what lies directly in a folder, but folders; empty if there is no such folder.

        A pipe or link at a file's place is there, too: whoever reads it says that it is none.
        """
        ...

    def folders(self, folder: str) -> tuple[str, ...]:
        """Names of the folders directly in a folder, sorted."""
        ...

    def sync_names(self, folder: str) -> None:
        """Wait until every name now in a folder is durable, also names that other processes are just creating.

        Needed before relying on another process's file: that process may still be waiting for its own sync.
        """
        ...

    def delete(self, name: str, *, durable: bool = False) -> None:
        """Delete a file if it exists."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete a folder if it exists and is empty."""
        ...


def open_place(
    root: str | UPath | Path,
    *,
    work: Path | None = None,
    private: bool = False,
) -> StorePlace:
    """The store's place at an address, local or remote.

    Args:
        work: local folder for unfinished files; a remote place needs one.
        private: make files and folders readable by their owner only (local places).

    Raises:
        InputError: a remote place without `work`, or of a protocol that is unknown or not installed.
    """
    if str(root).startswith(("gs:", "gcs:")):
        prepare_buckets()
    try:
        location = UPath(root)
        location.fs  # noqa: B018 - the library of its protocol is imported here
    except (ImportError, ValueError, OSError) as error:  # an OSError: protocols that connect at once, as ftp does
        extra = "; pip install 'capibara-assets[gcp]' reads and writes gs://" if str(root).startswith("g") else ""
        raise InputError(f"{root} is no place for a store that can be reached: {error}{extra}") from error
    if location.protocol in ("", "file", "local"):
        return LocalPlace(Path(location.path).absolute(), private)
    if work is None:
        raise InputError(f"the checkpoint store {root} is remote: name a local folder for work in progress")
    # one folder per store: only the store's own leases tell which parts are abandoned
    return RemotePlace(location, Path(work).absolute() / PARTS / sha256_bytes(str(location).encode())[:16])


@contextmanager
def room(place: StorePlace) -> Iterator[None]:
    """Turn the error of a full or read-only disk into an InputError."""
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
        self._durable: set[Path] = set()  # folders whose names this process knows to be durable

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
        return read_stored(self._root / name)

    def size(self, name: str) -> int:
        return (self._root / name).stat().st_size

    def open(self, name: str) -> LocalRangeReader:
        return LocalRangeReader(self._root / name)

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

    def swap(self, name: str, former: bytes, data: bytes) -> bool:
        folder = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # of the folder: a lock's file would be one more name in the store
            if self.read(name) != former:
                return False
            self.replace(name, data)
            return True
        finally:
            os.close(folder)

    def publish(self, part: Path, name: str) -> None:
        with room(self):
            target = self._target(name)
            files.rename(part, target)
            files.sync_folder(target.parent)

    def list(self, folder: str) -> Mapping[str, int]:
        sizes = {}
        try:
            with os.scandir(self._root / folder) as entries:
                for entry in entries:
                    try:
                        if not entry.is_dir(follow_symlinks=False):
                            sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
                    except FileNotFoundError:
                        continue  # deleted meanwhile
        except FileNotFoundError:
            return {}
        return sizes

    def folders(self, folder: str) -> tuple[str, ...]:
        try:
            with os.scandir(self._root / folder) as entries:
                return tuple(sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))
        except FileNotFoundError:
            return ()

    def sync_names(self, folder: str) -> None:
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
        """A part file with these bytes, deleted afterwards."""
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
                    f"{part} was collected before it was published: this process stalled for too long (was it "
                    "suspended?); nothing was written, do it again"
                ) from error
            finally:
                files.unlink(part)

    def _target(self, name: str) -> Path:
        folder, _, file = name.rpartition("/")
        return self._folder(folder) / file

    def _folder(self, name: str) -> Path:
        """A folder below the root; created, durably, where it does not exist."""
        path = self._root / name if name else self._root
        self._make(path)
        return path

    def _make(self, path: Path) -> None:
        inside = self._root in path.parents
        if path.is_dir() and (not inside or path in self._durable):
            return
        self._make(path.parent)
        with room(self):
            # it may exist: the process that created it may still be waiting for the sync
            files.make_folder(path, self._folder_mode)
            files.sync_folder(path.parent)
        self._durable.add(path)


class RemotePlace:
    """A folder of an object store, through fsspec: objects appear whole, and are created conditionally."""

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
        """Private: the store may be encrypted, and its parts are not sealed yet."""
        return files.PRIVATE_FILE

    def read(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(f"{self._base}/{name}"))

    def size(self, name: str) -> int:
        self._fs.invalidate_cache()
        return int(self._fs.info(f"{self._base}/{name}")["size"])

    def open(self, name: str) -> RemoteRangeReader:
        return RemoteRangeReader(self._fs, f"{self._base}/{name}")

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        try:
            self._fs.pipe_file(f"{self._base}/{name}", data, mode="create")
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._fs.pipe_file(f"{self._base}/{name}", data)

    def swap(self, name: str, former: bytes, data: bytes) -> bool:
        path = self._root / name
        if has_generations(path):
            now = seen(path)
            return now.data == former and replace_seen(path, now, data)
        if self.read(name) != former:
            return False
        self.replace(name, data)
        return True

    def publish(self, part: Path, name: str) -> None:
        self._fs.put_file(str(part), f"{self._base}/{name}")
        files.unlink(part)

    def list(self, folder: str) -> Mapping[str, int]:
        return {name: int(entry["size"] or 0) for name, entry in self._entries(folder) if entry["type"] != "directory"}

    def folders(self, folder: str) -> tuple[str, ...]:
        return tuple(sorted(name for name, entry in self._entries(folder) if entry["type"] == "directory"))

    def sync_names(self, folder: str) -> None:
        """Nothing to do: objects are durable once they are visible."""

    def delete(self, name: str, *, durable: bool = False) -> None:
        try:
            self._fs.rm_file(f"{self._base}/{name}")
        except FileNotFoundError:
            return

    def delete_folder(self, folder: str) -> None:
        """Nothing to do: object stores have no folders."""

    def _entries(self, folder: str) -> Entries:
        path = f"{self._base}/{folder}".rstrip("/")
        try:
            entries = self._fs.ls(path, detail=True, refresh=True)
        except FileNotFoundError:
            return []
        # a folder may list itself, as a marker object
        return [(entry["name"].rstrip("/").rpartition("/")[2], entry) for entry in entries
                if entry["name"].strip("/") != path.strip("/")]  # fmt: skip
