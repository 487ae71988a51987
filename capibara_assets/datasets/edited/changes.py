"""Reads an edit as agents' logs record it: which text of which file was replaced by which.

Known forms: patches of Codex, unified diffs, SEARCH/REPLACE blocks of aider and Cline, removed and added lines (`-`,
`+`), and a file's whole new content.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from capibara_assets.executions.formats.agents.edit_texts import EVERYWHERE

_FILE = re.compile(r"^\*\*\* (Update|Add|Delete) File: (.+)$", re.MULTILINE)
_SEARCH = re.compile(r"(?:<{5,9}|-{5,9}) SEARCH>?\s*\Z")
_DIVIDE = re.compile(r"={5,9}\s*\Z")
_REPLACE = re.compile(r"(?:>{5,9}|\+{5,9}) REPLACE")
_HUNK = re.compile(r"^@@.*$\n?", re.MULTILINE)
_HEADER = re.compile(r"^(?:diff --git |index |--- |\+\+\+ |new file mode |deleted file mode |\\ No newline)")
_UNTOLD = re.compile(  # commands of SWE-agent's editor, and a text that is replaced wherever it stands
    rf"(?:(?:edit|insert|create|open)\b[^\n]*|{EVERYWHERE})(?:\n|$)"
)


class Change(NamedTuple):
    """One replaced text: what stood in the file (None: its content is not told), and what stands there now."""

    path: str
    old: str | None
    new: str


def changes(edit: str) -> list[Change]:
    """The changes of a recorded edit, in order: its first line is the path, the rest the patch or the new content.

    Empty where the edit tells no text, only the number of a line, or a text that stands in several places.
    """
    path, _, text = edit.partition("\n")
    if not text.strip() or _UNTOLD.match(text):
        return []
    if files := list(_FILE.finditer(text)):
        ends = [file.start() for file in files[1:]] + [len(text)]
        parts = [(file, text[file.end() + 1 : end]) for file, end in zip(files, ends, strict=True)]
        return [one for file, part in parts for one in _of_patch(file[2].strip(), file[1], part)]
    if blocks := list(_of_blocks(path, text)):
        return blocks
    if _HUNK.search(text):
        return list(_of_hunks(path, text))
    lines = text.split("\n")
    if {line[:1] for line in lines} == {"-", "+"}:  # a list of YAML has `-` alone
        return list(_of_lines(path, lines))
    return [Change(path, None, text)]


def _of_patch(path: str, action: str, part: str) -> Iterator[Change]:
    """The changes of one file of a Codex patch; a file that was deleted has none."""
    part = part.split("*** End Patch")[0]
    if action == "Add":
        lines = [line[1:] for line in part.split("\n") if line.startswith("+")]
        yield Change(path, None, "".join(f"{line}\n" for line in lines))
    elif action == "Update":
        yield from _of_hunks(path, re.sub(r"^\*\*\* .*$\n?", "", part, flags=re.MULTILINE))


def _of_blocks(path: str, text: str) -> Iterator[Change]:
    """The SEARCH/REPLACE blocks that are closed."""
    old: list[str] | None = None
    new: list[str] | None = None
    for line in text.split("\n") if "SEARCH" in text else ():
        if _SEARCH.match(line):
            old, new = [], None
        elif new is not None and old is not None and _REPLACE.match(line):
            yield Change(path, _joined(old), _joined(new))
            old = new = None
        elif old is not None and new is None and _DIVIDE.match(line):
            new = []
        elif new is not None:
            new.append(line)
        elif old is not None:
            old.append(line)


def _of_hunks(path: str, text: str) -> Iterator[Change]:
    """One change for each hunk: its context belongs to both sides."""
    for hunk in _HUNK.split(text):
        lines = [line for line in hunk.rstrip("\n").split("\n") if not _HEADER.match(line)]
        if any(line[:1] in ("-", "+") for line in lines):
            old = [line[1:] for line in lines if line[:1] != "+"]
            new = [line[1:] for line in lines if line[:1] != "-"]
            yield Change(path, _joined(old), _joined(new))


def _of_lines(path: str, lines: list[str]) -> Iterator[Change]:
    """Removed lines, then what replaces them; several such steps stand one behind the other."""
    old: list[str] = []
    new: list[str] = []
    for line in lines:
        if line[0] == "-" and new:
            yield Change(path, _joined(old), _joined(new))
            old, new = [], []
        (old if line[0] == "-" else new).append(line[1:])
    yield Change(path, _joined(old), _joined(new))


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
