"""The line at the bottom of a terminal that says how far a command is, from two seconds after its start.

It is drawn on standard error where that is a terminal: what is piped or kept in a file never holds it. What the
command prints meanwhile stands above it.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from capibara_assets.escaping.languages import flat
from capibara_assets.escaping.terminal import PlainStream, guard_writing
from capibara_assets.processes.progress import is_quiet, reporting

PATIENCE_S = 2.0
"""What takes less has no line."""
_EVERY_S = 0.25
_ERASE = "\r\x1b[2K"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class _Count:
    """What is counted, and since when; `began_at` were done before."""

    what: str
    done: int
    total: int | None
    began: float
    began_at: int


class ProgressLine:
    """A line of progress, drawn by a thread of its own; takes part in `guard_writing` and `reporting`.

    A process that is forked meanwhile neither draws nor waits for the thread.
    """

    def __init__(self, title: str, stream: PlainStream, clock: Callable[[], float] = time.monotonic):
        self._title, self._stream, self._clock = flat(title), stream, clock
        self._began, self._owner = clock(), os.getpid()
        self._count: _Count | None = None
        self._lock, self._over = threading.RLock(), threading.Event()
        self._drawn, self._free = False, True  # whether it is on the screen; whether the cursor is at a line's start

    def report(self, what: str, done: int, total: int | None) -> None:
        """Take in a count: a `Reporter`."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            known = self._count
            if known is None or known.what != what or done < known.done:
                self._count = _Count(what, done, total, self._clock(), done)
            else:
                known.done, known.total = done, total

    @contextmanager
    def writing(self, text: str) -> Iterator[None]:
        """A `Guard`: the line is gone while something is printed, and comes again at the start of a line."""
        if os.getpid() != self._owner:
            yield
            return
        with self._lock:
            self._erase()
            yield
            self._free = text.endswith("\n") if text else self._free

    def text(self, width: int) -> str:
        """The current progress line, for a terminal of a width."""
        from rich.console import Console
        from rich.progress_bar import ProgressBar

        with self._lock:
            count, now = self._count, self._clock()
        words = f"{self._title}  {_duration(now - self._began)}"
        if count is None:
            return words[: width - 1]
        words = f"{self._title}: {count.what} {count.done:,}"
        if count.total is None:
            return f"{words}  {_duration(now - self._began)}"[: width - 1]
        words += f" of {count.total:,}  "
        left = time_left(count.done - count.began_at, count.total - count.done, now - count.began)
        end = "" if left is None else f"  {_duration(left)} left"
        room = min(40, width - len(words) - len(end) - 1)
        if room < 8:
            return (words.rstrip() + end)[: width - 1]
        console = Console(force_terminal=True, width=room, no_color=bool(os.environ.get("NO_COLOR")))
        with console.capture() as drawn:
            console.print(ProgressBar(total=max(count.total, 1), completed=count.done, width=room), end="")
        return words + drawn.get().rstrip("\n") + end

    def run(self) -> None:
        """Draw the line again and again until `close`."""
        if self._over.wait(PATIENCE_S):
            return
        while not self._over.wait(_EVERY_S):
            with self._lock:
                if self._free and not self._over.is_set():
                    self._stream.draw(_ERASE + self.text(shutil.get_terminal_size().columns))
                    self._drawn = True

    def close(self) -> None:
        """Take the line off the screen for good."""
        if os.getpid() == self._owner:
            self._over.set()
            with self._lock:
                self._erase()

    def before_fork(self) -> None:
        """Let no thread hold the lock while this process is forked."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Undo `before_fork`, in both processes."""
        self._lock.release()

    def _erase(self) -> None:
        if self._drawn:
            self._stream.draw(_ERASE)
            self._drawn = False


_line: list[ProgressLine] = []  # the one that is shown


def _before_fork() -> None:
    for one in _line:
        one.before_fork()


def _after_fork() -> None:
    for one in _line:
        one.after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def time_left(done: int, left: int, seconds: float) -> float | None:
    """Seconds that the rest takes at the pace so far; None while nothing is known of the pace."""
    return seconds / done * left if done > 0 and seconds > 0 else None


def shows_progress(title: str) -> Callable[[Function], Function]:
    """Decorator for commands that display their progress at a terminal.

    Args:
        title: what it does, such as "merging".
    """

    def around(function: Function) -> Function:
        @wraps(function)
        def shown(*args: Any, **kwargs: Any) -> Any:
            with showing(title):
                return function(*args, **kwargs)

        return shown  # type: ignore[return-value]

    return around


@contextmanager
def showing(title: str) -> Iterator[None]:
    """Context manager that displays the line; silent without a terminal, with `--quiet`, or when nested."""
    stream = sys.stderr
    if _line or is_quiet() or not isinstance(stream, PlainStream) or not stream.shows_styles():
        yield
        return
    line = ProgressLine(title, stream)
    thread = threading.Thread(target=line.run, name="capibara-progress", daemon=True)
    _line.append(line)
    guard_writing(line.writing)
    thread.start()
    try:
        with reporting(line.report):
            yield
    finally:
        line.close()
        guard_writing(None)
        _line.clear()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
