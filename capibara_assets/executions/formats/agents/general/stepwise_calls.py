"""Agents' steps in which a call of a tool and its answer are told by their places, not by an id.

JSON or JSON lines, as ReAct loops and harnesses of one's own write them. The answer stands in the step that has the
call (`{"tool", "tool_input", "observation"}`, `{"tool_call": {..}, "observation"}`), behind it in a pair (LangChain's
`intermediate_steps`), or in the next message or event that says it is one (`{"role": "tool", "content"}`), which may
name the tool. A call that another follows before an answer has none. Tools count that run code or edit files by their
names; what flags mean is not known, as in `linked_calls`, which reads the logs whose answers name ids. An interpreter
or database whose answer shows no error came to its end.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, record, word
from capibara_assets.executions.formats.agents.general.answers import read_answer, states_failures, write_answer
from capibara_assets.executions.formats.agents.general.around import Around
from capibara_assets.executions.formats.agents.general.linked_calls import OTHERS
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.runs import (
    AgentRun,
    Edit,
    Entry,
    LogDocument,
    Reader,
    texts,
)
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.envelope_reader import language_of

_INSIDE = ((), ("tool_call",), ("function_call",), ("function",), ("action",), ("tool",), ("kwargs",))
_NAMES = ("tool_name", "toolName", "tool", "function_name", "name", "action")
_GIVEN = (
    "tool_input", "toolInput", "tool_arguments", "tool_args", "action_input", "arguments", "args", "input",
    "parameters", "params", "kwargs",
)  # fmt: skip
_BESIDE = (
    "observation", "observations", "tool_response", "tool_output", "tool_result", "output", "result", "response",
)  # fmt: skip
_ENDS = ("error", "exit_code", "returncode", "return_code", "stdout")
_STATES = ("stderr", "success", "is_error", "status")  # which a step has that only begins, too
_TOOLS = ("name", "tool_name", "tool")
_ANSWERS = ("content", "output", "result", "observation", "response", "data", "text", "error", "message")
_KINDS = ("role", "type", "event", "kind")
_TOLD = (  # of an answer's kind
    "tool", "function", "observation", "result", "response", "output", "environment", "execution", "console", "stdout",
)  # fmt: skip
_CODED = {"code": "python", "tool_code": "python", "command": "bash"}  # kinds of a part that is code by itself
_ASKS = ("call", "start", "request", "use", "input")
_SESSIONS = ("session_id", "sessionId", "conversation_id", "run_id", "thread_id", "task_id", "instance_id")
_TIMES = ("timestamp", "ts", "time", "created_at", "start_time", "started_at")
_TASKS = ("task", "question", "problem_statement", "instruction", "goal", "query")
_MARKED = (
    *_GIVEN[:5],
    "tool",
    "code",
    "command",
    "tool_code",
    "intermediate_steps",
    "function_call",
    "tool_call",
    "tool_calls",
    "observation",
)
_ASKING = ("user", "human")
_WAITING = 100  # calls that an answer may be of
_DEPTH = 30


@dataclass(slots=True)
class _Pending:
    """Calls of one message or event that wait for answers."""

    calls: deque[tuple[Call, Asked]] = field(default_factory=deque)

    def left(self) -> Iterator[Entry]:
        """Those that never had one."""
        calls, self.calls = self.calls, deque()
        yield from (entry_of(call, asked) for call, asked in calls)

    def take(self, name: str | None) -> tuple[Call, Asked] | None:
        """The first, or the first of a tool."""
        for at, (call, asked) in enumerate(islice(self.calls, _WAITING)):
            if name is None or call.name == name:
                del self.calls[at]
                return call, asked
        return None


def reads(document: LogDocument) -> bool:
    """Whether a call that runs code or edits a file has its answer."""
    if any(mark in document.data for mark in OTHERS):
        return False
    return any(isinstance(entry, AgentRun | Edit) for entry in _found(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs and edits, in the order of their calls' answers."""
    if document.value is None:
        yield from document.faults
    yield from _found(document)


def message_of(tool: str, given: Any) -> dict[str, Any]:
    """A message that calls a tool, for readers of text that tells both."""
    return {"role": "assistant", "tool_calls": [{"name": tool, "arguments": given}]}


def answers(rows: list[Any]) -> bool:
    """Whether a call in these messages or steps, which runs code or edits a file, has its answer."""
    return any(isinstance(entry, AgentRun | Edit) for entry in steps(rows, ""))


def steps(rows: list[Any], session: str) -> Iterator[Entry]:
    """The runs and edits in messages or steps of one session, in the order of their calls' answers."""
    pending = _Pending()
    yield from _walk(rows, Around(session), pending, _DEPTH)
    yield from pending.left()


def _found(document: LogDocument) -> Iterator[Entry]:
    rows = document.rows
    episodes = sum(isinstance(row, dict) and any(isinstance(item, list) for item in row.values()) for row in rows) > 1
    pending = _Pending()
    around = Around(document.digest)
    for number, row in enumerate(rows):
        if episodes:  # each row is a conversation of its own
            yield from pending.left()
            around = Around(f"{document.digest}/{number}")
        around = replace(_told(row, around), started=None) if isinstance(row, dict) and not episodes else around
        yield from _walk(row, around, pending, _DEPTH)
    yield from pending.left()


def _walk(value: Any, around: Around, pending: _Pending, depth: int) -> Iterator[Entry]:
    if not depth:
        return
    if isinstance(value, list):
        if len(value) == 2 and (asked := _asked(record(value[0]))) is not None and _is_bare(value[1]):
            yield _ran(asked, value[1], _told(value[0], around))
            return
        for item in value:
            yield from _walk(item, around, pending, depth - 1)
            if record(item).get("role") in _ASKING:
                around = _told(item, around)  # what was asked for holds for what follows
    elif isinstance(value, dict):
        around = _told(value, around)
        if (asked := _asked(value)) is not None:
            yield from pending.left()
            if (answer := _beside(value)) is not None:
                yield _ran(asked, answer, around)
            else:
                pending.calls.append((_call(asked[0], around), asked[1]))
        elif pending.calls and _is_answer(value):
            yield from _answer(value, pending)
        else:
            calls = value.get("tool_calls")
            for item in value.values():
                if isinstance(item, dict | list) and item is not calls:
                    yield from _walk(item, around, pending, depth - 1)
            yield from _asks(calls, around, pending)


def _asks(calls: Any, around: Around, pending: _Pending) -> Iterator[Entry]:
    """Take all calls of one message, which wait together."""
    if known := [found for call in objects(calls) if (found := _asked(call)) is not None]:
        yield from pending.left()
        pending.calls.extend((_call(name, around), asked) for name, asked in known)


def _beside(step: dict[str, Any]) -> dict[str, Any] | None:
    """The answer that stands in the step of its call; None: there is none."""
    said = next((step[key] for key in _BESIDE if step.get(key) is not None), None)
    flags = {key: step[key] for key in (*_ENDS, *_STATES) if step.get(key) not in (None, "")}
    return {**flags, "output": said} if said is not None or not flags.keys().isdisjoint(_ENDS) else None


def _told(node: dict[str, Any], around: Around) -> Around:
    within = around.within(node, _SESSIONS, _TIMES, _TASKS)
    said = texts(node.get("content")).strip() if node.get("role") in _ASKING else ""
    return replace(within, task=said or within.task)


def _asked(node: dict[str, Any]) -> tuple[str, Asked] | None:
    """The tool and what it is asked for, where an object is a call, or code by its own kind (`{"role": "code"}`)."""
    for key in ("type", "role"):
        kind, code = str(node.get(key)).lower(), word(node.get("content")) or word(node.get("code"))
        if code is not None and kind in _CODED:
            named = word(node.get("language")) or word(node.get("format"))
            return kind, Asked(language_of(named) if named else _CODED[kind], code)
    for path in _INSIDE:
        inner: Any = node
        for step in path:
            inner = record(inner).get(step)
        inner = record(inner)
        name = next((inner[key] for key in _NAMES if word(inner.get(key))), None)
        given = next((inner[key] for key in _GIVEN if isinstance(inner.get(key), str | dict)), None)
        if name is not None and given is not None and (asked := asked_of(name, given)) is not None:
            return name, asked
    return None


def _is_bare(value: Any) -> bool:
    """Whether a value may be what was observed: no call, and no message or event, which say what they are."""
    return not isinstance(value, dict) or (_asked(value) is None and not any(key in value for key in _KINDS))


def _is_answer(node: dict[str, Any]) -> bool:
    """Whether an object says that it is what a tool answered."""
    kinds = [str(node[key]).lower() for key in _KINDS if isinstance(node.get(key), str)]
    told = any(word in kind for kind in kinds for word in _TOLD) and not any(
        ask in kind for kind in kinds for ask in _ASKS
    )
    return told and any(key in node for key in _ANSWERS)


def _answer(node: dict[str, Any], pending: _Pending) -> Iterator[Entry]:
    """What an answer says of the first call that waits, or of the first of the tool that it names."""
    name = next((node[key] for key in _TOOLS if word(node.get(key))), None)
    if (found := pending.take(name)) is not None:
        yield _written(*found, {key: node[key] for key in node if key not in (*_KINDS, *_TOOLS)})


def _ran(asked: tuple[str, Asked], answer: Any, around: Around) -> Entry:
    return _written(_call(asked[0], around), asked[1], answer)


def _call(name: str, around: Around) -> Call:
    return Call(around.session, name, None, None, around.started, around.task, around.model)


def _written(call: Call, asked: Asked, answer: Any) -> Entry:
    told, shell = read_answer(answer), asked.path is None and asked.language == "bash"
    told.returned = told.returned or not (shell or told.failed)
    write_answer(call, told, shell, trusts_success=states_failures(call, answer), language=asked.language)
    return entry_of(call, asked)


READER = Reader("stepwise-calls", tuple(f'"{name}"'.encode() for name in _MARKED), reads, entries)
