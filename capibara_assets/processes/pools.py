"""Pools of worker processes that end with the process that started them, however that one ended."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from capibara_assets.processes.supervise import end_with_parent


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_pool(
    workers: int, begin: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> ProcessPoolExecutor:
    """A pool of new interpreters, none of which outlives this process, not even one killed by SIGKILL.

    A plain pool's idle workers would wait forever: each holds the writing end of the pipe that the others read.

    Args:
        begin: called in each worker before its first task, with `arguments`.
    """
    return ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_begin, initargs=(begin, arguments)
    )


def _begin(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    end_with_parent()
    if begin is not None:
        begin(*arguments)
