"""gptme's conversations as its terminal shows them: what each speaker says, headed `User:`, `Assistant:`, `System:`.

The same calls and answers as in `conversation.jsonl` (`gptme.py`). Between a call and its answer stand a preview of it
and what it prints, so the answer counts, and the fence that is called only where the answer repeats it but for blanks:
answers are wrapped at the terminal's width, and Rich leaves out what it takes for markup. Where a message has several
fences of Python, which one an "Executed code block." is of is not told: then nothing is read. Times and models are not
told; nor whether a call without an answer ran.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader
from capibara_assets.executions.formats.agents.tools.gptme import CUT, TOOLS, Asked, calls_in, entry_of_answer

_HEADING = re.compile(
    r"^(?:Assistant: Thinking\.\.\.[ \r]*(?P<model>Assistant):|(?P<tool>System):|(?P<user>User):)", re.MULTILINE
)
_PAST = re.compile(
    r"^(?:--- \^\^\^ past messages \^\^\^ ---|Skipped \d+ hidden system messages? \(/log --hidden to show\))[ \r]*$",
    re.MULTILINE,
)
_BEHIND_PROGRESS = re.compile(r"(?<! ) {8,}\r(?=System:)")  # where the command printed nothing
_INDENTED = re.compile(r"( +)(`{3,})\w")
_MARKUP = re.compile(r"\[[a-z#/@][^\[\]\n]*\]")  # what Rich takes for it, and leaves out
_ENDED = "--- Finished generation ---"
_OVERWRITTEN = re.compile(r"^(`{3,})[ \r]{10,}[^\n]*$", re.MULTILINE)  # where a line of progress stood
_MARK = re.compile(r"\s*(?:[^\w\s`] ?)?(?=[A-Z])")
_ECHO = re.compile(
    r"(?P<head>Ran (?:allowlisted |whitelisted )?command|Command timed out(?: \(after [^\n)]*\))?):"
    r"(?:\s`(?P<line>[^`]+)`|\n(?P<fence>`{3,})bash\n(?P<lines>.*?)\n(?P=fence))(?=\s*?\n|\Z)",
    re.DOTALL,
)
_QUOTED = re.compile(r"^ ?(?:(?P<stream>stdout|stderr): ?)?`(?P<said>[^`]+)`[ \t]*$", re.MULTILINE)
_LABEL = re.compile(r"^(stdout|stderr):\n```$", re.MULTILINE)  # of older versions
_TOOLS = {**TOOLS, "bash": "bash", "sh": "bash"}  # of older versions, too: an answer shows which was called
_EXECUTED = "Executed code block."
_SAVED = re.compile(r"(?:Saved to|Appended to|Patch successfully applied to) `?([^\s`]+)")
_BLANK = re.compile(r"\s+")


class _Turn(NamedTuple):
    speaker: str
    said: str


def _turns(document: LogDocument) -> list[_Turn]:
    """What was said; empty where the text is no terminal's: it does not begin as gptme does."""
    text = _BEHIND_PROGRESS.sub("\n", document.text.replace("\r\n", "\n"))
    past = _PAST.search(text)
    if past is None:
        return []
    heads = list(_HEADING.finditer(text, past.end()))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [
        _Turn(head.lastgroup or "", text[head.end() : end].split(_ENDED, 1)[0])
        for head, end in zip(heads, ends, strict=False)
    ]


def _reads(document: LogDocument) -> bool:
    return document.value is None and any(True for _ in _entries(document))


def _entries(document: LogDocument) -> Iterator[Entry]:
    asked: list[Asked] = []
    task: str | None = None
    begun = False
    for turn in _turns(document):
        if turn.speaker == "user":  # behind a call, it may be what a program printed
            task = None if begun else turn.said.strip() or None
        elif turn.speaker == "model":
            begun = True
            made = _dedented(_OVERWRITTEN.sub(r"\1", turn.said))
            asked = [call._replace(task=task) for call in calls_in(made, _TOOLS)]
        elif (found := _answered(asked, said := _MARK.sub("", turn.said.strip(), count=1))) is not None:
            asked = [call for call in asked if call is not found]
            yield entry_of_answer(found, _as_stored(found, said), document.digest)


def _answered(asked: list[Asked], said: str) -> Asked | None:
    """The call that an answer is of; None: it is of none, or which is not told."""
    if (echo := _ECHO.match(said)) is not None:
        shown = echo["line"] or echo["lines"]
        return next((call for call in asked if call.language == "bash" and _echoes(shown, call.text)), None)
    if said.startswith(_EXECUTED):
        cells = [call for call in asked if call.language == "python"]
        return cells[0] if len(cells) == 1 else None
    if (saved := _SAVED.match(said)) is not None:
        edits = [call for call in asked if call.language == "patch" and call.path and saved[1].endswith(call.path)]
        return edits[0] if len(edits) == 1 else None
    return None


def _as_stored(call: Asked, said: str) -> str:
    """An answer as the conversation's file has it: the command whole, each stream in a fence of its name."""
    echo = _ECHO.match(said)
    rest = said[echo.end() :] if echo else said.removeprefix(_EXECUTED)
    rest = _LABEL.sub(r"```\1", rest)
    if "```" not in rest:
        rest = _QUOTED.sub(lambda one: f"```{one['stream'] or 'stdout'}\n{one['said']}\n```", rest)
    if echo is None:
        return f"{_EXECUTED}{rest}" if said.startswith(_EXECUTED) else said
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`{3,}", call.text)), 3)
    head = echo["head"].replace("whitelisted", "allowlisted")
    return f"{head}:\n{fence}bash\n{call.text}\n{fence}{rest}"


def _dedented(said: str) -> str:
    """A message whose fences in lists are without the list's indentation."""
    lines, by, fence = said.split("\n"), "", ""
    for number, line in enumerate(lines):
        if not by and (opened := _INDENTED.match(line)):
            by, fence = opened[1], opened[2]
        lines[number] = line.removeprefix(by)
        if by and lines[number].rstrip(" \r") == fence:
            by = ""
    return "\n".join(lines)


def _echoes(shown: str, command: str) -> bool:
    """Whether an answer shows a command, but for blanks and markup; of many lines it shows the first ones."""
    commands = (_squeezed(command), _squeezed(_MARKUP.sub("", command)))
    if CUT.search(shown):
        beginning = _squeezed(CUT.sub("", shown))
        return any(text.startswith(beginning) for text in commands)
    return _squeezed(shown) in commands


def _squeezed(text: str) -> str:
    return _BLANK.sub("", text)


READER = Reader("gptme-terminal", (b"--- ^^^ past messages ^^^ ---", b"(/log --hidden to show)"), _reads, _entries)
