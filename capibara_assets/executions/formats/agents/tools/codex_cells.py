"""A script of Codex's code mode as the runs that it stands for: the commands that it gives to a shell.

`{"name": "exec", "input": "const r = await tools.exec_command({cmd: 'ls'}); text(JSON.stringify(r))"}`. Its answer is
a header, which tells of the script alone, and what the script chose to print: often results as JSON, which have the
commands' exit codes or the ids of sessions in which they go on, often no more than outputs. Results are of the
commands in their order where there is one for each; what else is printed is of a script's only command.
A script that makes its commands as it runs, or may leave some out, stands for itself, as one does that computes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.executions.formats.agents.fields import number, whole
from capibara_assets.executions.formats.agents.runs import texts
from capibara_assets.executions.formats.agents.tools import codex_calls
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.codex_scripts import AskedTool, asked_tools

POLL = "write_stdin"
_RESULT = ("exit_code", "session_id", "chunk_id", "wall_time_seconds")  # one of which stands beside the output
_DEPTH = 3
_ERROR = "Script error:\n"


@dataclass(slots=True)
class Cell:
    """A script and what it asks for: commands and polls of commands that go on, in their order, and patches."""

    script: Call
    shell: list[Call | str | None] = field(default_factory=list)  # a poll has the id of the session, if it states it
    patches: list[Call] = field(default_factory=list)
    certain: bool = True  # each command runs if the script comes to its end
    stated: bool = True  # the script states its commands
    computes: bool = False  # it asks for no tool
    printed: list[str] = field(default_factory=list)
    told: bool = False  # each command has its result
    ended: bool = False

    @property
    def commands(self) -> list[Call]:
        """The commands that the script states."""
        return [asked for asked in self.shell if isinstance(asked, Call)]

    def stands_for(self) -> list[Call]:
        """The calls that count."""
        if self.computes or not self.stated or (not self.certain and not self.told):
            return [self.script, *self.patches]
        return [*self.commands, *self.patches]

    def take(self, output: Any, answer: codex_calls.CodexAnswer, going_on: dict[str, Call], known: set[int]) -> None:
        """What an answer says of the calls, but of those that are known; `going_on`: commands by their sessions."""
        if self.ended:
            return  # a history that is repeated
        self.ended = answer.goes_on is None
        self.printed += _printed(output, answer)
        results = _results(self.printed)
        whole_text = "\n".join(self.printed)
        self._end(answer, results, whole_text)
        if answer.not_run is not None:
            return
        refused = codex_calls.answer_of(whole_text.strip().removeprefix(_ERROR).removeprefix("Error: ")).not_run
        for command in self.commands:
            command.not_run = refused if answer.success is False and len(self.shell) == 1 and not results else None
        only = self.shell[0] if len(self.shell) == 1 else None
        if answer.goes_on and len(results) < len(self.shell):
            if isinstance(only, Call) and id(only) not in known:
                only.output = whole_text  # so far
            return
        asked = self.shell if len(results) == len(self.shell) else list(self.commands)
        if results and len(results) == len(asked):
            self.told = True
            for one, result in zip(asked, results, strict=True):
                call = one if isinstance(one, Call) else going_on.get(one or "")
                if call is not None and id(call) not in known:
                    _write(call, result, going_on, more=not isinstance(one, Call))
        elif isinstance(only, Call) and id(only) not in known:
            only.output = whole_text
        elif isinstance(only, str) and only in going_on and id(going_on[only]) not in known:
            going_on[only].output += whole_text
        if not answer.goes_on:
            self.shell = list(self.commands)  # a poll is told once

    def _end(self, answer: codex_calls.CodexAnswer, results: list[dict[str, Any]], text: str) -> None:
        """How the script and its patches ended."""
        told = answer.success if self.computes or not answer.success else None
        if len(results) == 1 and (code := whole(results[0].get("exit_code"))) is not None and told is None:
            told = code == 0
        for call in (self.script, *self.patches, *self.commands):
            call.not_run = answer.not_run
        self.script.output, self.script.success = text, told
        self.script.duration_ms = None if answer.goes_on else answer.duration_ms
        for patch in self.patches:
            patch.success = answer.success


def cell_of(script: Call, shell: str | None = None) -> Cell:
    """The cell that a script is; `shell`: what its commands have that name none."""
    asked = asked_tools(script.arguments) if isinstance(script.arguments, str) else []
    cell = Cell(script, computes=not asked)
    running = [each for each in asked if each.tool in codex_calls.COMMANDS]
    for each in asked:
        if each.tool in codex_calls.COMMANDS:
            made = Call(
                script.session, "exec_command", codex_calls.in_shell(each.given, shell), _id(script, cell, len(running))
            )
            made.started, made.task, made.model = script.started, script.task, script.model
            cell.shell.append(made)
            cell.certain = cell.certain and each.certain
            cell.stated = cell.stated and codex_calls.command_of(each.given) is not None
        elif each.tool == POLL:
            cell.shell.append(_session(each))
        elif each.tool == "apply_patch" and each.certain and each.given is not None:
            cell.patches.append(Call(script.session, "apply_patch", each.given))
        elif not each.tool:  # tools that a name, a list or a function holds
            cell.stated = False
    return cell


def _id(script: Call, cell: Cell, commands: int) -> str | None:
    return script.id if commands == 1 or script.id is None else f"{script.id}/{len(cell.commands) + 1}"


def _session(poll: AskedTool) -> str | None:
    on = poll.given.get("session_id") if isinstance(poll.given, dict) else None
    return str(on) if isinstance(on, str | int) else None


def _printed(output: Any, answer: codex_calls.CodexAnswer) -> list[str]:
    """What the script printed, in the pieces in which it did."""
    parts = output if isinstance(output, list) else []
    if len(parts) > 1 and texts(parts[:1]).endswith("Output:\n"):
        return [texts([part]) for part in parts[1:]]
    return [answer.output] if answer.output.strip() else []


def _results(printed: list[str]) -> list[dict[str, Any]]:
    """The results of commands in what was printed, in order."""
    found: list[dict[str, Any]] = []
    for text in printed:
        if not text.lstrip().startswith(("{", "[")):
            continue
        try:
            value = [json.loads(text, strict=False)]
        except (ValueError, RecursionError):
            value = [codex_calls.arguments_of(line) for line in text.strip().split("\n")]
        _collect(value, found, _DEPTH)
    return found


def _collect(value: Any, found: list[dict[str, Any]], depth: int) -> None:
    if isinstance(value, dict) and isinstance(value.get("output"), str) and any(name in value for name in _RESULT):
        found.append(value)
    elif isinstance(value, dict | list) and depth:
        for inner in value.values() if isinstance(value, dict) else value:
            _collect(inner, found, depth - 1)


def _write(call: Call, result: Mapping[str, Any], going_on: dict[str, Call], more: bool) -> None:
    """Write a result into its command; `more`: it is of a poll of one that goes on."""
    code, seconds = whole(result.get("exit_code")), number(result.get("wall_time_seconds"))
    call.output = call.output + result["output"] if more else result["output"]
    if code is not None:
        call.exit_code, call.success = code, code == 0
        call.duration_ms = None if more or seconds is None else seconds * 1000
    elif not more and isinstance(on := result.get("session_id"), str | int):
        going_on[str(on)] = call
