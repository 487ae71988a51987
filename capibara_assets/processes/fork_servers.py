"""The first thing in processes that must not outlive their parent: fork servers import this before all else."""

import os
import signal
from types import FrameType

from capibara_assets.processes.startup import set_up_process

_CHECK_S = 0.5


def set_up_fork_server() -> None:
    """Set this process up, and end it once its parent is gone, also during the seconds that its imports take."""
    set_up_process()
    end_when_orphaned()


def end_when_orphaned() -> None:
    """End this process at once when its parent is gone, whatever it is doing in Python.

    Only this process: a timer is not inherited by forks.
    """
    parent, me = os.getppid(), os.getpid()

    def exit_if_orphaned(_number: int, _frame: FrameType | None) -> None:
        if os.getppid() != parent and os.getpid() == me:
            os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGALRM, exit_if_orphaned)
    signal.setitimer(signal.ITIMER_REAL, _CHECK_S, _CHECK_S)
