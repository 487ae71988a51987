"""Detects a log file's format by its content, and reads what each line (or the whole document) holds.

A log is either JSON lines (each a value of its own: envelopes, events, trace exports) or one JSON document over many
lines (a notebook, a trace, an answer of E2B's API). `read_parts` reads both. Nothing here opens a file.
"""

import codecs
import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any

from capibara_assets.executions.formats.agents.failures import raised
from capibara_assets.executions.formats.agents.pipes import cell_hides_exit_code, runs_commands
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.recorded import agent_records, error_of
from capibara_assets.executions.formats.agents.runs import LogDocument, NotRun
from capibara_assets.executions.formats.archives import MOST, is_archive, members
from capibara_assets.executions.formats.envelope_reader import REQUIRED, Recorded, read_record
from capibara_assets.executions.formats.notebooks import is_notebook, notebook_envelopes
from capibara_assets.executions.formats.otlp_spans import is_trace, trace_envelopes
from capibara_assets.executions.formats.strict_json import (
    Fault,
    parse_object,
    parse_value,
    parse_values,
    written_values,
)
from capibara_assets.executions.formats.table_files import is_table_file, table_lines
from capibara_assets.executions.formats.text_tables import may_be_yaml, value_lines
from capibara_assets.executions.schema import HIDDEN_EXIT


class FileLayout(StrEnum):
    """How a file is read."""

    LINES = "lines"
    DOCUMENT = "document"
    OTHER = "other"  # not an execution log


@dataclass(frozen=True, slots=True)
class CountedEntry:
    """Entries of a known kind that are no execution: they are only counted."""

    kind: str
    number: int = 1


@dataclass(frozen=True, slots=True)
class LogPart:
    """One entry of a line or document, and its bytes, which the quarantine keeps when the entry is a fault."""

    content: Recorded | Fault | CountedEntry
    data: bytes


_ENVELOPE = ((b'"sandbox_id"', b'"execution_id"'), (b'"code"', b'"execution"'))
_NOTEBOOK = (b'"cell_type"', b'"nbformat"')  # which stands at the end
_MARKS = (
    (b'"resourceSpans"', b'"resource_spans"'),  # OTLP
    (b'"span_id"', b'"context.span_id"', b'"spanKind"', b'"startTimeUnixNano"'),
    _NOTEBOOK,
    (b'"sandbox.lifecycle.',),
    (b'"logEntries"', b'"logs"'),
)
_LOG_FIELDS = ({"timestamp", "message", "level"}, {"timestamp", "line"})
_HEAD, _SHOWN = 1 << 20, 20  # bytes and lines of an archive's member that tell its layout
_JSON_IN_TEXT = (b'"{', b'"[')  # of a value that was encoded twice
_OPENERS = b"{[,:"
_GOES_ON = (b",", b"]")  # how a line begins that goes on with a list behind a whole item


def layout(head: Sequence[bytes]) -> FileLayout:
    """The layout of a file whose first lines are `head`; an empty file is an empty log."""
    lines = [stripped for line in head if (stripped := line.strip())]
    if not lines:
        return FileLayout.LINES
    text = b"\n".join(lines)
    opens = _only_opens(lines[0]) and (lines[0] == b"[" or not any(_is_ours(line) for line in lines))
    if opens or _goes_on(lines):
        return (
            FileLayout.DOCUMENT
            if _is_envelope(text) or any(_has(text, marks) for marks in _MARKS)
            else FileLayout.OTHER
        )
    return FileLayout.LINES if any(_is_envelope(line) or _is_ours(line) for line in lines) else FileLayout.OTHER


def is_whole(data: bytes) -> bool:
    """Whether a last line without its end is complete: JSON that ends in an object or a list cannot grow."""
    try:
        values = parse_values(data)
        return bool(values) and isinstance(values[-1], dict | list)
    except Fault as fault:
        return fault.reason not in ("invalid_json", "invalid_utf8") or bool(written_values(data))


def read_parts(data: bytes, now: datetime) -> Iterator[LogPart]:
    """Yields the entries of a line or of a whole document. A fault is an entry as well; nothing is raised.

    The faults of several parts of one document are told apart by their details, which number the parts.
    """
    if is_archive(data) and find_reader(LogDocument(data)) is None:
        yield from _of_archive(data, now)
        return
    one = b"\n" not in data and not data.lstrip().startswith(b"[")
    usual, agents = one and _is_envelope(data), False
    if not usual and (found := _agent_parts(data, now)) is not None:
        yield from found
        agents = True
        if not _has(data, _NOTEBOOK):
            return  # beside an agent's dialogue a notebook has cells of its own
    try:
        values = [parse_object(data)] if one else parse_values(data)
    except Fault as damage:
        if not agents:
            yield from _without_damage(damage, data, now)
        return
    if agents and not (len(values) == 1 and is_notebook(values[0])):
        return  # an agent that edits notebooks
    kind = _kind(values[0]) if one else None
    if usual and kind is None and (found := _agent_parts(data, now)) is not None:
        yield from found  # what its tools returned looks like a line of ours
        return
    if one and kind in ("envelope", None):
        yield _of_envelope(values[0], now, data)
        return
    yield from _numbered(part for value in values for part in _parts(value, now))


def _without_damage(damage: Fault, data: bytes, now: datetime) -> Iterator[LogPart]:
    """The entries of a document of several values of which one at least is damaged; of any other the damage."""
    values = [(_value_or_fault(written), written) for written in written_values(data)]
    if len(values) < 2 or all(_kind(value) is None for value, _ in values):
        yield LogPart(damage, data)
        return
    yield from _numbered(
        part
        for value, written in values
        for part in ([LogPart(value, written)] if isinstance(value, Fault) else _parts(value, now))
    )


def _value_or_fault(data: bytes) -> Any:
    try:
        return parse_value(data)
    except Fault as fault:
        return fault


def holds_logs(archive: bytes) -> bool:
    """Whether a member of an archive is a log, or cannot be read."""
    return any(isinstance(member, Fault) or any(_texts(member[1])) for member in members(archive))


def _of_archive(data: bytes, now: datetime) -> Iterator[LogPart]:
    """The entries of an archive's members, whose faults name them."""
    for member in members(data):
        if isinstance(member, Fault):
            yield LogPart(member, _bytes(member.value))
            continue
        texts = _texts(member[1])
        for number, text in enumerate(texts, 1):
            where = member[0] if len(texts) == 1 else f"{member[0]} line {number}"
            for part in read_parts(text, now) if text.strip() else ():
                if isinstance(fault := part.content, Fault):
                    yield LogPart(Fault(fault.reason, f"{where}: {fault.detail}"), part.data)
                else:
                    yield part


def _texts(data: bytes) -> list[bytes]:
    """What an archive's member is read as: one document, or lines; nothing where it is no log, or an archive."""
    data = as_json_lines(data, is_table_file(data[:_HEAD]), MOST)
    found = find_reader(document := LogDocument(data))
    if found is not None:
        return [data + b"\n" * document.unfinished]  # nobody will end its last line
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    form = FileLayout.OTHER if is_archive(data) or not data.strip() else layout(lines[:_SHOWN])
    return [] if form is FileLayout.OTHER else [data] if form is FileLayout.DOCUMENT else lines


def as_json_lines(data: bytes, table: bool, most: int) -> bytes:
    """A table's rows, at most so many bytes, or the values of YAML that is no log as it stands, as JSON lines.

    JSON within a JSON string is what the string says. Other content is unchanged.
    """
    if table:
        return table_lines(data, most)
    if data.startswith(_JSON_IN_TEXT):
        with contextlib.suppress(ValueError, RecursionError):
            return str(json.loads(data)).encode("utf-8", "replace")
    if may_be_yaml(data) and find_reader(LogDocument(data)) is None:
        return value_lines(data) or data
    return data


def _numbered(parts: Iterable[LogPart]) -> Iterator[LogPart]:
    for number, part in enumerate(parts, 1):
        if isinstance(fault := part.content, Fault):
            yield LogPart(Fault(fault.reason, f"part {number}: {fault.detail}"), part.data)
        else:
            yield part


def _agent_parts(data: bytes, now: datetime) -> Iterator[LogPart] | None:
    """The entries of an agent's log; None where it is none."""
    found = agent_records(LogDocument(data), now)
    return None if found is None else _numbered(map(_of_agent, found))


def _of_agent(found: Recorded | NotRun | Fault) -> LogPart:
    if isinstance(found, NotRun):
        return _counted(f"agent_call:{found.kind}")
    if isinstance(found, Fault):
        return LogPart(found, _bytes(found.value))
    return LogPart(found, _bytes([found.sandbox_id, found.code, found.stdout, found.stderr]))


# --- the marks of formats -------------------------------------------------------------------------------------------


def _has(text: bytes, marks: Sequence[bytes]) -> bool:
    return any(mark in text for mark in marks)


def _is_envelope(text: bytes) -> bool:
    return all(_has(text, marks) for marks in _ENVELOPE)


def _only_opens(first: bytes) -> bool:
    """Whether a first line only opens a value; a line of JSON lines that was cut off holds more than its opening."""
    return first[:1] in (b"{", b"[") and first[-1:] in _OPENERS and not _is_envelope(first)


def _goes_on(lines: Sequence[bytes]) -> bool:
    """Whether a first line begins a list of which it holds whole items, and the lines below it go on with it.

    Below a line that was cut off behind an item, lines of JSON do not: each is whole, and no comma stands between them.
    """
    first, following = lines[0], [*lines[1:], b""]
    if first[:1] != b"[" or not (first[-1:] == b"," or following[0][:1] in _GOES_ON):
        return False
    if any(more[:1] not in _GOES_ON and _is_ours(line) for line, more in pairwise(following[: _SHOWN - 1])):
        return False
    try:
        return bool(parse_value(first.removesuffix(b",") + b"]"))
    except Fault:
        return False


def _is_ours(line: bytes) -> bool:
    """Whether a line by itself is an entry that is read or counted here."""
    if not (_is_envelope(line) or any(_has(line, marks) for marks in (*_MARKS, (b'"level"', b'"line"')))):
        return False
    try:
        value = parse_value(line)
    except Fault:
        return False
    return any(_kind(item) is not None for item in (value if isinstance(value, list) else [value]))


# --- the kind of a value --------------------------------------------------------------------------------------------


def _kind(value: Any) -> str | None:
    """`envelope`, `notebook`, `trace`, `answer` (of the API), or the kind under which it is counted; None: unknown."""
    if not isinstance(value, dict):
        return None
    if ("sandbox_id" in value or "execution_id" in value) and ("code" in value or "execution" in value):
        return "envelope"
    if is_notebook(value):
        return "notebook"
    if is_trace(value):
        return "trace"
    if isinstance(kind := value.get("type"), str) and kind.startswith("sandbox.lifecycle."):
        return kind[:64]
    if isinstance(value.get("logs"), list) or isinstance(value.get("logEntries"), list):
        return "answer"
    return "sandbox_log_entry" if any(fields <= value.keys() for fields in _LOG_FIELDS) else None


def _parts(value: Any, now: datetime) -> Iterator[LogPart]:
    kind = _kind(value)
    if isinstance(value, list) and any(_kind(item) is not None for item in value):
        for item in value:
            yield from _parts(item, now)
    elif kind == "notebook":
        yield from _of_notebook(value, now)
    elif kind == "trace":
        for span in trace_envelopes(value):
            yield _counted(span) if isinstance(span, str) else _of_envelope(span, now)
    elif kind == "answer":
        entries = value.get("logEntries") or value.get("logs") or []
        yield LogPart(CountedEntry("sandbox_log_entry", len(entries)), b"")
    elif kind is None or kind == "envelope":
        # what is unknown fails the envelope's checks, which say what is missing
        yield _of_envelope(value, now)
    else:
        yield _counted(kind)


def _of_notebook(notebook: dict[str, Any], now: datetime) -> Iterator[LogPart]:
    try:
        for cell in notebook_envelopes(notebook):
            if isinstance(cell, str):
                yield _counted(cell)
            elif isinstance(cell, Fault):
                yield _of_envelope(cell, now)
            else:
                envelope, flags = cell
                yield _with_hidden_end(_of_envelope(envelope, now, marks=flags))
    except Fault as fault:
        yield LogPart(fault, _bytes(notebook))


def _with_hidden_end(part: LogPart) -> LogPart:
    """A cell that ended well, or did not, or of which nobody knows.

    Commands raise nothing in a cell: what they printed tells their failure, and a pipe in them hides how they ended.
    """
    found = part.content
    if not isinstance(found, Recorded) or found.outcome != "ok":
        return part
    printed = "\n".join(text for text in (found.stdout, found.stderr, found.result_text) if text)
    if runs_commands(found.code) and raised(printed):
        name, value, traceback = error_of(printed, "bash", None)
        told = replace(found, outcome="error", error_name=name, error_value=value, traceback=traceback)
        return replace(part, content=told)
    if not cell_hides_exit_code(found.code):
        return part
    return replace(part, content=replace(found, outcome="unknown", flags=sorted({*found.flags, HIDDEN_EXIT})))


def _counted(kind: str) -> LogPart:
    return LogPart(CountedEntry(kind), b"")


def _of_envelope(envelope: Any, now: datetime, data: bytes | None = None, marks: Sequence[str] = ()) -> LogPart:
    """The execution in an envelope, or the fault that its check or its reader found.

    Args:
        envelope: an envelope, or the fault of the reader that should have made it.
        data: the envelope's line, where it has one of its own.
        marks: flags of the reader that made the envelope.
    """
    if isinstance(envelope, Fault):
        return LogPart(envelope, _bytes(envelope.value))
    held = _bytes(envelope) if data is None else data
    try:
        if not isinstance(envelope, dict):
            raise Fault("not_an_object", f"expected a JSON object with {', '.join(REQUIRED)}")
        return LogPart(read_record(envelope, now, marks), held)
    except Fault as fault:
        return LogPart(fault, held)


def _bytes(value: Any) -> bytes:
    """A value as JSON bytes; lone surrogates stay escaped."""
    return json.dumps(value).encode("ascii")
