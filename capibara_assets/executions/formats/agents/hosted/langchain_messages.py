"""What LangChain's `pretty_print` shows of messages, in a notebook's cell or a text file: LangGraph's agents mostly.

A message is headed by its kind between two rows of "="; calls of tools stand below "Tool Calls:", each with its name,
its id and a line for each argument; what a tool returned is a message of its own, which names the tool, not the call.
Traps: an argument's further lines are not indented, so that lines of code may resemble the next argument; programs
put rules and names of nodes between messages; messages are often shown again, so that a call counts once by its id.
"""

import re
from collections.abc import Iterator
from keyword import iskeyword
from typing import Any

from capibara_assets.executions.formats.agents.general import stepwise_calls
from capibara_assets.executions.formats.agents.hosted.console_dialogues import dialogues, plain, sections
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, Reader

_HEADING = re.compile(
    r"^={10,}(?:\x1b?\[1m)? (?P<kind>[A-Z][A-Za-z]*) Message (?:\x1b?\[0m)?={10,}[ \t]*$|^={40,}\n(?=\S+ Node: )",
    re.MULTILINE,
)
_NAME = re.compile(r"\n?Name: ([^\n]{1,200})\n")
_CALLS = re.compile(r"^(?:Invalid )?Tool Calls:[ \t]*\n", re.MULTILINE)
_CALL = re.compile(
    r"^  (?P<name>[^\s(]{1,200}) \((?P<id>[^)\n]{0,200})\)[ \t]*\n Call ID: (?P=id)[ \t]*$", re.MULTILINE
)
_GIVEN = re.compile(r"^  Args:[ \t]*(?:\n|\Z)", re.MULTILINE)
_KEY = re.compile(r" {4}(?P<key>[A-Za-z_]\w{0,99}): (?P<value>.*)\Z", re.DOTALL)
_OPEN = (":", ",", "(", "[", "{", "\\")
_LEAST = 20  # signs of a rule


def is_dialogue(cell_output_text: str) -> bool:
    """Whether console text holds messages in which a tool ran code."""
    if "Tool Calls:" not in cell_output_text or " Message " not in cell_output_text:
        return False
    return any(isinstance(entry, AgentRun | Edit) for entry in _of_text("", plain(cell_output_text), set()))


def reads(document: LogDocument) -> bool:
    """Whether the document is such a text, or a notebook with one."""
    return any(True for _ in dialogues(document, is_dialogue, _HEADING))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The executions of all texts, in the order of their answers."""
    seen: set[str] = set()
    for session, text in dialogues(document, is_dialogue, _HEADING):
        yield from _of_text(session, text, seen)


READER = Reader("langchain-messages", (b"Tool Calls:",), reads, entries)


def _of_text(session: str, text: str, seen: set[str]) -> Iterator[Entry]:
    rows: list[dict[str, Any]] = []
    for heading, said in sections(_HEADING, text):
        kind, said = (heading["kind"] or "").lower(), _unruled(said)
        if kind == "human":
            rows.append({"role": "user", "content": said.strip()})
        elif kind in ("tool", "function") and (name := _NAME.match(said)) is not None:
            rows.append({"role": "tool", "name": name[1].strip(), "content": said[name.end() :].strip("\n")})
        elif kind in ("ai", "aimessagechunk") and (below := _CALLS.search(said)) is not None:
            calls = [call for call in sections(_CALL, said[below.end() :]) if call[0]["id"] not in seen]
            seen.update(call["id"] for call, _ in calls if call["id"] != "None")
            made = [{"name": call["name"], "arguments": _given(shown)} for call, shown in calls]
            rows += [{"role": "assistant", "tool_calls": made}] if made else []
    yield from stepwise_calls.steps(rows, session)


def _unruled(said: str) -> str:
    """What a message says, without the rules and blanks that a program prints behind it."""
    lines = said.split("\n")
    while lines and (not lines[-1].strip() or (len(lines[-1]) >= _LEAST and not lines[-1].strip("=-#*_ \t"))):
        lines.pop()
    return "\n".join(lines)


def _given(shown: str) -> Any:
    """A call's arguments; a text where they were one."""
    at = _GIVEN.search(shown)
    lines = shown[at.end() :].split("\n") if at is not None else [""]
    if (first := _key(lines[0])) is None:
        return "\n".join([lines[0].strip(), *lines[1:]]).strip()
    key, above = first
    found, inside = {key: [above]}, False
    last = len(lines)  # from here on all lines look like arguments
    while _key(lines[last - 1]) is not None and last > 1:
        last -= 1
    for number, line in enumerate(lines[1:], 1):
        begins = _key(line)
        inside = begins is not None and (
            inside or above.rstrip().endswith(_OPEN) or (above.startswith((" ", "\t")) and number < last)
        )
        if begins is not None and not inside:
            key, above = begins
            found[key] = [above]
        else:
            found[key].append(line)
            above = line
    return {name: "\n".join(value).rstrip() for name, value in found.items()}


def _key(line: str) -> tuple[str, str] | None:
    """The argument that begins in a line, and its value."""
    found = _KEY.match(line)
    return (found["key"], found["value"]) if found is not None and not iskeyword(found["key"]) else None
