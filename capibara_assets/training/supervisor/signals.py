"""Signals that ask a training to stop: noted, and acted on where the work can be left."""

import signal
import time
from types import FrameType

_TOGETHER_S = 1.0  # some senders signal a process and then its group: that is one request


class StopSignal:
    """What SIGINT and SIGTERM have asked for so far.

    Attributes:
        number: of the first signal; None before it.
        hurry: whether another one came later: leave now.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.hurry = False
        self._first = 0.0

    def listen(self) -> None:
        """From now on both signals are noted here and do nothing else."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.note)

    def note(self, number: int, _frame: FrameType | None = None) -> None:
        """A signal has come."""
        now = time.monotonic()
        if self.number is None:
            self.number, self._first = number, now
        elif now - self._first > _TOGETHER_S:
            self.hurry = True


stop_signal = StopSignal()  # of this process, and of those forked from it
