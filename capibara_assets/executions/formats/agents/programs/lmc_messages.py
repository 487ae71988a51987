"""Open Interpreter's messages: `{"role", "type": "message" | "code" | "console", "format", "content"}`, as a JSON list.

Code of the assistant is run by the computer, whose console follows it in one or several messages. Traps: no exit code
and no field for an error: what is raised stands on the console, and of a shell's command nothing tells the end;
`format: active_line` is the number of the line that runs; code without a console behind it may never have run.
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.failures import raised
from capibara_assets.executions.formats.agents.fields import word
from capibara_assets.executions.formats.agents.general.answers import ended_well
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.envelope_reader import language_of

_SHELLS = ("shell", "bash", "sh", "zsh", "cmd")


def reads(document: LogDocument) -> bool:
    """Whether code of the assistant and a console of the computer stand in it."""
    kinds = {(str(message.get("role")), str(message.get("type"))) for message in _messages(document)}
    return {("assistant", "code"), ("computer", "console")} <= kinds


def entries(document: LogDocument) -> Iterator[Entry]:
    """The code in order."""
    if document.value is None:
        yield from document.faults
    calls: list[Call] = []
    task: str | None = None
    for message in _messages(document):
        kind, content = (message.get("role"), message.get("type")), word(message.get("content")) or ""
        if kind == ("user", "message"):
            task = content.strip() or task
        elif kind == ("assistant", "code") and content.strip():
            calls.append(Call(document.digest, word(message.get("format")) or "python", content, task=task))
        elif kind == ("computer", "console") and calls and message.get("format") == "output":
            calls[-1].not_run = None
            calls[-1].output += content
    for call in calls:
        if call.not_run is not None:
            yield NotRun(call.not_run, call.session, call.arguments)
            continue
        language = "bash" if call.name.lower() in _SHELLS else language_of(call.name)
        call.success = False if raised(call.output) else ended_well(call.output, True, language)
        yield call.run(language, call.arguments)


def _messages(document: LogDocument) -> list[dict[str, Any]]:
    rows = document.value if isinstance(document.value, list) else document.lines
    return [row for row in rows if isinstance(row, dict) and "role" in row and "type" in row]


READER = Reader("open-interpreter", (b'"computer"',), reads, entries)
