r"""Terminals whose shell marks its prompts and commands (OSC 633 of VS Code, OSC 133), kept by `script` or `asciinema`.

`B` ends the prompt, `E;command` tells the command, `C` begins its output, `D;0` ends it with the exit code. Without `E`
the command is what was typed between `B` and `C`. Traps: an empty line and one that was left with ^C have `D` without
`C`; in `E` a line feed, a semicolon and a backslash are escaped (`\x0a`, `\x3b`, `\\`).
"""

import re
from collections.abc import Iterator

from capibara_assets.executions.formats.agents.asciicast import shown
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.cell_outputs import strip_ansi

_MARK = re.compile(r"\x1b\](?:633|133);([A-Z])(?:;([^\x07\x1b]*))?(?:\x07|\x1b\\)")
_ESCAPED = re.compile(r"\\(?:x([0-9a-fA-F]{2})|\\)")
_EXIT = re.compile(r"-?\d{1,9}")
_CODES = (b"\x1b]633;", b"\x1b]133;")


def reads(document: LogDocument) -> bool:
    """Whether a command that ran is marked."""
    return any(isinstance(entry, AgentRun) for entry in entries(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands in order; one whose end is not marked is not known to have run."""
    text = shown(document) or document.text
    command, typed, output = "", 0, 0
    for mark in _MARK.finditer(text):
        kind, told = mark[1], mark[2] or ""
        if kind == "B":
            typed = mark.end()
        elif kind == "E":
            command = _unescaped(told.split(";", 1)[0])
        elif kind == "C":
            command, output = command or _typed(text[typed : mark.start()] if typed else ""), mark.end()
        elif kind == "D":
            if _runs(command) and output:
                code = int(told) if _EXIT.fullmatch(told) else None
                printed = strip_ansi(text[output : mark.start()]).replace("\r\n", "\n")
                success = None if code is None else code == 0
                yield AgentRun(document.digest, "bash", command.strip(), success, printed, exit_code=code)
            command, typed, output = "", 0, 0
    if _runs(command) and output:
        yield NotRun("unanswered", document.digest, command.strip())


def _runs(command: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in command.split("\n"))


def _unescaped(told: str) -> str:
    return _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else "\\", told)


def _typed(echo: str) -> str:
    """What was typed, from the terminal's echo: a backspace removes a character."""
    found: list[str] = []
    for letter in strip_ansi(echo).rstrip("\r\n"):
        if letter != "\b":
            found.append(letter)
        elif found:
            found.pop()
    return "".join(found)


READER = Reader(
    "shell-marks", (*_CODES, b"\\u001b]633;", b"\\u001b]133;", b"\\u001B]633;", b"\\u001B]133;"), reads, entries
)
