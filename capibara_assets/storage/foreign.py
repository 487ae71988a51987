"""The front door for folders from elsewhere: nothing in them leads out, waits for ever, or is endless."""

import os
import stat
from pathlib import Path

from capibara_assets.errors import InputError

_MOST_ENTRIES = 200_000
_DEEPEST = 32


def require_plain(path: Path) -> None:
    """Check a file or folder that a stranger may have made, before anything in it is opened.

    Links stay inside of the folder, or lead to the `blobs` of a Hugging Face cache in which it is a snapshot.

    Raises:
        InputError: a pipe, socket or device; a link that leads out of the folder or nowhere; more entries or levels
            than a checkpoint has.
    """
    if not path.exists():
        return  # whoever opens it says so, in its own words
    if not path.is_dir():
        _require_regular(path, path.stat().st_mode)
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
                    _require_regular(Path(entry.path), entry.stat(follow_symlinks=False).st_mode)


def _require_inside(link: Path, inside: tuple[Path, ...]) -> None:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # nowhere, or in a circle
        raise InputError(f"{link} is a link that leads nowhere: copy the whole folder with its files") from error
    if not any(target.is_relative_to(folder) for folder in inside):
        raise InputError(f"{link} is a link out of its folder: copy the file there if you mean it to be read")
    _require_regular(link, target.stat().st_mode, or_folder=True)


def _require_regular(path: Path, mode: int, or_folder: bool = False) -> None:
    if not (stat.S_ISREG(mode) or (or_folder and stat.S_ISDIR(mode))):
        raise InputError(f"{path} is no file but a pipe, socket or device: nothing is read from it")
