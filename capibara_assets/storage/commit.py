"""Makes a staged folder a visible artifact: one rename on a disk, the manifest last on an object store."""

import errno
import glob
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

from upath import UPath

from capibara_assets.errors import InputError, number_of
from capibara_assets.storage.digests import tree_files
from capibara_assets.storage.jsonfiles import make_folders, naming, sync_folder, write_durable
from capibara_assets.storage.manifest import MANIFEST, Manifest

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def sync_tree(folder: Path) -> None:
    """Wait until all that a folder holds is on disk; not its own name."""
    for inside, _, names in os.walk(folder, topdown=False):
        for name in names:
            if not (path := Path(inside) / name).is_symlink():
                with naming(path), path.open("rb") as file:
                    os.fsync(file.fileno())
        sync_folder(Path(inside))


def copy_folder(source: Path, target: Path, **options: Any) -> None:
    """`shutil.copytree`, whose list of errors is raised as the first of them, with the names of both files.

    Raises:
        OSError: a file cannot be read or written.
    """
    try:
        shutil.copytree(source, target, **options)
    except shutil.Error as error:
        read, written, why = error.args[0][0]
        if (number := number_of(str(why))) is None:
            raise
        raise OSError(number, os.strerror(number), str(read), None, str(written)) from error


def commit_local(staging: Path, target: Path, manifest: Manifest) -> bool:
    """Write the manifest, sync, rename `staging` to `target`; False if the target exists already."""
    write_durable(staging / MANIFEST, manifest.to_json())
    for folder in (*(path for path in staging.rglob("*") if path.is_dir()), staging):
        sync_folder(folder)
    make_folders(target.parent)
    try:
        staging.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    for folder in (target.parent, target.parent.parent, target.parent.parent.parent):
        sync_folder(folder)
    return True


def set_aside(target: Path, staging_root: Path) -> None:
    """Move a damaged artifact into the staging folder, where `sweep` removes it; does nothing if another writer did."""
    try:
        target.rename(staging_root / f"damaged-{uuid.uuid4().hex}")
    except FileNotFoundError:
        return


def replace_folder(staging: Path, target: Path) -> None:
    """Sync a finished folder and rename it to `target`, in place of one that may be there.

    A process that is killed meanwhile, or a loss of power, leaves one of them whole under that name, or for a moment
    none: never a part. The next call removes what it left.
    """
    sync_tree(staging)
    former = target.with_name(f".{target.name}.{uuid.uuid4().hex}.old")
    if target.exists():
        target.rename(former)
    try:
        staging.rename(target)
    except OSError:
        if former.exists():
            former.rename(target)
        raise
    sync_folder(target.parent)
    for old in target.parent.glob(f".{glob.escape(target.name)}.*.old"):
        shutil.rmtree(old, ignore_errors=True)


def commit_remote(staging: Path, target: UPath, manifest: Manifest) -> bool:
    """Upload the files, then create the manifest unless there is one; False if there is.

    The files lie in a folder named by their bytes, so two writers whose volatile files differ cannot mix.
    """
    for relative, path in tree_files(staging).items():
        target.fs.put_file(str(path), (target / manifest.data / relative).path)
    try:
        target.fs.pipe_file((target / MANIFEST).path, manifest.to_json(), mode="create")
    except FileExistsError:
        return False
    return True


def no_room(error: OSError, root: object) -> InputError | None:
    """The error for a full disk, quota or file-size limit; None for any other failure."""
    if error.errno not in _FULL:
        return None
    return InputError(f"no room to write to {root} ({error.strerror}): nothing was published; free space and run again")
