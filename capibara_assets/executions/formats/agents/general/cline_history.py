"""Histories of tasks of Cline and Roo Code, `api_conversation_history.json` or exported, with calls in XML.

The assistant writes `<execute_command><command>..</command></execute_command>`; the user's next message begins with
`[execute_command for '..'] Result:` and holds what the tool says. Traps: the prompt has examples of such calls, but
no answers; one call a message is run; times are there in later versions only; the environment's details follow the
answer. An export is Markdown: `**User:**` and `**Assistant:**` between rules. Calls as `tool_use` parts are read by
shape, in `linked_calls`.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import text_at
from capibara_assets.executions.formats.agents.general.answers import ANSWER_HEAD, ToolAnswer, write_answer
from capibara_assets.executions.formats.agents.runs import Edit, Entry, LogDocument, NotRun, Reader, moment, texts
from capibara_assets.executions.formats.agents.tools.calls import Call

_EDITS = ("write_to_file", "replace_in_file", "apply_diff", "insert_content", "search_and_replace")
_CALL = re.compile(rf"<(execute_command|{'|'.join(_EDITS)})>(.*?)</\1>", re.DOTALL)
_ENVIRONMENT = re.compile(r"\s*<environment_details>")
_ENVIRONMENT_BEHIND = re.compile(r"\n<environment_details>.*?(?:</environment_details>|\Z)", re.DOTALL)
_TURN = re.compile(r"(?:\A|\n---[^\S\n]*\n\s*+)\*\*(User|Assistant):\*\*\s*\n")
_TASK = re.compile(r"<task>\s*+(.*?)</task>", re.DOTALL)


def reads(document: LogDocument) -> bool:
    """Whether a user's message begins with the answer to a call in the assistant's text before it."""
    asked = False
    for message in _messages(document):
        said = _said(message)
        if message["role"] == "assistant":
            asked = bool(_CALL.search(said))
        elif asked and ANSWER_HEAD.match(said):
            return True
    return False


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands and edits in order."""
    call: Call | None = None
    task: str | None = None
    for message in _messages(document):
        said = _said(message)
        if message["role"] == "assistant":
            if call is not None:
                yield _entry(call)
            call = None
            if made := _CALL.search(said):
                call = Call(document.digest, made[1], made[2], started=moment(message.get("ts")), task=task)
            continue
        if call is not None and ANSWER_HEAD.match(said):
            write_answer(call, ToolAnswer(texts=[said]), runs_shell=call.name == "execute_command")
        if given := _TASK.search(said):
            task = given[1].rstrip() or task
        if call is not None:
            yield _entry(call)
        call = None
    if call is not None:
        yield _entry(call)


def _entry(call: Call) -> Entry:
    if call.name == "execute_command":
        code = _field(call.arguments, "command").strip()
        return (
            call.run("bash", code)
            if call.not_run is None and code
            else NotRun(call.not_run or "no_code", call.session, code)
        )
    if call.not_run is not None or call.success is False:
        return NotRun(call.not_run or "edit_failed", call.session)
    text = next(
        (found for name in ("content", "diff", "replace", "args") if (found := _field(call.arguments, name))), ""
    )
    return Edit(call.session, _field(call.arguments, "path").strip(), text)


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


def _said(message: dict[str, Any]) -> str:
    """The text of a message, without what the editor adds of its state."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    told = [part if isinstance(part, str) else text_at(part, "text") for part in parts]
    return texts([part for part in told if part and not _ENVIRONMENT.match(part)])


READER = Reader("cline-history", (b"</execute_command>", *(f"</{name}>".encode() for name in _EDITS)), reads, entries)
