"""smolagents' memory (`agent.memory.get_full_steps()`, or a run's result with `steps`): a JSON list, or lines of steps.

A step of code has `code_action` (older versions have the code in `tool_calls` alone), `observations` ("Execution logs:"
and "Last output from code snippet:") and `error`, which is null where the code ran through: the step's verdict. Errors
of parsing and of the model come without code. Tools of a `ToolCallingAgent` are no code, but `python_interpreter` is,
with an object for arguments, and a shell is, whose commands' ends only words tell; where it failed, the call stands in
the model's message alone. Of calls at once the observations are one text. A `task` begins a run; several runs of one
agent follow one another. Answers to a benchmark have held steps as Python shows them
(`"ActionStep(agent_memory=None, tool_calls=[ToolCall(name='python_interpreter', arguments='..', id='call_2')], .."`).
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import name_at, objects, text_at
from capibara_assets.executions.formats.agents.general.answers import ToolAnswer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import asked_of
from capibara_assets.executions.formats.agents.literals import fields_of, literal
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, NotRun, Reader, milliseconds, moment
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.trajectories.tool_calls import Code, code_of
from capibara_assets.executions.formats.strict_json import Fault

_STEPS = ("steps", "intermediate_steps")  # of a run's result; of answers to a benchmark
_OBSERVED = ("observations", "tool_calls", "error")
_OF_MODEL = ("model_output", "model_output_message", "code_action", "is_final_answer")
_LOGS = "Execution logs:\n"
_CALL = ("name", "arguments")
_CALLED = re.compile(r"\bToolCall\(")
_ERROR = re.compile(r"(\w+)\((.*)\)\Z", re.DOTALL)
_LAST = "Last output from code snippet:\n"


def _is_action(step: Any) -> bool:
    """Whether it is a step of action; what the model was given and said may be left out, and so may nulls."""
    if not isinstance(step, dict):
        return False
    if {"step_number", "is_final_answer"} <= step.keys():
        return not step.keys().isdisjoint(_OBSERVED)
    return set(_OBSERVED) <= step.keys() and not step.keys().isdisjoint(_OF_MODEL)


def _sessions(document: LogDocument) -> list[tuple[str | None, list[Any]]]:
    """The name and steps of each session: a list, one object's steps, or lines of either."""
    value = document.value
    rows = value if isinstance(value, list) else [value] if isinstance(value, dict) else document.lines
    held = [
        (name_at(row, "task_id"), list(map(_of_repr, row[key])))
        for row in rows
        for key in _STEPS
        if isinstance(row, dict) and isinstance(row.get(key), list)
    ]
    return [(name, steps) for name, steps in held or [(None, rows)] if any(map(_is_action, steps))]


def _of_repr(step: Any) -> Any:
    """A step that is shown as Python shows it, as the object that newer versions write; any other step unchanged."""
    if not isinstance(step, str):
        return step
    if task := fields_of(step, "TaskStep"):
        return {"task": literal(task.get("task", ""))}
    shown = fields_of(step, "ActionStep")
    if not shown:
        return {}  # prompts, with their demonstrations
    calls = [
        {"id": literal(call.get("id", "")), "function": {name: literal(call.get(name, "")) for name in _CALL}}
        for place in _CALLED.finditer(shown.get("tool_calls", ""))
        if (call := fields_of(shown["tool_calls"][place.start() :], "ToolCall"))
    ]
    error = _ERROR.match(shown.get("error", "None"))
    return {
        "tool_calls": calls,
        "error": {"type": error[1], "message": str(literal(error[2]))} if error else None,
        "observations": literal(shown.get("observations", "")),
        "model_output": literal(shown.get("llm_output", "")),
        **{name: literal(shown[name]) for name in ("start_time", "end_time") if name in shown},
    }


def _entries(document: LogDocument) -> Iterator[Entry]:
    sessions = _sessions(document)
    for number, (name, steps) in enumerate(sessions):
        session = name or (document.digest if len(sessions) == 1 else f"{document.digest}/{number}")
        task: str | None = None
        for step in steps:
            if not isinstance(step, dict):
                yield Fault("not_a_step", "expected an object among the steps", step)
                continue
            task = name_at(step, "task") or task
            yield from _step(step, session, task)
    yield from document.faults if document.value is None else ()


def _step(step: dict[str, Any], session: str, task: str | None) -> Iterator[Entry]:
    error = step.get("error")
    kind = (name_at(error, "type") or name_at(error, "error_type")) if isinstance(error, dict) else None
    asked = step.get("model_output_message") if kind == "AgentToolExecutionError" else None
    calls = objects(step.get("tool_calls")) or objects(asked.get("tool_calls") if isinstance(asked, dict) else None)
    ran = [(call, code) for call in calls if (code := _code_in(call))]
    call = ran[0][0] if ran else None
    found = code_of("python", step.get("code_action")) or (ran[0][1] if ran else None)
    if found is None:
        if kind == "AgentParsingError":
            yield NotRun(kind)
        return
    observed = step.get("observations")
    if not error and not isinstance(observed, str):
        yield NotRun("unanswered", session, found.text)
        return
    message = error.get("message") if isinstance(error, dict) else error
    said = message if isinstance(message, str) else ""
    timing = step["timing"] if isinstance(step.get("timing"), dict) else step
    started, ended = moment(timing.get("start_time")), moment(timing.get("end_time"))
    if len(ran) > 1 and found is ran[0][1]:  # at once: what was observed does not tell which of them printed it
        for call, code in ran:
            yield Call(session, "", None, name_at(call, "id"), started, task, not_run=None).run(
                code.language, code.text
            )
        return
    key = name_at(call, "id") if call else None
    made = Call(session, text_at(call, "function", "name"), None, key, started, task, not_run=None, success=not error)
    made.output = output_of(observed if isinstance(observed, str) else "")
    if found.language == "bash" and not error:  # the tool returned, however the command ended
        made.success = None
        write_answer(made, ToolAnswer([made.output]), runs_shell=True)
    made.stderr, made.duration_ms = said or made.stderr, milliseconds(started, ended)
    made.timed_out = made.timed_out or "exceeded the maximum execution time" in said
    yield NotRun(made.not_run, session, found.text) if made.not_run else made.run(found.language, found.text)


def _code_in(call: dict[str, Any]) -> Code | None:
    """The code that a call runs, by the names of known tools or by the words in its tool's name."""
    name, given = _called(call)
    asked = asked_of(name, given)
    return code_of(name, given) or (Code(asked.language, asked.text) if asked and asked.path is None else None)


def _called(call: dict[str, Any]) -> tuple[Any, Any]:
    function = call.get("function")
    return (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (None, None)


def output_of(observed: str) -> str:
    """What the code printed, and its last value, without the names that smolagents gives them."""
    if not observed.startswith(_LOGS):
        return observed
    logs, last, value = observed.removeprefix(_LOGS).rpartition(_LAST)
    return (logs + (value if value.strip() != "None" else "")) if last else value


READER = Reader(
    "smolagents", (b'"observations"', b"observations="), lambda document: bool(_sessions(document)), _entries
)
