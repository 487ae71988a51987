"""Telemetry of OpenClaw (`logs/telemetry.jsonl` of its plugin): JSON lines of `tool.start`, `tool.end` and others.

All sessions of a gateway are in one file. A start has no id of its call: its end is the one of the same session and
tool that, less its duration, lies nearest in time. Traps: `success` says that the tool returned, not that the command
did well, so only its failure tells anything; outputs and exit codes stand only in the `messages` of an `agent.end`
(some versions), which hold the whole history each time; a limit on the rate of events may have left out any of them.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from capibara_assets.executions.formats.agents.fields import number, record, whole, word
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader, moment, texts
from capibara_assets.executions.formats.agents.tools.pi import SHELLS, calls, tool_edit, tool_run
from capibara_assets.executions.formats.strict_json import Fault

_TYPES = ("tool.start", "tool.end", "agent.start", "agent.end", "llm.usage", "message.in", "message.out")
_MARKS = tuple(f'"{name}"'.encode() for name in sorted(_TYPES))


@dataclass(slots=True, eq=False)
class _Call:
    """A tool's start, with what was found of its end and of its result."""

    session: str
    name: str
    arguments: dict[str, Any]
    at: Any
    call_id: str | None = None
    model: str | None = None
    task: str | None = None
    end: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


def _reads(document: LogDocument) -> bool:
    """Most lines are events of telemetry: a type of its own, a place in the sequence and a time."""
    lines = document.lines[:200]
    events = [
        line for line in lines if line.get("type") in _TYPES and whole(line.get("seq")) and number(line.get("ts"))
    ]
    return bool(events) and 2 * len(events) >= len(lines)


def _entries(document: LogDocument) -> Iterator[Entry]:
    yield from document.faults
    found: list[_Call] = []
    waiting: defaultdict[tuple[str, str], list[_Call]] = defaultdict(list)
    silent: defaultdict[str, list[_Call]] = defaultdict(list)
    models: dict[str, str] = {}
    tasks: dict[str, str] = {}
    for line in document.lines:
        session, kind = word(line.get("sessionKey")) or document.digest, line.get("type")
        if kind == "tool.start":
            if not isinstance(line.get("params"), dict) or not word(line.get("toolName")):
                yield Fault("invalid_call", "a tool.start without its tool or parameters", line)
                continue
            call_id = word(line.get("toolCallId"))
            call = _Call(session, line["toolName"], line["params"], line.get("ts"), call_id)
            call.model, call.task = models.get(session), tasks.get(session)
            for calls_so_far in (found, waiting[session, call.name], silent[session]):
                calls_so_far.append(call)
        elif kind == "tool.end":
            _close(waiting[session, str(line.get("toolName"))], line)
        elif kind in ("agent.start", "llm.usage"):
            models[session] = word(line.get("model")) or models.get(session, "")
            tasks[session] = word(line.get("prompt")) or tasks.get(session, "")
        elif kind == "agent.end" and isinstance(line.get("messages"), list):
            _match(silent.pop(session, []), line["messages"])
    for call in found:
        yield from _outcome(call)


def _close(waiting: list[_Call], end: dict[str, Any]) -> None:
    """Gives an end to the start that it belongs to, of those that wait for one."""
    call_id = word(end.get("toolCallId"))
    begun = (number(end.get("ts")) or 0.0) - (number(end.get("durationMs")) or 0.0)
    fitting = [call for call in waiting if call_id is None or call.call_id in (None, call_id)]
    if fitting:
        call = min(fitting, key=lambda call: abs((number(call.at) or 0.0) - begun))
        call.end = end
        waiting.remove(call)


def _match(silent: list[_Call], messages: list[Any]) -> None:
    """Gives results to calls, from the last of both backwards: the messages begin with those of earlier turns."""
    heard, task = [], None
    results: dict[str, dict[str, Any]] = {}
    for message in map(record, messages):
        if message.get("role") == "user":
            task = texts(message.get("content")).strip() or task
        elif message.get("role") == "assistant":
            heard += [(*call, task, word(message.get("model"))) for call in calls(message)]
        elif message.get("role") == "toolResult" and word(message.get("toolCallId")):
            results[message["toolCallId"]] = message
    for call in reversed(silent):
        for at in reversed(range(len(heard))):
            call_id, name, arguments, told, model = heard[at]
            if (name, arguments) == (call.name, call.arguments) or (call_id and call_id == call.call_id):
                call.result, call.call_id = results.get(call_id or ""), call_id
                call.task, call.model = told or call.task, model or call.model
                del heard[at]
                break


def _outcome(call: _Call) -> Iterator[Entry]:
    """The edit or the run of a call."""
    end = call.end or {}
    returned = bool(call.result) or end.get("success") is True
    if returned and (edit := tool_edit(call.session, call.name, call.arguments, call.result or {})):
        yield edit
    if call.name not in SHELLS:
        return
    code = word(call.arguments.get("command"))
    if code is None:
        yield Fault("no_code", f"a call of {call.name} without a command", call.arguments)
        return
    if call.end is None and call.result is None:
        yield NotRun("unanswered", call.session, code)
        return
    run = AgentRun(
        session=call.session,
        language="bash",
        code=code,
        success=None,
        call_id=call.call_id,
        started=moment(call.at),
        duration_ms=number(end.get("durationMs")),
        task=call.task or None,
        model=call.model or None,
    )
    if call.result is not None:
        yield tool_run(run, call.result)
    elif end.get("success") is False:
        yield tool_run(run, {"isError": True, "content": end.get("error")})
    else:
        yield run


READER = Reader("openclaw-telemetry-jsonl", _MARKS, _reads, _entries)
