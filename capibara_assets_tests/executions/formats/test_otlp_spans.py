"""OTLP traces: tool calls that ran code are executions, all other spans are counted."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.detection import CountedEntry, FileLayout, layout, read_parts
from capibara_assets.executions.formats.envelope_reader import Fault, Recorded
from capibara_assets_tests.executions.conftest import NOW

START = 1791201600_000_000_000  # 2026-10-05T12:00:00Z


def any_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [any_value(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": attributes(value)}}
    return {"stringValue": value}


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def span(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "execute_tool run_python",
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + 1_500_000_000),
        "attributes": attributes(values),
        "status": {},
    } | changes


def trace(*spans: Any, **resource: Any) -> dict[str, Any]:
    holder = {"attributes": attributes(resource)}
    return {"resourceSpans": [{"resource": holder, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}]}


def parts(document: Any, indent: int | None = None) -> list[Any]:
    return [part.content for part in read_parts(json.dumps(document, indent=indent).encode(), NOW)]


def one(values: dict[str, Any], **changes: Any) -> Recorded:
    (record,) = parts(trace(span(values, **changes)))
    assert isinstance(record, Recorded), record
    return record


def call(arguments: Any, result: Any = None, tool: str = "run_python", **more: Any) -> dict[str, Any]:
    values = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.call.arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
    }
    if result is not None:
        values["gen_ai.tool.call.result"] = result if isinstance(result, str) else json.dumps(result)
    return values | more


def test_a_tool_call_that_ran_code_is_an_execution() -> None:
    record = one(
        call({"code": "print(1)"}, "1\n", **{"gen_ai.conversation.id": "conv_5j66", "gen_ai.agent.name": "ada"})
    )
    assert (record.code, record.language, record.outcome, record.result_text) == ("print(1)", "python", "ok", "1\n")
    assert (record.sandbox_id, record.agent_id) == ("conv_5j66", "ada")
    assert record.execution_id == "5b8efff798038103d269b633813fc60c-eee19b7ec3c1b174"
    assert (record.timestamp, record.duration_ms) == (datetime(2026, 10, 5, 12, tzinfo=UTC), 1500)


def test_arguments_may_be_a_structure_and_so_may_the_result() -> None:
    values = call({}) | {
        "gen_ai.tool.call.arguments": {"code": "1 + 1", "timeout": 3, "envs": [1]},
        "gen_ai.tool.call.result": {"stdout": "a", "stderr": "w", "result": "2"},
    }
    record = one(values)
    assert (record.code, record.stdout, record.stderr, record.result_text) == ("1 + 1", "a", "w", "2")


def test_results_in_the_sdks_shapes_are_read_as_such() -> None:
    error = {"name": "ValueError", "value": "no", "traceback": "Traceback"}
    logs = {"stdout": ["a", "b"], "stderr": []}
    for result in (
        {"results": [{"text": "7"}], "logs": logs, "error": error},
        {"results": [{"text": "7"}], "logs": json.dumps(logs), "error": json.dumps(error)},
    ):
        record = one(call({"code": "f()"}, result))
        assert (record.outcome, record.error_name, record.stdout, record.result_text) == (
            "error",
            "ValueError",
            "ab",
            "7",
        )
    record = one(call({"command": "ls"}, {"stdout": "x\n", "stderr": "", "exit_code": 1}, tool="terminal"))
    assert (record.language, record.outcome, record.stdout) == ("bash", "error", "x\n")


@pytest.mark.parametrize(
    ("tool", "arguments", "language", "code"),
    [
        ("run_code", {"code": "x", "language": "javascript"}, "javascript", "x"),
        ("execute_javascript", {"code": "x"}, "javascript", "x"),
        ("query_database", {"sql": "SELECT 1"}, "sql", "SELECT 1"),
        ("run_sql", {"query": "SELECT 1"}, "sql", "SELECT 1"),
        ("bash", {"cmd": "ls"}, "bash", "ls"),
        ("python_repl", "x = 1", "python", "x = 1"),
        ("python", {"input": "x = 1"}, "python", "x = 1"),
        ("e2b_sandbox", {"arguments": {"code": "x"}}, "python", "x"),
    ],
)
def test_code_and_language_come_from_tool_and_arguments(tool: str, arguments: Any, language: str, code: str) -> None:
    record = one(call(arguments, tool=tool), name=f"execute_tool {tool}")
    assert (record.code, record.language) == (code, language)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("chat gpt", {"gen_ai.operation.name": "chat"}),
        ("execute_tool web_search", call({"query": "how to run python"}, "…", tool="web_search")),
        ("execute_tool get_weather", call({"city": "Paris"}, "12 C", tool="get_weather")),
        ("execute_tool run_python", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "run_python"}),
        ("GET /", {"http.request.method": "GET"}),
        ("SELECT", {"db.query.text": "SELECT 1", "code": "x"}),
    ],
)
def test_other_spans_are_counted(name: str, values: dict[str, Any]) -> None:
    assert parts(trace(span(values, name=name))) == [CountedEntry("span")]


@pytest.mark.parametrize(
    "values",
    [
        {"openinference.span.kind": "TOOL", "tool.name": "run_python", "input.value": '{"code": "x"}',
         "output.value": "7"},
        {"traceloop.span.kind": "tool", "traceloop.entity.name": "run_python",
         "traceloop.entity.input": '{"code": "x"}', "traceloop.entity.output": "7"},
        {"gen_ai.tool.name": "run_python", "tool_arguments": '{"code": "x"}', "tool_response": "7"},
        {"ai.toolCall.name": "run_python", "ai.toolCall.args": '{"code": "x"}', "ai.toolCall.result": "7"},
    ],
)  # fmt: skip
def test_the_names_of_other_instrumentations(values: dict[str, Any]) -> None:
    record = one(values, name="tool")
    assert (record.code, record.result_text) == ("x", "7")


def exported(**changes: Any) -> dict[str, Any]:
    """A span as Phoenix exports it."""
    return {
        "id": "U3Bhbjox", "name": "bash", "span_kind": "TOOL", "context": {"trace_id": "t1", "span_id": "s1"},
        "start_time": "2026-10-05T12:00:00+00:00", "end_time": "2026-10-05T12:00:02+00:00", "status_code": "OK",
        "attributes": {
            "input.value": '{"summary": "look", "command": "ls x"}', "session.id": "c1",
            "output.value": '{"stdout": "", "stderr": "no x", "exit_code": 2}',
        },
        "events": [],
    } | changes  # fmt: skip


NESTED = {"openinference": {"span": {"kind": "TOOL"}}, "tool": {"name": "bash"}, "session": {"id": "c1"},
          "input": {"value": '{"command": "ls x"}'}, "output": {"value": '{"stdout": "", "exit_code": 2}'}}  # fmt: skip
CAMEL = {"context": {"traceId": "t1", "spanId": "s1"}, "startTime": 1791201600000, "endTime": 1791201602000}


@pytest.mark.parametrize(
    "row",
    [
        exported(),
        exported(span_kind=None, kind="SPAN_KIND_TOOL"),
        exported(span_kind=None, attributes=NESTED),
        exported(span_kind=None, attributes=json.dumps(NESTED)),
        {**{k: v for k, v in exported().items() if "_" not in k}, **CAMEL, "spanKind": "tool"},
        {**exported(context=None), "trace_id": "t1", "span_id": "s1", "start_time": START // 1000,
         "end_time": START / 1e9 + 2},
    ],
)  # fmt: skip
def test_exported_spans_have_their_kind_beside_the_attributes(row: dict[str, Any]) -> None:
    (record,) = parts([row])
    assert isinstance(record, Recorded), record
    assert (record.code, record.language, record.outcome) == ("ls x", "bash", "error")
    assert (record.sandbox_id, record.execution_id) == ("c1", "t1-s1")
    assert (record.timestamp, record.duration_ms) == (datetime(2026, 10, 5, 12, tzinfo=UTC), 2000)
    assert parts([exported(span_kind="LLM", name="model")]) == [CountedEntry("span")]


@pytest.mark.parametrize("held", ["line", "spans", "data"])
def test_spans_stand_alone_or_in_a_list(held: str) -> None:
    spans = [span(call({"code": "x"})), span({}, name="chat", spanId="a1"), exported()]
    documents: list[Any] = spans if held == "line" else [{held: spans, "next_cursor": None}]
    assert layout([json.dumps(documents[0]).encode()]) is FileLayout.LINES
    found = [part for document in documents for part in parts(document)]
    assert [getattr(one, "code", "-") for one in found] == ["x", "-", "ls x"]
    assert layout([json.dumps({"data": [*spans, {"name": "other"}]}).encode()]) is FileLayout.OTHER


def test_the_sandbox_outranks_the_conversation_and_the_trace() -> None:
    named = {"gen_ai.conversation.id": "conv", "e2b.sandbox.id": "i0"}
    assert one(call({"code": "x"}, **named)).sandbox_id == "i0"
    assert one(call({"code": "x", "sandbox_id": "i1"})).sandbox_id == "i1"
    assert one(call({"code": "x"})).sandbox_id == "5b8efff798038103d269b633813fc60c"
    (record,) = parts(trace(span(call({"code": "x"})), **{"sandbox.id": "i2", "tenant.id": "acme"}))
    assert (record.sandbox_id, record.tenant) == ("i2", "acme")


def test_failures_come_from_the_event_the_status_or_the_error_type() -> None:
    event = {
        "name": "exception",
        "attributes": attributes(
            {"exception.type": "ValueError", "exception.message": "no", "exception.stacktrace": "Traceback"}
        ),
    }
    record = one(call({"code": "x"}), events=[event], status={"code": 2})
    assert (record.outcome, record.error_name, record.error_value, record.traceback) == (
        "error",
        "ValueError",
        "no",
        "Traceback",
    )
    for status in ({"code": 2, "message": "no"}, {"code": "STATUS_CODE_ERROR", "message": "no"}):
        record = one(call({"code": "x"}), status=status)
        assert (record.outcome, record.error_name, record.error_value) == ("error", "Error", "no")
    assert one(call({"code": "x"}, **{"error.type": "TimeoutError"})).error_name == "TimeoutError"
    assert one(call({"code": "x"}), status={"code": 1}).outcome == "ok"


def test_numbers_may_be_text_or_not_and_traces_pretty_printed() -> None:
    document = trace(
        span(call({"code": "x"}), startTimeUnixNano=START), span(call({"code": "y"}), spanId="a1"), span({}, name="s")
    )
    first, second, third = parts(document, indent=2)
    assert (first.timestamp, first.duration_ms) == (second.timestamp, 1500)
    assert third == CountedEntry("span")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (trace(span(call({"code": "x"}), spanId="")), "missing:spanId"),
        (trace(span(call({"code": "x"}), startTimeUnixNano="soon")), "missing:startTimeUnixNano"),
        (trace(span(call({"code": "x"}), startTimeUnixNano=str(START * 2))), "future_timestamp"),
        (trace("span"), "type:spans"),
        ({"resourceSpans": 3}, "type:resourceSpans"),
        ({"resourceSpans": [{"scopeSpans": [3]}]}, "type:scopeSpans"),
    ],
)
def test_damaged_spans_are_named(document: Any, reason: str) -> None:
    (fault,) = parts(document)
    assert isinstance(fault, Fault)
    assert fault.reason == reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([*span({}), "events", "traceState"]), JSON)
def test_any_value_in_any_field_of_a_span_leaves_the_other_span(field: str, value: Any) -> None:
    odd = span(call({"code": "odd"}), spanId="b2") | {field: value}
    items = parts(trace(odd, span(call({"code": "x"}))))
    assert isinstance(items[-1], Recorded)
    assert len(items) == 2


@given(st.sampled_from(sorted(call({}, "r"))), JSON, st.sampled_from(["stringValue", "intValue", "arrayValue", "x"]))
def test_any_value_of_any_attribute_is_read_counted_or_refused(name: str, value: Any, kind: str) -> None:
    odd = span(call({"code": "x"}, "r"))
    odd["attributes"].append({"key": name, "value": {kind: value}})
    (item,) = parts(trace(odd))
    assert isinstance(item, Recorded | CountedEntry | Fault)
