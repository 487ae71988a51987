"""Sessions of the pi coding agent, and of OpenClaw, which is built on it: JSON lines of a header and of entries.

An entry of type `message` holds one message; `toolCall` parts of the assistant's are joined by id with `toolResult`
messages, and `bashExecution` messages are commands that the user typed. Traps: the exit code stands only as the last
line of the text ("Command exited with code 1") and only of a failure, so `isError: false` is success without a code;
an error may say that nothing ran; times are ISO outside and epoch milliseconds inside; a session that branches off
another (`branchedFrom`, `parentSession`) begins with copies of the other's entries, older than its own header: those
keep the other's name. OpenClaw's `exec` tells status, code and time in `details`; of a command that goes on, a later
`process` call tells them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from capibara_assets.executions.formats.agents.edit_texts import replacements
from capibara_assets.executions.formats.agents.fields import number, of_json, record, whole, word
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
from capibara_assets.executions.formats.agents.tools.shell_reports import refused
from capibara_assets.executions.formats.strict_json import Fault

SHELLS = ("bash", "exec", "shell")
_POLLS = "process"  # OpenClaw's tool that looks at what goes on, by the id in `sessionId`
_FOOTER = re.compile(
    r"(?:\A|\n\n?)\(?(?:Command|Process) (?:exited with code (-?\d+)|(timed out)\b[^\n]*|(aborted))\.?\)?\s*\Z"
)
_KILLED = re.compile(r"(?:\A|\n)\(?Command (?:aborted by signal|killed|terminated)[^\n]*\s*\Z")
_PARENT = re.compile(r"(?<![^_/\\])([^_/\\]+)\.jsonl\Z")
_NEW = ("content", "newText", "new_string", "newString", "input", "patch")
_ROLES = ("user", "assistant", "toolResult", "bashExecution", "custom", "hookMessage", "system")


@dataclass(slots=True)
class _State:
    session: str
    model: str | None = None
    task: str | None = None


def tool_run(run: AgentRun, result: dict[str, Any]) -> AgentRun | NotRun:
    """A run with the outcome that its `toolResult` message tells; NotRun where the call was stopped before it ran."""
    text, details = _error_of(texts(result.get("content"))), record(result.get("details"))
    failed, code = result.get("isError"), whole(details.get("exitCode"))
    footer = _FOOTER.search(text) if failed is not False or code else None
    code = int(footer[1]) if footer and footer[1] and len(footer[1]) < 10 else code
    status = details.get("status")
    told = footer or _KILLED.search(text)
    if status in ("approval-pending", "approval-unavailable"):
        return NotRun("refused", run.session, run.code)
    if failed and not told and code is None and refused(text):
        return NotRun("refused", run.session, run.code)
    success = None if not isinstance(failed, bool) and code is None else not failed and not code
    if status == "running":
        success, code = None, None
    elif footer:
        success = code == 0
    output = text[: told.start()] if told else text
    return replace(
        run,
        success=success,
        output="" if output.strip() == "(no output)" else output,
        exit_code=code,
        duration_ms=number(details.get("durationMs")) if run.duration_ms is None else run.duration_ms,
        timed_out=bool(footer and footer[2]) or details.get("timedOut") is True,
    )


def _error_of(text: str) -> str:
    """The text of an answer that OpenClaw wraps: `{"status": "error", "tool": "exec", "error": ".."}`."""
    if text.startswith("{") and '"error"' in text[:400]:
        value = of_json(text)
        if isinstance(value, dict) and value.get("status") == "error" and isinstance(value.get("error"), str):
            return str(value["error"])
    return text


def tool_edit(session: str, name: str, arguments: dict[str, Any], result: dict[str, Any]) -> Edit | None:
    """The edit that a call of `edit`, `write` or `apply_patch` made; None where it is none of them, or failed."""
    if name not in ("edit", "write", "apply_patch") or result.get("isError") is True:
        return None
    path = next((arguments[key] for key in ("path", "file_path", "filePath") if word(arguments.get(key))), "")
    edits = arguments.get("edits")
    changes = [arguments, *map(record, edits if isinstance(edits, list) else ())]
    news = [part[key] for part in changes for key in _NEW if word(part.get(key))]
    both = "\n".join(replacements(changes))
    diff = word(record(result.get("details")).get("diff"))
    return Edit(session, path, both or diff or "\n".join(news))


def calls(message: dict[str, Any]) -> Iterator[tuple[str | None, str, dict[str, Any]]]:
    """The id, the tool and the arguments of each call in an assistant's message."""
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in ("toolCall", "toolUse"):
            name, arguments = part.get("name"), part.get("arguments", part.get("input"))
            yield word(part.get("id")), name if isinstance(name, str) else "", record(arguments)


def _reads(document: LogDocument) -> bool:
    """A header of a session with its folder or version, or, where that is damaged, results of tools in messages."""
    lines = document.lines
    if not lines:
        return False
    head = lines[0]
    messages = [record(line.get("message")) for line in lines if line.get("type") in ("message", "message_end")]
    if head.get("type") == "session" and isinstance(head.get("id"), str) and ("cwd" in head or "version" in head):
        known = any(message.get("role") in _ROLES for message in messages)
        return known or (not messages and "cwd" in head and "timestamp" in head)
    return any(
        message.get("role") == "bashExecution" or (message.get("role") == "toolResult" and "toolCallId" in message)
        for message in messages
    )


def _entries(document: LogDocument) -> Iterator[Entry]:
    yield from document.faults
    lines = document.lines
    head: dict[str, Any] = next((line for line in lines if line.get("type") == "session"), {})
    own = word(head.get("id")) or document.digest
    parent = _PARENT.search(str(head.get("parentSession") or head.get("branchedFrom") or ""))
    begun = moment(head.get("timestamp")) if parent else None
    state = _State(own, model=word(head.get("modelId")))
    results = _results(lines)
    for line in lines:
        if line.get("type") == "model_change":
            state.model = word(line.get("modelId")) or state.model
        if line.get("type") not in ("message", "message_end"):
            continue
        message = line.get("message")
        if not isinstance(message, dict):
            yield Fault("invalid_message", "an entry of type message holds none", line)
            continue
        at = moment(line.get("timestamp")) or moment(message.get("timestamp"))
        state.session = parent[1] if parent and begun and at and at < begun else own
        shell = AgentRun(state.session, "bash", "", None, started=at)
        yield from _message(state, message, shell, results)


def _results(lines: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The results of tools by the id of their call; of a command that went on, the one that tells its end."""
    found: dict[str, dict[str, Any]] = {}
    going_on: dict[str, str] = {}
    for message in (record(line.get("message")) for line in lines):
        call = message.get("toolCallId")
        if message.get("role") != "toolResult" or not isinstance(call, str):
            continue
        details = record(message.get("details"))
        session, status = word(details.get("sessionId")), details.get("status")
        if message.get("toolName") == _POLLS and session in going_on and status != "running":
            found[going_on.pop(session)] = message
        elif message.get("toolName") != _POLLS and session and status == "running":
            going_on[session] = call
        found[call] = message
    return found


def _message(
    state: _State, message: dict[str, Any], shell: AgentRun, results: dict[str, dict[str, Any]]
) -> Iterator[Entry]:
    role = message.get("role")
    if role == "user":
        state.task = texts(message.get("content")).strip() or state.task
    elif role == "bashExecution":
        yield _typed(replace(shell, task=state.task, model=state.model), message)
    elif role == "assistant":
        state.model = word(message.get("model")) or state.model
        for call_id, name, arguments in calls(message):
            result = results.get(call_id or "")
            if result is not None and (edit := tool_edit(state.session, name, arguments, result)):
                yield edit
            if name not in SHELLS:
                continue
            command = word(arguments.get("command"))
            if command is None:
                yield Fault("no_code", f"a call of {name} without a command", arguments)
            elif result is None:
                yield NotRun("unanswered", state.session, command)
            else:
                run = replace(shell, code=command, call_id=call_id, task=state.task, model=state.model)
                yield tool_run(run, result)


def _typed(run: AgentRun, message: dict[str, Any]) -> AgentRun | Fault:
    """The run of a command that the user typed."""
    command, code, output = message.get("command"), whole(message.get("exitCode")), message.get("output")
    if not isinstance(command, str) or not command:
        return Fault("no_code", "a bashExecution without a command", message)
    text = output if isinstance(output, str) else ""
    return replace(run, code=command, output=text, exit_code=code, success=None if code is None else code == 0)


READER = Reader("pi-session-jsonl", (b'"session"', b'"toolResult"', b'"bashExecution"'), _reads, _entries)
