"""Codex's session logs: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<session>.jsonl`.

JSON lines with a `type` and a `payload`; the oldest versions wrote the payloads bare, after a line about the session,
or as one JSON object `{"session", "items"}`.
Traps: one execution stands up to three times, as a call, as its answer and (not in all versions, not in order) as an
event `exec_command_end`; only the events tell of commands that the user or a script started. The first messages of the
"user" are instructions and the environment. A fork of a session repeats its history, `compacted` repeats it too.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, NotRun, Reader, moment, texts
from capibara_assets.executions.formats.agents.tools import codex_calls
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.codex_cells import Cell, cell_of
from capibara_assets.executions.formats.strict_json import Fault

_LINES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_BARE = ("message", "reasoning", "function_call", "function_call_output", "local_shell_call")
_CALLS = ("function_call", "local_shell_call", "custom_tool_call")
_SCRIPT = "exec"  # a custom tool: JavaScript that calls the other tools
_OWN = re.compile(  # texts that Codex writes as the user
    r"\s*(?:# AGENTS\.md instructions|<(?:environment_context|user_instructions|INSTRUCTIONS|user_shell_command"
    r"|turn_aborted|skill|subagent_notification|permissions|collaboration_mode|personality_spec|model_switch"
    r"|user_action|goal_context|recommended_plugins|additional_context|hook_prompt|image)\b)",
    re.IGNORECASE,
)
_REQUEST = "## My request for Codex:"
_TYPED = re.compile(
    r"\s*<user_shell_command>\s*<command>\n?(.*?)\n?</command>\s*<result>\n?(.*?)\n?</result>", re.DOTALL
)


def reads(document: LogDocument) -> bool:
    """Whether the lines are those of a session of Codex, of any version."""
    lines = _lines(document)
    if any(_is_line(line) for line in lines):
        return True
    own = any(
        {"id", "timestamp", "instructions"} <= line.keys() or line.get("record_type") == "state" for line in lines
    )
    return own and any(line.get("type") in _BARE for line in lines)


def _lines(document: LogDocument) -> list[dict[str, Any]]:
    """JSON lines, or the session and the items of one JSON object."""
    value = document.value
    if isinstance(value, dict) and isinstance(value.get("session"), dict) and isinstance(value.get("items"), list):
        return [value["session"], *objects(value["items"])]
    return document.lines


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs, edits and calls that did not run, in the order of the calls."""
    yield from document.faults
    log = _Log(document.digest)
    for line in _lines(document):
        log.take(line)
    yield from log.faults
    for call in log.calls:
        cell = log.cells.get(id(call))
        for each in [call] if cell is None else cell.stands_for():
            yield from _entries_of(each)


class _Log:
    """The calls of a log, which is read line by line."""

    def __init__(self, unnamed: str) -> None:
        self.session = unnamed
        self.named = False
        self.model: str | None = None
        self.task: str | None = None
        self.shell: str | None = None
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.others: set[str] = set()  # calls of tools that run nothing
        self.by_id: dict[str, Call] = {}
        self.polls: dict[str, Call | None] = {}
        self.going_on: dict[str, Call] = {}
        self.told_by_event: set[int] = set()  # calls by their `id`
        self.cells: dict[int, Cell] = {}  # by the `id` of their scripts' calls

    def take(self, line: dict[str, Any]) -> None:
        """One line of the log."""
        kind, time = line.get("type"), line.get("timestamp")
        payload = line.get("payload") if kind in _LINES else line
        if not isinstance(payload, dict):
            self.faults.append(Fault("type:payload", f"a line of the type {kind} has no payload", line))
            return
        if kind == "session_meta" or (kind is None and "instructions" in line):
            self._name(payload)
        elif kind == "turn_context":
            model = payload.get("model")
            self.model = model if isinstance(model, str) else self.model
        elif kind == "response_item" or kind in _BARE:
            self._item(payload, time)
        elif kind == "event_msg" and payload.get("type") == "exec_command_end":
            self._ended(payload, time)
        elif kind == "event_msg" and payload.get("type") == "user_message":
            self._said([payload.get("message")])

    def _name(self, about: dict[str, Any]) -> None:
        """The first is the session's own; a fork's history begins with that of its parent."""
        name = about.get("id", about.get("session_id"))
        if isinstance(name, str) and name and not self.named:
            self.session, self.named = name, True

    def _item(self, item: dict[str, Any], time: Any) -> None:
        kind = item.get("type")
        if kind in _CALLS:
            self._called(item, time)
        elif kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
            self._answered(str(item.get("call_id", item.get("id"))), item.get("output"))
        elif kind == "message" and item.get("role") == "user":
            content = item.get("content")
            parts = [texts([part]) for part in content] if isinstance(content, list) else [content]
            self._said(parts)
            for part in parts:
                self.shell = (codex_calls.shell_of(part) if isinstance(part, str) else None) or self.shell
                self._typed(part, time)

    def _said(self, parts: list[Any]) -> None:
        words = [part for part in parts if isinstance(part, str) and part.strip() and not _OWN.match(part)]
        if words:
            said = "\n".join(words)
            self.task = said.rpartition(_REQUEST)[2].strip() if _REQUEST in said else said

    def _called(self, item: dict[str, Any], time: Any) -> None:
        key = str(item.get("call_id") or item.get("id"))
        if key in self.by_id or key in self.polls:
            return
        name, arguments = str(item.get("name")), codex_calls.arguments_of(item.get("arguments"))
        if item["type"] == "local_shell_call":
            name, arguments = "local_shell", item.get("action")
        elif item["type"] == "custom_tool_call":
            arguments = item.get("input")
        if name in codex_calls.POLLS and item["type"] == "function_call":
            on = arguments.get(codex_calls.POLLS[name]) if isinstance(arguments, dict) else None
            self.polls[key] = self.going_on.get(str(on))
        elif name in codex_calls.COMMANDS or name == "apply_patch" or _is_script(item):
            call = self._call(key, name, arguments, time)
            if _is_script(item):
                self.cells[id(call)] = cell_of(call, self.shell)
        else:
            self.others.add(key)

    def _answered(self, key: str, output: Any) -> None:
        answer = codex_calls.answer_of(output)
        if key in self.polls:
            started = self.polls[key]
            if (cell := self.cells.get(id(started))) is not None:
                cell.take(output, answer, self.going_on, self.told_by_event)
            elif started is not None and started.success is None and answer.duration_ms is not None:  # it has a header
                started.output += answer.output
                started.exit_code, started.success = answer.exit_code, answer.success
            return
        call = self.by_id.get(key)
        if call is None and key not in self.others:
            self.faults.append(Fault("missing:call", f"the output of {key} has no call in this log", output))
        if call is None or id(call) in self.told_by_event:
            return
        if (cell := self.cells.get(id(call))) is not None:
            cell.take(output, answer, self.going_on, self.told_by_event)
        else:
            answer.write(call)
        if answer.goes_on:
            self.going_on[answer.goes_on] = call

    def _ended(self, event: dict[str, Any], time: Any) -> None:
        key, code = str(event.get("call_id")), event.get("exit_code")
        call = self.by_id.get(key) or self._of_script(event)
        if call is None:
            call = self._call(key, "exec_command", {"command": event.get("command")}, time)
        whole = [event.get(name) for name in ("aggregated_output", "stdout", "formatted_output")]
        output = next((text for text in whole if isinstance(text, str) and text), call.output)
        code = code if isinstance(code, int) and not isinstance(code, bool) else call.exit_code
        if event.get("status") == "declined":
            call.not_run = "refused"
        else:
            success = code == 0 if code is not None else call.success
            codex_calls.CodexAnswer(output, code, success, duration_ms=_milliseconds(event.get("duration"))).write(call)
        self.told_by_event.add(id(call))

    def _of_script(self, event: dict[str, Any]) -> Call | None:
        """The command of the last call, a script, of which an event tells under an id of its own."""
        cell = self.cells.get(id(self.calls[-1])) if self.calls else None
        ran = codex_calls.command_of({"command": event.get("command")})
        for call in cell.commands if cell is not None and ran is not None else ():
            if id(call) not in self.told_by_event and codex_calls.command_of(call.arguments) == ran:
                return call
        return None

    def _typed(self, text: Any, time: Any) -> None:
        """A command that the user typed; an event may have told of it already."""
        typed = _TYPED.match(text) if isinstance(text, str) else None
        if typed is None:
            return
        last = codex_calls.command_of(self.calls[-1].arguments) if self.calls else None
        if last is None or last.code != typed[1] or id(self.calls[-1]) not in self.told_by_event:
            call = self._call("", "exec_command", {"cmd": typed[1]}, time)
            codex_calls.answer_of(re.sub(r"(?m)^Duration:", "Wall time:", typed[2], count=1)).write(call)

    def _call(self, key: str, name: str, arguments: Any, time: Any) -> Call:
        given = codex_calls.in_shell(arguments, self.shell)
        call = Call(self.session, name, given, key if key not in ("", "None") else None)
        call.started, call.task, call.model = moment(time), self.task, self.model
        self.calls.append(call)
        if call.id:
            self.by_id[call.id] = call
        return call


def _entries_of(call: Call) -> Iterator[Entry]:
    patch = codex_calls.patch_of(call.name, call.arguments)
    if patch is not None:
        applied = call.success or (call.success is None and call.output.startswith("Success."))
        yield from codex_calls.edits_of(call.session, patch) if call.not_run is None and applied else ()
        return
    if call.name == _SCRIPT:
        command = codex_calls.Command("javascript", call.arguments) if isinstance(call.arguments, str) else None
    else:
        command = codex_calls.command_of(call.arguments)
    if call.not_run is not None:
        yield NotRun(call.not_run, call.session, command.code if command else None)
    elif command is None:
        yield Fault("type:command", f"a call of {call.name} has no command", call.arguments)
    else:
        yield call.run(*command)


def _is_line(line: dict[str, Any]) -> bool:
    kind, payload = line.get("type"), line.get("payload")
    if not isinstance(payload, dict) or kind not in _LINES:
        return False
    return isinstance(payload.get("type"), str) if kind in ("response_item", "event_msg") else "cwd" in payload


def _is_script(item: dict[str, Any]) -> bool:
    return item["type"] == "custom_tool_call" and item.get("name") == _SCRIPT


def _milliseconds(duration: Any) -> float | None:
    told = duration if isinstance(duration, dict) else {}
    seconds, nanoseconds = told.get("secs"), told.get("nanos")
    if not isinstance(seconds, int) or not isinstance(nanoseconds, int) or abs(seconds) > 1e9:
        return None
    return seconds * 1000 + min(nanoseconds, 10**9) / 1e6


READER = Reader(
    "codex",
    (b'"response_item"', b'"event_msg"', b'"session_meta"', b'"turn_context"', b'"record_type"', b'"instructions"'),
    reads,
    entries,
)
