"""DevAI's trajectories of OpenHands (agent-as-a-judge, `benchmark/trajectories`): one JSON list of steps.

A step is `{step, user_message, agent: {thought, action}, environment, step_usage: {model, ..}}`. The action is the
sentence with which OpenHands announces it ("Running command: ls", "Running Python code interactively: .."); other
sentences run nothing. There is no exit code: the environment is the terminal's text with its prompts, and several lines
of one command have a prompt and an echo between them. `step_execution_time` counts the model's time too: no duration.
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.failures import shows_failure
from capibara_assets.executions.formats.agents.fields import at, name_at, text_at
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.trajectories.prompts import (
    NO_OUTPUT,
    cell_output,
    task_in,
    terminal_output,
)
from capibara_assets.executions.formats.strict_json import Fault

_ANNOUNCED = {"Running command: ": "bash", "Running Python code interactively: ": "python"}


def _is_step(step: Any) -> bool:
    return (
        isinstance(step, dict)
        and isinstance(step.get("agent"), dict)
        and "action" in step["agent"]
        and {"step", "environment"} <= step.keys()
    )


def _reads(document: LogDocument) -> bool:
    return isinstance(document.value, list) and any(_is_step(step) for step in document.value)


def _run(step: Any, session: str, task: str | None) -> AgentRun | NotRun | None:
    action, environment = text_at(step, "agent", "action"), at(step, "environment")
    begin = next((begin for begin in _ANNOUNCED if action.startswith(begin)), None)
    if begin is None:
        return None
    if not isinstance(environment, str):
        return NotRun("unanswered", session, action[len(begin) :])
    code, language = action[len(begin) :], _ANNOUNCED[begin]
    output = cell_output(environment) if language == "python" else terminal_output(environment, code)
    timed_out = "[Execution timed out (" in environment or "[Command timed out after " in environment
    success = False if timed_out or shows_failure(output, code) else NO_OUTPUT in environment or None
    return AgentRun(
        session=session,
        language=language,
        code=code,
        success=success,
        output=output,
        call_id=name_at(step, "step"),
        timed_out=timed_out,
        task=task,
        model=text_at(step, "step_usage", "model") or None,
    )


def _entries(document: LogDocument) -> Iterator[Entry]:
    task: str | None = None
    for number, step in enumerate(document.value):
        if not isinstance(at(step, "agent"), dict):
            yield Fault("not_a_step", f"step {number}: expected an object with an agent", step)
            continue
        task = task_in(text_at(step, "user_message")) or task
        run = _run(step, document.digest, task)
        if run is not None:
            yield run


READER = Reader("devai", (b'"environment"',), _reads, _entries)
