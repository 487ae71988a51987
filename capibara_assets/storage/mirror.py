"""Local mirror of a folder on an object store, for readers that need files, and the way back: uploads of folders."""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.storage.arrivals import files_below, remote_lister
from capibara_assets.storage.commit import sync_tree
from capibara_assets.storage.jsonfiles import make_folders, read_object, sync_folder, write_json_atomic

_AT_ONCE = 256  # objects fetched together


def is_remote(location: str) -> bool:
    """Whether a location is on an object store (`gs://bucket/prefix`) rather than a local path."""
    return "://" in location and not location.startswith("file://")


def prepare_buckets() -> None:
    """Set up gcsfs before it is imported, which UPath does on first use.

    It otherwise asks for a bucket's type over gRPC, and hangs for a minute where there is no such service; and logs a
    traceback where a bucket cannot be reached, which the command says in a sentence.
    """
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


def file_system(location: str) -> tuple[Any, str]:
    """(fsspec file system, path in it) of a remote location.

    Raises:
        InputError: the scheme is unknown or its library is not installed.
    """
    prepare_buckets()
    import fsspec

    try:
        return fsspec.core.url_to_fs(location)  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        raise InputError(f"{location} cannot be opened: {error} (for gs:// install the extra gcp)") from error


def require_scheme(location: str) -> None:
    """Refuse a remote location whose scheme is unknown or whose library is not installed. Raises InputError."""
    import fsspec

    try:
        fsspec.get_filesystem_class(location.partition("://")[0])
    except (ImportError, ValueError) as error:
        raise InputError(f"{location} cannot be opened: {error} (for gs:// install the extra gcp)") from error


def mirror(location: str, folder: Path) -> Path:
    """Bring the local `folder` up to date with a remote location and return it; only changed objects are fetched.

    A file appears whole or not at all; after a crash the next call continues with what was fetched.
    `<name>.index.json` beside the folder has the generation of each object that it holds.

    Raises:
        InputError: the location does not exist or cannot be opened.
    """
    system, root = file_system(location)
    there = {
        "/".join((*parts, name)): f"{size}.{stamp}"
        for parts, (name, size, stamp, _) in files_below(remote_lister(system, root))
    }
    if not there and not system.exists(root):
        raise InputError(f"{location} does not exist: there is no object below it")
    if odd := next((name for name in there if ".." in name.split("/")), None):
        raise InputError(f"{location}/{odd}: a name that leaves its folder")
    make_folders(folder)
    index_file = folder.with_name(f"{folder.name}.index.json")
    index: dict[str, str] = read_object(index_file) if index_file.is_file() else {}
    changed = sorted(name for name, stamp in there.items() if index.get(name) != stamp or not (folder / name).is_file())
    staging = folder.with_name(f"{folder.name}.staging-{os.getpid()}")
    try:
        for start in range(0, len(changed), _AT_ONCE):
            names = changed[start : start + _AT_ONCE]
            _fetch(system, root, names, folder, staging)
            index |= {name: there[name] for name in names}
            write_json_atomic(index_file, index)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    gone = sorted(set(index) - set(there))
    for name in gone:
        (folder / name).unlink(missing_ok=True)
        del index[name]
    if gone or not index_file.is_file():
        write_json_atomic(index_file, index)
    return folder


def upload(folder: Path, location: str, *, last: str = "") -> None:
    """Write every file of a folder below a remote location.

    Args:
        last: name of the file that is written last: readers take what lies beside it as whole.

    Raises:
        InputError: the location cannot be opened.
    """
    system, root = file_system(location)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    for file in sorted(files, key=lambda one: one.name == last):
        system.put_file(str(file), f"{root.rstrip('/')}/{file.relative_to(folder).as_posix()}")


def remove(location: str) -> None:
    """Remove everything below a remote location, if there is anything."""
    system, root = file_system(location)
    if system.exists(root):
        system.rm(root, recursive=True)


def _fetch(system: Any, root: str, names: list[str], folder: Path, staging: Path) -> None:
    staging.mkdir(parents=True, exist_ok=True)
    parts = [staging / f"{place:06d}" for place in range(len(names))]
    system.get([f"{root.rstrip('/')}/{name}" for name in names], [str(part) for part in parts])
    sync_tree(staging)  # the index that names them is on disk after them, or a loss of power would leave empty files
    for name, part in zip(names, parts, strict=True):
        make_folders((folder / name).parent)
        part.replace(folder / name)
    for inside in {(folder / name).parent for name in names}:
        sync_folder(inside)
