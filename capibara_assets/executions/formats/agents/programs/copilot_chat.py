"""Chat sessions of GitHub Copilot in VS Code (`chatSessions/*.json`, or exported): requests and what ran for each.

Since 2026 a session is a log of changes (`chatSessions/*.jsonl`): a first line of kind 0 with the whole session, then
values set (1), items added to a list behind its first `i` (2), and values removed (3), at the path `k`.

A response's part of `kind: toolInvocationSerialized` has the command (`toolSpecificData`) or what an MCP server was
given (`resultDetails`); what the model was told of it stands in `result.metadata`, under `toolCallRounds` and
`toolCallResults`, whose ids have a suffix of VS Code's. Traps: output and exit code of a terminal may stand in either
place or in none; lines end with CR LF; `isConfirmed.type` 0 is a call that the user did not allow.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.executions.formats.agents.fields import at, code_at, number, objects, record, text_at, word
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, moment
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed

_SUFFIX = "__vscode"
_DEEPEST = 20  # steps of a path


@dataclass(slots=True)
class _Invocation:
    """A call, as the model made it, as the page shows it, and what the model was told."""

    name: str | None = None
    given: Any = None
    shown: dict[str, Any] = field(default_factory=dict)
    told: Any = None


def reads(document: LogDocument) -> bool:
    """Whether a request has calls of tools in its response or beside its result."""
    return any(_invocations(request) for request in objects(_whole(document).get("requests")))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands, code and edits in the order of their calls."""
    if document.value is None:
        yield from document.faults
    whole = _whole(document)
    session = text_at(whole, "sessionId") or document.digest
    for request in objects(whole.get("requests")):
        for key, invocation in _invocations(request).items():
            entry = _entry(invocation, key, session, request)
            if entry is not None:
                yield entry


def _whole(document: LogDocument) -> dict[str, Any]:
    """The session, as one JSON object or as its log of changes leaves it."""
    if isinstance(document.value, dict) and "requests" in document.value:
        return document.value
    whole: dict[str, Any] = {}
    for line in document.rows:
        kind, path = record(line).get("kind"), record(line).get("k")
        if kind == 0:
            whole = record(line.get("v"))
        elif kind in (1, 2, 3) and isinstance(path, list) and 0 < len(path) <= _DEEPEST:
            whole = record(_changed(whole, path, line))
    return whole


def _changed(value: Any, path: list[Any], change: dict[str, Any]) -> Any:
    """A copy of a value with a change at a path within; the value itself where the path leads nowhere."""
    step, *rest = path
    inside = isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)
    if not (inside or (isinstance(value, dict) and isinstance(step, str | int))):
        return value
    copied: Any = value.copy()
    held, new = at(value, step), change.get("v")
    if rest:
        copied[step] = _changed(held, rest, change)
    elif change["kind"] == 3:
        copied.pop(step) if isinstance(copied, list) else copied.pop(step, None)
    elif change["kind"] == 2:
        listed = held if isinstance(held, list) else []
        kept = listed[: change["i"]] if isinstance(change.get("i"), int) else listed
        copied[step] = [*kept, *(new if isinstance(new, list) else ())]
    else:
        copied[step] = new
    return copied


def _invocations(request: dict[str, Any]) -> dict[str, _Invocation]:
    """The calls of a request by id."""
    found: dict[str, _Invocation] = {}
    metadata = record(at(request, "result", "metadata"))
    for each in objects(metadata.get("toolCallRounds")):
        for call in objects(each.get("toolCalls")):
            if key := word(call.get("id")):
                found[_plain(key)] = _Invocation(word(call.get("name")), call.get("arguments"))
    by_command: dict[str, deque[_Invocation]] = defaultdict(deque)
    for invocation in found.values():
        by_command[text_at(parsed(invocation.given), "command").strip()].append(invocation)
    for part in objects(request.get("response")):
        if part.get("kind") == "toolInvocationSerialized" and (key := word(part.get("toolCallId"))):
            same = by_command[text_at(part, "toolSpecificData", "commandLine", "original").strip() or key]
            while same and same[0].shown:
                same.popleft()
            if _plain(key) not in found and same:  # a terminal's part may have an id of its own
                same[0].shown = part
            else:
                found.setdefault(_plain(key), _Invocation()).shown = part
    for key, told in record(metadata.get("toolCallResults")).items():
        if _plain(key) in found:
            found[_plain(key)].told = told
    return found


def _plain(key: str) -> str:
    return key.split(_SUFFIX, 1)[0]


def _entry(invocation: _Invocation, key: str, session: str, request: dict[str, Any]) -> Entry | None:
    """What a call did; None: it ran no code and edited nothing."""
    shown = invocation.shown
    terminal = record(shown.get("toolSpecificData"))
    asked = _asked(invocation, terminal)
    if asked is None:
        return None
    call = Call(
        session, str(invocation.name), asked.text, key, moment(request.get("timestamp")),
        text_at(request, "message", "text").strip() or None, word(request.get("modelId")),
    )  # fmt: skip
    if at(shown, "isConfirmed", "type") == 0 or shown.get("isConfirmed") is False:
        call.not_run = "refused"
    else:
        _answered(call, asked, invocation, terminal)
    return entry_of(call, asked)


def _asked(invocation: _Invocation, terminal: dict[str, Any]) -> Asked | None:
    line = terminal.get("commandLine", terminal.get("command"))
    if terminal.get("kind") == "terminal" and line is not None:
        told = record(line)
        command = next((told[name] for name in ("userEdited", "toolEdited", "original") if word(told.get(name))), line)
        return Asked("bash", command) if word(command) else None
    given = invocation.given if invocation.given is not None else at(invocation.shown, "resultDetails", "input")
    return asked_of(invocation.name or word(invocation.shown.get("toolId")), given)


def _answered(call: Call, asked: Asked, invocation: _Invocation, terminal: dict[str, Any]) -> None:
    """Write how the call ended: as the terminal kept it, else as the model was told."""
    details = record(invocation.shown.get("resultDetails"))
    values = [text_at(part, "value") for part in objects(at(invocation.told, "content"))]
    outputs = [text_at(part, "value") for part in objects(details.get("output"))]
    output, code = at(terminal, "terminalCommandOutput", "text"), code_at(terminal, "terminalCommandState", "exitCode")
    told = "\n".join(values or outputs) if values or outputs else None
    if told is None and output is None and code is None:
        if terminal.get("kind") == "terminal" and invocation.shown.get("isComplete") is True:
            call.not_run = None  # it ended, and printed nothing that was kept
        return
    answer = read_answer({"output": told if told is not None else output or "", "exit_code": code})
    if isinstance(details.get("isError"), bool):
        answer.failed = details["isError"]
    write_answer(call, answer, asked.path is None, language=asked.language)
    if isinstance(output, str) and call.not_run is None:
        call.output = output.replace("\r\n", "\n")
    call.duration_ms = number(at(terminal, "terminalCommandState", "duration"))


READER = Reader("copilot-chat", (b'"toolInvocationSerialized"', b'"toolCallRounds"'), reads, entries)
