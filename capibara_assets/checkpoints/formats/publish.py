"""Atomic publication of files and folders: written beside their target, synced, then renamed."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from capibara_assets.checkpoints.content import PieceSource, nbytes
from capibara_assets.errors import InputError, IntegrityError, causes
from capibara_assets.storage.commit import no_room, sync_tree
from capibara_assets.storage.jsonfiles import make_folders, sync_folder


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Context with a new folder, which becomes `target` if the block succeeds and is deleted if it fails.

    Raises:
        InputError: `target` exists, or the disk is full.
    """
    with _beside(target) as beside:
        beside.mkdir()
        yield beside
        sync_tree(beside)
        _rename(beside, target)


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Context with a new file, which becomes `target` if the block succeeds and is deleted if it fails.

    Raises:
        InputError: `target` exists, or the disk is full.
    """
    with _beside(target) as beside:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(beside, target)  # unlike a rename, a link never replaces a file that was created meanwhile
        except FileExistsError:
            raise _exists(target) from None
        beside.unlink()


def write_source(source: PieceSource, name: str, file: BinaryIO) -> None:
    """Append a tensor's or file's bytes, piece by piece.

    Raises:
        IntegrityError: the source has more or fewer bytes than its shape says.
    """
    expected, written = nbytes(source.dtype, source.shape), 0
    for piece in source.pieces():
        file.write(piece)
        written += len(piece)
    if written != expected:
        raise IntegrityError(f"{name}: {written} bytes were read where its type and shape make {expected}")


def disk_error(error: BaseException | None) -> OSError | None:
    """The OSError that caused an error: torch.save turns one into a RuntimeError about positions in its archive."""
    return next((cause for cause in causes(error) if isinstance(cause, OSError)), None)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    if target.exists() or target.is_symlink():
        raise _exists(target)
    make_folders(target.parent)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        yield beside
        sync_folder(target.parent)
    except (OSError, RuntimeError) as error:
        beneath = disk_error(error)
        full = None if beneath is None else no_room(beneath, target.parent)
        if full is None:
            raise
        raise full from error
    finally:
        if beside.is_dir():
            shutil.rmtree(beside)
        else:
            beside.unlink(missing_ok=True)


def _rename(beside: Path, target: Path) -> None:
    try:
        beside.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise _exists(target) from None


def _exists(target: Path) -> InputError:
    return InputError(f"{target} exists already: nothing is overwritten; remove it or give another name")
