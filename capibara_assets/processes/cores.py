"""Cores that a process may run on: how many, and a change for it and all below it."""

import os
from collections.abc import Collection
from contextlib import suppress

import psutil


def cores_here() -> int:
    """Cores that this process may use now; where the system does not tell, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allow_cores(pid: int, cores: Collection[int]) -> None:
    """Move a process, all its threads and all processes below it onto these cores; what has ended is passed over."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            _allow(each, cores)


def _allow(process: psutil.Process, cores: Collection[int]) -> None:
    with suppress(psutil.NoSuchProcess):
        for thread in process.threads():
            # A sandbox may belong to another user: it stays where it is.
            with suppress(ProcessLookupError, PermissionError):
                os.sched_setaffinity(thread.id, cores)
