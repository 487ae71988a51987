"""Antigravity's transcripts: JSON lines, a step of the conversation each.

`{"step_index", "type": "PLANNER_RESPONSE", "tool_calls": [{"name", "args"}]}`, and behind it a step for each call, of
the kind of its tool (`RUN_COMMAND`, `CODE_ACTION`), in the order of the calls: neither names the other. The end of a
command stands in words. Traps: a command in the background has only an id (`task id`), its end is told by a later
message of the system, if at all; other steps (reminders, errors of the stream) stand in between; arguments may be JSON
inside JSON; texts are indented by tabs; the session has no name; the time from a step's creation to its completion is
also that in which the user was asked.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.executions.formats.agents.edit_texts import replacements
from capibara_assets.executions.formats.agents.fields import objects, of_json, record, text_at, word
from capibara_assets.executions.formats.agents.runs import Edit, Entry, LogDocument, NotRun, Reader, moment
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.shell_reports import refused
from capibara_assets.executions.formats.strict_json import Fault

_COMMANDS = ("run_command",)
_EDITS = ("write_to_file", "replace_file_content", "multi_replace_file_content")
_ANSWERS = {"RUN_COMMAND": _COMMANDS, "CODE_ACTION": _EDITS}
_TELLS = ("SYSTEM_MESSAGE", "GENERIC", "COMMAND_STATUS")  # steps that may tell of a command in the background
_NOT_RUN = ("CANCEL", "REJECT", "DENIED", "INVALID")  # in a step's status
_ASKED = re.compile(r"<USER_REQUEST>\s*(.*?)\s*</USER_REQUEST>", re.DOTALL)
_MODEL = re.compile(r"changed setting `Model Selection` from .{0,200}? to (.{1,200}?)\.(?: No need |\s*\n|\s*$)")
_END = re.compile(
    r"^[ \t]*The command (?:(completed successfully)\.|failed with exit code: (-?\d{1,10}))", re.MULTILINE
)
_OUTPUT = re.compile(r"\s*?\n[ \t]*Output:\n[ \t]*(.*)", re.DOTALL)
_STREAMS = re.compile(r"\s*?\n[ \t]*Stdout:\n[ \t]*(.*?)\n[ \t]*Stderr:\n[ \t]*(.*)", re.DOTALL)
_IN_BACKGROUND = re.compile(r"running as a background task with task id: (\S{1,200})")
_ENDED = re.compile(r"Task id \"([^\"\n]{1,200})\" finished with result:")
_LOOKED = re.compile(r"^Task: (\S{1,200})\nStatus: (\w+)\n(?:.*\n)?Log output:\n", re.MULTILINE)
_HEAD = re.compile(r"(?:(?:Created|Completed) At: .*\n)+\n*")
_DIFF = re.compile(r"\[diff_block_start\]\n(.*?)\n?\[diff_block_end\]", re.DOTALL)
_CHANGED = ("The following changes were made by", "Created file ")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def reads(document: LogDocument) -> bool:
    """Whether a line is a step in which the model calls a tool, and others have their numbers, too."""
    return any(
        line.get("type") == "PLANNER_RESPONSE" and "step_index" in line and objects(line.get("tool_calls"))
        for line in document.lines
    )


@dataclass(slots=True)
class _Log:
    session: str
    task: str | None = None
    model: str | None = None
    calls: list[Call] = field(default_factory=list)
    waiting: deque[Call] = field(default_factory=deque)
    behind: dict[str, Call] = field(default_factory=dict)  # commands in the background, by their ids

    def take(self, step: dict[str, Any]) -> None:
        """One step."""
        kind, said = str(step.get("type")), text_at(step, "content")
        if kind == "USER_INPUT":
            asked = _ASKED.search(said)
            self.task = (asked[1] if asked else said.strip()) or self.task
            chosen = _MODEL.search(said)
            self.model = chosen[1] if chosen else self.model
        elif kind == "PLANNER_RESPONSE":
            self.waiting.clear()  # what has no step until here has none
            for asked_call in objects(step.get("tool_calls")):
                self._asks(asked_call, step)
        elif kind in _ANSWERS:
            self._answers(_ANSWERS[kind], step, said)
        elif kind in _TELLS:
            self._later(said)

    def _asks(self, asked: dict[str, Any], step: dict[str, Any]) -> None:
        name = asked.get("name")
        if name not in (*_COMMANDS, *_EDITS):
            return
        call = Call(self.session, name, _arguments(asked.get("args")))
        call.started, call.task, call.model = moment(step.get("created_at")), self.task, self.model
        self.calls.append(call)
        self.waiting.append(call)

    def _answers(self, tools: tuple[str, ...], step: dict[str, Any], said: str) -> None:
        call = next((call for call in self.waiting if call.name in tools), None)
        if call is None:
            return
        self.waiting.remove(call)
        call.started = moment(step.get("created_at")) or call.started
        status = str(step.get("status"))
        if any(each in status for each in _NOT_RUN) or refused(_HEAD.sub("", said, count=1)):
            call.not_run = "refused"
        elif call.name in _EDITS:
            changed = any(words in said for words in _CHANGED)
            call.not_run, call.success, call.output = None, changed, said
        elif background := _IN_BACKGROUND.search(said):
            call.not_run = None
            self.behind[background[1]] = call
        else:
            _ended(call, said)

    def _later(self, said: str) -> None:
        """What a later step tells of a command in the background: its end, or what it has printed."""
        if (ended := _ENDED.search(said)) and (call := self.behind.get(ended[1])):
            _ended(call, said[ended.end() :])
        elif (looked := _LOOKED.search(said)) and (call := self.behind.get(looked[1])) and call.success is None:
            call.output = said[looked.end() :]


def _arguments(given: Any) -> dict[str, Any]:
    """A call's arguments; where each text of them is JSON in text, what that says."""
    if isinstance(given, str):
        given = of_json(given)
    texts = {name: of_json(value) for name, value in record(given).items() if isinstance(value, str)}
    return {**given, **texts} if texts and None not in texts.values() else record(given)


def _ended(call: Call, said: str) -> None:
    """Write what is said of a command's end into its call."""
    call.not_run, end = None, _END.search(said)
    if end is None:
        call.output = _HEAD.sub("", said, count=1)
        return
    call.exit_code = int(end[2]) if end[2] else None
    call.success = call.exit_code == 0 if end[2] else True
    if streams := _STREAMS.match(said, end.end()):
        call.output, call.stderr = _shown(streams[1]), _shown(streams[2])
    elif printed := _OUTPUT.match(said, end.end()):
        call.output, call.stderr = _shown(printed[1]), ""


def _shown(text: str) -> str:
    """What was printed; the message ends it with a line feed of its own, and tabs where it printed nothing."""
    return text.removesuffix("\n").rstrip("\t") if text.strip() else ""


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands and edits in the order of their calls."""
    yield from document.faults
    log = _Log(document.digest)
    for line in document.lines:
        log.take(line)
    yield from map(_entry, log.calls)


def _entry(call: Call) -> Entry:
    given = record(call.arguments)
    if call.name in _EDITS:
        if call.not_run is not None or not call.success:
            return NotRun(call.not_run or "edit_failed", call.session)
        return Edit(call.session, text_at(given, "TargetFile"), _new_text(given, call.output))
    code = word(given.get("CommandLine"))
    if call.not_run is not None:
        return NotRun(call.not_run, call.session, code)
    if code is None:
        return Fault("type:command", "a call of run_command has no command", call.arguments)
    return call.run("powershell" if _DRIVE.match(text_at(given, "Cwd")) else "bash", code)


def _new_text(given: dict[str, Any], said: str) -> str:
    """An edit's patch as it was made, or the text that was to be written."""
    if made := _DIFF.search(said):
        return made[1]
    if steps := [*replacements([given, *objects(given.get("ReplacementChunks"))])]:
        return "\n".join(steps)
    if whole := text_at(given, "CodeContent") or text_at(given, "ReplacementContent"):
        return whole
    return "\n".join(text_at(chunk, "ReplacementContent") for chunk in objects(given.get("ReplacementChunks")))


READER = Reader("antigravity", (b'"PLANNER_RESPONSE"',), reads, entries)
