"""Gemini CLI's recorded chats (`~/.gemini/tmp/<project>/chats/session-*.json`, later `.jsonl`).

The older form is one object with `messages`; the later one a line of metadata, a line per message, written again
whole whenever its tool calls or tokens grow, and lines of `$set` (metadata, or all messages anew) and `$rewindTo`.
Traps: only the last writing of a call counts; what was rewound had run all the same; `status: success` says that the
tool returned, while the command's end stands in the text of its response (`Exit Code:`, in newer versions only where
it is not 0); a cancelled call ran only if its response has an output; a call's own time is of its end, so the
message's is used.
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.edit_texts import replacement
from capibara_assets.executions.formats.agents.fields import record, word
from capibara_assets.executions.formats.agents.runs import (
    AgentRun,
    Edit,
    Entry,
    LogDocument,
    NotRun,
    Reader,
    moment,
    texts,
)
from capibara_assets.executions.formats.agents.tools.shell_reports import Report, gemini_report, refused
from capibara_assets.executions.formats.strict_json import Fault

_SHELLS = ("run_shell_command", "ShellTool", "Shell")
_EDITS = ("write_file", "replace", "edit", "smart_edit")
_TIMEOUT = "Command was automatically cancelled because it exceeded the timeout"
_STOPPED = "Command was cancelled by user before it could complete"
_BEHIND = "Command moved to background (PID: ", "Command is running in background. PID: "
_HOOKED = "\n\n[System] Tool input parameters were modified by a hook before execution."
_TYPES = ("user", "gemini", "info", "error", "warning")
_ENDED = ("success", "error", "cancelled")
_UNSAID = ("<session_context>", "This is the Gemini CLI.")


def _reads(document: LogDocument) -> bool:
    """An object of a session and its project with messages, or lines that begin with one and go on with messages."""
    value = document.value
    if isinstance(value, dict) and "messages" in value:
        messages = value["messages"] if isinstance(value["messages"], list) else []
        return _is_named(value) or (
            "sessionId" in value and any(record(each).get("type") == "gemini" for each in messages)
        )
    lines = document.lines
    messages = [line for line in lines if line.get("type") in _TYPES and "id" in line]
    changes = [line for line in lines if isinstance(line.get("$set"), dict)]
    if any(map(_is_named, lines[:50])):
        return bool(messages or changes) or len(lines) == 1
    return bool(changes) and any(message.get("type") == "gemini" for message in messages)


def _is_named(value: dict[str, Any]) -> bool:
    return bool(word(value.get("sessionId")) and word(value.get("projectHash")))


def _entries(document: LogDocument) -> Iterator[Entry]:
    value = document.value
    if isinstance(value, dict):
        records = [value]
    else:
        yield from document.faults
        records = document.lines
    messages, session = _gathered(records)
    session, task = session or document.digest, None
    for message in messages:
        if not isinstance(message, dict):
            yield Fault("invalid_message", "a message that is no object", message)
            continue
        if message.get("type") == "user":
            said = texts(message.get("displayContent")) or texts(message.get("content"))
            task = task if said.startswith(_UNSAID) else said.strip() or task
        tool_calls = message.get("toolCalls")
        if tool_calls is None:
            continue
        if not isinstance(tool_calls, list):
            yield Fault("invalid_message", "toolCalls that are no list", message)
            continue
        for call in tool_calls:
            yield from _call(record(call), message, session, task)


def _gathered(records: list[dict[str, Any]]) -> tuple[list[Any], str | None]:
    """The messages in the order of their first writing, each as written last, and the name of the session."""
    found: dict[str, Any] = {}
    session: str | None = None
    for at, line in enumerate(records):
        change = record(line.get("$set")) or line
        session = session or word(change.get("sessionId"))
        messages = change.get("messages")
        if not isinstance(messages, list):
            messages = [line] if "type" in line else []
        for n, message in enumerate(messages):
            name = word(record(message).get("id")) or f"{at}/{n}"
            # a message written anew without its calls (history made shorter) has run them all the same
            if not (record(found.get(name)).get("toolCalls") and not record(message).get("toolCalls")):
                found[name] = message
    return list(found.values()), session


def _call(call: dict[str, Any], message: dict[str, Any], session: str, task: str | None) -> Iterator[Entry]:
    name, arguments, status = call.get("name"), record(call.get("args")), call.get("status")
    if name in _EDITS and status == "success":
        path = next((arguments[key] for key in ("file_path", "path") if word(arguments.get(key))), "")
        diff = word(record(call.get("resultDisplay")).get("fileDiff"))
        text = next((arguments[key] for key in ("content", "new_string") if word(arguments.get(key))), "")
        yield Edit(session, path, replacement(arguments) or diff or text)
    if name not in _SHELLS:
        return
    code = word(arguments.get("command"))
    if code is None:
        yield Fault("no_code", f"a call of {name} without a command", call)
        return
    if status not in _ENDED and status is not None:
        yield NotRun("unanswered", session, code)
        return
    text, error = _response(call)
    report = _report(text or error)
    stopped = status == "cancelled" and not text
    if stopped or refused(text or error) or (status == "error" and not report.stated):
        yield NotRun("cancelled" if status == "cancelled" else "refused", session, code)
        return
    yield AgentRun(
        session=session,
        language="bash",
        code=code,
        success=report.success,
        output=report.output,
        stderr=report.stderr,
        exit_code=report.exit_code,
        call_id=word(call.get("id")),
        started=moment(message.get("timestamp")) or moment(call.get("timestamp")),
        timed_out=text.startswith(_TIMEOUT),
        task=task,
        model=word(message.get("model")),
    )


def _response(call: dict[str, Any]) -> tuple[str, str]:
    """The output and the error of a call's response; where it has none, what was shown to the user."""
    result = call.get("result")
    parts = result if isinstance(result, list) else [result]
    answers = [record(record(record(part).get("functionResponse")).get("response")) for part in parts]
    output = "\n".join(text for answer in answers if (text := texts(answer.get("output"))))
    error = "\n".join(text for answer in answers if (text := texts(answer.get("error"))))
    shown = call.get("resultDisplay")
    if not output and not error:
        output = texts(result) or (shown if isinstance(shown, str) else "")
    return output, error


def _report(text: str) -> Report:
    text = text.removesuffix(_HOOKED)
    if text.startswith((_TIMEOUT, _STOPPED)):
        return Report(text.partition("it was cancelled:\n")[2], success=False, stated=True)
    if text.startswith(_BEHIND):
        return Report(text.partition("Initial output:\n")[2], stated=True)
    report = gemini_report(text)
    if not report.stated and text.startswith("Output: "):  # what is not written did not go wrong
        return Report(text.removeprefix("Output: "), success=True, stated=True)
    return report


READER = Reader("gemini-cli-chat", (b'"projectHash"', b'"gemini"'), _reads, _entries)
