"""What this process prints and logs for people, without characters on which a terminal acts."""

import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from capibara_assets.escaping.languages import visible

COLOURS = {"green": 32, "yellow": 33, "red": 31}  # of ANSI's

# What a library's progress bar writes at a terminal: back to the line's start and text, or up by lines and no text
_BAR = re.compile(r"\r|\n*(\x1b\[A)+\Z")


Guard = Callable[[str], AbstractContextManager[None]]
_guards: list[Guard] = []  # at most one: of the line at the bottom of the terminal


def guard_writing(guard: Guard | None) -> None:
    """Let all plain streams of this process write within a guard, which is given the text; None: without one again."""
    _guards[:] = [guard] if guard else []


class PlainStream:
    """A text stream on which escape sequences, overwriting and hidden characters appear as their codes.

    It has no `buffer`: bytes would go around it.

    Args:
        bars: let a progress bar move to the start of its line.
    """

    def __init__(self, stream: Any, *, bars: bool = False):
        self._stream, self._bars = stream, bars

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"a text stream takes str, not {type(text).__name__}")
        kept = _BAR.match(text) if self._bars else None
        place = kept.end() if kept else 0
        self._write(text[:place] + visible(text[place:]))
        return len(text)

    def _write(self, text: str) -> None:
        with _guards[0](text) if _guards else nullcontext():
            self._stream.write(text)

    def shows_styles(self) -> bool:
        """Whether it is a terminal that shows styles and colours."""
        return bool(self._stream.isatty()) and os.environ.get("TERM") != "dumb"

    def write_rendered(self, text: str) -> None:
        """Write text with escape sequences of our own, around foreign text that was made visible before."""
        self._write(text)

    def draw(self, text: str) -> None:
        """Write past the guard, as `write_rendered`: for the guard itself."""
        self._stream.write(text)
        self._stream.flush()

    def write_in(self, colour: str, text: str) -> None:
        """Write text in one of `COLOURS` where a terminal shows it and NO_COLOR is not set; the text is made plain."""
        if self.shows_styles() and not os.environ.get("NO_COLOR"):
            self._write(f"\x1b[{COLOURS[colour]}m{visible(text)}\x1b[0m")
        else:
            self.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._stream, name)


class PlainRecord(logging.LogRecord):
    """A log record whose message has no characters on which a terminal acts."""

    def getMessage(self) -> str:  # logging's name
        return visible(super().getMessage())


def print_marked(colour: str, mark: str, rest: str, *, err: bool = False) -> None:
    """Print a line whose first word has a colour at a terminal."""
    stream = sys.stderr if err else sys.stdout
    if isinstance(stream, PlainStream):
        stream.write_in(colour, mark)
        print(rest, file=stream, flush=True)
    else:
        print(mark + rest, file=stream, flush=True)


def print_plainly() -> None:
    """Make stdout, stderr and log messages of this process plain; what is not in the encoding is escaped, too."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, PlainStream):
            continue
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, PlainStream(stream, bars=name == "stderr" and stream.isatty()))
    log_plainly()


def log_plainly() -> None:
    """Make log messages of this process plain."""
    logging.setLogRecordFactory(PlainRecord)
