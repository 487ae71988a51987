"""Run trees of LangSmith, and of what exports as it does: `{"run_type": "tool", "name", "inputs", "outputs", "error"}`.

Nested under `child_runs`, as a list or a run a line. Traps: inputs may be the text that Python prints of a dictionary;
a model's message in the run beside it asks for the same call once more; a tool's error is its output where the tool
caught it; `status: success` says that the tool returned.
"""

import ast
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import record, text_at, word
from capibara_assets.executions.formats.agents.general.answers import (
    read_answer,
    write_answer,
    write_interpreters_end,
)
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of
from capibara_assets.executions.formats.agents.runs import Edit, Entry, LogDocument, NotRun, Reader, moment
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.trajectories.tool_calls import objects

_DEPTH = 200
_LONGEST = 1 << 20  # characters of a dictionary that are parsed
_SESSIONS = ("session_id", "trace_id")
_USERS = ("human", "user")


def reads(document: LogDocument) -> bool:
    """Whether a tool's run asks for code or an edit."""
    return any(_asked(run) is not None for run, _ in _tools(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs of tools in the order in which they stand."""
    if document.value is None:
        yield from document.faults
    for run, task in _tools(document):
        if (asked := _asked(run)) is not None:
            yield _entry(run, asked, task, document.digest)


def _entry(run: dict[str, Any], asked: Asked, task: str | None, digest: str) -> Entry:
    session = word(run.get("trace_id")) or digest
    call = Call(session, str(run.get("name")), asked.text, word(run.get("id")), moment(run.get("start_time")), task)
    error = word(run.get("error"))
    if run.get("outputs") is not None or error:
        answer = read_answer(run.get("outputs") or {})
        answer.returned = answer.returned or run.get("status") == "success"
        if error:
            answer.failed, answer.stderr = True, error
        write_answer(call, answer, runs_shell=asked.path is None)
        write_interpreters_end(call, answer, asked.language)
        ended = moment(run.get("end_time"))
        if ended is not None and call.started is not None and ended >= call.started:
            call.duration_ms = (ended - call.started).total_seconds() * 1000
    if call.not_run is not None:
        return NotRun(call.not_run, session, None if asked.path is not None else asked.text)
    if asked.path is None:
        return call.run(asked.language, asked.text)
    return NotRun("edit_failed", session) if call.success is False else Edit(session, asked.path, asked.text)


def _asked(run: dict[str, Any]) -> Asked | None:
    inputs = run.get("inputs")
    given = inputs.get("input", inputs) if isinstance(inputs, dict) else inputs
    return asked_of(run.get("name"), _literal(given))


def _literal(given: Any) -> Any:
    """What Python prints of a dictionary, as one."""
    if not isinstance(given, str) or not given.lstrip().startswith("{") or len(given) > _LONGEST:
        return given
    try:
        value = ast.literal_eval(given.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return given
    return value if isinstance(value, dict) else given


def _tools(document: LogDocument) -> Iterator[tuple[dict[str, Any], str | None]]:
    """The runs of tools, each with the user's last message before it."""
    rows = (
        document.value if isinstance(document.value, list) else [document.value] if document.value else document.lines
    )
    task: str | None = None
    waiting = [(row, _DEPTH) for row in reversed(rows)]
    while waiting:
        run, depth = waiting.pop()
        if not isinstance(run, dict) or not depth:
            continue
        if run.get("run_type") == "tool":
            yield run, task
        elif run.get("run_type") is not None:
            task = _user(run.get("inputs")) or task
        children = objects(run.get("child_runs") or run.get("runs") or run.get("children"))
        waiting += [(child, depth - 1) for child in reversed(children)]


def _user(inputs: Any) -> str | None:
    """The last message of a user in what a chain or a model was given."""
    messages = record(inputs).get("messages")
    flat = messages[0] if isinstance(messages, list) and messages and isinstance(messages[0], list) else messages
    said: str | None = word(record(inputs).get("input"))
    for message in flat if isinstance(flat, list) else []:
        told = record(message) if "kwargs" not in record(message) else record(record(message)["kwargs"])
        if told.get("role") in _USERS or told.get("type") in _USERS:
            said = text_at(told, "content").strip() or said
    return said


READER = Reader("run-tree", (b'"run_type"',), reads, entries)
