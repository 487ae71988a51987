"""Claude Code's session logs: `~/.claude/projects/<directory>/<session>.jsonl`, and its `stream-json` output.

One JSON line per part of a message: `tool_use` in a line of the assistant, `tool_result` in a later line of the user,
joined by the call's id. Traps: many lines are no messages at all (progress, snapshots, attachments, summaries of other
sessions); a resumed session repeats earlier lines under new uuids, so a call counts once by its id; several calls
stand before the first of their results; a sub-agent's messages stand in lines of progress, or in a log of its own,
with the session's id; a failed result is text only, without the two streams; user lines are
mostly results, notices and records of local commands, not the user's words. `!command` of the user is a run too, and
the log does not say how it ended. Some keep a session as one JSON array of its lines.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import record
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, moment, texts
from capibara_assets.executions.formats.agents.tools import claude_calls
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.claude_calls import Streams
from capibara_assets.executions.formats.strict_json import Fault

_TYPED = re.compile(r"<bash-input>(.*?)</bash-input>", re.DOTALL)
_TYPED_OUTPUT = re.compile(r"<bash-stdout>(.*)</bash-stdout>(?:\s*<bash-stderr>(.*)</bash-stderr>)?", re.DOTALL)


def reads(document: LogDocument) -> bool:
    """Whether a line is a message of a session of Claude Code."""
    return any(_is_message(line) for line in _lines(document) if isinstance(line, dict))


def _lines(document: LogDocument) -> list[Any]:
    """JSON lines, or one JSON array of them."""
    return document.value if isinstance(document.value, list) else document.lines


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs, edits and calls that did not run, in the order of the calls."""
    yield from document.faults
    log = _Log(document.digest)
    for line in _lines(document):
        if isinstance(line, dict):
            log.take(line)
        else:
            yield Fault("not_an_object", "expected an object among the lines", line)
    yield from log.faults
    for key, (part, told) in log.early.items():
        if claude_calls.is_commands(texts(part.get("content")), _failed(part, told), _streams(told)):
            yield Fault("missing:call", f"the result of {key} has no call in this log", part)
    for call in log.calls:
        yield from claude_calls.entries_of(call)


class _Log:
    """The calls of a log, which is read line by line."""

    def __init__(self, unnamed: str) -> None:
        self.unnamed = unnamed
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.by_id: dict[str, Call] = {}
        self.others: set[str] = set()  # calls of tools that run and edit nothing
        self.early: dict[str, tuple[dict[str, Any], Any]] = {}  # results whose calls have not come yet
        self.looks: dict[str, str] = {}  # calls that look at background tasks, and the tasks
        self.tasks: dict[tuple[Any, ...], str] = {}  # of each conversation: the user's last words
        self.background: dict[str, Call] = {}
        self.typed: Call | None = None

    def take(self, line: dict[str, Any]) -> None:
        """One line of the log."""
        line = _of_sub_agent(line)
        message = line.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        attachment = line.get("attachment")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if line.get("type") in ("assistant", "user") and not isinstance(message, dict):
            self.faults.append(Fault("type:message", f"a line of the {line['type']} has no message", line))
        elif line.get("type") == "assistant":
            self._assistant(line, parts)
        elif line.get("type") == "user":
            self._user(line, parts)
        elif isinstance(attachment, dict):
            self._notice(attachment.get("prompt"))
        else:
            self._notice(line.get("content"))

    def _assistant(self, line: dict[str, Any], parts: list[Any]) -> None:
        for part in parts:
            if not isinstance(part, dict) or part.get("type") != "tool_use":
                continue
            name, call_id, arguments = part.get("name"), part.get("id"), part.get("input")
            known = isinstance(call_id, str) and (call_id in self.by_id or call_id in self.looks)
            if not isinstance(name, str) or known:
                continue
            if name in claude_calls.OUTPUTS and isinstance(call_id, str) and isinstance(arguments, dict):
                self.looks[call_id] = str(arguments.get(claude_calls.OUTPUTS[name]))
            elif name in claude_calls.COMMANDS or name in claude_calls.EDITS:
                call = self._call(line, name, arguments)
                model = line["message"].get("model")
                call.model = model if isinstance(model, str) and not model.startswith("<") else None
                if isinstance(call_id, str):
                    call.id = call_id
                    self.by_id[call_id] = call
            else:
                self.others.add(str(call_id))
            if str(call_id) in self.early:
                self._result(*self.early.pop(str(call_id)))

    def _user(self, line: dict[str, Any], parts: list[Any]) -> None:
        results = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]
        told = line.get("toolUseResult", line.get("tool_use_result")) if len(results) == 1 else None
        for part in results:
            self._result(part, told)
        words = [] if results else [texts([part]) for part in parts]
        for text in words:
            self._notice(text)
            self._local_command(line, text)
        said = claude_calls.words_of(words)
        if said and not (line.get("isMeta") or line.get("isCompactSummary") or line.get("isVisibleInTranscriptOnly")):
            self.tasks[_conversation(line)] = said

    def _result(self, part: dict[str, Any], told: Any) -> None:
        text, key = texts(part.get("content")), str(part.get("tool_use_id"))
        call = self.by_id.get(key)
        failed = _failed(part, told)
        if call is not None:
            if call.not_run != "unanswered":
                return  # the same line once more, of a resumed session
            claude_calls.answer(call, text, failed, _streams(told))
            structured = isinstance(told, dict) and "stdout" in told
            task = told.get("backgroundTaskId") if structured else claude_calls.background_id(text)
            if call.name in claude_calls.COMMANDS and not failed and isinstance(task, str) and task:
                claude_calls.to_background(call)
                self.background[task] = call
            elif isinstance(told, dict) and told.get("interrupted") is True and not failed:
                call.success = None
        elif key in self.looks:
            started = None if failed else self.background.get(self.looks[key])
            self.looks[key] = ""  # a resumed session repeats it
            if started is not None:
                claude_calls.background_output(started, text)
        elif key not in self.others:
            self.early.setdefault(key, (part, told))

    def _notice(self, text: Any) -> None:
        told = claude_calls.notified(text)
        if told and (call := self.background.get(told[0])):
            claude_calls.notify(call, *told[1:])

    def _local_command(self, line: dict[str, Any], text: str) -> None:
        if typed := _TYPED.search(text):
            self.typed = self._call(line, "Bash", {"command": typed[1]})
        if self.typed and (output := _TYPED_OUTPUT.search(text)):
            self.typed.not_run = None
            self.typed.output, self.typed.stderr = output[1], output[2] or ""
            self.typed = None

    def _call(self, line: dict[str, Any], name: str, arguments: Any) -> Call:
        session = line.get("sessionId", line.get("session_id"))
        call = Call(session if isinstance(session, str) and session else self.unnamed, name, arguments)
        call.started = moment(line.get("timestamp"))
        call.task = self.tasks.get(_conversation(line))
        self.calls.append(call)
        return call


def _is_message(line: dict[str, Any]) -> bool:
    message = line.get("message")
    return (
        line.get("type") in ("user", "assistant")
        and isinstance(message, dict)
        and "parts" not in message  # Qwen Code's lines have the same fields around messages of Gemini's kind
        and message.get("role", line["type"]) == line["type"]
        and (
            ("parentUuid" in line and isinstance(line.get("sessionId"), str))
            or ("parent_tool_use_id" in line and isinstance(line.get("session_id"), str))
        )
    )


def _of_sub_agent(line: dict[str, Any]) -> dict[str, Any]:
    """The message of a sub-agent that a line of progress carries, as the sub-agent's own log has it; else the line.

    Only such lines tell what it ran where its log (`agent-<id>.jsonl`) was not kept.
    """
    data = line.get("data")
    carried = data.get("message") if isinstance(data, dict) and data.get("type") == "agent_progress" else None
    if line.get("type") != "progress" or not isinstance(carried, dict):
        return line
    return {**line, **carried, "isSidechain": True, "agentId": record(data).get("agentId")}


def _conversation(line: dict[str, Any]) -> tuple[str, ...]:
    """A session's own conversation, or one of a sub-agent in it."""
    names = ("sessionId", "session_id", "isSidechain", "agentId", "parent_tool_use_id")
    return tuple(str(line.get(name)) for name in names)


def _failed(part: dict[str, Any], told: Any) -> bool:
    return part.get("is_error") is True or (isinstance(told, str) and told.startswith("Error: "))


def _streams(told: Any) -> Streams | None:
    if not isinstance(told, dict) or not isinstance(told.get("stdout"), str):
        return None
    stderr = told.get("stderr")
    return Streams(told["stdout"], stderr if isinstance(stderr, str) else "")


READER = Reader("claude-code", (b'"parentUuid"', b'"parent_tool_use_id"'), reads, entries)
