"""ATIF, the Agent Trajectory Interchange Format (v1.0 to v1.8): `trajectory.json` of Harbor, Devin's CLI and others.

One object, a list or lines of them: `schema_version`, `session_id`, `agent`, `steps`, in v1.7 also
`subagent_trajectories`. A call's result stands in its own step's `observation`, or in a later step that repeats the
call (OpenHands); without ids results follow the calls (mini-swe-agent), and one result for several calls is the
terminal's screen after all of them (Terminus: `bash_command` with `keystrokes`, or with raw content the commands as
JSON or XML in `message`). Terminus types into a terminal, so keystrokes may as well answer a program: only keys by
name, nothing, and lines that are not entered are told from commands. Steps of `is_copied_context` are history of
another file. The format has no exit code: agents write it into the content, Harbor's converters into `extra`.
`str_replace_editor` has an argument `command` that is none. What our own export adds to a step's `extra` says the rest.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.executions.formats.agents.fields import name_at, objects, record
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
from capibara_assets.executions.formats.agents.told import TOLD, as_told, told_by
from capibara_assets.executions.formats.agents.trajectories.screens import is_command, outputs, screen_of
from capibara_assets.executions.formats.agents.trajectories.stated import Stated, continued, running, stated
from capibara_assets.executions.formats.agents.trajectories.tool_calls import Code, code_of, edit_of, parsed
from capibara_assets.executions.formats.strict_json import Fault

_TASK = re.compile(r"Task Description:\n(.*?)\n+Current terminal state:", re.DOTALL)
_HANDOFF = ("Here are the answers the other agent provided", "You are picking up work from a previous AI agent")
_NOT_DONE = ("Previous response had parsing errors", "ERROR!! NONE of the actions")
_REFUSED = ("ERROR", "Error", "No replacement", "Invalid `", "[error]")
_KEYSTROKES = re.compile(r"<keystrokes[^>]*>(.*?)</keystrokes>", re.DOTALL)
_FENCED = re.compile(r"^```(?:bash|sh|mswea_bash_command)\n(.*?)\n?^```", re.DOTALL | re.MULTILINE)
_TIMED_OUT = re.compile(
    r"(?:Previous command:\n.*?The previous command|Command) timed out after", re.DOTALL | re.IGNORECASE
)


@dataclass(eq=False)
class _Call:
    name: str
    arguments: Any
    step: dict[str, Any]
    call_id: str | None = None
    task: str | None = None
    result: dict[str, Any] | None = None
    batch: list["_Call"] = field(default_factory=list)  # calls that share a result

    @property
    def does(self) -> Any:
        """What is run, or else edited."""
        return self.name, self.keystrokes, code_of(self.name, self.arguments) or edit_of(self.name, self.arguments)

    @property
    def keystrokes(self) -> str | None:
        keys = self.arguments.get("keystrokes") if isinstance(self.arguments, dict) else None
        return keys if isinstance(keys, str) else None


def _is_trajectory(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    version = value.get("schema_version")
    named_ = isinstance(value.get("agent"), dict) or name_at(value, "session_id") is not None
    return isinstance(version, str) and version.startswith("ATIF-v") and named_


def _trajectories(document: LogDocument) -> list[dict[str, Any]]:
    value = document.value
    found = [value] if isinstance(value, dict) else objects(value) if value is not None else document.lines
    return found if found and _is_trajectory(found[0]) else []


def _entries(document: LogDocument) -> Iterator[Entry]:
    seen: set[str] = set()
    waiting = list(_trajectories(document))
    while waiting:
        trajectory = waiting.pop(0)
        if not _is_trajectory(trajectory):
            yield Fault("not_a_trajectory", "expected an ATIF trajectory", trajectory)
            continue
        names = [name_at(trajectory, key) for key in ("session_id", "trajectory_id")]
        session = next((name for name in names if name and name not in seen), None) or f"{document.digest}/{len(seen)}"
        seen.add(session)
        yield from trajectory_entries(trajectory, session)
        waiting[:0] = objects(trajectory.get("subagent_trajectories"))
    yield from document.faults if document.value is None else ()


def trajectory_entries(trajectory: dict[str, Any], session: str) -> Iterator[Entry]:
    """The runs and edits of one trajectory, and what of it could not be read."""
    agent = trajectory.get("agent")
    model = name_at(agent, "model_name") if isinstance(agent, dict) else None
    calls: list[_Call] = []
    open_calls: dict[str, _Call] = {}
    faults: list[Fault] = []
    task: str | None = None
    for step in trajectory["steps"]:
        if not isinstance(step, dict):
            faults.append(Fault("not_a_step", "expected an object among the steps", step))
        elif step.get("source") == "user":
            said = texts(step.get("message"))
            task = _task(said, task) if TOLD not in record(step.get("extra")) else said or None
        elif step.get("is_copied_context") is not True:
            for call in _calls(step, task):
                earlier = open_calls.pop(call.call_id, None) if call.call_id else None
                if earlier and earlier.does == call.does:
                    calls.remove(earlier)  # asked there, repeated here with its result
                if call.call_id and call.result is None:
                    open_calls[call.call_id] = call
                calls.append(call)
    _go_on(calls)
    enters = any((call.keystrokes or "").endswith("\n") for call in calls)
    for call in calls:
        yield from _entry(call, session, model, enters)
    yield from faults


def _go_on(calls: list[_Call]) -> None:
    """Adds to commands of Codex that went on in the background what later calls told of them."""
    going: dict[str, _Call] = {}
    for call in calls:
        begun = going.get(str(call.arguments.get("session_id"))) if isinstance(call.arguments, dict) else None
        if call.result and call.name == "write_stdin" and begun and begun.result:
            told = continued(texts(begun.result.get("content")), texts(call.result.get("content")))
            begun.result = {**begun.result, "content": told}
        elif call.result and (number := running(texts(call.result.get("content")))):
            going[number] = call


def _task(text: str, before: str | None) -> str | None:
    if text.startswith(_HANDOFF):
        return before
    found = _TASK.search(text)
    return (found[1] if found else text).strip() or before


def _calls(step: dict[str, Any], task: str | None) -> list[_Call]:
    observation = step.get("observation")
    results = objects(observation.get("results")) if isinstance(observation, dict) else []
    calls = [
        _Call(str(call.get("function_name")), parsed(call.get("arguments")), step, name_at(call, "tool_call_id"), task)
        for call in objects(step.get("tool_calls"))
    ]
    if not calls and step.get("source") == "agent" and results:
        calls = [_Call("bash_command", {"keystrokes": keys}, step, None, task) for keys in _typed(step.get("message"))]
        blocks = _FENCED.findall(texts(step.get("message")))
        if not calls and len(blocks) == 1 and texts(results[0].get("content")).startswith("<returncode>"):
            calls = [_Call("bash", {"command": blocks[0]}, step, None, task)]  # mini-swe-agent before version 2
    by_id = {name_at(result, "source_call_id"): result for result in results if name_at(result, "source_call_id")}
    loose = [result for result in results if not name_at(result, "source_call_id")]
    acting = [call for call in calls if call.call_id not in by_id and call.name != "mark_task_complete"]
    for call in calls:
        call.result = by_id.get(call.call_id)
    for call, result in zip(acting, loose, strict=False) if len(loose) == len(acting) else ():
        call.result = result
    if len(loose) == 1 and len(acting) > 1:
        for call in acting:
            call.result, call.batch = loose[0], acting
    return calls


def _typed(message: Any) -> list[str]:
    """The keystrokes in a raw answer of Terminus' model: JSON, also within other text, or XML."""
    text = texts(message)
    decoder = json.JSONDecoder(strict=False)
    for found in list(re.finditer(r"\{", text))[:20]:
        try:
            value, _ = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            continue
        commands = objects(value.get("commands")) if isinstance(value, dict) else []
        keys = [command.get("keystrokes") for command in commands]
        if any(isinstance(key, str) for key in keys):
            return [key for key in keys if isinstance(key, str)]
    return _KEYSTROKES.findall(text) or (["\n"] if '"keystrokes"' in text else [])


def _entry(call: _Call, session: str, model: str | None, enters: bool) -> Iterator[Entry]:
    content = texts(call.result.get("content")) if call.result else ""
    keys = call.keystrokes
    code = Code("bash", keys) if keys is not None else code_of(call.name, call.arguments)
    edit = None if code else edit_of(call.name, call.arguments)
    if edit and call.result and not content.lstrip().startswith(_REFUSED) and "[error] tool reported" not in content:
        yield Edit(session, *edit)
    if code is None:
        return
    if (told := told_by(record(call.step.get("extra")).get(TOLD))) is not None:
        yield as_told(AgentRun(session, code.language, code.text, None, content, **_of_call(call)), told)
    elif content.startswith(_NOT_DONE):
        yield NotRun("parsing_error", session, code.text)
    elif keys is not None and not is_command(keys, enters):
        yield NotRun("keystrokes")
    elif code.text.split()[:1] == ["submit"] and call.name == "swe_agent_action":
        return
    elif call.result is None and call.name != "swe_agent_action":  # of which empty outputs are left out
        yield NotRun("unanswered", session, code.text)
    else:
        found = _screen(call, content, enters) if keys is not None else stated(content, *_extras(call))
        timed_out = bool(_TIMED_OUT.match(content)) and found.exit_code is None
        yield AgentRun(
            session=session,
            language=code.language,
            code=code.text,
            success=False if timed_out else found.success,
            output=found.output,
            exit_code=found.exit_code,
            timed_out=timed_out,
            model=name_at(call.step.get("model_name")) or model,
            **_of_call(call),
        )


def _of_call(call: _Call) -> dict[str, Any]:
    return {"call_id": call.call_id, "started": moment(call.step.get("timestamp")), "task": call.task}


def _screen(call: _Call, content: str, enters: bool) -> Stated:
    typed = [one for one in call.batch or [call] if one.keystrokes is not None and is_command(one.keystrokes, enters)]
    shown = outputs(screen_of(content), [one.keystrokes or "" for one in typed])
    at = next(number for number, one in enumerate(typed) if one is call)
    return stated(shown[at], *(_extras(call) if len(typed) == 1 else ()))


def _extras(call: _Call) -> list[Any]:
    """What stands beside a call's result, the nearest first; a step's own words count where it made one call."""
    result, extra = call.result or {}, call.step.get("extra")
    details = extra.get("tool_call_details") if isinstance(extra, dict) else None
    own = details.get(call.call_id) if isinstance(details, dict) else None
    return [result, result.get("extra"), own, extra if len(objects(call.step.get("tool_calls"))) < 2 else None]


READER = Reader("atif", (b"ATIF-v",), lambda document: bool(_trajectories(document)), _entries)
