"""Here-documents of shell commands: what stands between `<<END` and a line that begins with END.

Read line by line: a pattern over the whole text takes time without end on hostile ones.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

_OPENS = re.compile(r"<<-?[ \t]*['\"]?(\w+)['\"]?")
_WORD = re.compile(r"[ \t]*(\w+)(?=\s|\Z)")


@dataclass(frozen=True)
class Heredoc:
    """One here-document.

    Attributes:
        before, after: what stands on its first line before `<<END` and behind it.
        body: its lines.
        start, end: where `<<END` begins in the text, and where the END that closes it ends.
    """

    before: str
    after: str
    body: str
    start: int
    end: int


def heredocs(text: str) -> Iterator[Heredoc]:
    """The here-documents of a text that are closed, in their order; none inside another."""
    if "<<" not in text:
        return
    lines = text.split("\n")
    closing: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        if word := _WORD.match(line):
            closing[word[1]].append(number)
    places = [0]
    for line in lines:
        places.append(places[-1] + len(line) + 1)
    number = column = 0
    while number < len(lines):
        opened = _OPENS.search(lines[number], column)
        if opened is None:
            number, column = number + 1, 0
            continue
        ends = closing.get(opened[1], [])
        later = bisect_right(ends, number)
        if later == len(ends):
            column = opened.end()
            continue
        last = ends[later]
        width = len(lines[last]) - len(lines[last].lstrip(" \t")) + len(opened[1])
        yield Heredoc(
            lines[number][: opened.start()],
            lines[number][opened.end() :],
            "\n".join(lines[number + 1 : last]),
            places[number] + opened.start(),
            places[last] + width,
        )
        number, column = last, width


def without_heredocs(command: str) -> str:
    """A command without its here-documents; what stands behind `<<END` on the same line stays."""
    kept, at = [], 0
    for one in heredocs(command):
        kept += [command[at : one.start], one.after]
        at = one.end
    return "".join([*kept, command[at:]])
