"""Text in which a program announces what its agent runs, and then prints the result.

AutoGPT's console and `activity.log`: `NEXT ACTION:  COMMAND = tool  ARGUMENTS = {..}`, then `SYSTEM:` or an error; a
record with its own time ends the one above. Loops of one's own: `[SHELL: command]` between other lines in brackets,
such as `[AGENT RESPONSE]`; the output ends at the next of these, or at a rule. What was announced and not answered did
not run: AutoGPT asks first.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.general import stepwise_calls
from capibara_assets.executions.formats.agents.literals import literal
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader
from capibara_assets.executions.formats.cell_outputs import strip_ansi

_RECORD = r"^(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3} (?P<level>[A-Z]+) +)?"
_AUTOGPT = re.compile(
    rf"{_RECORD}(?:NEXT ACTION: +COMMAND = (?P<tool>\w+) +ARGUMENTS = (?P<given>\{{[^\n]*\}})[ \t]*$"
    r"|(?P<system>SYSTEM: +(?:Command \w+ returned: )?)|(?P<failed>Command \w+ returned an error: )"
    r"|[A-Z0-9][\w -]{0,60} THOUGHTS:|(?(level)(?=.)|(?!)))",
    re.MULTILINE,
)
_TOOLS = {"SHELL": "command", "BASH": "command", "COMMAND": "command", "EXEC": "command", "PYTHON": "code"}
_BRACKETED = re.compile(
    rf"^\[(?:(?P<tool>{'|'.join(_TOOLS)}): (?P<given>.+)\]$|(?P<agent>AGENT|ASSISTANT|MODEL|LLM)\b"
    r"|(?!STD(?:OUT|ERR)\])[A-Z][A-Z ]+[\]:])|^[=-]{10,}$",
    re.MULTILINE,
)
_STDERR = "[STDERR]\n"
_SEVERAL = 3  # calls in brackets, at least, in a log that has them
_ANNOUNCES = "NEXT ACTION: "


def _steps(text: str) -> list[dict[str, Any]]:
    """Announcements and results, as messages."""
    marks = list((_AUTOGPT if _ANNOUNCES in text else _BRACKETED).finditer(text))
    return (_of_autogpt if _ANNOUNCES in text else _of_brackets)(text, marks)


def _sections(text: str, marks: list[re.Match[str]]) -> Iterator[tuple[re.Match[str], str]]:
    for mark, then in itertools.zip_longest(marks, marks[1:]):
        yield mark, text[mark.end() : len(text) if then is None else then.start()].strip()


def _of_autogpt(text: str, marks: list[re.Match[str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for mark, said in _sections(text, marks):
        if mark["tool"]:
            found.append(stepwise_calls.message_of(mark["tool"], literal(mark["given"])))
        elif mark["failed"] or mark["system"]:
            found.append({"role": "tool", "content": said, "is_error": bool(mark["failed"])})
    return found


def _of_brackets(text: str, marks: list[re.Match[str]]) -> list[dict[str, Any]]:
    if sum(bool(mark["tool"]) for mark in marks) < _SEVERAL or not any(mark["agent"] for mark in marks):
        return []
    found: list[dict[str, Any]] = []
    for mark, said in _sections(text, marks):
        if mark["tool"]:
            asked = stepwise_calls.message_of(f"run_{mark['tool'].lower()}", {_TOOLS[mark["tool"]]: mark["given"]})
            printed, _, stderr = said.partition(_STDERR)
            found += [asked, {"role": "tool", "content": printed.rstrip(), "stderr": stderr.strip()}]
    return found


def reads(document: LogDocument) -> bool:
    """Whether something that was announced was answered, and runs code or edits a file."""
    if document.value is not None or document.lines:
        return False
    return stepwise_calls.answers(_steps(strip_ansi(document.text)))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs and edits, in order."""
    yield from stepwise_calls.steps(_steps(strip_ansi(document.text)), document.digest)


_MARKS = (_ANNOUNCES.encode(), *(f"[{tool}: ".encode() for tool in _TOOLS))
READER = Reader("announced-calls", _MARKS, reads, entries)
