"""SWE-agent's trajectories (`<instance>.traj`, versions 0.x and 1.x): one JSON object.

`{"environment", "trajectory": [{"action", "observation", "response", "thought", "state", (execution_time)}], "history",
"info", ("replay_config", "attempts")}`. Actions are lines for one shell in which SWE-agent's tools (`edit 1:5`, `open`)
stand beside programs, so each is a run; a tool that changed a file gives an `Edit` besides. The editor that models are
given as a function (`str_replace_editor`, versions 1.x) is no shell's, as in other logs: only its edits count. There is
no exit code and no time of day: only a failure shows, as text. Traps: `history` starts with a demonstration of another
issue (`is_demo`); `state` is an object or JSON text; `submit` and the pseudo actions of an exit run nothing for the
task; a step that was blocked, did not parse or whose answer had the wrong form stands without state and without
execution time, or is answered that it "was NOT executed"; several `attempts` stand in one file and the best of them
once more at the top.
"""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.failures import shows_failure
from capibara_assets.executions.formats.agents.fields import at, name_at, text_at
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader, texts
from capibara_assets.executions.formats.agents.swe_edits import Windows
from capibara_assets.executions.formats.agents.trajectories.prompts import task_in
from capibara_assets.executions.formats.strict_json import Fault

_LEAVES = re.compile(
    r"\s*(?:submit(?:\s.*)?|exit|skip|exit_(?:context|cost|error|format|api|forfeit|environment_error))\s*\Z", re.S
)
_TIMED_OUT = re.compile(
    r"(?:^|\n)EXECUTION TIMED OUT|\AThe command '.*' was cancelled because it took more than [\d.]+ seconds", re.S
)
_REFUSED = re.compile(  # by a tool
    r"^(?:Your proposed edit has introduced new syntax error|No replacement was performed|No file open|No edit history"
    r"|(?:File|Directory) \S+ not found\s*$|Error: |Usage: |Invalid `?\w+`? |The path \S+ does not exist"
    r"|File already exists at: )",
    re.M,
)
_BROKE = re.compile(r"^(?:COMMAND FAILED TO EXECUTE|BROKEN PIPE ERROR|EXECUTION FAILED OR COMMAND MALFORMED)", re.M)
_TOOL = re.compile(
    r"\s*(?:edit|insert|append|create|open|goto|scroll_(?:up|down)|search_(?:dir|file)|find_file|str_replace_editor"
    r"|view|undo_edit|filemap|submit)(?:\s|\Z)"
)
_EDITS = re.compile(r"\s*(?:edit|insert|append|str_replace_editor\s+(?:create|str_replace|insert))\s", re.S)
_EDITED = re.compile(r"^(?:File updated|Text replaced|The file \S+ has been edited|File created successfully)\b", re.M)
_EDITOR = re.compile(r"\s*str_replace_editor\s")
_NEVER_RAN = re.compile(
    r"\s*(?:Your bash command contained syntax errors and was NOT executed|Operation '.*?' is not supported)",
    re.DOTALL,
)
_CONTROLS = re.compile(r"\s*(?:plan\s*\{.*|(?:succeed|fail)(?:\s.*)?)\Z", re.DOTALL)
_NO_MODEL = {"human", "human_thought", "replay", "instant_empty_submit"}


def _is_step(step: Any) -> bool:
    return (
        isinstance(step, dict)
        and {"action", "observation"} <= step.keys()
        and not step.keys().isdisjoint(("response", "thought", "state"))
    )


def _is_trajectory(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("trajectory"), list):
        return False
    if value["trajectory"]:
        return any(_is_step(step) for step in value["trajectory"])
    return isinstance(value.get("history"), list) and isinstance(value.get("info"), dict) and "environment" in value


def _attempts(value: Any) -> list[Any]:
    attempts = at(value, "attempts")
    found = [attempt for attempt in attempts if _is_trajectory(attempt)] if isinstance(attempts, list) else []
    return found or ([value] if _is_trajectory(value) else [])


def _object(value: Any) -> Any:
    """An object that the log has as such or as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _task(trajectory: Any) -> str | None:
    history = at(trajectory, "history")
    for message in history if isinstance(history, list) else []:
        demonstrates = at(message, "is_demo") or at(message, "message_type") == "demonstration"
        if at(message, "role") == "user" and not demonstrates:
            return task_in(texts(at(message, "content")))
    return None


def _calls(trajectory: Any) -> list[tuple[str, str]]:
    """The actions that were tools' calls with their ids, in order: only the history has them."""
    history = at(trajectory, "history")
    return [
        (text_at(message, "action"), call_id)
        for message in (history if isinstance(history, list) else [])
        if not at(message, "is_demo") and (call_id := name_at(message, "tool_calls", 0, "id"))
    ]


def _path(step: Any, action: str) -> str | None:
    """The file that an action of a tool changes: named in it, or the one that is open."""
    if not action.lstrip().startswith("str_replace_editor"):
        path = text_at(_object(at(step, "state")), "open_file")
        return path if path not in ("", "n/a") else None
    try:
        return shlex.split(action)[2]
    except (ValueError, IndexError):
        return None


def _not_run(step: Any, action: str) -> str | None:
    """Why an action did not run: a step that the environment answered has a state, or took time."""
    if not action.strip():
        return "no_action"
    observation = at(step, "observation")
    if isinstance(observation, str) and _NEVER_RAN.match(observation):
        return "not_executed"
    never = "execution_time" in step and not step["execution_time"] and not step.get("state") and not observation
    if never:
        return "refused"
    return "unanswered" if "observation" not in step else None


def _hands_over(step: Any) -> bool:
    """Whether an action only hands over to another role, as CodeR's do."""
    said = text_at(step, "observation").strip()
    return _CONTROLS.match(step["action"]) is not None and (not said or "the manager has planned" in said)


def _step(step: Any, common: dict[str, Any], call_id: str | None, windows: Windows) -> Iterator[Entry]:
    action = text_at(step, "action")
    kind = _not_run(step, action)
    if kind is not None:
        yield NotRun(kind, common["session"], action or None)
        return
    observation = text_at(step, "observation").replace("\r\n", "\n")
    timed_out = bool(_TIMED_OUT.search(observation))
    begin, edits = observation.lstrip(), _EDITS.match(action)
    refused = _BROKE.match(begin) or (_TOOL.match(action) and _REFUSED.match(begin))
    made = edits and _EDITED.search(observation)  # whatever a script of the tool's own printed before
    failed = not made and (timed_out or bool(refused) or shows_failure(observation, action))
    edit = edits and (path := _path(step, action)) and Edit(common["session"], path, windows.told(path, action))
    windows.take(observation)
    if _EDITOR.match(action):
        yield from ([NotRun("edit_failed", common["session"]) if failed else edit] if edit else [])
        return
    seconds = at(step, "execution_time")
    timed = isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0
    yield AgentRun(
        language="bash",
        code=action,
        success=False if failed else None,
        output=observation,
        call_id=call_id,
        duration_ms=seconds * 1000 if timed else None,
        timed_out=timed_out,
        **common,
    )
    if edit and not failed:
        yield edit


def _entries(document: LogDocument) -> Iterator[Entry]:
    attempts = _attempts(document.value)
    for number, trajectory in enumerate(attempts):
        config = _object(at(trajectory, "replay_config")) or _object(at(document.value, "replay_config"))
        model = text_at(config, "agent", "model", "name")
        session = name_at(config, "problem_statement", "id") or document.digest
        common = {
            "session": f"{session}#{number}" if len(attempts) > 1 else session,
            "task": _task(trajectory),
            "model": model if model and model not in _NO_MODEL else None,
        }
        calls, windows = _calls(trajectory), Windows()
        for place, step in enumerate(trajectory["trajectory"]):
            if not isinstance(step, dict) or not isinstance(step.get("action"), str):
                yield Fault("not_a_step", f"step {place}: expected an object with an action", step)
                continue
            call_id = calls.pop(0)[1] if calls and calls[0][0] == step["action"] else None
            if not (_LEAVES.match(step["action"]) or _hands_over(step)):
                yield from _step(step, common, call_id, windows)


def _reads(document: LogDocument) -> bool:
    return bool(_attempts(document.value))


READER = Reader("swe-agent", (b'"trajectory"',), _reads, _entries)
