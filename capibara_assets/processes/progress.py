"""How far a long computation is: the computation counts, and a command line that has a terminal shows it."""

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

QUIET = "CAPIBARA_QUIET"
"""The variable by which `--quiet` reaches the processes that a command starts."""

Reporter = Callable[[str, int, int | None], None]
"""Told what is counted, how many are done, and of how many (None: not known)."""

Item = TypeVar("Item")
_reporters: list[Reporter] = []  # of the process, not of a thread: pools of threads count, too


def is_quiet() -> bool:
    """Whether results and errors alone are wanted."""
    return bool(os.environ.get(QUIET))


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Context manager that sends the counts of `tracked` in this process to a reporter."""
    _reporters.append(reporter)
    try:
        yield
    finally:
        _reporters.remove(reporter)


def tracked(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Iterate over the items, counting them as they are consumed.

    Args:
        what: is done to them, in two or three words: "files checked".
        total: how many they are; by default their length, where they have one.
    """
    if total is None and isinstance(items, Collection):
        total = len(items)
    done = 0
    for done, item in enumerate(items):
        _report(what, done, total)
        yield item
        done += 1
    _report(what, done, total)


class Count:
    """Counter shared by several threads; reports the number done and the total."""

    def __init__(self, what: str, total: int | None = None):
        self._what, self._total, self._done, self._lock = what, total, 0, threading.Lock()

    def one(self) -> None:
        """Count one more."""
        with self._lock:
            self._done += 1
            _report(self._what, self._done, self._total)


def _report(what: str, done: int, total: int | None) -> None:
    for reporter in _reporters:
        reporter(what, done, total)
