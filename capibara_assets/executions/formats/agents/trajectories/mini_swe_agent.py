"""mini-swe-agent's trajectories (`*.traj.json`, versions 1.x and 2.x): messages, alone or in one JSON object.

`{"info": {"config", "mini_version", ..}, "messages": [..], "trajectory_format": "mini-swe-agent-1.1"}`. 1.x: the answer
holds one fenced block (`bash`, later `mswea_bash_command`), any other number was refused; the next user message tells
how it went. 2.x: `extra.actions` name the commands, `tool_calls` or the Responses API's `output` too, and each is
answered by a message of its own with `extra.returncode` and `extra.raw_output`. Traps: the prompt holds fenced
examples; observations come as `<returncode>` and `<output>`, as JSON or as a Python dict; long ones have a head
and a tail; a return code of -1 with an exception is no exit code; the command that submits has no observation, only the
submission, and 2.x pads its place by "action was not executed"; users reject, interrupt and type commands themselves.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from capibara_assets.executions.formats.agents.fields import at, code_at, name_at, text_at
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader, moment, texts
from capibara_assets.executions.formats.agents.trajectories.prompts import task_in
from capibara_assets.executions.formats.strict_json import Fault

_ENDS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
_FENCES = (
    re.compile(r"```mswea_bash_command[^\S\n]*+\n(.*?)\n```", re.S),
    re.compile(r"<mswea_bash_command>(.*?)</mswea_bash_command>", re.S),
    re.compile(r"```bash[^\S\n]*+\n(.*?)\n```", re.S),
)
_FENCED = re.compile("|".join(f"(?:{fence.pattern})" for fence in _FENCES), re.S)
_RETURNED = re.compile(
    r"\A[^<{]{0,200}(?:<exception>(?P<exception>.*?)</exception>\s*)?<returncode>(?P<code>-?\d+)</returncode>\n?", re.S
)
_OUTPUT = re.compile(r"<output>\n?(?P<output>.*)</output>", re.S)
_HEAD = re.compile(r"<output_head>\n?.*</output_tail>", re.S)
_HEAD_TAGS = re.compile(r"</?(?:output_head|output_tail|elided_chars)>\n?")
_TIMED_OUT = re.compile(r"\AThe last command <command>.*</command> timed out and has been killed", re.S)
_REJECTED = re.compile(r"\ACommands? not executed")
_INTERRUPTED = re.compile(r"\A(?:Interrupted by user: |Temporary interruption caught)")
_NEW_TASK = re.compile(r"\AThe user added a new task: (.*)", re.S)
_NOT_EXECUTED = "action was not executed"


@dataclass
class _Call:
    """A command that waits for its observation."""

    code: str
    call_id: str | None
    message: dict[str, Any]
    alone: bool = True


@dataclass
class _Result:
    """How a command went, as an observation tells it."""

    output: str
    exit_code: int | None = None
    exception: str = ""

    @property
    def is_told(self) -> bool:
        """Whether the environment said how the command ended."""
        return bool(self.exception) or self.exit_code is not None

    @property
    def success(self) -> bool | None:
        if self.exception:
            return False
        return None if self.exit_code is None else self.exit_code == 0


def _messages(document: LogDocument) -> list[Any]:
    messages = document.value if isinstance(document.value, list) else at(document.value, "messages")
    return messages if isinstance(messages, list) else []


def _reads(document: LogDocument) -> bool:
    value, messages = document.value, _messages(document)
    if isinstance(value, dict):
        named = text_at(value, "trajectory_format").startswith("mini-swe-agent")
        return isinstance(value.get("messages"), list) and (named or at(value, "info", "mini_version") is not None)
    begin = [message for message in messages[:2] if at(message, "role") in ("system", "user")]
    told = "\n".join(texts(at(message, "content")) for message in begin)
    return any(end in told for end in _ENDS) or _is_answered(messages)


def _is_answered(messages: list[Any]) -> bool:
    """Whether observations follow fenced commands, half of them at least: so whatever the prompt says."""
    fenced = answered = 0
    for message, after in pairwise(messages):
        if at(message, "role") == "assistant" and _FENCED.search(texts(at(message, "content"))):
            fenced += 1
            answered += isinstance(after, dict) and at(after, "role") != "assistant" and _observed(after).is_told
    return 0 < fenced <= 2 * answered


def _commands(message: dict[str, Any]) -> list[tuple[str, str | None]] | None:
    """The commands of a message with their ids; None: it named them in a way that the agent refuses."""
    actions = at(message, "extra", "actions")
    if isinstance(actions, list):
        return [(text_at(action, "command"), name_at(action, "tool_call_id")) for action in actions]
    if text_at(message, "content").startswith("User command:"):
        found = _FENCES[2].findall(text_at(message, "content"))
        return [(found[0].lstrip("\n"), None)] if found else []
    if at(message, "role") != "assistant" and at(message, "object") != "response":
        return []
    calls, items = at(message, "tool_calls"), at(message, "output")
    listed = [*(calls if isinstance(calls, list) else []), *(items if isinstance(items, list) else [])]
    called = [_called(call) for call in listed if at(call, "type") == "function_call" or at(call, "function")]
    if called:
        return None if any(not code for code, _ in called) else called
    for fence in _FENCES:
        found = fence.findall(texts(at(message, "content")))
        if found:
            return [(found[0].strip(), None)] if len(found) == 1 else None
    return []


def _called(call: Any) -> tuple[str, str | None]:
    try:
        arguments = json.loads(text_at(call, "function", "arguments") or text_at(call, "arguments"))
    except (ValueError, RecursionError):
        arguments = None
    return text_at(arguments, "command"), name_at(call, "call_id") or name_at(call, "id")


def _content(message: dict[str, Any]) -> str:
    return texts(at(message, "content")) or texts(at(message, "output"))


def _told(told: Any) -> _Result | None:
    """The result in an observation that is an object: a JSON template's, or the environment's own as Python text."""
    if code_at(told, "returncode") is None:
        return None
    parts = [text_at(told, "output_head"), text_at(told, "output_tail")]
    elided = name_at(told, "elided_chars")
    cut = f"\n{elided} characters elided\n".join(parts) if elided else "".join(parts)
    exception = text_at(told, "exception_info")
    return _Result(text_at(told, "output") or cut, None if exception else code_at(told, "returncode"), exception)


def _observed(message: dict[str, Any]) -> _Result:
    extra, content = at(message, "extra"), _content(message)
    if isinstance(at(extra, "raw_output"), str):
        exception = text_at(extra, "exception_info")
        return _Result(extra["raw_output"], None if exception else code_at(extra, "returncode"), exception)
    returned = _RETURNED.match(content)
    if returned:
        rest = content[returned.end() :]
        output, head = _OUTPUT.search(rest), _HEAD.search(rest)
        printed = output["output"] if output else _HEAD_TAGS.sub("", head[0]) if head else rest
        exception = returned["exception"] or ""
        return _Result(printed, None if exception else int(returned["code"][:20]), exception)
    if _TIMED_OUT.match(content):
        output = _OUTPUT.search(content)
        return _Result(output["output"] if output else "", exception="timed out")
    bare = content.strip().removeprefix("Observation: ")
    if not (bare.startswith("{") and "returncode" in bare):
        return _Result(content)
    for parse in (json.loads, ast.literal_eval):
        try:
            return _told(parse(bare)) or _Result(content)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return _Result(content)


def _run(call: _Call, result: _Result, answer: dict[str, Any], common: dict[str, Any]) -> AgentRun:
    started = moment(at(call.message, "extra", "timestamp") or at(call.message, "timestamp"))
    ended = moment(at(answer, "extra", "timestamp") or at(answer, "timestamp"))
    took = (ended - started).total_seconds() * 1000 if started and ended and call.alone else None
    kind = f"{text_at(answer, 'extra', 'exception_type')} {result.exception}"
    own = text_at(call.message, "extra", "response", "model") or text_at(call.message, "model")
    return AgentRun(
        language="bash",
        code=call.code,
        success=result.success,
        output=result.output,
        exit_code=result.exit_code,
        call_id=call.call_id,
        started=started,
        duration_ms=took if took is not None and took >= 0 else None,
        timed_out=bool(result.exception) and ("timed out" in kind or "Timeout" in kind),
        **{**common, "model": common["model"] or own or None},
    )


def _left(pending: list[_Call], message: dict[str, Any], common: dict[str, Any]) -> Iterator[Entry]:
    """What became of the calls that wait when the session ends or the program speaks instead of the environment."""
    exits = at(message, "role") == "exit"
    ran = exits and text_at(message, "extra", "exit_status") == "Submitted"
    content = _content(message)
    kind = "rejected" if _REJECTED.match(content) else "interrupted" if _INTERRUPTED.match(content) else "unanswered"
    last = next((n for n, call in enumerate(pending) if any(end in call.code for end in _ENDS)), len(pending) - 1)
    for number, call in enumerate(pending):
        if ran and number <= last:
            yield _run(call, _Result(content if number == last else ""), message, common)
        else:
            yield NotRun(kind, common["session"], call.code)


def _answer(call: _Call, message: dict[str, Any], common: dict[str, Any]) -> Entry:
    result = _observed(message)
    if result.exception != _NOT_EXECUTED:
        return _run(call, result, message, common)
    submits = any(end in call.code for end in _ENDS)
    return _run(call, _Result(""), message, common) if submits else NotRun("not_executed", common["session"], call.code)


def _speaks(message: dict[str, Any]) -> bool:
    """Whether a message is the program's or the user's, not an observation."""
    content = _content(message)
    told = at(message, "extra", "interrupt_type") or at(message, "role") == "exit"
    return bool(told or _REJECTED.match(content) or _INTERRUPTED.match(content))


def _entries(document: LogDocument) -> Iterator[Entry]:
    value = document.value
    common: dict[str, Any] = {
        "session": name_at(value, "instance_id") or name_at(value, "info", "instance_id") or document.digest,
        "task": None,
        "model": text_at(value, "info", "config", "model", "model_name") or None,
    }
    pending: list[_Call] = []
    for number, message in enumerate(_messages(document)):
        if not isinstance(message, dict):
            yield Fault("not_a_message", f"message {number}: expected an object", message)
            continue
        commands = _commands(message)
        if commands or commands is None or at(message, "role") == "assistant":
            yield from _left(pending, {}, common)
            pending = [_Call(code, call_id, message, len(commands or ()) == 1) for code, call_id in commands or ()]
            if commands is None:
                yield NotRun("refused")
        elif pending and _speaks(message):
            yield from _left(pending, message, common)
            pending = []
        elif pending:
            call_id = name_at(message, "tool_call_id") or name_at(message, "call_id")
            call = next((call for call in pending if call.call_id == call_id), pending[0])
            pending.remove(call)
            yield _answer(call, message, common)
        elif at(message, "role") == "user":
            new = _NEW_TASK.match(_content(message))
            common["task"] = new[1].strip() if new else common["task"] or task_in(_content(message))
    yield from _left(pending, {}, common)


_MARKS = (
    b"<returncode>",
    b'returncode\\"',
    b"'returncode'",
)  # bare, as JSON within JSON, as a Python dict
READER = Reader(
    "mini-swe-agent",
    (b"mini-swe-agent", b"mini_version", *_MARKS, *(end.encode() for end in _ENDS)),
    _reads,
    _entries,
)
