"""Run steps of OpenAI's Assistants API (`thread.run.step`), which ran code by the tool `code_interpreter`.

As its clients save them: one object, a list or a page of a list (newest first), JSON lines, or a run's stream of
events, where a step comes again each time that it changes: the last state counts. `outputs` holds logs (both streams,
also a traceback, and no exit code) and images. A step's time is its call's only where it made one. Messages and runs
in the same file name the task and the model.
"""

import json
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import name_at, objects
from capibara_assets.executions.formats.agents.hosted.api_items import shows_error
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader, moment
from capibara_assets.executions.formats.agents.trajectories.tool_calls import code_of
from capibara_assets.executions.formats.strict_json import Fault


def _is_step(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("object") == "thread.run.step"
        and isinstance(value.get("step_details"), dict)
    )


def _objects(document: LogDocument) -> tuple[list[dict[str, Any]], list[Fault]]:
    """What the API answered, in the file's order, without lists and events around it; and damaged lines."""
    value = document.value
    faults: list[Fault] = []
    if isinstance(value, dict | list):
        rows = objects(value) if isinstance(value, list) else [value]
    elif document.text.lstrip().startswith(("event:", "data:")):
        rows = _sent(document.text, faults)
    else:
        rows, faults = document.lines, document.faults
    found: list[dict[str, Any]] = []
    for row in rows:
        inner = row.get("data")
        if row.get("object") == "list" or (isinstance(inner, list) and any(map(_is_step, inner))):
            found += objects(inner)
        else:
            found.append(inner if isinstance(inner, dict) and isinstance(row.get("event"), str) else row)
    return found, faults


def _sent(text: str, faults: list[Fault]) -> list[dict[str, Any]]:
    """The objects of server-sent events."""
    found = []
    for line in text.splitlines():
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data and data != "[DONE]":
            try:
                found.append(json.loads(data, strict=False))
            except (ValueError, RecursionError) as error:
                faults.append(Fault("invalid_json", f"an event's data: {error}", data))
    return objects(found)


def _reads(document: LogDocument) -> bool:
    return any(map(_is_step, _objects(document)[0]))


def _entries(document: LogDocument) -> Iterator[Entry]:
    found, faults = _objects(document)
    steps: dict[str, dict[str, Any]] = {}
    tasks: dict[str | None, str] = {}
    models: dict[str | None, str | None] = {}
    for at, row in enumerate(found):
        if _is_step(row):
            steps[name_at(row, "id") or f"#{at}"] = row
        elif row.get("object") == "thread.run" and name_at(row, "model"):
            models[name_at(row, "id")] = name_at(row, "model")
        elif row.get("object") == "thread.message" and row.get("role") == "user":
            tasks.setdefault(name_at(row, "thread_id"), _said(row))
    ordered = list(steps.values())
    times = [_seconds(step) for step in ordered]
    if times and times[0] > times[-1]:
        ordered.reverse()
    for step in sorted(ordered, key=_seconds):
        thread, run = name_at(step, "thread_id"), name_at(step, "run_id")
        yield from _step(step, thread or run or document.digest, tasks.get(thread), models.get(run))
    yield from faults


def _step(step: dict[str, Any], session: str, task: str | None, model: str | None) -> Iterator[Entry]:
    calls = objects(step["step_details"].get("tool_calls"))
    started, ended = moment(step.get("created_at")), moment(step.get("completed_at"))
    timed = len(calls) == 1 and started is not None and ended is not None and ended >= started
    for call in calls:
        inner = call.get("code_interpreter")
        code = code_of("code_interpreter", inner) if isinstance(inner, dict) else None
        if code is None or not isinstance(inner, dict):
            continue
        outputs = objects(inner.get("outputs"))
        status = name_at(step, "status") or "completed"
        if not outputs and status != "completed":
            yield NotRun(status, session, code.text)
            continue
        logs = "\n".join(part["logs"] for part in outputs if isinstance(part.get("logs"), str))
        yield AgentRun(
            session=session,
            language=code.language,
            code=code.text,
            # the interpreter reports every exception in what it printed
            success=False if status == "failed" or shows_error(logs) else True if status == "completed" else None,
            output=logs,
            call_id=name_at(call, "id"),
            started=started,
            duration_ms=(ended - started).total_seconds() * 1000 if timed and started and ended else None,
            task=task,
            model=model,
        )


def _seconds(step: dict[str, Any]) -> float:
    created = moment(step.get("created_at"))
    return created.timestamp() if created else 0.0


def _said(message: dict[str, Any]) -> str:
    parts = [part.get("text") for part in objects(message.get("content"))]
    values = [part.get("value") if isinstance(part, dict) else part for part in parts]
    return "\n".join(value for value in values if isinstance(value, str))


READER = Reader("openai-assistants", (b"thread.run.step",), _reads, _entries)
