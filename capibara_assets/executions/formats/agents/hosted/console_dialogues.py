"""Dialogues of agents that a program printed: into a notebook's cells, a text file (also pasted into a page), or a
terminal that was recorded.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from capibara_assets.executions.formats.agents.asciicast import shown
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader

_OPENS, _CLOSES = re.compile(r"```[ \t]*+(\w+)?[ \t]*+\r?\n"), re.compile(r"\r?\n[ \t]*+```")
_PAGE = re.compile(r"^(?:```|~~~|<[a-zA-Z!])|(?:\A|(?<=\n\n))#{1,6} ", re.MULTILINE)  # no comment of a program's
_SPINS = re.compile(r"^(?:[\u2801-\u28ff] [^\n]{0,60}?(?:\.\.\.|…))+", re.MULTILINE)
_ERASED, _UP = "\x1b[2K", "\x1b[1A"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})(?P<info>[^`\n]*)\Z")
_RICH = '<pre style="white-space:pre;overflow-x:auto;line-height:normal;'  # how Rich begins what it shows in Jupyter


def plain(text: str) -> str:
    """Console text without colours, carriage returns, and lines that the program erased, such as a spinner's."""
    text = text.replace("\r\n", "\n")
    return _SPINS.sub("", _ANSI.sub("", _left(text) if _ERASED in text else text))


def _left(text: str) -> str:
    """The remainder of lines that were erased, also from the lines below them."""
    kept: list[str] = []
    for line in text.split("\n"):
        erased, _, rest = line.rpartition(_ERASED)
        del kept[max(0, len(kept) - erased.count(_UP)) :]
        kept.append(rest)
    return "\n".join(kept)


def console_text(document: LogDocument) -> str | None:
    """What a text file or a recording of a terminal shows, not made ready; None: other data."""
    if document.value is not None:
        return None
    recorded = shown(document)
    return recorded if recorded is not None or document.lines else document.text


def console_reader(
    name: str,
    marks: tuple[bytes, ...],
    found: Callable[[LogDocument], Iterator[tuple[str, str]]],
    of_text: Callable[[str, str], Iterator[Entry]],
) -> Reader:
    """The reader of documents in which `found` (as `dialogues`) finds a session and its text; `of_text` reads one."""

    def entries(document: LogDocument) -> Iterator[Entry]:
        for session, text in found(document):
            yield from of_text(session, text)

    return Reader(name, marks, lambda document: any(True for _ in found(document)), entries)


def dialogues(
    document: LogDocument,
    is_dialogue: Callable[[str], bool],
    heading: re.Pattern[str],
    *,
    pasted: bool = False,
    prepare: Callable[[str], str] = plain,
) -> Iterator[tuple[str, str]]:
    """(session, text) of each dialogue in a notebook, a text file or a recording of a terminal.

    A text file that quotes a dialogue, such as a Markdown page, is none: before the first `heading` in it stands a
    title, a fence or a tag.

    Args:
        document: the log.
        is_dialogue: whether console text is one.
        heading: what begins a message or step of one.
        pasted: read a page, too, that holds little but dialogues in fences.
        prepare: how console text is made ready.
    """
    value = document.value
    if value is None:
        console = console_text(document)
        text = "" if console is None else prepare(console)
        first = heading.search(text)
        if first is None:
            return
        if console is not document.text or not _PAGE.search(text, 0, first.start()):
            found = [text] if is_dialogue(text) else []
        else:
            found = _pasted(text, is_dialogue) if pasted else []
        for number, console in enumerate(found):
            yield f"{document.digest}-{number}" if number else document.digest, console
    elif isinstance(value, dict) and isinstance(value.get("nbformat"), int) and isinstance(value.get("cells"), list):
        for number, cell in enumerate(value["cells"]):
            text = prepare(printed(cell))
            if is_dialogue(text):
                yield f"cell-{number}", text


def _pasted(page: str, is_dialogue: Callable[[str], bool]) -> list[str]:
    """The dialogues in a page's fences, where they are most of it: a page that quotes some has words of its own."""
    found = [block for block in _fenced(page) if is_dialogue(block)]
    return found if 2 * sum(map(len, found)) > len(page) else []


def _fenced(page: str) -> Iterator[str]:
    """The outermost fenced blocks; a fence that names a language opens a block within one."""
    lines = page.split("\n")
    begin, depth = 0, 0
    for number, line in enumerate(lines):
        if (fence := _FENCE.match(line)) is None:
            continue
        if depth == 0:
            begin, depth = number + 1, 1
        elif fence["info"].strip():
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                yield "\n".join(lines[begin:number])


def printed(cell: Any) -> str:
    """What a cell wrote to standard output, or had Rich show; what it wrote to stderr may stand between the pieces."""
    outputs = cell.get("outputs") if isinstance(cell, dict) else None
    return "".join(map(_printed, outputs)) if isinstance(outputs, list) else ""


def _printed(output: Any) -> str:
    if not isinstance(output, dict):
        return ""
    if output.get("output_type") == "stream":
        return "" if output.get("name", output.get("stream")) == "stderr" else _joined(output.get("text"))
    data = output.get("data") if output.get("output_type") == "display_data" else None
    if not isinstance(data, dict) or not _joined(data.get("text/html")).startswith(_RICH):
        return ""
    return _joined(data.get("text/plain")).removesuffix("\n") + "\n"


def _joined(text: Any) -> str:
    """Text, which notebooks also write as a list of lines."""
    lines = text if isinstance(text, list) else [text]
    return "".join(line for line in lines if isinstance(line, str))


def code_blocks(text: str) -> list[tuple[str, str]]:
    """(language, code) of each fenced block; the language is empty where the fence names none."""
    blocks, at = [], 0
    while (begin := _OPENS.search(text, at)) and (end := _CLOSES.search(text, begin.end())):
        blocks.append((begin[1] or "", text[begin.end() : end.start()]))
        at = end.end()
    return blocks


def sections(pattern: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each match of a pattern, and the text from behind it to the next."""
    found = list(pattern.finditer(text))
    ends = [*(match.start() for match in found), len(text)][1:]
    for match, end in zip(found, ends, strict=False):
        yield match, text[match.end() : end]
