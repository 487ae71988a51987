"""One line at a time: both SDKs' shapes, exact numbers, and a reason for whatever does not fit."""

import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.envelope_reader import Fault, Recorded, parse_object, read_line, strip_ansi
from capibara_assets_tests.executions.conftest import NOW, envelope, executed, line, recorded


def fault(record: Any) -> str:
    with pytest.raises(Fault) as caught:
        read_line(record if isinstance(record, bytes) else line(record), NOW)
    return caught.value.reason


def test_python_and_javascript_sdk_shapes_read_the_same() -> None:
    error = {"name": "ValueError", "value": "no", "traceback": "Traceback"}
    logs = {"stdout": ["a", "b\n"], "stderr": ["c"]}
    results = [{"text": "1"}, {"png": "iVBOR", "text": None}, {"text": "2"}]
    python = envelope(execution={"results": results, "logs": json.dumps(logs), "error": json.dumps(error)})
    javascript = envelope(execution={"results": results, "logs": logs, "error": error})
    text = envelope(execution=json.dumps(python["execution"]))
    read = [read_line(line(record), NOW) for record in (python, javascript, text)]
    assert read[0] == read[1] == read[2]
    assert (read[0].stdout, read[0].stderr, read[0].result_text) == ("ab\n", "c", "1\n2")
    assert (read[0].outcome, read[0].error_name, read[0].error_value) == ("error", "ValueError", "no")


def test_the_javascript_sdk_leaves_error_out() -> None:
    assert recorded(execution={"results": [], "logs": {"stdout": [], "stderr": []}}).outcome == "ok"


def test_a_failed_console_assert_is_no_success() -> None:
    read = recorded(
        "console.assert(f(1) === 2, 'two')", language="javascript", execution=executed(stderr="Assertion failed: two\n")
    )
    assert (read.outcome, read.error_name, read.error_value) == ("error", "AssertionError", "two")
    assert recorded("print(1)", execution=executed(stderr="Assertion failed: two\n")).outcome == "ok"


def test_a_timeout_has_no_execution() -> None:
    exception = {"name": "TimeoutException", "message": "context deadline exceeded"}
    read = recorded("while True: pass", execution=None, exception=exception)
    assert (read.outcome, read.error_name, read.error_value) == (
        "timeout",
        "TimeoutException",
        "context deadline exceeded",
    )
    assert recorded(execution=None, exception={"name": "SandboxException", "message": "gone"}).outcome == "error"
    assert fault(envelope(execution=None)) == "type:execution"


def test_task_comes_from_the_recorder_or_the_last_user_message() -> None:
    messages = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "sum the column"}, {"type": "image"}]},
        {"role": "assistant", "content": "y"},
    ]
    assert recorded(messages=messages).task == "sum the column"
    assert recorded(messages=messages, task="told").task == "told"
    assert recorded().task is None
    assert fault(envelope(messages="hello")) == "type:messages"


def test_the_recorders_fields_are_kept() -> None:
    read = recorded(context_id="c", agent_id="a", tenant="t", licence="MIT", source="fleet")
    assert (read.context_id, read.agent_id, read.tenant, read.licence, read.source) == ("c", "a", "t", "MIT", "fleet")
    assert fault(envelope(tenant=3)) == "type:tenant"


@given(st.integers(min_value=-(10**300), max_value=10**300))
def test_counters_of_any_size_are_exact(number: int) -> None:
    assert recorded(execution_count=number).execution_count == str(number)


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_not_finite_numbers_mean_unknown(token: str) -> None:
    data = line(envelope()).replace(b'"duration_ms": 5.7', f'"duration_ms": {token}'.encode())
    read = read_line(data, NOW)
    assert read.duration_ms is None
    assert read.flags == ["not_finite:duration_ms"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sandbox_id": 42}, "type:sandbox_id"),
        ({"sandbox_id": " "}, "value:sandbox_id"),
        ({"code": ["print(1)"]}, "type:code"),
        ({"language": None}, "type:language"),
        ({"language": " "}, "value:language"),
        ({"duration_ms": "12 ms"}, "type:duration_ms"),
        ({"duration_ms": True}, "type:duration_ms"),
        ({"duration_ms": -5}, "value:duration_ms"),
        ({"duration_ms": 1e308}, "value:duration_ms"),
        ({"execution_count": 1.5}, "type:execution_count"),
        ({"execution_count": True}, "type:execution_count"),
        ({"timestamp": ""}, "value:timestamp"),
        ({"timestamp": [1]}, "type:timestamp"),
        ({"timestamp": 10**30}, "value:timestamp"),
        ({"execution": "not json"}, "type:execution"),
        ({"execution": [1]}, "type:execution"),
        ({"execution": {"results": {}, "logs": "{}"}}, "type:execution"),
        ({"execution": {"results": [], "logs": "{oops"}}, "type:execution"),
        ({"execution": {"results": [], "logs": {"stdout": [1]}}}, "type:execution"),
        ({"execution": {"results": [{"text": 1}], "logs": "{}"}}, "type:execution"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], reason: str) -> None:
    assert fault(envelope(**change)) == reason


def test_duplicate_keys_are_refused_at_any_depth() -> None:
    assert fault(b'{"code": "a", "code": "b"}') == "duplicate_key:code"
    record = envelope(execution={"results": [], "logs": '{"stdout": [], "stdout": ["x"]}', "error": None})
    assert fault(record) == "duplicate_key:stdout"


@pytest.mark.parametrize("depth", [300, 5_000, 200_000])
def test_deep_nesting_is_refused_without_a_crash(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    assert fault(line(envelope())[:-1] + b', "x": ' + nested + b"}") == "invalid_record"


def test_absurd_integers_are_refused() -> None:
    assert fault(line(envelope())[:-1] + b', "x": ' + b"9" * 100_000 + b"}") == "invalid_record"


@pytest.mark.parametrize(
    ("written", "expected", "flags"),
    [
        ("2026-10-05T12:00:00Z", datetime(2026, 10, 5, 12, tzinfo=UTC), []),
        ("2026-10-05T12:00:00+14:00", datetime(2026, 10, 4, 22, tzinfo=UTC), []),
        ("2026-10-05T12:00:00", datetime(2026, 10, 5, 12, tzinfo=UTC), ["naive_timestamp"]),
        (1760000000, datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC), ["numeric_timestamp"]),
        (1760000000_000, datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC), ["numeric_timestamp"]),
        (1760000000_000_000_000, datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC), ["numeric_timestamp"]),
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC), []),
    ],
)
def test_timestamps(written: str | int, expected: datetime, flags: list[str]) -> None:
    read = recorded(timestamp=written)
    assert (read.timestamp, read.flags) == (expected, flags)


def test_a_record_from_the_future_is_refused_beyond_a_day() -> None:
    assert recorded(timestamp=(NOW + timedelta(hours=23)).isoformat()).timestamp > NOW
    assert fault(envelope(timestamp=(NOW + timedelta(hours=25)).isoformat())) == "future_timestamp"


@pytest.mark.parametrize(
    ("written", "name"), [("PYTHON ", "python"), ("py", "python"), ("nodejs", "javascript"), ("Zig", "zig")]
)
def test_languages_are_normalised(written: str, name: str) -> None:
    assert recorded(language=written).language == name


def test_lone_surrogates_become_tables_can_hold_them() -> None:
    read = read_line(line(envelope()).replace(b"print(1)", b"x = '\\ud800'"), NOW)
    assert read.code == "x = '\ufffd'"
    assert read.flags == ["lone_surrogate"]


def test_tracebacks_lose_their_colours_and_get_their_first_line_ends_back() -> None:
    raw = (
        "\x1b[31m"
        + "-" * 75
        + "\x1b[39m\x1b[31mZeroDivisionError\x1b[39m   Traceback (most recent call last)"
        + "Cell \x1b[32mIn[1]\x1b[39m, line 1"
    )
    read = recorded(execution=executed(error=("ZeroDivisionError", "division by zero", raw)))
    assert read.traceback == "-" * 75 + "\nZeroDivisionError   Traceback (most recent call last)\nCell In[1], line 1"


@given(st.text().filter(lambda text: "\x1b" not in text))
def test_colours_are_stripped_and_nothing_else(text: str) -> None:
    assert strip_ansi(f"\x1b[1;31m{text}\x1b[0m") == text


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(Fault):
        read_line(data, NOW)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([*sorted(envelope()), "task", "messages", "exception"]), JSON)
def test_any_value_in_any_field_is_read_or_refused(name: str, value: Any) -> None:
    try:
        assert isinstance(read_line(line(envelope(**{name: value})), NOW), Recorded)
    except Fault as refused:
        assert refused.reason.split(":")[0] in ("type", "value", "future_timestamp", "duplicate_key", "invalid_record")


@given(JSON)
def test_objects_are_parsed_as_the_standard_library_does(value: Any) -> None:
    text = json.dumps({"value": value})
    assert repr(parse_object(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a": "x', "Unterminated string starting at character 6"),
        (b'{"a": "x\ny"}', "Invalid control character at character 8"),
        (b'{"a": "\\q"}', "Invalid \\escape at character"),
        (b'{"a": "\\u12"}', "Invalid \\uXXXX escape at character"),
        (b'{"a" 1}', "Expecting ':' delimiter at character 5"),
        (b"{} x", "Extra data at character 2"),
    ],
)
def test_where_a_line_is_no_json_is_said_once(text: bytes, said: str) -> None:
    with pytest.raises(Fault) as caught:
        parse_object(text)
    assert f"is no JSON: {said}" in caught.value.detail and " at at " not in caught.value.detail, caught.value.detail
