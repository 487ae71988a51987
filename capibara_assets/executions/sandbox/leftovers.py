"""Removes what hostile code left in a folder: deeper than a stack, longer than a path, closed to its own owner.

Imports nothing but the standard library: `replay/python_worker.py` takes it into sandboxes, too.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Removes a folder with all that it holds, once those that wrote there have ended; what cannot go stays."""
    numbers = itertools.count()
    while _pass(folder, numbers):
        pass
    with suppress(OSError):
        folder.rmdir()


def _pass(top: Path, numbers: Iterator[int]) -> int:
    """Removes what lies at the top, and lifts there what lay below: no path and no stack grows with the depth.

    Returns how much it removed or lifted.
    """
    done = 0
    for path, is_folder in _entries(top):
        with suppress(OSError):
            if not is_folder:
                path.unlink()
                done += 1
                continue
            for inner, holds_more in _entries(path):
                if holds_more:
                    inner.chmod(0o700)
                    inner.rename(top / f".lifted-{next(numbers)}")
                else:
                    inner.unlink()
                done += 1
            path.rmdir()
            done += 1
    return done


def _entries(folder: Path) -> list[tuple[Path, bool]]:
    """(path, whether it is a folder and no link to one) of all in a folder, which is opened first."""
    with suppress(OSError):
        folder.chmod(0o700)
        with os.scandir(folder) as entries:
            return [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
    return []
