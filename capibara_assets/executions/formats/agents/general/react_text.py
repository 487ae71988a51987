"""Text in which an agent writes what it does and reads its outcome: `Action:`, `Action Input:`, `Observation:`.

LangChain's console, transcripts of ReAct prompts and what was made like them; also `ACTION: tool{"..": ..}` in a line.
LangChain's chains without colours have no label before what a tool returned: fenced or quoted input shows its own end.
A tool counts by its name, as in `stepwise_calls`, which reads what is found. Traps: the prompt shows the form, words in
the place of a tool's name; an observation ends where the agent goes on (`Thought:`, `Action:`, `Final Answer:`). Where
a sign stands before each label (`👀 Observation:`), any label with one ends it, and `Tool Called: python`, `Code: ..`
are an action and its input.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.general import stepwise_calls
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader
from capibara_assets.executions.formats.agents.tools.shell_frames import read_fence
from capibara_assets.executions.formats.cell_outputs import strip_ansi

_LABEL = re.compile(
    r"^[ \t>*]{0,8}(?P<label>Thought|Action Input|Action|Observation|Final Answer|Question|Human|New Query)[ \t\d]{0,4}"
    r"\**:\**[ \t]*|^[ \t]*> ?(?P<chain>(?:Finished|Entering new)[^\n]{0,60} chain)\b",
    re.MULTILINE | re.IGNORECASE,
)
_CALL = re.compile(r"`?([A-Za-z][\w .-]{0,40}?)`?\s*(?:([{(\[].*))?\Z", re.DOTALL)
_SIGN = r"^[ \t]{0,4}[^\x00-\x7f\w]{1,4}[ \t]+"
_SIGNED = re.compile(rf"{_SIGN}Observation:", re.MULTILINE)
_SIGNED_LABEL = re.compile(rf"{_SIGN}([A-Z][\w ]{{1,20}}):", re.MULTILINE)
_SIGNED_CALL = re.compile(
    rf"{_SIGN}Tool (?:Called|Call|Used): ([A-Za-z][\w.-]{{0,40}})[ \t]*\n(?:{_SIGN[1:]})?(?:Code|Input): ", re.MULTILINE
)
_QUOTED = re.compile(r"(?P<given>```.*?\n```|`[^`\n]+`)[ \t]*\n?(?P<returned>.*)\Z", re.DOTALL)
_RAISED = re.compile(r"\w*(?:Error|Exception)\(")  # an exception, as `repr` writes it
_MARKS = (b"Observation:", b"OBSERVATION:", b"Observation 1:", b">Entering new ", b"> Entering new ")


def steps(text: str) -> list[dict[str, Any]]:
    """What stands behind the labels as messages: questions, calls and observations."""
    plain = _unsigned(strip_ansi(text))
    unlabelled = "Entering new " in plain and "Observation:" not in plain
    labels = list(_LABEL.finditer(plain))
    found: list[dict[str, Any]] = []
    tool: str | None = None
    for label, then in itertools.zip_longest(labels, labels[1:]):
        end = len(plain) if then is None else then.start()
        said, kind = plain[label.end() : end].strip(), (label["label"] or "").lower()
        if kind in ("question", "human", "new query"):
            found.append({"role": "user", "content": said})
        elif kind == "action" and (call := _CALL.match(said)) is not None:
            tool = call[1].strip().replace(" ", "_")
            if call[2]:
                found.append(_called(tool, call[2]))
                tool = None
        elif kind == "action input" and tool is not None:
            quoted = _QUOTED.match(said) if unlabelled else None
            found.append(_called(tool, said if quoted is None else quoted["given"]))
            if quoted is not None:
                returned = quoted["returned"]
                found.append({"role": "tool", "content": returned, "is_error": bool(_RAISED.match(returned))})
            tool = None
        elif kind == "observation":
            found.append({"role": "tool", "content": said})
    return found


def _unsigned(text: str) -> str:
    """Text whose labels have no signs before them; one of another name only ends what stands above it."""
    if not _SIGNED.search(text):
        return text
    text = _SIGNED_CALL.sub(r"Action: \1\nAction Input: ", text)
    return _SIGNED_LABEL.sub(lambda label: f"{label[1]}:" if _LABEL.match(f"{label[1]}:") else "Thought:", text)


def _called(tool: str, given: str) -> dict[str, Any]:
    fenced = read_fence(given)
    return stepwise_calls.message_of(tool, given if fenced is None else fenced)


def reads(document: LogDocument) -> bool:
    """Whether an observation answers an action that runs code or edits a file."""
    return document.value is None and not document.lines and stepwise_calls.answers(steps(document.text))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs and edits, in order."""
    yield from stepwise_calls.steps(steps(document.text), document.digest)


READER = Reader("react-text", _MARKS, reads, entries)
