"""Sessions exported as Markdown, whichever program wrote them: a line names the tool, blocks hold what went in and out.

The line is a heading or a label (`**Tool: bash**`, `### `bash``, `**Tool Use:** `Bash``, `Tool use: **Bash**`). Below
stand arguments (a block of JSON or of a shell's code, `**command**: ..`, `$ ls`, or `ls` in quotes) and the output: a
block, also below `Output:`, or behind `Tool Response:` up to a rule or heading. Other forms of the line are in
`markdown_heads`, and which output is of which call in `markdown_pairs`. A command of Codex that went on has its end in
the output of a later `write_stdin`. Some exports write each message as JSON with ids instead: these are read by
`linked_calls`. A page that was made of such an export is read as the Markdown that it was.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.general import linked_calls
from capibara_assets.executions.formats.agents.general.answers import read_answer, states_failures, write_answer
from capibara_assets.executions.formats.agents.general.markdown_export import Begun, Export, Said
from capibara_assets.executions.formats.agents.general.markdown_pairs import Called
from capibara_assets.executions.formats.agents.general.repeated import length_once
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.page_markdown import FOLDED, page_markdown
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, Reader
from capibara_assets.executions.formats.agents.tools import codex_calls
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.strict_json import Fault

_SESSION = re.compile(
    r"(?:(?:session|thread|conversation)[ _]?id\W{1,8}|\*\*Session:\*\* `|<!-- [\w ]{1,40} session )([\w-]{8,64})",
    re.IGNORECASE,
)
_HEAD = 3000  # characters in which a session is named
_ENOUGH = 2  # calls that stand as JSON behind `Input:`, where no session is named


def reads(document: LogDocument) -> bool:
    """Whether a call that runs code or edits a file has its answer, or the export shows no answers at all."""
    document = _export(document)
    if document.value is not None or document.lines:
        return False
    messages = _messages(document)
    if messages is not None and linked_calls.reads(messages):
        return True
    return any(isinstance(entry, AgentRun | Edit) for entry in _calls(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs and edits, in order."""
    document = _export(document)
    messages = _messages(document)
    if messages is not None and linked_calls.reads(messages):
        yield from linked_calls.entries(messages)
    else:
        yield from _calls(document)


def _export(document: LogDocument) -> LogDocument:
    markdown = page_markdown(document.text)
    return document if markdown is None else LogDocument(markdown.encode())


def _session(document: LogDocument) -> str | None:
    named = _SESSION.search(document.text[:_HEAD])
    return named[1] if named else None


def _messages(document: LogDocument) -> LogDocument | None:
    """The messages that stand in a text as JSON, each from the begin of a line on; None where none names a call."""
    if b'"tool_use_id"' not in document.data and b'"tool_call_id"' not in document.data:
        return None
    text, found = document.text, list[Any]()
    decoder, end = json.JSONDecoder(strict=False), 0
    for begin in re.finditer(r"^(?=[\[{]\s*$)", text, re.MULTILINE):
        if begin.start() < end:
            continue
        try:
            value, end = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            continue
        found.append(value)
    session = _session(document)
    rows = [{"session_id": session}, *found] if session else found
    return LogDocument(json.dumps(rows).encode("ascii")) if found else None


def _calls(document: LogDocument) -> list[Entry]:
    """What became of the calls, in order."""
    named = _session(document)
    parts = Export(document.text, named is not None).parts()
    if named is None and sum(isinstance(part, Called) and part.head.form == "input" for part in parts) < _ENOUGH:
        parts = [part for part in parts if not (isinstance(part, Called) and part.head.form == "input")]
    if not any(isinstance(part, Begun) for part in parts):
        told = [(at, part.as_told) for at, part in enumerate(parts) if isinstance(part, Called)]
        once = length_once([key for _, key in told])
        parts = parts[: told[once][0]] if once < len(told) else parts
    session, task = named or document.digest, None
    made: list[tuple[Call, Asked] | Fault] = []
    going_on: dict[str, Call] = {}
    for part in parts:
        if isinstance(part, Begun):
            session, task, going_on = part.session, None, {}
        elif isinstance(part, Said):
            task = "\n".join(part.lines).strip().removesuffix("\n---").rstrip() or task
        elif part.cut is not None:
            if (cut := asked_of(part.name, {"command": part.cut, "query": part.cut})) is not None and cut.path is None:
                made.append(Fault("cut_input", f"the export cuts what a call of {part.name} was given", part.cut))
        elif part.name in codex_calls.POLLS:
            _go_on(going_on.get(str(part.given.get(codex_calls.POLLS[part.name]))), part)
        elif part.given and (asked := asked_of(part.name, part.given)) is not None:
            call = Call(session, part.name, None, task=task)
            made.append((call, asked))
            _write(call, asked, part)
            on = codex_calls.answer_of(part.output).goes_on if part.name in codex_calls.COMMANDS else None
            if on is not None:
                going_on[on], call.duration_ms = call, None
    return [one if isinstance(one, Fault) else entry_of(*one) for one in made]


def _write(call: Call, asked: Asked, called: Called) -> None:
    """Write what a call's output says into it."""
    if called.unpaired:
        call.not_run = None
    elif called.output is not None:
        told = {"content": called.output} | ({} if called.failed is None else {"is_error": called.failed})
        answer, shell = read_answer(told), asked.path is None and asked.language == "bash"
        answer.returned = answer.returned or not (shell or answer.failed)
        write_answer(call, answer, shell, trusts_success=states_failures(call, told), language=asked.language)


def _go_on(started: Call | None, poll: Called) -> None:
    """Add what a poll of a command that goes on shows, and its end."""
    answer = codex_calls.answer_of(poll.output) if isinstance(poll.output, str) else None
    if started is None or answer is None or started.success is not None or answer.duration_ms is None:
        return
    started.output += answer.output
    started.exit_code, started.success = answer.exit_code, answer.success


_MARKS = (b"```", FOLDED.encode(), b'"tool_use_id"', b'"tool_call_id"', b"tool: ", b"Tool: ")
READER = Reader("markdown-calls", _MARKS, reads, entries)
