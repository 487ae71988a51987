"""Log records of OpenTelemetry in which agents tell what their tools did: OTLP's `resourceLogs`, or the SDK's records.

One event has a call with its answer: `tool_result` of Claude Code (`tool_parameters`, or `tool_input`; `success` as
text), `codex.tool_result` (`arguments`, `output`), `gemini_cli.tool_call` and Qwen Code's (`function_name`,
`function_args`). Traps: `bash_command` is the first word of `full_command`; what a command printed may be left out; a
call that the user refused has an event of its own (`tool_decision`), and of Gemini's a `decision`; Gemini's tool
succeeds whatever its command's exit code.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from capibara_assets.executions.formats.agents.fields import number, objects, record, word
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, first_moment
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.shell_reports import refused
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed
from capibara_assets.executions.formats.otlp_values import attributes_of

_RECORDS = ("resourceLogs", "resource_logs", "scopeLogs", "scope_logs", "logRecords", "log_records")
_NAMES = ("tool_name", "function_name", "tool.name", "gen_ai.tool.name")
_GIVEN = ("tool_parameters", "tool_input", "arguments", "function_args", "gen_ai.tool.call.arguments")
_SESSIONS = ("session.id", "conversation.id", "gen_ai.conversation.id", "session_id")
_IDS = ("tool_use_id", "call_id", "gen_ai.tool.call.id")
_TIMES = ("timeUnixNano", "time_unix_nano", "observedTimeUnixNano")
_MODELS = ("model", "gen_ai.request.model")
_OUTPUTS = ("output", "tool_output", "function_output")
_REFUSED = {"reject", "rejected", "denied", "deny", "refused"}
_TELLS_OF_COMMANDS = ("claude_code.", "tool_", "codex.")  # events whose `success` is the command's
_EXIT = re.compile(r"(?:Shell command failed with )?[Ee]xit code:? (\d{1,3})\b")


def reads(document: LogDocument) -> bool:
    """Whether an event tells of a call that ran code or edited a file."""
    return any(_asked(told) is not None for _, told in _calls(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs and edits in the order of their events."""
    if document.value is None:
        yield from document.faults
    for started, told in _calls(document):
        if (asked := _asked(told)) is not None:
            call = Call(
                _text(told, _SESSIONS) or document.digest, _text(told, _NAMES) or "", None, _text(told, _IDS), started,
                model=_text(told, _MODELS),
            )  # fmt: skip
            _answered(call, asked, told)
            yield entry_of(call, asked)


def _calls(document: LogDocument) -> Iterator[tuple[datetime | None, dict[str, Any]]]:
    """The attributes of the events of calls, each with its time."""
    for row in document.rows:
        for one, shared in _records(record(row), {}):
            told = {**shared, **attributes_of(one)}
            event = str(told.get("event.name") or "")
            if event.endswith(("tool_result", "tool_call")) and _text(told, _NAMES):
                yield _time(one, told), told


def _records(value: dict[str, Any], shared: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The log records in a request, each with its resource's attributes; a record by itself."""
    inner = [part for key in _RECORDS for part in objects(value.get(key))]
    if not inner and "attributes" in value:
        yield value, shared
    for part in inner:
        yield from _records(part, {**shared, **attributes_of(record(part.get("resource")))})


def _asked(told: dict[str, Any]) -> Asked | None:
    given = parsed(next((told[key] for key in _GIVEN if told.get(key)), None))
    if isinstance(given, dict) and word(given.get("full_command")):
        given = {**given, "command": given["full_command"]}
    return asked_of(_text(told, _NAMES), given)


def _answered(call: Call, asked: Asked, told: dict[str, Any]) -> None:
    """Write how a call ended."""
    succeeded = {"true": True, "false": False}.get(str(told.get("success")).lower())
    output = _text(told, _OUTPUTS) or ""
    if str(told.get("decision")).lower() in _REFUSED or (succeeded is False and refused(output)):
        call.not_run = "refused"
        return
    error = _text(told, ("error", "error.message"))
    exited = _EXIT.match(error) if error else None
    answer = read_answer({"output": output, "exit_code": int(exited[1]) if exited else None})
    answer.failed = None if succeeded is None else not succeeded
    if error and not exited:
        answer.said.append(error)
    trusts = str(told.get("event.name")).startswith(_TELLS_OF_COMMANDS)
    write_answer(call, answer, asked.path is None, trusts, asked.language)
    call.duration_ms = number(told.get("duration_ms")) or _number(told.get("duration_ms"))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, str) and re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", value) else None


def _text(told: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((told[name] for name in names if word(told.get(name))), None)


def _time(one: dict[str, Any], told: dict[str, Any]) -> datetime | None:
    """When an event was: as it says itself, else as its record does, in nanoseconds."""
    own = first_moment(told.get(name) for name in ("event.timestamp", "timestamp"))
    stamps = (str(one.get(name)) for name in _TIMES)
    nanoseconds = next((int(stamp) for stamp in stamps if re.fullmatch(r"\d{16,19}", stamp)), None)
    if nanoseconds is not None:  # an event of a batch may say the batch's time
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    return own


READER = Reader("otlp-logs", (b'"event.name"',), reads, entries)
