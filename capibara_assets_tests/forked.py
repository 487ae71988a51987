"""Processes forked from this one: real ones, which die and hold leases as any, without a second to import torch."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import IO

Say = Callable[[object], None]


class Forked:
    """A process that does `work` with what it is given to say lines by; it runs nothing else of its parent's.

    After a fork OpenMP cannot make threads: what computes with torch in there first asks it for one thread.
    """

    def __init__(self, work: Callable[[Say], object]) -> None:
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(read)
                work(lambda line: (os.write(write, f"{line}\n".encode()), None)[1])
                status = 0
            except BaseException:  # noqa: BLE001 - the parent sees the status
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        os.close(write)
        self.lines: IO[str] = os.fdopen(read, encoding="utf-8")
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit code, minus the signal that killed it; None: it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def rest(self) -> str:
        """What else it says until it ends, and waits for that."""
        with self.lines as lines:
            said = lines.read()
        self.wait()
        return said
