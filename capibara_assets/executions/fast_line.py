"""The common envelope, read about four times as fast: orjson wherever it provably says what the exact parser would.

orjson refuses NaN, infinities and lone surrogates (the exact parser takes over), but it turns integers above 64 bits
into floats and keeps the last of two equal keys without a word. So a line is only taken here when as many keys are
counted in its bytes as in what was parsed, and when the numbers that are used came out as integers or as small floats.
Whatever is unusual is left to `sources.read_parts`; a test holds the two against each other.
"""

import re
from datetime import UTC, datetime
from types import NoneType
from typing import Any

import orjson

from capibara_assets.executions.outputs import readable_traceback, strip_ansi
from capibara_assets.executions.readers import FUTURE_TOLERANCE, MAX_DURATION_MS, REQUIRED, Recorded, read_record
from capibara_assets.executions.strict_json import MAX_DEPTH, Fault

_ENVELOPE = frozenset(REQUIRED)
_SPACE_BEFORE_COLON = re.compile(rb'"[ \t\r\n]+:')
_LANGUAGES = ("python", "javascript", "typescript", "sql", "bash", "r", "java")  # as `read_record` names them
_OUTPUT_KEYS = frozenset({"results", "logs", "error"})
_SILENT = '{"stdout": [], "stderr": []}'  # four records of ten
_STREAMS = frozenset({"stdout", "stderr"})
_SURELY_EXACT = float(2**53)
_TEXT_OR_NONE = frozenset({str, NoneType})


def read_fast(data: bytes, now: datetime, keys: int) -> Recorded | None:
    """What `read_line` gives for an everyday line with so many `key_ends`; None: let the exact reader decide."""
    try:
        record = orjson.loads(data)
    except ValueError:
        return None
    if type(record) is not dict or not _ENVELOPE.issubset(record):
        return None
    if keys != _count_keys(record) or not _numbers_are_exact(record):
        return None
    found = _simple(record, now)
    if found is None:
        try:
            found = read_record(record, now)
        except Fault:
            return None
    return found


def _simple(record: dict[str, Any], now: datetime) -> Recorded | None:
    """The same from an envelope in which nothing is missing, odd or went wrong; None for any other."""
    sandbox_id, execution_id, timestamp, language, code, execution = [record[name] for name in REQUIRED]
    get = record.get
    task, count, duration, timeout = get("task"), get("execution_count"), get("duration_ms"), get("timeout_s")
    texts = (get("template_id"), get("context_id"), get("agent_id"), get("tenant"), get("licence"), get("source"), task)
    if (
        language not in _LANGUAGES
        or type(sandbox_id) is not str
        or type(execution_id) is not str
        or type(code) is not str
        or not sandbox_id.strip()
        or not execution_id.strip()
        or (not task and get("messages") is not None)
        or not _TEXT_OR_NONE.issuperset(map(type, texts))
        or (duration is not None and not 0 <= duration <= MAX_DURATION_MS)
        or (timeout is not None and not 0 <= timeout <= MAX_DURATION_MS / 1000)
    ):
        return None
    moment, output = _moment(timestamp, now), _output(execution, language)
    if moment is None or output is None:
        return None
    error = None
    if execution.get("error") is not None and (error := _error(execution["error"])) is None:
        return None
    return Recorded(
        execution_id=execution_id,
        sandbox_id=sandbox_id,
        context_id=texts[1] or None,
        agent_id=texts[2] or None,
        tenant=texts[3] or None,
        timestamp=moment,
        template_id=texts[0] or None,
        language=language,
        code=code,
        task=task or None,
        outcome="ok" if error is None else "error",
        stdout=output[0],
        stderr=output[1],
        result_text=output[2],
        error_name=None if error is None else error[0],
        error_value=None if error is None else error[1],
        traceback=None if error is None else error[2],
        execution_count=None if count is None else str(count),
        duration_ms=None if duration is None else float(duration),
        timeout_s=None if timeout is None else float(timeout),
        licence=texts[4] or None,
        source=texts[5] or None,
    )


def _count_keys(value: dict[str, Any]) -> int:
    """Keys of all objects in `value`; -1 where it is nested deeper than a record may be."""
    count, depth = 0, 0
    level: list[Any] = [value]
    while level:
        depth += 1
        children: list[Any] = []
        for each in level:
            if type(each) is dict:
                count += len(each)
                children += [child for child in each.values() if type(child) is dict or type(child) is list]
            else:
                children += [child for child in each if type(child) is dict or type(child) is list]
        level = children
    return count if depth <= MAX_DEPTH else -1


def _moment(value: Any, now: datetime) -> datetime | None:
    if type(value) is not str:
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    if moment.tzinfo is not UTC:
        try:
            moment = moment.astimezone(UTC)
        except OverflowError:
            return None
    return None if moment > now + FUTURE_TOLERANCE else moment


def _numbers_are_exact(record: dict[str, Any]) -> bool:
    """Whether the numbers that are used came through as they were written."""
    count, timestamp = record.get("execution_count"), record.get("timestamp")
    if type(count) not in (int, NoneType) or type(timestamp) is not str:
        return False
    for name in ("duration_ms", "timeout_s"):
        value = record.get(name)
        if value is not None and not (type(value) in (int, float) and abs(value) <= _SURELY_EXACT):
            return False
    return True


def _output(execution: Any, language: str) -> tuple[str, str, str | None] | None:
    """stdout, stderr and text of the results."""
    if type(execution) is not dict or not _OUTPUT_KEYS.issuperset(execution):
        return None
    logs, results = execution.get("logs"), execution.get("results")
    if logs == _SILENT and type(results) is list and not results:
        return "", "", None
    logs = _object(logs)
    if logs is None or not _STREAMS.issuperset(logs) or type(results) is not list:
        return None
    streams = []
    for name in ("stdout", "stderr"):
        chunks = logs.get(name)
        if type(chunks) is not list or any(type(chunk) is not str for chunk in chunks):
            return None
        streams.append(strip_ansi("".join(chunks)) if chunks else "")
    if streams[1] and language in ("javascript", "typescript"):
        return None  # a failed assertion may be among it
    texts = []
    for result in results:
        if type(result) is not dict:
            return None
        text = result.get("text")
        if text is not None and type(text) is not str:
            return None
        if text:
            texts.append(text)
    return streams[0], streams[1], strip_ansi("\n".join(texts)) if texts else None


def _error(value: Any) -> tuple[str, str | None, str | None] | None:
    """Name, value and traceback."""
    error = _object(value)
    if error is None:
        return None
    name, value, trace = error.get("name"), error.get("value"), error.get("traceback")
    if not _TEXT_OR_NONE.issuperset((type(name), type(value), type(trace))):
        return None
    name, value = (None if text is None else strip_ansi(text) for text in (name, value))
    trace = strip_ansi(trace) if trace else None
    return name or "Error", value, readable_traceback(trace) if trace else None


def _object(value: Any) -> dict[str, Any] | None:
    """An object given as such, or as JSON text with keys that occur once."""
    if type(value) is str:
        encoded = value.encode("utf-8")
        try:
            value = orjson.loads(encoded)
        except ValueError:
            return None
        if type(value) is not dict:
            return None
        # as `key_ends` counts, for one short text: without double backslashes each is the escape of what follows
        plain = encoded.replace(b"\\\\", b"") if b"\\\\" in encoded else encoded
        if _SPACE_BEFORE_COLON.search(plain) or plain.count(b'":') - plain.count(b'\\":') != _count_keys(value):
            return None
        return value
    return value if type(value) is dict else None
