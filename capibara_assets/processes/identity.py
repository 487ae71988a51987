"""Processes told apart by number and start time, since numbers are reused."""

import os
from contextlib import suppress
from dataclasses import dataclass

import psutil

_SAME_START_S = 0.05  # process start times are multiples of 10 ms


@dataclass(frozen=True)
class Process:
    """A process, identified by its number and start time.

    Attributes:
        started: seconds since 1970, as the system counts it.
    """

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The process that has this number now. Raises psutil.NoSuchProcess."""
        return cls(pid, psutil.Process(pid).create_time())

    def is_alive(self) -> bool:
        """Whether it still runs; one that ended and was not reaped does not."""
        try:
            process = psutil.Process(self.pid)
            return self._is(process) and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.NoSuchProcess:
            return False

    def signal_group(self, number: int) -> None:
        """Signal the process group that it leads. The group keeps the leader's number while a member lives,
        and the system gives that number to nobody else; if another process has it, the whole group is gone."""
        with suppress(psutil.NoSuchProcess):
            if not self._is(psutil.Process(self.pid)):
                return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _is(self, process: psutil.Process) -> bool:
        return abs(process.create_time() - self.started) < _SAME_START_S
