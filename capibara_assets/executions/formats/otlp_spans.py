"""Reads tool-call spans of OTLP/JSON traces into envelopes: agent frameworks trace the code that they run as spans.

The attributes are those of OpenTelemetry's GenAI conventions (`execute_tool` spans), and those of OpenInference,
OpenLLMetry, Logfire and the Vercel AI SDK, which say the same under other names. Spans that are exported an object each
(Phoenix, the SDK) may have their kind beside the attributes. Spans that ran no code are counted.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from capibara_assets.executions.formats.agents.fields import says_not_run
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import asked_of
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.otlp_values import attributes_of
from capibara_assets.executions.formats.strict_json import Fault, json_type

Envelope = dict[str, Any]

#: Attribute names in the order in which they are asked.
_TOOL = ("gen_ai.tool.name", "tool.name", "tool_name", "ai.toolCall.name", "traceloop.entity.name")
_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool_arguments", "ai.toolCall.args", "tool.parameters", "input.value",
              "traceloop.entity.input", "gen_ai.tool.input")  # fmt: skip
_RESULT = ("gen_ai.tool.call.result", "tool_response", "ai.toolCall.result", "output.value", "traceloop.entity.output",
           "gen_ai.tool.output")  # fmt: skip
_SANDBOX = ("e2b.sandbox.id", "e2b.sandbox_id", "daytona.sandbox.id", "sandbox.id", "sandbox_id", "sandboxId")
_SESSION = ("gen_ai.conversation.id", "session.id", "thread.id", "traceloop.association.properties.session_id")
_AGENT = ("gen_ai.agent.id", "gen_ai.agent.name", "agent.name")
_TENANT = ("tenant.id", "tenant")
_CONTEXT = ("e2b.context.id", "code.context.id", "context_id", "contextId", "context.id")

#: Arguments that hold code whatever the tool is called, with its language (None: the tool's name says it).
_CODE = {"code": None, "python_code": "python", "py_code": "python", "javascript_code": "javascript",
         "js_code": "javascript", "source_code": None, "sql": "sql", "sql_query": "sql", "command": "bash",
         "cmd": "bash", "bash_command": "bash", "shell_command": "bash"}  # fmt: skip
#: Those that may as well hold a question or a file: code only where the tool's name speaks of running something.
_PERHAPS_CODE = ("source", "script", "snippet", "input", "query", "statement", "cell", "text", "__arg1")

#: What kind of a span it is, among its attributes or beside them.
_KIND = ("openinference.span.kind", "traceloop.span.kind")
_KIND_BESIDE = ("span_kind", "spanKind", "kind")

_LISTS = ("spans", "data")  # where an object holds spans
_COLUMN = "attributes."
_YEAR_2000 = 946_684_800 * 10**9  # nanoseconds
_RUNS_CODE = re.compile(
    r"code|python|interpreter|jupyter|notebook|repl|execut|run[_-]|javascript|nodejs|sandbox|sql|bash|shell|terminal",
    re.IGNORECASE,
)
_LANGUAGE_IN_NAME = (
    ("typescript", "typescript"), ("javascript", "javascript"), ("js_", "javascript"),
    ("nodejs", "javascript"), ("node_", "javascript"),
    ("sql", "sql"), ("bash", "bash"), ("shell", "bash"), ("terminal", "bash"), ("command", "bash"),
)  # fmt: skip


def is_trace(value: Any) -> bool:
    """Whether a JSON object is an ExportTraceServiceRequest (or a TracesData), `resourceSpans`, or one span or many."""
    if not isinstance(value, dict):
        return False
    return "resourceSpans" in value or "resource_spans" in value or _is_span(value) or bool(_listed(value))


def _listed(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The spans of one trace, or of one page of an answer, whose objects are all spans."""
    for name in _LISTS:
        spans = value.get(name)
        if isinstance(spans, list) and all(isinstance(span, dict) and _is_span(span) for span in spans):
            return spans
    return []


def _is_span(value: dict[str, Any]) -> bool:
    """Whether an object is one span, as OpenTelemetry's SDK prints it, or as a table or an export of spans has it."""
    if "name" in value and "spanId" in value and "startTimeUnixNano" in value:
        return True
    if "name" not in value or not ("start_time" in value or "startTime" in value):
        return False
    nested = value.get("context")
    known = isinstance(nested, dict) and ("span_id" in nested or "spanId" in nested)
    whole = "attributes" in value and ("span_id" in value or "spanId" in value)
    return known or "context.span_id" in value or (whole and any(isinstance(value.get(k), str) for k in _KIND_BESIDE))


def _id_of(row: dict[str, Any], of: str) -> Any:
    """The id of a span or its trace, in the span's context or beside it."""
    nested = row.get("context")
    context = nested if isinstance(nested, dict) else {}
    told = (context.get(f"{of}_id"), context.get(f"{of}Id"), row.get(f"context.{of}_id"), row.get(f"{of}_id"))
    return next((each for each in told if each), row.get(f"{of}Id"))


def _as_otlp(row: dict[str, Any]) -> dict[str, Any]:
    """A span of the SDK or of a table, whose columns are named with dots, with the names of OTLP/JSON."""
    attributes = _json(row.get("attributes"))
    columns = {name[len(_COLUMN) :]: row[name] for name in row if name.startswith(_COLUMN) and row[name] is not None}
    told = status if isinstance(status := row.get("status"), dict) else row
    return {
        "name": row.get("name"),
        "kind": next((row[name] for name in _KIND_BESIDE if isinstance(row.get(name), str)), None),
        "traceId": _id_of(row, "trace"),
        "spanId": _id_of(row, "span"),
        "startTimeUnixNano": _as_nanoseconds(row.get("start_time", row.get("startTime"))),
        "endTimeUnixNano": _as_nanoseconds(row.get("end_time", row.get("endTime"))),
        "attributes": attributes if isinstance(attributes, dict) else columns,
        "events": [_of_event(event) for event in events] if isinstance(events := row.get("events"), list) else [],
        "status": {
            "code": _first(told, ("status_code", "statusCode", "code")),
            "message": _first(told, ("status_message", "statusMessage", "description", "message")),
        },
    }


def _of_event(event: Any) -> Any:
    """An event whose attributes stand beside its name."""
    return event if not isinstance(event, dict) or "attributes" in event else {"attributes": event}


def _as_nanoseconds(value: Any) -> int | None:
    """A time as text, or as Unix seconds, or as thousandths of these and so on, which are told by their size."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        power = next((power for power in (9, 6, 3, 0) if _YEAR_2000 < value * 10**power < 10**19), None)
        return None if power is None else round(value * 10**power)
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if moment is None:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return int(moment.timestamp() * 1_000_000) * 1000


def trace_envelopes(trace: dict[str, Any]) -> Iterator[Envelope | str | Fault]:
    """Yields an envelope for each span that ran code, a kind for each other one, a fault for a damaged one."""
    for own in [trace] if _is_span(trace) else _listed(trace):
        yield _span(own if "startTimeUnixNano" in own else _as_otlp(own), {})
    for resource in _objects(trace, "resourceSpans", "resource_spans"):
        if isinstance(resource, Fault):
            yield resource
            continue
        shared = attributes_of(resource.get("resource") or {})
        for scope in _objects(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            if isinstance(scope, Fault):
                yield scope
                continue
            for span in _objects(scope, "spans"):
                yield span if isinstance(span, Fault) else _span(span, shared)


def _objects(holder: dict[str, Any], *names: str) -> Iterator[dict[str, Any] | Fault]:
    for name in names:
        items = holder.get(name)
        if items is None:
            continue
        if not isinstance(items, list):
            yield Fault(f"type:{name}", f"expected a list, found {json_type(items)}", items)
            continue
        for item in items:
            yield (
                item
                if isinstance(item, dict)
                else Fault(f"type:{name}", f"expected objects, found {json_type(item)}", item)
            )


def _span(span: dict[str, Any], resource: Mapping[str, Any]) -> Envelope | str | Fault:
    own = attributes_of(span)
    tool = str(_first(own, _TOOL) or _name_of_tool(span) or (_is_tool(own, span) and span.get("name")) or "")
    # a tool's parameters are what it was given, or how such tools are called
    each = (_json(own[name]) for name in _ARGUMENTS if own.get(name) not in (None, ""))
    arguments, program = next(((given, ran) for given in each if (ran := _code(tool, given))), (None, None))
    if not _is_tool_call(own, span) or program is None:
        return "span"
    result = _json(_first(own, _RESULT))
    if isinstance(result, dict) and says_not_run(result):
        return "refused_span"
    code, language = program
    trace_id, span_id = span.get("traceId", span.get("trace_id")), span.get("spanId", span.get("span_id"))
    if not isinstance(trace_id, str) or not isinstance(span_id, str) or not trace_id or not span_id:
        return Fault("missing:spanId", "a span that ran code, without traceId and spanId", span)
    start, end = (_nanoseconds(span, name) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    if start is None:
        return Fault("missing:startTimeUnixNano", f"span {span_id[:64]} says no start", span)
    given = arguments if isinstance(arguments, dict) else {}
    scope = {**resource, **own}
    session = _first(scope, _SANDBOX) or _first(given, _SANDBOX) or _first(scope, _SESSION) or trace_id
    return {
        "sandbox_id": str(session),
        "execution_id": f"{trace_id}-{span_id}",
        "timestamp": (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=start // 1000)).isoformat(),
        "language": language,
        "code": code,
        "execution": _execution(result, _failure(own, span), language),
        "duration_ms": None if end is None or end < start else (end - start) / 1e6,
        "context_id": _optional_text(_first(own, _CONTEXT) or _first(given, _CONTEXT)),
        "agent_id": _optional_text(_first(scope, _AGENT)),
        "tenant": _optional_text(_first(scope, _TENANT)),
    }


# --- is it a tool call, and which code did it run? ------------------------------------------------------------------


def _is_tool_call(attributes: Mapping[str, Any], span: dict[str, Any]) -> bool:
    return (
        attributes.get("gen_ai.operation.name") == "execute_tool"
        or "gen_ai.tool.call.arguments" in attributes
        or _is_tool(attributes, span)
        or "ai.toolCall.args" in attributes
        or "tool_arguments" in attributes
        or bool(_name_of_tool(span))
    )


def _is_tool(attributes: Mapping[str, Any], span: dict[str, Any]) -> bool:
    """Whether its kind says that a span is a tool's."""
    beside = str(_first(span, _KIND_BESIDE)).upper().removeprefix("SPAN_KIND_")
    return beside == "TOOL" or any(str(attributes.get(name)).upper() == "TOOL" for name in _KIND)


def _name_of_tool(span: dict[str, Any]) -> str:
    """The tool in a span's name, `execute_tool <tool>` by the conventions."""
    name = span.get("name")
    return name.removeprefix("execute_tool ") if isinstance(name, str) and name.startswith("execute_tool ") else ""


def _code(tool: str, arguments: Any) -> tuple[str, str] | None:
    """Code and language, None where the call ran no code."""
    runs_code = bool(_RUNS_CODE.search(tool))
    if isinstance(arguments, str):
        return (arguments, _language(tool, None)) if runs_code and arguments.strip() else None
    if not isinstance(arguments, dict):
        return None
    nested = next((v for k in ("arguments", "args", "input", "kwargs") if isinstance(v := arguments.get(k), dict)), {})
    for values in (arguments, nested):
        stated = values.get("language", values.get("lang"))
        for name, language in _CODE.items():
            if isinstance(code := values.get(name), str) and code.strip():
                return code, _language(tool, stated or language)
        for name in _PERHAPS_CODE if runs_code else ():
            if isinstance(code := values.get(name), str) and code.strip():
                return code, _language(tool, stated)
    asked = asked_of(tool, arguments)
    return (asked.text, asked.language) if asked is not None and asked.path is None else None


def _language(tool: str, stated: Any) -> str:
    if isinstance(stated, str) and stated.strip():
        return stated
    lowered = tool.lower()
    return next((language for mark, language in _LANGUAGE_IN_NAME if mark in lowered), "python")


# --- its result -----------------------------------------------------------------------------------------------------


def _execution(result: Any, failure: dict[str, Any] | None, language: str) -> dict[str, Any]:
    """The tool's result in the SDK's shape: unchanged where it has that shape, else as its text.

    A span of a shell's tool ends well whatever its command did; words around the output may have the exit code.
    """
    if isinstance(result, dict):
        if "exit_code" in result or "exitCode" in result:
            return result
        if "logs" in result or "results" in result:
            return result | {"error": result.get("error") or failure}
        if "stdout" in result or "stderr" in result:
            logs = {name: _chunks(result.get(name)) for name in ("stdout", "stderr")}
            shown = _first(result, ("result", "text", "output"))
            return {"results": _shown(shown), "logs": logs, "error": _error(result.get("error")) or failure}
    if language == "bash" and isinstance(result, str):
        call = Call("", "", None)
        write_answer(call, read_answer(result), runs_shell=True)
        if call.exit_code is not None:
            return {"stdout": call.output, "stderr": call.stderr, "exit_code": call.exit_code}
    return {"results": _shown(result), "logs": {"stdout": [], "stderr": []}, "error": failure}


def _shown(value: Any) -> list[dict[str, Any]]:
    if value is None or value == "":
        return []
    return [{"text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}]


def _chunks(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(chunk) for chunk in value]
    return [] if value is None else [str(value)]


def _error(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return {key: value.get(key) for key in ("name", "value", "traceback")}
    return {"name": "Error", "value": str(value), "traceback": None} if value else None


def _failure(attributes: Mapping[str, Any], span: dict[str, Any]) -> dict[str, Any] | None:
    """The span's exception event, `error.type` or error status; a tool that returned its error has none of them."""
    events = span.get("events")
    for event in events if isinstance(events, list) else ():
        said = attributes_of(event) if isinstance(event, dict) else {}
        if "exception.type" in said or "exception.message" in said:
            names = {"name": "exception.type", "value": "exception.message", "traceback": "exception.stacktrace"}
            return {ours: _optional_text(said.get(theirs)) for ours, theirs in names.items()}
    status = span.get("status")
    status = status if isinstance(status, dict) else {}
    failed = status.get("code") in (2, "2", "STATUS_CODE_ERROR", "ERROR")
    name = _optional_text(attributes.get("error.type"))
    if not failed and name is None:
        return None
    return {"name": name or "Error", "value": _optional_text(status.get("message")), "traceback": None}


# --- OTLP values ----------------------------------------------------------------------------------------------------


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) not in (None, "")), None)


def _json(value: Any) -> Any:
    """The parsed value of text that is a JSON object or list; any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _optional_text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _nanoseconds(span: dict[str, Any], name: str) -> int | None:
    value = span.get(name, span.get(re.sub(r"([A-Z])", lambda m: "_" + m.group().lower(), name)))
    if isinstance(value, str) and re.fullmatch(r"\d{1,20}", value):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**20 else None
