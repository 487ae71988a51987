"""Imported first by the process that voters are forked from, and by no other.

Whoever signals the whole process group means the voters; a fork server that died of it would tell the supervisor that
they have ended, while they still write. A voter just forked, with no handlers of its own yet, has these. And a fork
server whose supervisor is gone leaves at once, also in the middle of the seconds that its imports take.
"""

import os
import signal
from types import FrameType

from capibara_assets.training.supervisor.signals import stop_signal

_LOOK_S = 0.5
_supervisor = os.getppid()


def _look(_number: int, _frame: FrameType | None) -> None:
    if os.getppid() != _supervisor and os.getpid() == _self:
        os._exit(128 + signal.SIGTERM)


_self = os.getpid()
stop_signal.listen()
signal.signal(signal.SIGALRM, _look)
signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)  # not inherited by voters
