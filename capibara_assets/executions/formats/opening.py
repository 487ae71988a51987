"""Opens a file of the logs folder: the one place where it is told by its content what it is, and how it is read."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from capibara_assets.executions.formats.agents.readers import find_reader, may_be_agents
from capibara_assets.executions.formats.agents.runs import LogDocument
from capibara_assets.executions.formats.archives import is_archive
from capibara_assets.executions.formats.detection import FileLayout, as_json_lines, holds_logs, layout
from capibara_assets.executions.formats.event_folders import open_log, size_of
from capibara_assets.executions.formats.lines import LineReader, LogLine, unpacked
from capibara_assets.executions.formats.strict_json import closed_json
from capibara_assets.executions.formats.table_files import is_packed_table, is_table_file
from capibara_assets.executions.formats.text_tables import NOT_READ

MAX_DOCUMENT = 256 << 20  # bytes of a file that is one JSON document or an agent's log, which is read as a whole
SNIFF_LINES = 20
_SNIFF_BYTES = 1 << 20
_LARGE = 64 << 20  # bytes of a file that is looked at whole though nothing at its head speaks of an agent
_FEW = 20  # of so many bytes of text one may be a NUL


def source_lines(reader: LineReader) -> Iterator[LogLine]:
    """The lines of a log; a document is one line, any other file none."""
    form, lines = open_source(reader)
    return iter(()) if form is FileLayout.OTHER else lines


def lines_at(path: Path, wanted: Mapping[int, int]) -> Iterator[LogLine]:
    """Some lines of a log, number -> offset, read once more; a document is line 1. Raises OSError."""
    reader, left = LineReader(path), dict(wanted)
    for line in source_lines(reader):
        if left.pop(line.number, None) is not None:
            yield line
        if not left or (line.ended and not reader.compressed):
            break  # lines of a plain file are read by their offsets
    with open_log(path) as file:
        for number, offset in left.items() if not reader.compressed else ():
            file.seek(offset)
            yield LogLine(number, offset, file.readline().removesuffix(b"\n").removesuffix(b"\r"))


def open_source(reader: LineReader) -> tuple[FileLayout, Iterator[LogLine]]:
    """A file's layout and its lines (a document as one line): the only place where a format is chosen."""
    lines = iter(reader)
    head: list[LogLine] = []
    size = 0
    while len(head) < SNIFF_LINES and size < _SNIFF_BYTES and (line := next(lines, None)) is not None:
        head.append(line)
        size += len(line.data)
    form = _layout(head, reader)
    every = itertools.chain(head, lines)
    begin = b"\n".join(line.data for line in head)
    archive = is_archive(begin)
    marked = may_be_agents(begin)
    no_text = begin.count(0) * _FEW > len(begin)  # fewer NULs are what a crash leaves
    table = is_table_file(begin)
    packed = archive or is_packed_table(begin)
    form = FileLayout.OTHER if packed else form  # what is in it and not compressed looks like a log of its own
    silent = form is FileLayout.OTHER and not marked and not packed
    if silent and (no_text or size_of(reader.path) > _LARGE):
        return form, every  # a table of a gigabyte is not held in memory to find that it is no log
    # what an agent's tools return may look like a line of ours
    if form is FileLayout.OTHER or (marked and find_reader(LogDocument(begin)) is not None):
        whole = _document(every)
        # whether its last line is whole is for the reader to see; what is not is read when it is
        whole = whole._replace(data=whole.data + b"\n" * whole.ended, ended=True)
        if packed and whole.fault is None:
            whole = whole._replace(data=unpacked(reader.path, MAX_DOCUMENT))
        if whole.fault is None and (lines_of_it := as_json_lines(whole.data, table, MAX_DOCUMENT)) is not whole.data:
            whole, table = whole._replace(data=lines_of_it), True
        if archive and (whole.fault or holds_logs(whole.data)):
            return FileLayout.DOCUMENT, iter([whole])
        if find_reader(LogDocument(begin if whole.fault else whole.data)) is None and not (
            table and _is_table_of_logs(whole.data)
        ):
            cut = None if table or whole.fault else closed_json(whole.data)
            if cut is None or (layout([cut]) is FileLayout.OTHER and find_reader(LogDocument(cut)) is None):
                return FileLayout.OTHER, iter(())
            whole = whole._replace(ended=False)  # being written, or what a full disk has left
        return FileLayout.DOCUMENT, iter([whole])
    return form, (iter([_document(every)._replace(ended=False)]) if form is FileLayout.DOCUMENT else every)


def _is_table_of_logs(lines: bytes) -> bool:
    """Whether a table's rows are lines of a log, or it cannot be read."""
    rows = lines.split(b"\n", SNIFF_LINES)[:SNIFF_LINES]
    return lines.startswith(NOT_READ) or (any(rows) and layout(rows) is not FileLayout.OTHER)


def _layout(head: Sequence[LogLine], reader: LineReader) -> FileLayout:
    """The file's layout; one that cannot be decompressed or decoded is a damaged log."""
    if head and head[0].number == 0:
        return layout([head[0].data.replace(b"\0", b"")])
    return layout([line.data for line in head]) if head or reader.bytes_read == 0 or reader.fault else FileLayout.OTHER


def _document(lines: Iterator[LogLine]) -> LogLine:
    """The whole file as one line; a document is pending until it is complete JSON."""
    kept, size, fault, ended = [], 0, None, False
    for line in lines:
        ended = line.ended
        size += len(line.data) + 1
        if size > MAX_DOCUMENT:
            fault = fault or "document_too_large"
        else:
            kept.append(line.data)
    return LogLine(1, 0, b"\n".join(kept), ended, fault)
