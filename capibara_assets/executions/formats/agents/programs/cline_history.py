"""Histories of tasks of Cline and Roo Code, `api_conversation_history.json` or exported: calls that words answer.

The assistant writes `<execute_command><command>..</command></execute_command>`, or has a `tool_use` part where the
model calls tools itself; the user's next message has the answer as text behind `[execute_command for '..'] Result:`,
which names the tool and no id. Traps: the prompt has examples of such calls, but no answers; of calls in XML one a
message is run; a head may be a part of its own; times are there in later versions only; the environment's details
follow the answer. An export is Markdown: `**User:**` and `**Assistant:**` between rules. `tool_use` parts with
`tool_result` parts are read by shape, in `linked_calls`.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, text_at
from capibara_assets.executions.formats.agents.general.answers import ANSWER_HEAD, ToolAnswer, write_answer
from capibara_assets.executions.formats.agents.runs import Edit, Entry, LogDocument, NotRun, Reader, moment, texts
from capibara_assets.executions.formats.agents.tools.calls import Call

_EDITS = ("write_to_file", "replace_in_file", "apply_diff", "insert_content", "search_and_replace")
_TOOLS = ("execute_command", *_EDITS)
_CALL = re.compile(rf"<({'|'.join(_TOOLS)})>(.*?)</\1>", re.DOTALL)
_ENVIRONMENT = re.compile(r"\s*<environment_details>")
_ENVIRONMENT_BEHIND = re.compile(r"\n<environment_details>.*?(?:</environment_details>|\Z)", re.DOTALL)
_TURN = re.compile(r"(?:\A|\n---[^\S\n]*\n\s*+)\*\*(User|Assistant):\*\*\s*\n")
_TASK = re.compile(r"<task>\s*+(.*?)</task>", re.DOTALL)
_NEW_TEXTS = ("content", "diff", "replace", "args")


def reads(document: LogDocument) -> bool:
    """Whether a user's message answers a call in the assistant's message before it."""
    asked: set[str] = set()
    for message in _messages(document):
        if message["role"] == "assistant":
            asked = {call.name for call in _calls(message, "", None)}
        elif asked and any(name in asked for name, _ in _answers(message)):
            return True
    return False


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands and edits in order."""
    calls: list[Call] = []
    task: str | None = None
    for message in _messages(document):
        if message["role"] == "assistant":
            yield from map(_entry, calls)
            calls = list(_calls(message, document.digest, task))
            continue
        for name, told in _answers(message):
            if call := next((one for one in calls if one.name == name and one.not_run == "unanswered"), None):
                write_answer(call, ToolAnswer(texts=[told]), runs_shell=name == "execute_command")
        if given := _TASK.search(texts(_said(message))):
            task = given[1].rstrip() or task
        yield from map(_entry, calls)
        calls = []
    yield from map(_entry, calls)


def _calls(message: dict[str, Any], session: str, task: str | None) -> Iterator[Call]:
    """The calls of an assistant's message: all that are parts, else the first in its text."""
    started = moment(message.get("ts"))
    parts = [part for part in objects(message.get("content")) if part.get("type") == "tool_use"]
    for part in parts:
        if part.get("name") in _TOOLS and isinstance(part.get("input"), dict):
            yield Call(session, part["name"], part["input"], started=started, task=task)
    if not parts and (made := _CALL.search(texts(_said(message)))):
        fields = ("command", "path", *_NEW_TEXTS)
        given = {name: found for name in fields if (found := _field(made[2], name))}
        yield Call(session, made[1], given, started=started, task=task)


def _answers(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The tool and the text of each answer in a user's message: from its head up to the next."""
    begun: list[str] = []
    for part in _said(message):
        if ANSWER_HEAD.match(part):
            yield from _answer(begun)
            begun = [part]
        elif begun:
            begun.append(part)
        else:
            return  # an answer begins its message
    yield from _answer(begun)


def _answer(parts: list[str]) -> Iterator[tuple[str, str]]:
    told = texts(parts)
    if head := ANSWER_HEAD.match(told):
        yield head["tool"], told


def _entry(call: Call) -> Entry:
    given = call.arguments
    if call.name == "execute_command":
        code = text_at(given, "command").strip()
        return (
            call.run("bash", code)
            if call.not_run is None and code
            else NotRun(call.not_run or "no_code", call.session, code)
        )
    if call.not_run is not None or call.success is False:
        return NotRun(call.not_run or "edit_failed", call.session)
    path = text_at(given, "path") or text_at(given, "absolutePath")
    return Edit(call.session, path.strip(), next((found for name in _NEW_TEXTS if (found := text_at(given, name))), ""))


def _field(text: str, name: str) -> str:
    """The content of the first element of a name: up to the last end tag where it may itself hold such tags."""
    _, begin, inside = text.partition(f"<{name}>")
    end = inside.find(f"</{name}>") if name in ("path", "command") else inside.rfind(f"</{name}>")
    return inside[:end].removeprefix("\n") if begin and end >= 0 else ""


def _messages(document: LogDocument) -> list[dict[str, Any]]:
    value = document.value if isinstance(document.value, list) else []
    if document.value is None and (turns := list(_TURN.finditer(document.text))):
        ends = [*(turn.start() for turn in turns[1:]), len(document.text)]
        said = ((turn[1].lower(), document.text[turn.end() : end]) for turn, end in zip(turns, ends, strict=True))
        return [{"role": role, "content": _ENVIRONMENT_BEHIND.sub("", text).rstrip()} for role, text in said]
    return [one for one in value if isinstance(one, dict) and one.get("role") in ("user", "assistant")]


def _said(message: dict[str, Any]) -> list[str]:
    """The texts of a message, without what the editor adds of its state."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    told = [part if isinstance(part, str) else text_at(part, "text") for part in parts]
    return [part for part in told if part and not _ENVIRONMENT.match(part)]


READER = Reader(
    "cline-history", (b"</execute_command>", b"] Result:", *(f"</{name}>".encode() for name in _EDITS)), reads, entries
)
