"""Traces of Amazon Bedrock's agents, an event a line or in a list: `orchestrationTrace` with inputs and observations.

`invocationInput` has code (`codeInterpreterInvocationInput`) or a function of an action group, whose arguments are a
list of `{"name", "value"}`; `observation` of the same `traceId` has its result. Traps: the model's raw output asks
for each call once more, under the tool's name with its group; an action group is anybody's code, so that an error may
stand in its text alone; searches of a knowledge base run nothing.
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import at, objects, of_json, record, text_at, word
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, moment
from capibara_assets.executions.formats.agents.tools.calls import Call


def reads(document: LogDocument) -> bool:
    """Whether a trace has an input of a tool."""
    return any("invocationInput" in trace for _, trace in _traces(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The code, commands and edits in the order of their inputs."""
    if document.value is None:
        yield from document.faults
    found: dict[str, tuple[Call, Asked]] = {}
    for number, (event, trace) in enumerate(_traces(document)):
        given, observed = record(trace.get("invocationInput")), record(trace.get("observation"))
        if (asked := _asked(given)) is not None:
            key = word(given.get("traceId")) or f"#{number}"
            session = word(event.get("sessionId")) or document.digest
            call = Call(session, asked.language, asked.text, key, moment(event.get("eventTime")))
            found.setdefault(key, (call, asked))
        elif (known := found.get(text_at(observed, "traceId"))) is not None:
            _answered(*known, observed)
    for call, asked in found.values():
        yield entry_of(call, asked)


def _traces(document: LogDocument) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each event with what its agent did, whatever kind of trace it is."""
    for row in document.rows:
        outer = record(record(row).get("trace"))
        held = record(outer.get("trace")) or outer
        for kind in ("orchestrationTrace", "routingClassifierTrace"):
            if isinstance(held.get(kind), dict):
                yield record(row) | outer, held[kind]


def _asked(given: dict[str, Any]) -> Asked | None:
    code = word(at(given, "codeInterpreterInvocationInput", "code"))
    if code is not None:
        return Asked("python", code)
    action = record(given.get("actionGroupInvocationInput"))
    arguments = {str(one.get("name")): one.get("value") for one in objects(action.get("parameters"))}
    body = at(action, "requestBody", "content")
    for parts in body.values() if isinstance(body, dict) else ():
        arguments |= {str(one.get("name")): one.get("value") for one in objects(parts)}
    name = action.get("function") or text_at(action, "apiPath").rsplit("/", 1)[-1]
    return asked_of(name, arguments) if name else None


def _answered(call: Call, asked: Asked, observed: dict[str, Any]) -> None:
    ran = record(observed.get("codeInterpreterInvocationOutput"))
    said = at(observed, "actionGroupInvocationOutput", "text")
    if ran:
        error = text_at(ran, "executionError")
        answer = read_answer({"stdout": text_at(ran, "executionOutput"), "stderr": error})
        answer.failed = bool(error) or ran.get("executionTimeout") is True
        answer.timed_out = ran.get("executionTimeout") is True
    elif isinstance(said, str):
        answer = read_answer(_structured(said))
    else:
        return
    write_answer(call, answer, asked.path is None, language=asked.language)


def _structured(said: str) -> Any:
    """A function's answer that is an object which says how a command ended, as one; any other as its text."""
    told = of_json(said)
    if not isinstance(told, dict):
        return said
    if word(told.get("error")):
        return {"output": said, "error": told["error"]}
    return told if "ResponseCode" in told or "exit_code" in told or "exitCode" in told else said


READER = Reader("bedrock-agent-trace", (b'"orchestrationTrace"', b'"routingClassifierTrace"'), reads, entries)
