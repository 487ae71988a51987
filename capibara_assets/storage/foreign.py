"""Checks of files and folders from elsewhere: no links out, no blocking reads, no unbounded content.

A store's own files are opened here, too: whoever gets at the store may have put a pipe or a hole at their place.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from capibara_assets.deployment.documents import LARGEST_DOCUMENT, read_document, require_regular
from capibara_assets.errors import InputError, IntegrityError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from upath import UPath

__all__ = [
    "LARGEST_STORED", "hollow", "open_stored", "read_by_library", "read_document", "read_stored", "require_inside",
    "require_plain", "stored_table",
]  # fmt: skip

LARGEST_STORED = 256 << 20
"""Bytes of a document of a store; the manifest of a checkpoint of ten terabytes has 90 MB."""
_NO_FILE = "is no file but a folder, pipe, socket or device"
_UNOPENED = (errno.ENXIO, errno.ENODEV, errno.ELOOP)  # a pipe to write to, a socket, a device, links in a circle

_DOCUMENTS = frozenset((".json", ".jinja", ".txt", ".model", ".md", ".yaml", ".yml"))
_INDEXES = frozenset(("_METADATA", "_CHECKPOINT_METADATA", "_sharding", ".zarray", ".zattrs", ".zgroup", "zarr.json"))
_LARGEST_BESIDE = 256 << 20  # of such a file beside weights, which libraries read in one piece; tokenizers have 40 MB
_MOST_ENTRIES = 200_000
_DEEPEST = 32
_SPARSE, _LEAST_STORED = 1 << 30, 1 / 64  # bytes from which a file's share on the disk counts, and that share
_DECODED, _EXPANDED = 1 << 29, 64  # bytes, and times a table's file: what its rows may decode to, the greater
_ROWS_AT_ONCE = 256
_MOST_SAID = 400  # characters of what a library says


@contextmanager
def read_by_library(what: str, hint: Callable[[], str] | None = None) -> Iterator[None]:
    """Context manager that reports any error of a library reading foreign files as a fault of the files.

    Libraries raise what happened to go wrong inside of them (KeyError, AttributeError, Rust's panics, which are no
    Exception). Only a library's own call belongs into the context, so that no defect of ours is told as a user's.

    Args:
        hint: what the files say that may be the cause; asked for when something failed.

    Raises:
        InputError: `what`, in one line what the library said, and the hint.
    """
    try:
        yield
    except (InputError, IntegrityError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{what}: {_said(error)}{hint() if hint is not None else ''}") from error


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    text = text if len(text) <= _MOST_SAID else text[:_MOST_SAID] + " …"
    usual = isinstance(error, OSError | ValueError | RuntimeError)
    return text if usual and text else f"{type(error).__name__} {text}".strip()


def open_stored(path: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a store's own file, as `os.open`; neither opening nor reading it waits for anybody.

    Raises:
        IntegrityError: it is no regular file, or hardly more than a hole.
        OSError: it cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _UNOPENED or (error.errno == errno.EISDIR and path.is_dir()):
            raise IntegrityError(f"{path} {_NO_FILE}") from error
        raise
    status = os.fstat(descriptor)
    if why := hollow(path, status) if stat.S_ISREG(status.st_mode) else _NO_FILE:
        os.close(descriptor)
        raise IntegrityError(f"{path} {why}")
    return descriptor


def read_stored(path: "Path | UPath", most: int = LARGEST_STORED) -> bytes:
    """The bytes of a store's own file, on a disk or in a bucket, where an object has neither holes nor waits.

    Raises:
        IntegrityError: as `open_stored`, or it has more than `most` bytes.
        OSError: it cannot be read.
    """
    if getattr(path, "protocol", "") not in ("", "file", "local"):
        return bytes(path.read_bytes())
    with open(open_stored(Path(str(path))), "rb") as opened:
        data = opened.read(min(os.fstat(opened.fileno()).st_size, most) + 1)  # room for as much is taken at once
    if len(data) > most:
        raise IntegrityError(f"{path} has more than {most:,} bytes")
    return data


@contextmanager
def stored_table(path: Path, remedy: str) -> "Iterator[pl.LazyFrame]":
    """A store's own Parquet file, to be read within the block: the one way to open it where its digest is not checked.

    Args:
        remedy: what to do where it is damaged.

    Raises:
        IntegrityError: as `open_stored`; or it is missing, cut, or no table that Polars reads.
    """
    import polars as pl  # here, since few commands open tables

    try:
        os.close(open_stored(path))
    except FileNotFoundError as error:
        raise IntegrityError(f"{path} is missing; {remedy}") from error
    try:
        yield pl.scan_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise IntegrityError(f"{path} is no table that can be read: {_said(error)}; {remedy}") from error


def require_plain(path: Path) -> None:
    """Check a file or folder that a stranger may have made, before anything in it is opened.

    Links stay inside of the folder, or lead to the `blobs` of a Hugging Face cache in which it is a snapshot.

    Raises:
        InputError: a pipe, socket or device; a link that leads out of the folder or nowhere; more entries or levels
            than a checkpoint has.
    """
    try:
        _require_plain(path)
    except OSError as error:  # a name that is too long, a folder that may not be listed
        raise InputError(f"cannot read {error.filename or path}: {error.strerror}") from error


def require_inside(path: Path, folder: Path) -> None:
    """Check that what lies in a folder does not lead out of it. Raises InputError: it is a link that does."""
    if path.is_symlink():
        _require_inside(path, (folder.resolve(),))


def _require_plain(path: Path) -> None:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return  # whoever opens it says so, in its own words
    if not path.is_dir():
        _require_file(path, path.stat(), beside=False)
        _require_decodable(path)
        return
    root = path.resolve()
    inside = (root, *((root.parent.parent / "blobs",) if root.parent.name == "snapshots" else ()))
    pending, seen = [(root, 0)], 0
    while pending:
        folder, depth = pending.pop()
        if depth > _DEEPEST:
            raise InputError(f"{folder} lies more than {_DEEPEST} folders deep in {path}: no checkpoint does")
        with os.scandir(folder) as entries:
            for entry in entries:
                seen += 1
                if seen > _MOST_ENTRIES:
                    raise InputError(f"{path} holds more than {_MOST_ENTRIES} files: give the checkpoint's own folder")
                if entry.is_symlink():
                    _require_inside(Path(entry.path), inside)
                elif entry.is_dir(follow_symlinks=False):
                    pending.append((Path(entry.path), depth + 1))
                else:
                    _require_file(Path(entry.path), entry.stat(follow_symlinks=False))


def _require_inside(link: Path, inside: tuple[Path, ...]) -> None:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # nowhere, or in a circle
        raise InputError(f"{link} is a link that leads nowhere: copy the whole folder with its files") from error
    if not any(target.is_relative_to(folder) for folder in inside):
        raise InputError(f"{link} is a link out of its folder: copy the file there if you mean it to be read")
    if not target.is_dir():
        _require_file(link, target.stat())


def _require_file(path: Path, status: os.stat_result, *, beside: bool = True) -> None:
    """Raise for what is no regular file, is larger than its kind beside weights, or is hardly more than holes."""
    require_regular(path, status.st_mode)
    known = beside and path.suffix in _DOCUMENTS
    most = LARGEST_DOCUMENT if path.name in _INDEXES else _LARGEST_BESIDE if known else status.st_size
    if status.st_size > most:
        raise InputError(f"{path} has {status.st_size:,} bytes, files of its kind have up to {most:,}: it is damaged")
    if why := hollow(path, status):
        raise InputError(f"{path} {why}; if you want it nevertheless, copy it with `cp --sparse=never`")


def _require_decodable(path: Path) -> None:
    """Raise for a Parquet table whose rows are many times the file: it holds a value once, however many rows have it.

    What cannot be read is left to whoever reads it.
    """
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return
    import pyarrow as pa
    import pyarrow.parquet as pq

    size, decoded = path.stat().st_size, 0
    most = max(_DECODED, _EXPANDED * size)
    try:
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches(_ROWS_AT_ONCE):
                decoded += sum(map(_decoded, batch.columns))
                if decoded > most:
                    raise InputError(
                        f"{path}: its rows hold more than {most >> 20:,} MiB, the file {max(1, size >> 10):,} KiB:"
                        " leave out rows that are the same"
                    )
    except (pa.ArrowException, OSError):
        return


def _decoded(column: "pa.Array") -> int:
    """Bytes of a column's values, each as often as a row has it."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return _decoded(column.dictionary_decode())
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _decoded(column.flatten())
    return sum(map(_decoded, column.flatten())) if pa.types.is_struct(column.type) else int(column.nbytes)


def hollow(path: Path, status: os.stat_result) -> str:
    """What is wrong with a file that is hardly more than a hole; empty for any other.

    A few stored bytes can state terabytes, all zero, which take hours to read. Some file systems tell no blocks (0),
    then only what is nothing but a hole is known to be one.
    """
    stored = 512 * status.st_blocks
    if status.st_size <= _SPARSE or stored >= _LEAST_STORED * status.st_size or not (stored or _is_hole(path)):
        return ""
    return f"has {status.st_size:,} bytes, of which {stored:,} are stored, the others are a hole in it: no data are"


def _is_hole(path: Path) -> bool:
    """Whether no byte of a file is stored, as far as its file system says."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError as error:
        return error.errno == errno.ENXIO
    finally:
        os.close(descriptor)
    return False
