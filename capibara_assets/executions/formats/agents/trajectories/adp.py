"""The Agent Data Protocol (ADP): standardised trajectories, `{"id", "content": [..], "details": {..}}`, JSON or lines.

`content` is a list of actions (`code_action`, `api_action`, `message_action`) and observations (`text_observation`,
`web_observation`, ..), told by `class_`. Since version 1.3 an action and its result share a `tool_call_id`; before, the
result is the observation right behind the action, whoever its `source` is, and of several actions in a row it is the
last one's. Other observations from a user are what is asked for. The protocol has no times, exit codes or models:
agents write an exit code into the content. What our own export adds to `details` says the rest.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from capibara_assets.executions.formats.agents.fields import at, name_at, objects, record, text_at
from capibara_assets.executions.formats.agents.runs import (
    AgentRun,
    Edit,
    Entry,
    LogDocument,
    NotRun,
    Reader,
    moment,
)
from capibara_assets.executions.formats.agents.told import TOLD, as_told, told_by
from capibara_assets.executions.formats.agents.trajectories.mint import counted
from capibara_assets.executions.formats.agents.trajectories.stated import Stated, stated
from capibara_assets.executions.formats.agents.trajectories.tool_calls import Code, code_of, edit_of
from capibara_assets.executions.formats.envelope_reader import language_of
from capibara_assets.executions.formats.strict_json import Fault

_ACTIONS = ("code_action", "api_action")
_CLASSES = (*_ACTIONS, "message_action", "text_observation", "image_observation", "web_observation", "json_observation")
_REFUSED = ("ERROR", "Error", "No replacement", "Invalid `")


def _is_trajectory(value: Any) -> bool:
    if not isinstance(value, dict) or name_at(value, "id") is None:
        return False
    content = value.get("content")
    return isinstance(content, list) and bool(content) and at(content, 0, "class_") in _CLASSES


def _trajectories(document: LogDocument) -> list[Any]:
    value = document.value
    found = [value] if isinstance(value, dict) else value if isinstance(value, list) else document.lines
    return found if found and _is_trajectory(found[0]) else []


def _entries(document: LogDocument) -> Iterator[Entry]:
    seen: set[str] = set()
    for trajectory in _trajectories(document):
        if not _is_trajectory(trajectory):
            yield Fault("not_a_trajectory", "expected a trajectory of the Agent Data Protocol", trajectory)
            continue
        name = str(trajectory["id"])
        session = name if name not in seen else f"{name}/{len(seen)}"
        seen.add(session)
        yield from _trajectory(trajectory, session)
    yield from document.faults if document.value is None else ()


def _trajectory(trajectory: dict[str, Any], session: str) -> Iterator[Entry]:
    content = objects(trajectory["content"])
    by_call = {call: item for item in content if _observes(item) and (call := _call(item))}
    beside = record(trajectory.get("details"))
    task: str | None = None
    behind = False  # whether the item before is an action without an id, whose result this one is
    for item, after in pairwise([*content, {}]):
        call, acts = _call(item), item.get("class_") in _ACTIONS
        if acts:
            result = by_call.get(call) if call else after if _observes(after) and not _call(after) else None
            yield from _entry(item, result, session, task, told_by(record(beside.get(TOLD)).get(call or "")))
        elif item.get("class_") == "text_observation" and item.get("source") == "user" and not behind and not call:
            task = _task(item, task, TOLD in beside)
        behind = acts and not call
    for item in trajectory["content"]:
        if not isinstance(item, dict):
            yield Fault("not_an_item", "expected an object among a trajectory's content", item)


def _call(item: dict[str, Any]) -> str | None:
    return name_at(item, "tool_call_id")


def _observes(item: dict[str, Any]) -> bool:
    return str(item.get("class_")).endswith("_observation")


def _task(item: dict[str, Any], before: str | None, exact: bool) -> str | None:
    said = text_at(item, "content")
    return said or None if exact else said.strip() or before


def _entry(
    action: dict[str, Any],
    result: dict[str, Any] | None,
    session: str,
    task: str | None,
    told: Mapping[str, Any] | None,
) -> Iterator[Entry]:
    code, edit = _code(action), None
    if action["class_"] == "api_action" and code is None:
        edit = edit_of(action.get("function"), action.get("kwargs"))
    content = text_at(result, "content")
    if edit is not None and result is not None and not content.lstrip().startswith(_REFUSED):
        yield Edit(session, *edit)
    if code is None:
        return
    if result is None:
        yield NotRun("unanswered", session, code.text)
        return
    episode = counted(content)  # converted from MINT's
    found = Stated(episode[0], None, episode[1]) if episode else stated(content)
    run = AgentRun(
        session=session,
        language=code.language,
        code=code.text,
        success=found.success,
        output=content if told is not None else found.output,
        exit_code=found.exit_code,
        call_id=_call(action),
        started=moment(told.get("timestamp")) if told is not None else None,
        task=task,
    )
    yield as_told(run, told)


def _code(action: dict[str, Any]) -> Code | None:
    if action["class_"] == "api_action":
        return code_of(action.get("function"), action.get("kwargs"))
    text, language = action.get("content"), action.get("language")
    return Code(language_of(language), text) if isinstance(text, str) and isinstance(language, str) else None


_MARKS = (b'"code_action"', b'"api_action"', b'"text_observation"', b'"message_action"')
READER = Reader("adp", _MARKS, lambda document: bool(_trajectories(document)), _entries)
