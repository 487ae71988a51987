"""The recorder: wraps a code-interpreter sandbox and writes one JSON line for every execution.

E2B keeps no history of executions, and `Execution.to_json()` fails on results with a MIME type it does not know, so the
recorder serialises by itself. It never breaks the agent's run: whatever goes wrong in here is reported to the logger
`capibara_assets.executions.recorder` and the sandbox's own answer (or exception) is passed on untouched.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from pathlib import Path
from threading import Lock
from typing import Any

SCHEMA_VERSION = 1

#: MIME keys of an E2B result, in the order of its SDK; whatever else it carries stands in `extra`.
RESULT_KEYS = (
    "text", "html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript", "data", "chart",
)  # fmt: skip

Clock = Callable[[], datetime]
JsonObject = dict[str, Any]

_log = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Provenance:
    """What stays the same for every execution of one recorded sandbox."""

    agent_id: str | None = None
    tenant: str | None = None
    template_id: str | None = None
    licence: str | None = None
    source: str | None = None


@dataclass
class Journal:
    """Append-only JSON lines, one `write` each; a folder gets one file per (UTC) day, a `.jsonl` path is one file."""

    path: Path
    _lock: Lock = field(default_factory=Lock, repr=False)
    _file: int | None = field(default=None, repr=False)
    _open_path: Path | None = field(default=None, repr=False)

    def append(self, line: bytes, when: datetime) -> None:
        """Writes `line` (without its newline). Raises OSError where the file cannot be written."""
        with self._lock:
            descriptor = self._descriptor(when)
            data = line + b"\n"
            if os.write(descriptor, data) != len(data):
                raise OSError(f"short write to {self._open_path}: is the disk full?")

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _descriptor(self, when: datetime) -> int:
        path = self.path if self.path.suffix == ".jsonl" else self.path / f"executions-{when:%Y-%m-%d}.jsonl"
        if self._file is None or path != self._open_path:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._open_path = path
            size = os.fstat(self._file).st_size
            # A writer that was killed in the middle of a line must not swallow ours.
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                os.write(self._file, b"\n")
        return self._file


def plain(value: Any) -> Any:
    """`value` as strict JSON can hold it: NaN and infinities become null, bytes base64, unknown objects their repr."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, Sequence | set | frozenset):
        return [plain(item) for item in value]
    for method in ("to_dict", "isoformat", "item"):
        convert = getattr(value, method, None)
        if callable(convert):
            return plain(convert())
    return repr(value)


def result_json(result: Any) -> JsonObject:
    """One result of an execution as `{"text": ..., "<mime key>": ...}`; `text` is always there, other keys when set."""
    values = {key: getattr(result, key, None) for key in RESULT_KEYS}
    extra = getattr(result, "extra", None)
    if isinstance(extra, Mapping):
        values |= {str(key): value for key, value in extra.items()}
    return {key: plain(value) for key, value in values.items() if value is not None or key == "text"}


def execution_json(execution: Any) -> JsonObject:
    """The shape of `Execution.to_json()` of E2B's Python SDK, parsed once: `logs` and `error` are JSON strings."""
    logs, error = execution.logs, execution.error
    return {
        "results": [result_json(result) for result in execution.results],
        "logs": _dumps({"stdout": list(logs.stdout), "stderr": list(logs.stderr)}),
        "error": None
        if error is None
        else _dumps({"name": error.name, "value": error.value, "traceback": error.traceback}),
    }


def envelope_schema() -> JsonObject:
    """JSON Schema of one recorded line."""
    text, number = {"type": ["string", "null"]}, {"type": ["number", "null"]}
    execution = {
        "type": ["object", "null"],
        "required": ["results", "logs", "error"],
        "properties": {"results": {"type": "array"}, "logs": {"type": "string"}, "error": text},
    }
    properties: JsonObject = {
        "schema_version": {"const": SCHEMA_VERSION},
        "sandbox_id": {"type": "string"},
        "execution_id": {"type": "string"},
        "timestamp": {"type": "string", "format": "date-time"},
        "template_id": text,
        "language": {"type": "string"},
        "code": {"type": "string"},
        "execution": execution,
        "execution_count": {"type": ["integer", "null"]},
        "duration_ms": number,
        "timeout_s": number,
        "context_id": text,
        "agent_id": text,
        "tenant": text,
        "task": text,
        "messages": {"type": ["array", "null"], "items": {"type": "object"}},
        "licence": text,
        "source": text,
        "exception": {"type": ["object", "null"], "properties": {"name": text, "message": text}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Recorded execution",
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
        "x-schema-version": SCHEMA_VERSION,
    }


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def _encode(record: JsonObject) -> bytes:
    text = _dumps(record)
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates: no UTF-8 file can hold them
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


@dataclass
class _Call:
    """One `run_code` under way: what was asked, and since when."""

    code: str
    options: JsonObject
    task: str | None
    messages: Sequence[Mapping[str, Any]] | None
    started: datetime
    began: float


class _Recorded:
    """What the synchronous and the asynchronous wrapper share: starting, ending and writing down a call."""

    def __init__(
        self,
        sandbox: Any,
        journal: Journal,
        provenance: Provenance,
        task: str | None,
        messages: Sequence[Mapping[str, Any]] | None,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._sandbox = sandbox
        self._journal = journal
        self._provenance = provenance
        self._clock = clock
        self._new_id = new_id
        self.task = task
        self.messages = messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    def _begin(self, code: str, arguments: Sequence[Any], options: JsonObject) -> _Call:
        """Takes the recorder's own keywords out of `options` (they are not passed on)."""
        task = options.pop("task", self.task)
        messages = options.pop("messages", self.messages)
        known = {"language": arguments[0], **options} if arguments else dict(options)
        return _Call(code, known, task, messages, _timestamp(self._clock), time.perf_counter())

    def _end(self, call: _Call, execution: Any, exception: BaseException | None) -> None:
        duration_ms = (time.perf_counter() - call.began) * 1000
        try:
            record = self._envelope(call, execution, exception, duration_ms)
            self._journal.append(_encode(record), call.started)
        except Exception:  # noqa: BLE001 (the agent's run outranks its record)
            _log.exception("execution not recorded in %s", self._journal.path)

    def _envelope(self, call: _Call, execution: Any, exception: BaseException | None, duration_ms: float) -> JsonObject:
        options, context = call.options, call.options.get("context")
        language = options.get("language") or getattr(context, "language", None) or "python"
        provenance = self._provenance
        return {
            "schema_version": SCHEMA_VERSION,
            "sandbox_id": str(getattr(self._sandbox, "sandbox_id", None) or ""),
            "execution_id": self._new_id(),
            "timestamp": call.started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "template_id": provenance.template_id or getattr(self._sandbox, "template_id", None),
            "language": str(language),
            "code": call.code,
            "execution": None if execution is None else execution_json(execution),
            "execution_count": getattr(execution, "execution_count", None),
            "duration_ms": round(duration_ms, 3),
            "timeout_s": options.get("timeout"),
            "context_id": getattr(context, "id", None),
            "agent_id": provenance.agent_id,
            "tenant": provenance.tenant,
            "task": call.task,
            "messages": plain(call.messages),
            "licence": provenance.licence,
            "source": provenance.source,
            "exception": None if exception is None else {"name": type(exception).__name__, "message": str(exception)},
        }


def _timestamp(clock: Clock) -> datetime:
    try:
        return clock().astimezone(UTC)
    except Exception:  # noqa: BLE001 (as above)
        _log.exception("the recorder's clock failed; the machine's is used")
        return _now()


class RecordedSandbox(_Recorded):
    """A synchronous sandbox with a record; every attribute but `run_code` is the sandbox's own."""

    def run_code(self, code: str, *args: Any, **options: Any) -> Any:
        """Runs `code` as the sandbox does. `task=` and `messages=` describe this call alone and are not passed on."""
        call = self._begin(code, args, options)
        try:
            execution = self._sandbox.run_code(code, *args, **options)
        except BaseException as exception:
            self._end(call, None, exception)
            raise
        self._end(call, execution, None)
        return execution

    def __enter__(self) -> RecordedSandbox:
        self._sandbox.__enter__()
        return self

    def __exit__(self, *failure: Any) -> Any:
        self._journal.close()
        return self._sandbox.__exit__(*failure)


class AsyncRecordedSandbox(_Recorded):
    """An asynchronous sandbox with a record; every attribute but `run_code` is the sandbox's own."""

    async def run_code(self, code: str, *args: Any, **options: Any) -> Any:
        """As `RecordedSandbox.run_code`, awaited."""
        call = self._begin(code, args, options)
        try:
            execution = await self._sandbox.run_code(code, *args, **options)
        except BaseException as exception:
            self._end(call, None, exception)
            raise
        self._end(call, execution, None)
        return execution

    async def __aenter__(self) -> AsyncRecordedSandbox:
        await self._sandbox.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> Any:
        self._journal.close()
        return await self._sandbox.__aexit__(*failure)


def record(
    sandbox: Any,
    path: str | os.PathLike[str],
    *,
    agent_id: str | None = None,
    tenant: str | None = None,
    task: str | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    template_id: str | None = None,
    licence: str | None = None,
    source: str | None = None,
    clock: Clock = _now,
    new_id: Callable[[], str] = _new_id,
) -> Any:
    """Wraps `sandbox` so that each `run_code` leaves one JSON line under `path`.

    Args:
        sandbox: anything with E2B's `run_code(code, language=..., context=..., ...)`, synchronous or asynchronous.
        path: a folder (one `executions-YYYY-MM-DD.jsonl` per day in it) or a file whose name ends in `.jsonl`.
        agent_id, tenant, template_id, licence, source: written with every execution.
        task: what the code is meant to do; `sandbox.task = ...` changes it, `run_code(..., task=...)` does once.
        messages: the conversation that led to the code, `[{"role": ..., "content": ...}]`; same rules as `task`.
        clock, new_id: where timestamps and execution ids come from.

    Returns:
        A sandbox with the same interface: `AsyncRecordedSandbox` where `run_code` is a coroutine function.
    """
    provenance = Provenance(agent_id, tenant, template_id, licence, source)
    wrapper = AsyncRecordedSandbox if iscoroutinefunction(sandbox.run_code) else RecordedSandbox
    return wrapper(sandbox, Journal(Path(path)), provenance, task, messages, clock, new_id)
