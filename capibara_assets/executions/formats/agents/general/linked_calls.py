"""Logs of agents by the shape that most have: a call of a tool (name, arguments, id) and an answer that names the id.

JSON or JSON lines. A call stands as `{"name", "input" | "arguments" | ..}`, under `function`, `toolCall` and the like,
or under a key that is the tool's name (`shellToolCall`); its answer in the same object (`state`, `result`), or in a
later one that names its id. Gemini's calls may have none: an answer names its tool, and is of the first call of it in
the turn before. Session, time and model are those of the nearest object around, or of a line before. A call that stands
several times (started and completed, a history that is sent again, a second list: `repeated.py`) counts once. What the
program's flags mean is not known here: only exit codes, failures, and words that state them count.
"""

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, record, says_not_run, text_at, word
from capibara_assets.executions.formats.agents.general.answers import (
    go_on,
    is_answered,
    read_answer,
    states_failures,
    write_answer,
)
from capibara_assets.executions.formats.agents.general.repeated import once
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of, is_runner, words
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, first_moment, moment, texts
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed
from capibara_assets.executions.formats.envelope_reader import language_of
from capibara_assets.executions.formats.strict_json import Fault

_INSIDE = (
    ("function",), ("toolCall",), ("toolCall", "value"), ("toolCall", "function"), ("functionCall",),
    ("function_call",), ("toolUse",), ("tool_call",),
)  # fmt: skip
_NAMES = ("name", "toolName", "tool_name", "tool", "function_name", "functionName", "recipient_name")
_GIVEN = (
    "arguments", "args", "rawArgs", "input", "parameters", "params", "tool_input", "toolInput", "rawInput",
    "tool_kwargs",
)  # fmt: skip
_IDS = (
    "call_id", "callId", "callID", "toolCallId", "tool_call_id", "toolUseId", "tool_use_id", "tool_id", "toolId",
    "toolUseID", "id",
)  # fmt: skip
_LINKS = (
    "tool_use_id", "tool_call_id", "toolCallId", "toolUseId", "call_id", "callId", "callID", "source_call_id",
    "toolUseID", "tool_id",
)  # fmt: skip
_ANSWERS = (
    "content", "output", "result", "results", "toolResult", "tool_result", "return_value", "error", "response",
    "success", "tool_output", "run", "state", "stdout", "exit_code", "is_error", "message",
)  # fmt: skip
_SESSIONS = (
    "session_id",
    "sessionId",
    "sessionID",
    "conversation_id",
    "conversationId",
    "thread_id",
    "threadId",
    "agent_id",
)
_TIMES = ("timestamp", "timestamp_ms", "created", "created_at", "createdAt", "ts", "start_time", "startTime", "time")
_HEADS = ("info", "user")
_CONVERSATIONS = ("messages", "contents", "history", "conversation", "trajectory", "steps")
OTHERS = (b'"resourceSpans"', b'"resource_spans"', b'"cell_type"', b'"execution_id"')
_OWN = {*_GIVEN, *(path[0] for path in _INSIDE), "state", "result", "output"}  # of a call: not looked into for others
_OF_GEMINI = (("functionCall",), ("function_call",))
_NAMED_ANSWERS = ("functionResponse", "function_response", "toolResponse", "tool_response")
_PART = re.compile(r"tool-([\w.:-]+)\Z")  # a part's type that names its tool, as the AI SDK writes it
_PIECES = ("arguments_part", "arguments_delta", "argumentsDelta")  # of what the last call is given, as it is streamed
_DEPTH = 40
_SHELLS = ("shellId", "shell_id", "bash_id", "terminalId", "terminal_id", "processId", "process_id")
_ASKS_LEAVE = re.compile(r"permission|approval", re.IGNORECASE)  # an event whose `result` is no answer to the call
_READS = {"read", "output", "get", "poll", "wait", "status", "check"}
_HOSTED = (
    "code_execution", "bash_code_execution", "text_editor_code_execution", "nova_code_interpreter", "code_blocks",
)  # fmt: skip
_EXECUTABLE = (("executable_code", "code_execution_result"), ("executableCode", "codeExecutionResult"))  # of Gemini
_MARKED = (
    "toolResponse",
    "tool_calls",
    "tool_call",
    "toolCalls",
    "code_blocks",
    "function_response",
    "functionResponse",
)
MARKS = tuple(f'"{name}"'.encode() for name in (*_LINKS, *_MARKED, *(name for pair in _EXECUTABLE for name in pair)))


@dataclass(frozen=True, slots=True)
class _Around:
    """What the objects around tell."""

    session: str | None = None
    started: datetime | None = None
    model: str | None = None
    id: str | None = None


@dataclass(slots=True)
class _Found:
    """A call and what it asks for."""

    call: Call
    asked: Asked | None
    given: Any
    goes_on: "_Found | None" = None  # of a call that reads what another one's command printed since
    whole: bool = False  # without an id, its answer beside it
    counts: bool = False  # it runs code or edits a file


@dataclass(slots=True)
class _Log:
    trusts_success: bool
    calls: list[_Found] = field(default_factory=list)
    by_id: dict[str, _Found] = field(default_factory=dict)
    blocks: list[_Found] = field(default_factory=list)  # which wait for their result
    named: dict[str, deque[_Found]] = field(default_factory=dict)  # calls without an id that wait, by their tools
    answered: bool = False  # the last of Gemini's parts was an answer
    said: dict[str, list[_Found]] = field(default_factory=dict)  # calls without an id, by their conversations
    own: list[_Found] = field(default_factory=list)  # those of this conversation
    again: deque[_Found] = field(default_factory=deque)  # those that a history which is sent again may repeat
    begun: _Found | None = None  # the last call, if text is all that it was given so far
    shells: dict[str, _Found] = field(default_factory=dict)  # commands by the shells that run them in the background
    linked: bool = False  # a call of a known kind has its answer
    last: _Around = _Around()
    early: dict[str, dict[str, Any]] = field(default_factory=dict)  # answers that stand before their calls
    task: str | None = None
    conversations: dict[str, Any] = field(default_factory=dict)
    only_looks: bool = False  # to see whether it is such a log: the first answer will do

    def enter(self, session: str) -> None:
        """What follows is of this conversation."""
        self.by_id, self.early = self.conversations.setdefault(session, ({}, {}))
        self.last, self.task = _Around(), None

    def send(self, opening: str) -> None:
        """What follows is this conversation, from its beginning."""
        self.own = self.said.setdefault(opening, [])
        self.again, self.named, self.answered = deque(self.own), {}, False

    def walk(self, value: Any, around: _Around, depth: int = _DEPTH, name: str = "") -> None:
        """All calls and answers in a value, in order."""
        if self.only_looks and self.linked:
            return
        if isinstance(value, list) and depth:
            for item in value:
                if isinstance(item, dict | list):
                    self.walk(item, around, depth - 1)
        elif isinstance(value, dict) and depth and not _ASKS_LEAVE.search(str(value.get("type"))):
            around = self._told(value, around)
            self._user(value)
            self._piece(value)
            self._blocks(value, around)
            known = self._call(value, around) or self._named_by_key(value, around)
            if not known:
                self._answer(value, name in _NAMED_ANSWERS)
            for key, item in value.items():
                if isinstance(item, dict | list) and not (known and key in _OWN):
                    self.walk(item, around, depth - 1, key)

    def _told(self, node: dict[str, Any], around: _Around, heads: bool = True) -> _Around:
        session = next((node[key] for key in _SESSIONS if word(node.get(key))), around.session)
        times = ((node.get(key) if key != "time" else _begin(node.get(key))) for key in _TIMES)
        started = first_moment(times) or around.started
        model = word(node.get("model")) or word(node.get("modelID")) or around.model
        own = next((node[key] for key in _IDS[:-1] if word(node.get(key))), around.id)
        head = next((node[key] for key in _HEADS if isinstance(node.get(key), dict)), None) if heads else None
        if head is not None:
            told = self._told(head, _Around(), heads=False)  # what is said of a message beside its parts
            session, started, model = session or told.session, told.started or started, told.model or model
        self.last = replace(self.last, session=session or self.last.session, model=model or self.last.model)
        return _Around(session, started, model, own)

    def _user(self, node: dict[str, Any]) -> None:
        head = record(node.get("info"))
        user = "user" in (node.get("role"), node.get("type"), node.get("source"), head.get("role"))
        content = node.get("parts") if head else node.get("content")
        said = texts(content).strip() or text_at(node, "user", "content", "Prompt", "prompt").strip()
        if (user or "user" in node) and said and not any(word(node.get(link)) for link in _LINKS):
            self.task = said

    def _call(self, node: dict[str, Any], around: _Around) -> bool:
        """Take an object as a call, if it is one."""
        if isinstance(node.get("tool"), str) and isinstance(node.get("state"), dict):
            state = record(node["state"])
            begun = moment(_begin(state.get("time"))) or around.started
            return self._asks(node, replace(around, started=begun), node["tool"], state.get("input"))
        for path in ((), *_INSIDE):
            inner: Any = node
            for step in path:
                inner = record(inner).get(step)
            inner = record(inner)
            name = next((inner[key] for key in _NAMES if word(inner.get(key))), None)
            if name is None and word(inner.get("toolCallId")) and (part := _PART.match(str(inner.get("type")))):
                name = part[1]
            given = next((inner[key] for key in _GIVEN if inner.get(key) is not None), None)
            described = isinstance(given, dict) and given.get("type") == "object" and "properties" in given
            if name is not None and isinstance(given, dict | list | str) and not described:  # what a tool may be given
                return self._asks({**inner, **node} if path else node, around, name, given, path in _OF_GEMINI)
        return False

    def _named_by_key(self, node: dict[str, Any], around: _Around) -> bool:
        """A call under a key that is its tool's name: `{"shellToolCall": {"args", "result"}}`."""
        for key, inner in node.items():
            if key.endswith("ToolCall") and isinstance(inner, dict) and isinstance(inner.get("args"), dict):
                held = {**inner, "id": around.id or inner["args"].get("toolCallId")}
                return self._asks(held, around, key.removesuffix("ToolCall"), inner["args"])
        return False

    def _asks(self, node: dict[str, Any], around: _Around, name: str, given: Any, by_name: bool = False) -> bool:
        """Take a call; `by_name`: without an id, its answer names its tool."""
        key = next((node[key] for key in _IDS if word(node.get(key))), None)
        asked = asked_of(name, given)
        known = self.by_id.get(key) if key else self._said_before(name, given) if by_name else None
        if known is None or (known.call.not_run != "unanswered" and asked not in (None, known.asked)):
            call = Call(
                around.session or "", name, given, key, around.started, self.task, around.model or self.last.model
            )
            call.session = call.session or self.last.session or ""
            whole = key is None and is_answered(node)
            known = _Found(call, asked, given, self._shell(call, asked, given), whole)
            if key:
                self.by_id[key] = known
                if key in self.early:
                    self._write(known, self.early.pop(key))
            elif by_name:
                self.own.append(known)
            if asked is not None or (is_runner(name) and not record(given).get("restart")):
                self._count(known)
        elif known.asked is None and asked is not None:  # told in pieces
            self._count(known, asked, given)
        self.begun = known if isinstance(known.given, str) else None
        if by_name and not key:
            if self.answered:  # the next turn: what is left of the one before has no answer
                self.named, self.answered = {}, False
            self.named.setdefault(name, deque()).append(known)
        if is_answered(node):
            self._write(known, {name: node[name] for name in node if name not in (*_GIVEN, *_NAMES)})
        return True

    def _count(self, found: _Found, asked: Asked | None = None, given: Any = None) -> None:
        """Keep a call that runs code or edits a file, or that turned out to do so."""
        if asked is not None:
            found.asked, found.given = asked, given
        if not found.counts:
            found.counts = True
            self.calls.append(found)

    def _piece(self, node: dict[str, Any]) -> None:
        """Take a piece of what the last call is given."""
        piece = next((node[key] for key in _PIECES if isinstance(node.get(key), str)), None)
        if piece is None or self.begun is None:
            return
        found = self.begun
        found.given += piece
        asked = asked_of(found.call.name, found.given) if piece.rstrip().endswith("}") else None
        if asked is not None and isinstance(given := parsed(found.given), dict):
            self._count(found, asked, given)
            self.begun = None

    def _said_before(self, name: str, given: Any) -> _Found | None:
        """The call without an id that a history repeats here; None: it goes on with another one."""
        if self.again and (self.again[0].call.name, self.again[0].given) == (name, given):
            return self.again.popleft()
        self.again.clear()
        return None

    def _shell(self, call: Call, asked: Asked | None, given: Any) -> _Found | None:
        """The command of a shell that a call names to read from it."""
        told = record(parsed(given))
        shell = next((told[key] for key in _SHELLS if word(told.get(key))), None)
        return self.shells.get(shell) if shell and asked is None and words(call.name) & _READS else None

    def _blocks(self, node: dict[str, Any], around: _Around) -> None:
        """Blocks of code that are run together, and the result of those before: neither names the other."""
        result, blocks = record(node.get("result")), objects(node.get("code_blocks"))
        for asked, executed in _EXECUTABLE:
            blocks = [node[asked]] if isinstance(node.get(asked), dict) else blocks
            if isinstance(node.get(executed), dict):
                told = node[executed]
                result = {"output": text_at(told, "output"), "exit_code": int(told.get("outcome") != "OUTCOME_OK")}
        if blocks:
            codes = [code for block in blocks if (code := word(block.get("code")))]
            self.blocks = []
            for block in blocks if len(codes) == len(blocks) else []:
                language = language_of(word(block.get("language")) or "python")
                call = Call(around.session or "", "code_blocks", block, None, around.started, self.task, around.model)
                self.blocks.append(_Found(call, Asked(language, block["code"]), block))
            self.calls += self.blocks
        elif self.blocks and "exit_code" in result and "output" in result:
            for found in self.blocks[:-1]:  # of those before the last the result says nothing where it is a failure
                found.call.not_run, found.call.success = None, True if result["exit_code"] == 0 else None
            if len(self.blocks) > 1 and result["exit_code"] != 0:
                self.blocks[-1].call.not_run, self.blocks[-1].call.output = None, text_at(result, "output")
            else:
                self._write(self.blocks[-1], result)
            self.linked, self.blocks = True, []

    def _answer(self, node: dict[str, Any], is_answer: bool = False) -> None:
        key = next((node[link] for link in _LINKS if word(node.get(link))), None)
        if is_answer and (waiting := self.named.get(str(node.get("name")))):
            self.answered = True  # an id that it has is its own
            self._write(waiting.popleft(), node)
            return
        if node.get("event") == "on_tool_error":  # LangGraph's names the call's input instead of its id
            self._fail(str(node.get("name")), record(node.get("data")))
        if key is None and (
            is_answer or any(part in str(node.get("type")).lower() for part in ("result", "response", "output"))
        ):
            key = word(node.get("id"))
        if key is not None and (node.get("type") == "tool_result" or any(name in node for name in _ANSWERS)):
            if key in self.by_id:
                self._write(self.by_id[key], node)
            else:
                self.early.setdefault(key, node)

    def _fail(self, name: str, told: dict[str, Any]) -> None:
        for found in self.calls:
            if (found.call.name, found.given, found.call.not_run) == (name, told.get("input"), "unanswered"):
                self._write(found, {"is_error": True, "error": told.get("error")})
                return

    def _write(self, found: _Found, node: dict[str, Any]) -> None:
        if found.call.not_run != "unanswered":  # a history that is sent again, or tells more of what was asked
            if says_not_run(node) and not (found.call.output or found.call.stderr):
                found.call.not_run = "refused"
            return
        if found.goes_on is not None:
            found.call.not_run = None
            go_on(found.goes_on.call, read_answer(node))
            return
        shell = found.asked is not None and found.asked.path is None
        language = found.asked.language if found.asked is not None else ""
        answer = read_answer(node)
        states = states_failures(found.call, node)
        answer.failed = answer.failed is True if states else answer.failed
        write_answer(found.call, answer, shell, states or self.trusts_success, language)
        self.linked = self.linked or (found.asked is not None and found.call.not_run != "unanswered")
        if answer.shell:
            self.shells[answer.shell] = found
        if shell and isinstance(found.given, dict):
            self.shells |= {found.given[key]: found for key in _SHELLS if word(found.given.get(key))}


def _begin(value: Any) -> Any:
    """The begin in `{"start", "end"}` or `{"created"}`."""
    return record(value).get("start", record(value).get("created")) if isinstance(value, dict) else value


def _log(document: LogDocument, trusts_success: bool = False, only_looks: bool = False) -> _Log:
    log = _Log(trusts_success, only_looks=only_looks)
    log.task = word(record(document.value).get("task"))
    rows = document.rows
    kept = list(map(_opening, rows)) if len(rows) > 1 else []
    several = len({opening for opening in kept if opening is not None}) > 1
    for number, row in enumerate(rows):
        session = log.last.session
        if several and kept[number] is not None:  # conversations of their own, whose calls may have the same ids
            session = f"{document.digest}/{kept[number]}"
            log.enter(session)
        if kept and (opening := kept[number]) is not None:
            log.send(opening)
        log.walk(row, _Around(session=session, model=log.last.model))
    return log


def _opening(row: Any) -> str | None:
    """What tells a conversation, which a row holds, from others: how it begins; None: the row holds none."""
    held = (
        next((row[key] for key in _CONVERSATIONS if isinstance(row.get(key), list)), None)
        if isinstance(row, dict)
        else None
    )
    opening = json.dumps(held[:2], sort_keys=True).encode("ascii") if held else None
    return None if opening is None else hashlib.sha256(opening).hexdigest()[:12]


def reads(document: LogDocument) -> bool:
    """Whether a call that runs code or edits a file has its answer."""
    if any(mark in document.data for mark in OTHERS):
        return False
    return _log(document, only_looks=True).linked


def entries(document: LogDocument, trusts_success: bool = False) -> Iterator[Entry]:
    """The runs and edits in the order of their calls; `trusts_success`: see `write_answer`."""
    if document.value is None:
        yield from document.faults
    calls = _log(document, trusts_success).calls
    for found in calls:
        found.call.session = found.call.session or document.digest
    yield from map(_entry, once(calls))


class ClientCalls:
    """The calls in bodies of a provider's API that the client answers, not those of the provider's own tools."""

    def __init__(self, session: str) -> None:
        self._log, self._session = _Log(trusts_success=False), session

    def note(self, body: dict[str, Any]) -> list[Callable[[], Entry]]:
        """The calls that a body is the first to hold; what became of them is known when all bodies were noted."""
        known = len(self._log.calls)
        self._log.walk(body, _Around(session=self._session))
        new = [found for found in self._log.calls[known:] if found.call.name not in _HOSTED]
        return [partial(self._entry, found) for found in new]

    def _entry(self, found: _Found) -> Entry:
        found.call.session = self._session
        return _entry(found)


def _entry(found: _Found) -> Entry:
    if found.asked is None:
        return Fault("no_code", f"a call of {found.call.name} without a command", found.given)
    return entry_of(found.call, found.asked)


READER = Reader("linked-calls", MARKS, reads, entries)
