"""Supervision of `multiprocessing` children: start, read messages, restart after failures, leave none behind.

What a worker does, and what its end means, is the caller's; when it is started, waited for, asked to leave and killed
is decided here, for every stage alike.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

TICK_S = 0.1  # between two questions whether to go on
OVER = math.inf
"""Pause of a worker that is not started again."""


@dataclass(frozen=True)
class Patience:
    """How often a worker is tried: `attempts` times, after pauses that double from the first to the longest."""

    attempts: int
    first_pause_s: float
    longest_pause_s: float

    def pause(self, failed: int) -> float:
        """Seconds until the next attempt after `failed` (>= 1) failures; OVER if there is none."""
        return doubled(self.first_pause_s, failed - 1, self.longest_pause_s) if failed < self.attempts else OVER


def doubled(first_s: float, times: int, longest_s: float) -> float:
    """A pause that has doubled `times` times, up to the longest one."""
    return min(longest_s, math.ldexp(first_s, min(times, 99)))


@dataclass
class Attempt:
    """A process that does a worker's task.

    Attributes:
        connection: what it says arrives here; None: it says nothing.
        receive: called with each message.
        leave: asks it to save its work and end; None: it has nothing to save, and is killed.
    """

    process: BaseProcess
    connection: Connection | None = None
    receive: Callable[[Any], None] = lambda message: None
    leave: Callable[[], None] | None = None

    def hear(self) -> None:
        """Read the process's messages so far."""
        while self.connection:
            try:
                if not self.connection.poll():
                    return
                message = self.connection.recv()
            except (EOFError, OSError):  # it was killed, or an end is closed
                self.connection = None
                return
            self.receive(message)


class Worker(Protocol):
    """A task that one process after another attempts."""

    def start(self) -> Attempt:
        """Start a process on it."""

    def judge(self, code: int | None) -> float | None:
        """Called after all messages were read: seconds until a restart, or OVER for none.

        Args:
            code: its exit code; None while it runs. Then None lets it run, and a pause ends it.
        """


def supervise(
    workers: Sequence[Worker],
    at_once: int,
    go_on: Callable[[], bool],
    *,
    grace_s: float = 0.0,
    hurry: Callable[[], bool] = lambda: False,
    rests: Callable[[int], bool] = lambda at: False,
) -> None:
    """Run workers until each is over; when this returns or raises, none of their processes is left.

    Args:
        at_once: processes at a time; earlier workers start first.
        go_on: called several times a second; when it returns False or raises, all processes are ended.
        grace_s: time to leave for processes that are ended and have something to save; then they are killed.
        hurry: called meanwhile; True kills those that are left, and so does an exception (an interruption).
        rests: whether a running worker (by its place) only waits, so that another may start beside it.
    """
    waiting = dict.fromkeys(range(len(workers)), 0.0)  # worker -> `time.monotonic()` before which it is not started
    running: dict[int, Attempt] = {}
    try:
        while (waiting or running) and go_on():
            now = time.monotonic()
            ready = [at for at, not_before in waiting.items() if not_before <= now]
            for at in ready[: max(0, at_once - sum(not rests(at) for at in running))]:
                running[at] = workers[at].start()
                del waiting[at]
            _wait(running.values())
            for at, attempt in list(running.items()):
                code = attempt.process.exitcode
                attempt.hear()  # after the question above, so that its last messages have arrived
                if (pause := workers[at].judge(code)) is not None:
                    del running[at]
                    _end([attempt], grace_s, hurry)
                    if pause < OVER:
                        waiting[at] = time.monotonic() + pause
    finally:
        _end(running.values(), grace_s, hurry)


def when_parent_is_gone(act: Callable[[], None]) -> None:
    """Call `act` in a thread once the process that started this one has ended, however it did."""

    def follow(sentinel: int) -> None:
        wait([sentinel])
        act()

    if parent := parent_process():
        threading.Thread(target=follow, args=(parent.sentinel,), daemon=True).start()


def end_with_parent() -> None:
    """End this process at once when the process that started it has ended: it has nothing to save."""
    when_parent_is_gone(lambda: os._exit(1))


def _wait(attempts: Collection[Attempt]) -> None:
    """Wait until a process has ended or said something, or for a tick."""
    said = [each.connection for each in attempts if each.connection and not each.connection.closed]
    wait([*said, *(each.process.sentinel for each in attempts)], timeout=TICK_S)


def _end(attempts: Collection[Attempt], grace_s: float, hurry: Callable[[], bool]) -> None:
    """Ask processes that run to leave, kill those that have not after the grace period, and let go of all."""
    try:
        left = [each for each in attempts if each.leave and each.process.exitcode is None]
        for leave in [each.leave for each in left if each.leave]:
            leave()
        deadline = time.monotonic() + grace_s
        while left and time.monotonic() < deadline and not hurry():
            _wait(left)
            for each in left:
                each.hear()
            left = [each for each in left if each.process.exitcode is None]
    finally:
        for each in attempts:
            each.process.kill()
        for each in attempts:
            each.process.join()
            each.hear()
            each.process.close()
