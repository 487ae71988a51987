"""Traces of tools, a run or span an object: LangSmith's run trees, Langfuse's observations, OpenAI's agents, MLflow.

LangSmith: `{"run_type": "tool", "name", "inputs", "outputs", "error"}`, nested under `child_runs` or a run a line;
Langfuse: `{"type": "TOOL", "input", "output", "level"}`; OpenAI's SDK: `{"object": "trace.span", "span_data": {"type":
"function", ..}}`; MLflow: spans whose attributes have `mlflow.spanType`. Traps: inputs may be the text that Python
prints of a dictionary; a model's message in the run beside it asks for the same call once more; a tool's error is its
output where the tool caught it; a status of success says that the tool returned.
"""

import ast
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import at, number, objects, of_json, record, text_at, word
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, milliseconds, moment
from capibara_assets.executions.formats.agents.tools.calls import Call

_DEPTH = 200
_FAILED = ("ERROR", "STATUS_CODE_ERROR", 2)
_LONGEST = 1 << 20  # characters of a dictionary that are parsed
_USERS = ("human", "user")
_CHILDREN = (("child_runs",), ("runs",), ("children",), ("spans",), ("data", "spans"), ("observations",))


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
        write_answer(call, answer, asked.path is None, language=asked.language)
        call.duration_ms = milliseconds(call.started, moment(run.get("end_time")))
    return entry_of(call, asked)


def _as_run(row: dict[str, Any]) -> dict[str, Any] | None:
    """A tool's run as LangSmith names its fields; None: it is none."""
    span, attributes = record(row.get("span_data")), record(row.get("attributes"))
    if row.get("run_type") == "tool":
        return row
    if row.get("type") == "TOOL" and ("traceId" in row or "trace_id" in row):
        failed = row.get("level") == "ERROR"
        return {
            "id": row.get("id"), "name": row.get("name"), "inputs": row.get("input"),
            "status": None if failed else "success",
            "trace_id": _either(row, "sessionId", "session_id") or _either(row, "traceId", "trace_id"),
            "outputs": {"output": row["output"]} if row.get("output") is not None else None,
            "error": (word(_either(row, "statusMessage", "status_message")) or "error") if failed else None,
            "start_time": _either(row, "startTime", "start_time"), "end_time": _either(row, "endTime", "end_time"),
        }  # fmt: skip
    if span.get("type") == "function":
        error = row.get("error")
        said = at(error, "data", "error") or at(error, "message")
        return {
            "id": row.get("id"), "trace_id": row.get("trace_id"), "name": span.get("name"), "inputs": span.get("input"),
            "outputs": {"output": span.get("output")}, "error": (word(said) or "error") if error else None,
            "start_time": row.get("started_at"), "end_time": row.get("ended_at"),
        }  # fmt: skip
    if str(attributes.get("mlflow.spanType")).strip('"') == "TOOL":
        status = row.get("status")
        failed = (status.get("code") if isinstance(status, dict) else row.get("status_code", status)) in _FAILED
        return {
            "id": at(row, "context", "span_id") or row.get("span_id"), "name": row.get("name"),
            "trace_id": at(row, "context", "trace_id") or row.get("trace_id"),
            "inputs": _json(attributes.get("mlflow.spanInputs")),
            "outputs": {"output": _json(attributes.get("mlflow.spanOutputs"))},
            "error": (_raised(row) or "error") if failed else None,
            "start_time": _seconds(row.get("start_time_unix_nano", row.get("start_time"))),
            "end_time": _seconds(row.get("end_time_unix_nano", row.get("end_time"))),
        }  # fmt: skip
    return None


def _either(row: dict[str, Any], name: str, column: str) -> Any:
    """A field of Langfuse's API, or the column of that name in its exports."""
    return row.get(name, row.get(column))


def _raised(row: dict[str, Any]) -> str | None:
    """The exception of a span's events."""
    told = (record(event.get("attributes")) for event in objects(row.get("events")))
    said = (word(one.get("exception.stacktrace")) or word(one.get("exception.message")) for one in told)
    return next((one for one in said if one), None)


def _json(value: Any) -> Any:
    return of_json(value, value) if isinstance(value, str) else value


def _seconds(nanoseconds: Any) -> float | None:
    found = number(nanoseconds)
    return None if found is None else found / 1e9


def _asked(run: dict[str, Any]) -> Asked | None:
    inputs = run.get("inputs")
    given = inputs.get("input", inputs) if isinstance(inputs, dict) and run.get("run_type") else inputs
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
    task: str | None = None
    waiting = [(row, _DEPTH) for row in reversed(document.rows)]
    while waiting:
        run, depth = waiting.pop()
        if not isinstance(run, dict) or not depth:
            continue
        if (tool := _as_run(run)) is not None:
            yield tool, task
        else:
            task = _user(run.get("inputs", run.get("input"))) or task
        children = next((found for path in _CHILDREN if (found := objects(at(run, *path)))), [])
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


READER = Reader("run-tree", (b'"run_type"', b'"TOOL"', b'"span_data"', b'"mlflow.spanType"'), reads, entries)
