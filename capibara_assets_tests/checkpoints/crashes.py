"""A process that dies at a chosen change of a file."""

import os
import signal
import threading
from collections.abc import Callable

from capibara_assets.checkpoints.store import files

CHANGES = ("create", "pwrite", "sync", "link", "rename", "unlink", "make_folder", "remove_folder", "sync_folder")

Change = Callable[..., object]


def dies_after(changes: int, work: Callable[[], object]) -> bool:
    """As `dies_before` the change of this number, from 0 on."""
    return dies_before(lambda number, name, path: number >= changes, work)


def dies_before(change: Callable[[int, str, str], bool], work: Callable[[], object]) -> bool:
    """Does `work` in a forked process that is killed right before a change of a file, given as number, name and path.

    Whether that came; False: the work was finished before.
    """
    child = os.fork()
    if child == 0:
        try:
            _die_before(change)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), f"it ended with status {status}"
    return status == signal.SIGKILL


def _die_before(change: Callable[[int, str, str], bool]) -> None:
    done, lock = [0], threading.Lock()

    def counted(name: str, real: Change) -> Change:
        def counting(*args: object, **options: object) -> object:
            with lock:
                if change(done[0], name, str(args[0])):
                    os.kill(os.getpid(), signal.SIGKILL)
                done[0] += 1
            return real(*args, **options)

        return counting

    for name in CHANGES:
        setattr(files, name, counted(name, getattr(files, name)))
