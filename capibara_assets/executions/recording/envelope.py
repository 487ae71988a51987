"""The recorder's envelope (one recorded line): its fields, its JSON Schema, and conversion to strict JSON."""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

SCHEMA_VERSION = 3  # 2: `execution` may be a shell command's result; 3: `bullet_ids`

#: MIME keys of an E2B result, in the order of its SDK; whatever else it carries stands in `extra`.
RESULT_KEYS = (
    "text", "html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript", "data", "chart",
)  # fmt: skip
_MAX_DEPTH = 100
_MAX_REPR = 10_000  # characters

JsonObject = dict[str, Any]


def plain(value: Any, depth: int = 0) -> Any:
    """Converts any value to one that strict JSON can hold.

    NaN and infinities become null, bytes base64; unknown objects become the result of their own conversion, else their
    repr, else the name of their type.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if depth >= _MAX_DEPTH:
        return f"<{type(value).__name__} nested deeper than {_MAX_DEPTH}>"
    try:
        if isinstance(value, Mapping):
            return {str(key): plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, Sequence | set | frozenset):
            return [plain(item, depth + 1) for item in value]
        for method in ("to_dict", "isoformat", "item"):
            if callable(convert := getattr(value, method, None)):
                return plain(convert(), depth + 1)
        return repr(value)[:_MAX_REPR]
    except Exception:  # noqa: BLE001 (the value's own code failed; the rest of the execution is still worth its line)
        return f"<{type(value).__name__}>"


def result_json(result: Any) -> JsonObject:
    """One result of an execution as `{"text": ..., "<mime key>": ...}`; `text` is always there, other keys when set.

    The SDK's own serialisation fails on results with a MIME type that it does not know.
    """
    values = {key: getattr(result, key, None) for key in RESULT_KEYS}
    extra = getattr(result, "extra", None)
    if isinstance(extra, Mapping):
        values |= {str(key): value for key, value in extra.items()}
    return {key: value for key, value in values.items() if value is not None or key == "text"}


def execution_json(execution: Any) -> JsonObject:
    """The shape of `Execution.to_json()` of E2B's Python SDK, parsed once: `logs` and `error` are JSON strings."""
    logs, error = execution.logs, execution.error
    return {
        "results": [result_json(result) for result in execution.results],
        "logs": dumps({"stdout": list(logs.stdout), "stderr": list(logs.stderr)}),
        "error": None
        if error is None
        else dumps({"name": error.name, "value": error.value, "traceback": error.traceback}),
    }


def command_json(result: Any) -> JsonObject:
    """A shell command's result as JSON: of a `CommandResult`, or of the `CommandExitException` with the same fields."""
    return {name: getattr(result, name, None) for name in ("stdout", "stderr", "exit_code", "error")}


def dumps(value: Any) -> str:
    """`value` as strict JSON text, spaced as the SDK's."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def encode(record: JsonObject) -> bytes:
    """A record as one line of UTF-8 JSON, without its line end."""
    try:
        return orjson.dumps(record)
    except TypeError:  # unknown objects, odd keys, integers above 64 bits, cycles, lone surrogates
        text = dumps(record)
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates: no UTF-8 file can hold them
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def envelope_schema() -> JsonObject:
    """JSON Schema of one recorded line."""
    text, number = {"type": ["string", "null"]}, {"type": ["number", "null"]}
    execution = {
        "title": "Execution.to_json() of E2B's Python SDK, parsed once",
        "type": "object",
        "required": ["results", "logs", "error"],
        "properties": {
            "results": {"type": "array", "items": {"type": "object", "required": ["text"]}},
            "logs": {"type": "string", "description": 'JSON: {"stdout": [chunk], "stderr": [chunk]}'},
            "error": text | {"description": 'JSON: {"name", "value", "traceback"}; null when none was raised'},
        },
    }
    command = {
        "title": "CommandResult",
        "type": "object",
        "required": ["stdout", "stderr", "exit_code", "error"],
        "properties": {"stdout": text, "stderr": text, "exit_code": {"type": "integer"}, "error": text},
    }
    properties: JsonObject = {
        "schema_version": {"const": SCHEMA_VERSION},
        "sandbox_id": {"type": "string"},
        "execution_id": {"type": "string"},
        "timestamp": {"type": "string", "format": "date-time", "description": "Start, UTC"},
        "template_id": text,
        "language": {"type": "string"},
        "code": {"type": "string"},
        "execution": {"anyOf": [{"type": "null"}, execution, command]},
        "execution_count": {"type": ["integer", "null"], "description": "The kernel's counter"},
        "duration_ms": number,
        "timeout_s": number,
        "context_id": text | {"description": "Code context; state belongs to (sandbox, context)"},
        "agent_id": text,
        "tenant": text,
        "task": text,
        "messages": {"type": ["array", "null"], "items": {"type": "object"}},
        "bullet_ids": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": "Playbook bullets that the agent worked with (ACE: the generator names them)",
        },
        "licence": text,
        "source": text,
        "exception": {
            "type": ["object", "null"],
            "properties": {"name": text, "message": text},
            "description": "What the SDK raised instead of an answer, such as a timeout",
        },
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
