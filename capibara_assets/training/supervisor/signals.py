"""The signals that stop a training: recorded when they arrive, acted on at the next point where a resume is safe."""

import signal
import time
from types import FrameType

_TOGETHER_S = 1.0  # some senders signal a process and then its group: that is one request


class StopSignal:
    """Records the first SIGINT or SIGTERM, and whether another one followed.

    Attributes:
        number: of the first signal; None before it.
        hurry: whether a later one arrived: exit without waiting for resume points.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.hurry = False
        self._first = 0.0

    def listen(self) -> None:
        """Install handlers for both signals, in place of their defaults."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.note)

    def note(self, number: int, _frame: FrameType | None = None) -> None:
        """Record a signal; also called where a stop is requested by other means than a signal."""
        now = time.monotonic()
        if self.number is None:
            self.number, self._first = number, now
        elif now - self._first > _TOGETHER_S:
            self.hurry = True


stop_signal = StopSignal()  # of this process; processes forked from it inherit it
