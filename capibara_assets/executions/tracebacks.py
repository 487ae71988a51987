"""Tracebacks of Python (IPython's and the interpreter's) and of Node, reduced to the frames in the user's own code."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from capibara_assets.executions.parsing import JAVASCRIPT

MOST_FRAMES = 4
_LONGEST_LINE, _LONGEST_MESSAGE, _BEGINNING = 200, 300, 120
_HEADER = re.compile(
    r"(?P<place>(?:Cell |Input )?In ?\[\d+\]|<ipython-input-[^>\n]*>|File (?:\"[^\"\n]+\"|[^\s:,]+))"
    r"(?:, line (?P<line>\d+)|:(?P<at>\d+))?(?:,? in (?P<function><cell line: \d+>|[\w.<>]+))?"
)
_ARROW = re.compile(r"^-+> ?(?P<line>\d+) ?(?P<code>[^\n]*)", re.MULTILINE)
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>"))
_CELL_LINE = re.compile(r"<cell line: (\d+)>")
_NODE = re.compile(
    r"^[^\S\n]*at (?:async )?(?:(?P<function>[^\n()]+?) \()?(?P<place>[^\s()][^\n()]*?):(?P<line>\d+):\d+\)?$",
    re.MULTILINE,
)
_DECLARES = re.compile(r"^(?:const|let) ")
_FOREIGN = re.compile(
    r"\.pyx$|site-packages|dist-packages|/lib/python\d|lib/python\d|<frozen|node:|node_modules|internal/|<__array_function__"
)


@dataclass(frozen=True)
class Frame:
    """One frame in the user's code: its file or cell, line and function, and the line's text where it is shown."""

    place: str
    line: int | None
    function: str
    text: str


def own_frames(traceback: str | None, language: str, code: str = "") -> tuple[Frame, ...]:
    """The frames in the user's code, outermost first.

    Args:
        code: the cell, where it is known. Kernels that let names be declared again run it with `var` and quote that.
    """
    if not traceback:
        return ()
    frames = _node_frames(traceback) if language in JAVASCRIPT else _python_frames(traceback)
    own = tuple(frame for frame in frames if not _FOREIGN.search(frame.place))
    if language not in JAVASCRIPT or not code:
        return own
    written = {_DECLARES.sub("var ", line.strip()): line.strip() for line in code.split("\n")}
    return tuple(replace(frame, text=written.get(frame.text, frame.text)) for frame in own)


def in_failing_cell(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames in the cell that failed, which is where the outermost one is, outermost first."""
    return tuple(frame for frame in frames if frame.place == frames[0].place)


def _python_frames(traceback: str) -> list[Frame]:
    headers = list(_HEADER.finditer(traceback))
    if not headers:
        return _arrows(traceback)
    frames: list[Frame] = []
    for match, following in pairwise([*headers, None]):
        if match is None:
            break
        body = traceback[match.end() : following.start() if following else len(traceback)]
        arrow = next(_ARROW.finditer(body), None)
        named = _CELL_LINE.search(match["function"] or "")
        line = arrow["line"] if arrow else match["line"] or match["at"] or (named.group(1) if named else None)
        if arrow is not None:
            text = arrow["code"].strip()
        else:
            shown = body.split("\n")
            text = shown[1].strip() if len(shown) > 1 and shown[1].startswith("    ") else ""
        *outer, function = (match["function"] or "").replace("<locals>.", "").split(".")
        if function in _COMPREHENSIONS and frames:
            continue  # Python 3.12 has no frame for it: the one above names the line
        function = outer[-1] if function.startswith("<") and outer else function
        function = "" if function.startswith("<") and function != "<lambda>" else function
        frames.append(Frame(match["place"], int(line) if line else None, function, text))
    return frames


def _node_frames(traceback: str) -> list[Frame]:
    first = traceback.split("\n")
    shown = {}
    if len(first) > 2 and re.fullmatch(r"\S.*:\d+", first[0]):
        shown[first[0]] = first[1].strip()
    frames = [
        Frame(
            match["place"],
            int(match["line"]),
            _function(match["function"]),
            shown.get(f"{match['place']}:{match['line']}", ""),
        )
        for match in _NODE.finditer(traceback)
    ]
    if not frames and shown:
        place, _, line = first[0].rpartition(":")
        frames = [Frame(place, int(line), "", first[1].strip())]
    return frames[::-1] or _arrows(traceback)


def _arrows(traceback: str) -> list[Frame]:
    return [Frame("", int(arrow["line"]), "", arrow["code"].strip()) for arrow in _ARROW.finditer(traceback)]


def _function(name: str | None) -> str:
    name = (name or "").removeprefix("new ")
    return "" if name in ("Object.<anonymous>", "<anonymous>") else name


def error_text(
    name: str | None, value: str | None, traceback: str | None, language: str = "python", code: str = ""
) -> str:
    """Summary of an error: the lines of the user's code that it went through, then class and message."""
    return summary(name, value, own_frames(traceback, language, code))


def summary(name: str | None, value: str | None, frames: Sequence[Frame]) -> str:
    """The lines of these frames, outermost first, at most `MOST_FRAMES`, then class and message.

    A long message keeps its beginning and its end: a database error quotes the whole query first, pandas the value.
    """
    message = " ".join((value or "").split())
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_BEGINNING]} ... {message[_BEGINNING - _LONGEST_MESSAGE :]}"
    last = f"{name or 'Error'}: {message}" if message else name or "Error"
    lines: list[str] = []
    shown = [frame for frame in frames if frame.text]
    for frame in shown[:1] + shown[1:][-(MOST_FRAMES - 1) :]:
        text = frame.text if len(frame.text) <= _LONGEST_LINE else frame.text[:_LONGEST_LINE] + " ..."
        line = f"in {frame.function}: {text}" if frame.function and len(shown) > 1 else text
        if line not in lines:
            lines.append(line)
    return "\n".join([*lines, last])
