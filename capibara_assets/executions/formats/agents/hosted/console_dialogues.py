"""Dialogues of agents that a program printed: the stdout of a notebook's cells, or the whole of a text file."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from capibara_assets.executions.formats.agents.runs import LogDocument

_OPENS, _CLOSES = re.compile(r"```[ \t]*+(\w+)?[ \t]*+\r?\n"), re.compile(r"\r?\n[ \t]*+```")
_PAGE = re.compile(r"^(?:```|~~~|#{1,6} |<[a-zA-Z!])", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text: str) -> str:
    """Console text without colours and carriage returns."""
    return _ANSI.sub("", text).replace("\r\n", "\n")


def dialogues(
    document: LogDocument, is_dialogue: Callable[[str], bool], heading: re.Pattern[str]
) -> Iterator[tuple[str, str]]:
    """(session, text) of each dialogue in a notebook or a text file; the text is plain.

    A text file that quotes a dialogue, such as a Markdown page, is none: before the first `heading` in it stands a
    title, a fence or a tag.
    """
    value = document.value
    if value is None:
        text = plain(document.text)
        first = heading.search(text)
        quoted = first is None or _PAGE.search(text, 0, first.start())
        if not quoted and not document.lines and is_dialogue(text):
            yield document.digest, text
    elif isinstance(value, dict) and isinstance(value.get("nbformat"), int) and isinstance(value.get("cells"), list):
        for number, cell in enumerate(value["cells"]):
            text = plain(_stdout(cell))
            if is_dialogue(text):
                yield f"cell-{number}", text


def _stdout(cell: Any) -> str:
    """What a cell wrote to standard output; what it wrote to stderr may stand between the pieces."""
    outputs = cell.get("outputs") if isinstance(cell, dict) else None
    pieces: list[str] = []
    for output in outputs if isinstance(outputs, list) else []:
        if isinstance(output, dict) and output.get("output_type") == "stream" and output.get("name") != "stderr":
            text = output.get("text")
            lines = text if isinstance(text, list) else [text]
            pieces += [line for line in lines if isinstance(line, str)]
    return "".join(pieces)


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
