"""What `gemini --output-format stream-json` prints, kept as a file: events of a session, a line each.

`init` (session, model), `message`, `tool_use` (`tool_name`, `tool_id`, `parameters`), `tool_result` (`tool_id`,
`status`, `output`), `result`. Traps: `status: success` says that the tool returned; the output is what was shown to the
user, which tells of a command's end only where the tool's own report stands in it, or where nothing was printed: then
a failure is said in words, and an empty output is a command that ended well. Else nothing is known of it. Other
programs took the shape over, with other names of tools.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.edit_texts import replacement
from capibara_assets.executions.formats.agents.fields import record, text_at, word
from capibara_assets.executions.formats.agents.runs import Edit, Entry, LogDocument, NotRun, Reader, moment, texts
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.shell_reports import Report, gemini_report, refused
from capibara_assets.executions.formats.strict_json import Fault

_SHELLS = ("run_shell_command", "ShellTool", "Shell")
_EDITS = ("write_file", "replace", "edit", "smart_edit")
_NOT_RUN = ("POLICY_VIOLATION", "EXECUTION_DENIED", "INVALID_TOOL_PARAMS", "TOOL_NOT_REGISTERED")
_STATUS = ("success", "error")
_FAILED = re.compile(r"Command (?:exited with code: (-?\d{1,9})|terminated by signal: \S+|failed: [^\n]+)\s*\Z")


def reads(document: LogDocument) -> bool:
    """Whether a line is a call of a tool, or the beginning, of such a stream."""
    return any(
        (line.get("type") == "tool_use" and word(line.get("tool_name")) and word(line.get("tool_id")))
        or (line.get("type") == "init" and word(line.get("session_id")) and word(line.get("model")))
        for line in document.lines
    )


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands and edits in the order of their calls."""
    yield from document.faults
    session, model, task = document.digest, None, None
    calls: dict[tuple[str, str], Call] = {}
    for line in document.lines:
        kind = line.get("type")
        if kind == "init":
            session, model = word(line.get("session_id")) or session, word(line.get("model"))
        elif kind == "message" and line.get("role") == "user":
            task = texts(line.get("content")).strip() or task
        elif kind == "tool_use" and line.get("tool_name") in (*_SHELLS, *_EDITS):
            key = session, str(line.get("tool_id"))
            call = calls.setdefault(key, Call(session, line["tool_name"], line.get("parameters"), key[1]))
            call.started, call.task, call.model = moment(line.get("timestamp")), task, model
        elif kind == "tool_result" and (asked := calls.get((session, str(line.get("tool_id"))))):
            _answer(asked, line)
    yield from map(_entry, calls.values())


def _answer(call: Call, line: dict[str, Any]) -> None:
    text = texts(line.get("output")) or text_at(line, "error", "message")
    report, failed = _report(line, text), line.get("status") == "error"
    if line.get("status") not in _STATUS:
        return
    denied = text_at(line, "error", "type").upper() in _NOT_RUN or refused(text)
    call.not_run = "refused" if denied or (failed and not report.stated) else None
    call.success = report.success if call.name in _SHELLS else not failed
    call.output, call.stderr, call.exit_code = report.output, report.stderr, report.exit_code


def _report(line: dict[str, Any], text: str) -> Report:
    """What is said of a command that printed nothing, else what the tool's report says."""
    if (said := _FAILED.match(text)) is not None:
        return Report("", int(said[1]) if said[1] else None, success=False, stated=True)
    if line.get("output") == "" and line.get("status") == "success":
        return Report("", success=True, stated=True)
    return gemini_report(text)


def _entry(call: Call) -> Entry:
    asked = record(call.arguments)
    if call.name in _EDITS:
        path = next((asked[name] for name in ("file_path", "path") if word(asked.get(name))), "")
        new = next((asked[name] for name in ("content", "new_string") if word(asked.get(name))), "")
        text = replacement(asked) or new
        return Edit(call.session, path, text) if call.not_run is None else NotRun("edit_failed", call.session)
    code = word(asked.get("command"))
    if call.not_run is not None:
        return NotRun(call.not_run, call.session, code)
    return call.run("bash", code) if code else Fault("no_code", f"a call of {call.name} without a command", asked)


READER = Reader("gemini-stream", (b'"tool_name"', b'"init"'), reads, entries)
