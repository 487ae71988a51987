"""From one line to one execution: both E2B SDKs' shapes inside the recorder's envelope, checked field by field."""

import json
import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

MAX_DEPTH = 200  # nesting of a record; deeper ones are no executions and exhaust the stack of whoever walks them
MAX_DURATION_MS = 30 * 86_400_000.0
FUTURE_TOLERANCE = timedelta(days=1)  # clocks differ, zones get lost
_MAX_DIGITS = 4000

REQUIRED = ("sandbox_id", "execution_id", "timestamp", "language", "code", "execution")
_OPTIONAL_TEXT = ("template_id", "context_id", "agent_id", "tenant", "task", "licence", "source")
_LANGUAGES = {
    "py": "python",
    "python3": "python",
    "ipython": "python",
    "ipython3": "python",
    "js": "javascript",
    "node": "javascript",
    "nodejs": "javascript",
    "ts": "typescript",
    "sqlite": "sql",
    "sqlite3": "sql",
    "postgres": "sql",
    "postgresql": "sql",
    "mysql": "sql",
    "duckdb": "sql",
    "sh": "bash",
    "shell": "bash",
}
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_SURROGATE = re.compile("[\ud800-\udfff]")
_RULE_BEFORE_TEXT = re.compile(r"^(-{20,})(?=\S)")
_HEADER_BEFORE_FRAME = re.compile(r"(Traceback \(most recent call last\):?)(?=[CF]\w+ )")


class Fault(Exception):
    """Why a line is no execution: a reason class and what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass(slots=True)
class Recorded:
    """One execution as read: text joined, ANSI codes removed, not yet redacted."""

    execution_id: str
    sandbox_id: str
    context_id: str | None
    agent_id: str | None
    tenant: str | None
    timestamp: datetime
    template_id: str | None
    language: str
    code: str
    task: str | None
    outcome: str
    stdout: str
    stderr: str
    result_text: str | None
    error_name: str | None
    error_value: str | None
    traceback: str | None
    execution_count: str | None
    duration_ms: float | None
    timeout_s: float | None
    licence: str | None
    source: str | None
    flags: list[str] = field(default_factory=list)


def read_line(data: bytes, now: datetime) -> Recorded:
    """The execution that a line of JSON holds.

    Raises:
        Fault: the line is no execution; the reason is invalid_utf8, invalid_json, invalid_record, not_an_object,
            duplicate_key:F, missing:F, type:F, value:F or future_timestamp.
    """
    record = parse_object(data)
    for name in REQUIRED:
        if name not in record:
            raise Fault(f"missing:{name}", f"no field {name}")
    flags: set[str] = set()
    clean = _Cleaner(flags)
    execution_id, sandbox_id = _identity(record, "execution_id"), _identity(record, "sandbox_id")
    language = _language(record["language"])
    code = clean(_text(record, "code"))
    optional = {name: _optional_text(record, name) for name in _OPTIONAL_TEXT}
    output = _output(record, language, clean)
    timestamp = _timestamp(record["timestamp"], now, flags)
    return Recorded(
        execution_id=execution_id,
        sandbox_id=sandbox_id,
        context_id=optional["context_id"],
        agent_id=optional["agent_id"],
        tenant=optional["tenant"],
        timestamp=timestamp,
        template_id=optional["template_id"],
        language=language,
        code=code,
        task=_maybe(clean, optional["task"] or _last_user_message(record.get("messages"))),
        execution_count=_counter(record.get("execution_count")),
        duration_ms=_number(record, "duration_ms", MAX_DURATION_MS, flags),
        timeout_s=_number(record, "timeout_s", MAX_DURATION_MS / 1000, flags),
        licence=optional["licence"],
        source=optional["source"],
        flags=sorted(flags),
        **output,
    )


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`: integers exact at any size, NaN and infinities accepted, duplicate keys refused.

    Raises:
        Fault: invalid_utf8, invalid_json, invalid_record (nested too deep, absurd numbers), duplicate_key:K or
            not_an_object.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Fault("invalid_utf8", f"byte {error.start} of the line is not UTF-8") from None
    value = _parse(text, "the line", "invalid_json")
    if not isinstance(value, dict):
        raise Fault("not_an_object", f"expected a JSON object, found {_json_type(value)}")
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _depth_exceeds(value, MAX_DEPTH):
        raise Fault("invalid_record", f"nested deeper than {MAX_DEPTH}")
    return value


def _parse(text: str, where: str, reason: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_int=_integer)
    except RecursionError:
        raise Fault("invalid_record", f"{where} is nested deeper than {MAX_DEPTH}") from None
    except json.JSONDecodeError as error:
        raise Fault(reason, f"{where} is no JSON: {error.msg} at character {error.pos}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Fault(
            f"duplicate_key:{_SURROGATE.sub('?', twice)[:64]}", f"the key {twice[:64]!r} occurs twice in one object"
        )
    return found


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise Fault("invalid_record", f"an integer of {len(digits)} digits")
    return int(digits)


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


class _Cleaner:
    """Replaces lone surrogates, which no UTF-8 table can hold, and flags that it did."""

    def __init__(self, flags: set[str]) -> None:
        self._flags = flags

    def __call__(self, text: str) -> str:
        if text.isascii() or not _SURROGATE.search(text):
            return text
        self._flags.add("lone_surrogate")
        return _SURROGATE.sub("\ufffd", text)


def _maybe(clean: _Cleaner, text: str | None) -> str | None:
    return None if text is None else clean(text)


def strip_ansi(text: str) -> str:
    """`text` without terminal escape sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def _text(record: dict[str, Any], name: str) -> str:
    value = record[name]
    if not isinstance(value, str):
        raise Fault(f"type:{name}", f"expected text, found {_json_type(value)}")
    return value


def _identity(record: dict[str, Any], name: str) -> str:
    value = _text(record, name)
    if not value.strip() or _SURROGATE.search(value):
        raise Fault(f"value:{name}", "an id must be non-empty text")
    return value


def _optional_text(record: dict[str, Any], name: str) -> str | None:
    value = record.get(name)
    if value is not None and not isinstance(value, str):
        raise Fault(f"type:{name}", f"expected text or null, found {_json_type(value)}")
    return _SURROGATE.sub("\ufffd", value) if value else None


def _language(value: Any) -> str:
    if not isinstance(value, str):
        raise Fault("type:language", f"expected text, found {_json_type(value)}")
    name = value.strip().lower()
    if not name or _SURROGATE.search(name):
        raise Fault("value:language", "the language is empty")
    return _LANGUAGES.get(name, name)


def _timestamp(value: Any, now: datetime, flags: set[str]) -> datetime:
    """UTC time of RFC 3339 text or of a Unix time in s, ms, us or ns (told apart by magnitude)."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Fault("type:timestamp", f"expected text or a number, found {_json_type(value)}")
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
            if moment.tzinfo is None:
                flags.add("naive_timestamp")
                moment = moment.replace(tzinfo=UTC)
            moment = moment.astimezone(UTC)
        else:
            moment = _from_unix(value)
            flags.add("numeric_timestamp")
    except (ValueError, OverflowError):
        raise Fault("value:timestamp", f"no time: {str(value)[:64]!r}") from None
    if moment > now + FUTURE_TOLERANCE:
        raise Fault("future_timestamp", f"{moment.isoformat()} is after {now.isoformat()}")
    return moment


def _from_unix(value: int | float) -> datetime:
    for digits, unit in ((12, 1), (15, 1_000), (18, 1_000_000), (21, 1_000_000_000)):
        if abs(value) < 10**digits:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value / unit)
    raise ValueError(value)


def _number(record: dict[str, Any], name: str, limit: float, flags: set[str]) -> float | None:
    """A finite number >= 0, or None for null, NaN and infinities (which the SDKs write for "not known")."""
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Fault(f"type:{name}", f"expected a number or null, found {_json_type(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        flags.add(f"not_finite:{name}")
        return None
    if not 0 <= value <= limit:
        raise Fault(f"value:{name}", f"expected 0 to {limit:g}, found {str(value)[:40]}")
    return float(value)


def _counter(value: Any) -> str | None:
    match value:
        case bool():
            pass
        case None:
            return None
        case int():
            return str(value)
        case float() if not math.isfinite(value):
            return None
        case float() if value.is_integer():
            return str(int(value))
    raise Fault("type:execution_count", f"expected an integer or null, found {_json_type(value)}")


def _last_user_message(messages: Any) -> str | None:
    """Text of the last user message of a conversation (content as text or as a list of text parts)."""
    if messages is None:
        return None
    if not isinstance(messages, list):
        raise Fault("type:messages", f"expected a list or null, found {_json_type(messages)}")
    for message in reversed(messages):
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
        if joined := "\n".join(text for text in texts if isinstance(text, str)).strip():
            return joined
    return None


def _output(record: dict[str, Any], language: str, clean: _Cleaner) -> dict[str, Any]:
    """Outcome and output of the `execution` field (or of `exception`, where there is none)."""
    execution = record["execution"]
    if isinstance(execution, str):
        execution = _nested(execution, "execution")
    if execution is None:
        return _without_execution(record.get("exception"), clean)
    if not isinstance(execution, dict):
        raise Fault("type:execution", f"expected an object, found {_json_type(execution)}")
    logs = _nested(execution.get("logs"), "logs")
    error = _nested(execution.get("error"), "error")
    stdout, stderr = _stream(logs, "stdout", clean), _stream(logs, "stderr", clean)
    output: dict[str, Any] = {
        "outcome": "ok",
        "stdout": stdout,
        "stderr": stderr,
        "result_text": _results(execution.get("results"), clean),
        "error_name": None,
        "error_value": None,
        "traceback": None,
    }
    if error is not None:
        name, value, trace = (_error_text(error, key, clean) for key in ("name", "value", "traceback"))
        return output | {
            "outcome": "error",
            "error_name": name or "Error",
            "error_value": value,
            "traceback": _readable_traceback(trace) if trace else None,
        }
    if language in ("javascript", "typescript") and (failed := _failed_assertion(stderr)) is not None:
        # console.assert writes to stderr and goes on: error is null, but the program did not do what it should
        return output | {"outcome": "error", "error_name": "AssertionError", "error_value": failed}
    return output


def _without_execution(exception: Any, clean: _Cleaner) -> dict[str, Any]:
    if exception is None:
        raise Fault("type:execution", "null without an exception that says why")
    if isinstance(exception, str):
        exception = {"name": "Exception", "message": exception}
    if not isinstance(exception, dict):
        raise Fault("type:exception", f"expected an object, found {_json_type(exception)}")
    name = _error_text(exception, "name", clean) or "Exception"
    return {
        "outcome": "timeout" if "timeout" in name.lower() else "error",
        "stdout": "",
        "stderr": "",
        "result_text": None,
        "error_name": name,
        "error_value": _error_text(exception, "message", clean),
        "traceback": None,
    }


def _nested(value: Any, name: str) -> dict[str, Any] | None:
    """An object, given as such (JS SDK) or as JSON text (Python SDK)."""
    if isinstance(value, str):
        value = _parse(value, name, "type:execution")
    if value is not None and not isinstance(value, dict):
        raise Fault("type:execution", f"{name}: expected an object, found {_json_type(value)}")
    return value


def _stream(logs: dict[str, Any] | None, name: str, clean: _Cleaner) -> str:
    chunks = (logs or {}).get(name)
    if chunks is None:
        return ""
    if isinstance(chunks, str):
        chunks = [chunks]
    if not isinstance(chunks, list) or not all(isinstance(chunk, str) for chunk in chunks):
        raise Fault("type:execution", f"logs.{name}: expected a list of texts")
    return strip_ansi(clean("".join(chunks)))


def _results(results: Any, clean: _Cleaner) -> str | None:
    if results is None:
        return None
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise Fault("type:execution", "results: expected a list of objects")
    texts = [result.get("text") for result in results]
    if any(text is not None and not isinstance(text, str) for text in texts):
        raise Fault("type:execution", "results: text is neither text nor null")
    joined = "\n".join(text for text in texts if text)
    return strip_ansi(clean(joined)) if joined else None


def _error_text(error: dict[str, Any], key: str, clean: _Cleaner) -> str | None:
    value = error.get(key)
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise Fault("type:execution", f"error.{key}: expected text, found {_json_type(value)}")
    return strip_ansi(clean(value))


def _failed_assertion(stderr: str) -> str | None:
    """The message of the first failed console.assert, "" when it has none; None when all held."""
    for line in stderr.splitlines():
        if line.startswith("Assertion failed"):
            return line.removeprefix("Assertion failed").lstrip(": ")
    return None


def _readable_traceback(text: str) -> str:
    """The server joins a traceback's lines with "": gives its first two lines their ends back."""
    return _HEADER_BEFORE_FRAME.sub(r"\1\n", _RULE_BEFORE_TEXT.sub(r"\1\n", text))


def _json_type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
