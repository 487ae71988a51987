"""Reads an envelope, which the recorder wrote around an SDK's answer, into an execution; checks every field."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from capibara_assets.executions.formats.cell_outputs import Cleaner, read_output, strip_ansi
from capibara_assets.executions.formats.quick_json import is_exact, quick_object
from capibara_assets.executions.formats.strict_json import SURROGATE, Fault, json_type, parse_object

__all__ = ["Fault", "Recorded", "parse_object", "read_line", "read_record", "strip_ansi"]

MAX_DURATION_MS = 30 * 86_400_000.0
UNDATED = "undated"  # the log says no time: 1970, in the order of execution
ESTIMATED = "estimated_timestamp"  # the execution says no time, but one before or after it does
FUTURE_TOLERANCE = timedelta(days=1)  # clocks differ, zones get lost

REQUIRED = ("sandbox_id", "execution_id", "timestamp", "language", "code", "execution")
_REQUIRED = frozenset(REQUIRED)
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
    "zsh": "bash",
    "shellscript": "bash",
    "pwsh": "powershell",
    "ps1": "powershell",
}


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
    bullet_ids: str | None = None  # joined by line feeds
    flags: list[str] = field(default_factory=list)


def read_line(data: bytes, now: datetime) -> Recorded:
    """Reads the execution in a line of JSON.

    Raises:
        Fault: the line is no execution; the reason is invalid_utf8, invalid_json, invalid_record, not_an_object,
            duplicate_key:F, missing:F, type:F, value:F or future_timestamp.
    """
    return read_record(parse_object(data), now)


def read_quickly(data: bytes, now: datetime, keys: int) -> Recorded | None:
    """What `read_line` gives for nearly every execution, several times as fast; None: let it decide.

    Args:
        keys: how many keys the line names, as `lines.key_ends` counts them.
    """
    record = quick_object(data, keys)
    if record is None or not is_exact(record.values()):
        return None
    try:
        return read_record(record, now)
    except Fault:
        return None


def read_record(record: dict[str, Any], now: datetime, marks: Iterable[str] = ()) -> Recorded:
    """Reads the execution in a parsed envelope; `marks` are flags of the reader that made the envelope.

    Raises:
        Fault: as `read_line`, from missing:F on.
    """
    if not record.keys() >= _REQUIRED:
        name = next(name for name in REQUIRED if name not in record)
        raise Fault(f"missing:{name}", f"no field {name}")
    flags = set(marks)
    clean = Cleaner(flags)
    execution_id, sandbox_id = _identity(record, "execution_id"), _identity(record, "sandbox_id")
    language = _language(record["language"])
    code = clean(_text(record, "code"))
    template_id, context_id, agent_id, tenant, task, licence, source = [
        None if record.get(name) is None else _optional_text(record, name) for name in _OPTIONAL_TEXT
    ]
    output = read_output(record, language, clean)
    timestamp = _timestamp(record["timestamp"], now, flags)
    task = task or _last_user_message(record.get("messages"))
    return Recorded(
        execution_id,
        sandbox_id,
        context_id,
        agent_id,
        tenant,
        timestamp,
        template_id,
        language,
        code,
        None if task is None else clean(task),
        *output,
        _counter(record.get("execution_count")),
        _number(record, "duration_ms", MAX_DURATION_MS, flags),
        _number(record, "timeout_s", MAX_DURATION_MS / 1000, flags),
        licence,
        source,
        _bullet_ids(record.get("bullet_ids")),
        sorted(flags) if flags else [],
    )


def _text(record: dict[str, Any], name: str) -> str:
    value = record[name]
    if not isinstance(value, str):
        raise Fault(f"type:{name}", f"expected text, found {json_type(value)}")
    return value


def _identity(record: dict[str, Any], name: str) -> str:
    value = _text(record, name)
    if not value.strip() or (not value.isascii() and SURROGATE.search(value)):
        raise Fault(f"value:{name}", "an id must be non-empty text")
    return value


def _optional_text(record: dict[str, Any], name: str) -> str | None:
    value = record[name]
    if not isinstance(value, str):
        raise Fault(f"type:{name}", f"expected text or null, found {json_type(value)}")
    return (value if value.isascii() else SURROGATE.sub("\ufffd", value)) or None


def language_of(name: str) -> str:
    """The language that a name stands for: `py` for Python."""
    name = name.strip().lower()
    return _LANGUAGES.get(name, name)


def _language(value: Any) -> str:
    if value == "python":  # most
        return "python"
    if not isinstance(value, str):
        raise Fault("type:language", f"expected text, found {json_type(value)}")
    name = language_of(value)
    if not name or SURROGATE.search(name):
        raise Fault("value:language", "the language is empty")
    return name


def _timestamp(value: Any, now: datetime, flags: set[str]) -> datetime:
    """UTC time of RFC 3339 text or of a Unix time in s, ms, us or ns (told apart by magnitude)."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Fault("type:timestamp", f"expected text or a number, found {json_type(value)}")
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
            if moment.tzinfo is None:
                flags.add("naive_timestamp")
                moment = moment.replace(tzinfo=UTC)
            elif moment.tzinfo is not UTC:
                moment = moment.astimezone(UTC)
        else:
            moment = _from_unix(value)
            flags.add("numeric_timestamp")
    except (ValueError, OverflowError):
        raise Fault("value:timestamp", f"no time: {str(value)!r}") from None
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
        raise Fault(f"type:{name}", f"expected a number or null, found {json_type(value)}")
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
    raise Fault("type:execution_count", f"expected an integer or null, found {json_type(value)}")


def _bullet_ids(value: Any) -> str | None:
    """Ids of playbook bullets, in the order given, joined by line feeds; None without any."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Fault("type:bullet_ids", f"expected a list of text or null, found {json_type(value)}")
    if any(not name.strip() or "\n" in name or SURROGATE.search(name) for name in value):
        raise Fault("value:bullet_ids", "an id must be non-empty text in one line")
    return "\n".join(dict.fromkeys(value)) or None


def _last_user_message(messages: Any) -> str | None:
    """Text of the last user message of a conversation (content as text or as a list of text parts)."""
    if messages is None:
        return None
    if not isinstance(messages, list):
        raise Fault("type:messages", f"expected a list or null, found {json_type(messages)}")
    for message in reversed(messages):
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
        if joined := "\n".join(text for text in texts if isinstance(text, str)).strip():
            return joined
    return None
