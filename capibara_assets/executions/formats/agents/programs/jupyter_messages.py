"""Messages of Jupyter kernels, kept a line each: requests to execute code, and what the kernel sent for each.

`{"header": {"msg_id", "msg_type", "session", "date"}, "parent_header", "content"}`; output names its request in
`parent_header`. Traps: several kernels in one file, whose languages only their `kernel_info_reply` tells; output of one
request between another's; requests to complete or inspect hold code that does not run; a shell's kernel says how a
command ended by an error without a name, whose value is the exit code.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import at, record, text_at, word
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, NotRun, Reader, milliseconds, moment
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.envelope_reader import language_of

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def reads(document: LogDocument) -> bool:
    """Whether code was asked to be executed."""
    return any(_kind(message) == "execute_request" for message in _messages(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The executed code in the order of the requests."""
    if document.value is None:
        yield from document.faults
    calls: dict[str, Call] = {}
    languages: dict[str, str] = {}  # by the session of whoever asked
    for message in _messages(document):
        kind, content = _kind(message), record(message.get("content"))
        key = text_at(message, "parent_header", "msg_id")
        if kind == "kernel_info_reply":
            language = word(at(content, "language_info", "name"))
            languages[text_at(message, "parent_header", "session")] = language or "python"
        elif kind == "execute_request" and text_at(content, "code").strip() and content.get("silent") is not True:
            own = text_at(message, "header", "msg_id")
            session = text_at(message, "header", "session") or document.digest
            started = moment(at(message, "header", "date"))
            calls.setdefault(own, Call(session, "execute", content["code"], own, started))
        elif (call := calls.get(key)) is not None:
            _told(call, kind, content, message)
    for call in calls.values():
        if call.not_run is not None:
            yield NotRun(call.not_run, call.session, call.arguments)
        else:
            yield call.run(language_of(languages.get(call.session, "python")), call.arguments)


def _told(call: Call, kind: str, content: dict[str, Any], message: dict[str, Any]) -> None:
    """Write what a message says of the request that it answers."""
    if kind == "stream":
        text = text_at(content, "text")
        if content.get("name") == "stderr":
            call.stderr += text
        else:
            call.output += text
    elif kind in ("execute_result", "display_data"):
        shown = text_at(content, "data", "text/plain")
        call.output += f"{'' if call.output.endswith(chr(10)) or not call.output else chr(10)}{shown}"
    elif kind == "error":
        trace = content.get("traceback")
        lines = [line for line in trace if isinstance(line, str)] if isinstance(trace, list) else []
        call.stderr += _ANSI.sub("", "\n".join(lines) or text_at(content, "evalue") * bool(content.get("ename")))
    elif kind == "execute_reply":
        call.not_run = "cancelled" if content.get("status") in ("aborted", "abort") else None
        call.success = content.get("status") == "ok"
        value = text_at(content, "evalue")
        if not call.success and not content.get("ename") and value.isdecimal():
            call.exit_code = int(value[:9])
        call.duration_ms = milliseconds(call.started, moment(at(message, "header", "date")))


def _kind(message: dict[str, Any]) -> str:
    return text_at(message, "msg_type") or text_at(message, "header", "msg_type")


def _messages(document: LogDocument) -> list[dict[str, Any]]:
    rows = document.value if isinstance(document.value, list) else document.lines
    return [row for row in rows if isinstance(row, dict) and "header" in row and "content" in row]


READER = Reader("jupyter-messages", (b'"execute_request"',), reads, entries)
