"""From a file to what it holds: the one place where a file's format is chosen and its lines are read and checked.

Executions go to the spill, by sandbox, and their places to the index, by execution id; faults go to the quarantine,
redacted; everything else is counted.
"""

import hashlib
import itertools
import marshal
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.executions.fast_line import read_fast
from capibara_assets.executions.lines import BLOCK, Chain, Line, LineReader
from capibara_assets.executions.quality import novelty_text
from capibara_assets.executions.readers import Fault, Recorded
from capibara_assets.executions.redact import digest_key, keyed_digest, quarantine_text
from capibara_assets.executions.sources import Counted, Layout, is_whole, layout, read_parts
from capibara_assets.executions.spill import Spill

MAX_DOCUMENT = 256 << 20  # bytes of a file that is one JSON document, which is read as a whole
SNIFF_LINES = 20
_SNIFF_BYTES = 1 << 20
_INDEX_ROWS = 20_000  # held before they are written
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
RECORD_FIELDS = tuple(f.name for f in fields(Recorded) if f.name != "flags")
_TIMESTAMP = RECORD_FIELDS.index("timestamp")
_values = attrgetter(*RECORD_FIELDS)

INDEX = {
    "execution_id": pl.String(),
    "sandbox_id": pl.String(),
    "content": pl.Binary(),  # keyed digest of what the record says, before redaction
    "timestamp": pl.Int64(),  # microseconds
    "code": pl.Binary(),  # keyed digest of its code, for novelty
    "bucket": pl.Int64(),
    "file": pl.Int64(),  # position of its path in the sorted list of all paths
    "line": pl.Int64(),
    "part": pl.Int64(),
    "offset": pl.Int64(),
}

_NO_COPY = pl.lit(None, dtype=pl.Int64)


@dataclass(frozen=True)
class FileTask:
    """A file to read, or the tail of one that grew; `only` names the lines whose executions are wanted again."""

    number: int
    path: str
    name: str
    start: int = 0
    line: int = 1
    chain: str = ""
    only: tuple[tuple[int, int], ...] = ()  # (line, offset)


@dataclass
class FileRead:
    """What was found out about a file; what the next look needs to go on where this one stopped."""

    number: int
    name: str
    kind: str = "other"
    size: int = 0  # bytes read
    modified: tuple[int, ...] = ()
    digest: str = ""
    first: str = ""  # digest of its first block
    chain: str = ""  # digest of its whole blocks
    resume: int = -1  # where the line begins with which the next look starts; -1: from the beginning
    lines: int = 0  # before `resume` (all of them, where it is -1), as the following
    ignored: int = 0
    known: dict[str, int] = field(default_factory=dict)
    last_lines: int = 0  # of the line at `resume`
    last_ignored: int = 0
    pending: int = 0
    forgotten: int = 0  # before `resume`: dropped by a tombstone
    last_forgotten: int = 0
    again: bool = False  # holds a record of the future, which time may make valid


def signature(status: os.stat_result) -> tuple[int, ...]:
    """What changes whenever a file's bytes do: no program can set the time of the last change back."""
    return (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)


def content_digest(blob: bytes, key: bytes) -> bytes:
    """Keyed digest of what a record says, the same whatever its formatting, SDK and file."""
    return hashlib.blake2b(blob, digest_size=16, key=key).digest()


def microseconds(moment: datetime) -> int:
    """Since 1970, exact."""
    return (moment - _EPOCH) // _MICROSECOND


def pack(record: Recorded, moment: int) -> bytes:
    """All that a record says, its flags apart; equal records give equal bytes."""
    values = list(_values(record))
    values[_TIMESTAMP] = moment
    return marshal.dumps(values, 2)


def unpack(blob: bytes, flags: list[str]) -> Recorded:
    values: list[Any] = marshal.loads(blob)
    values[_TIMESTAMP] = _EPOCH + values[_TIMESTAMP] * _MICROSECOND
    values.append(flags)
    return Recorded(*values)


class Intake:
    """Reads files; one per process."""

    def __init__(self, spill: Spill, now: datetime, buckets: int, indexes: int, labelled: bool = True) -> None:
        self.spill, self.now, self.buckets, self.indexes, self.labelled = spill, now, buckets, indexes, labelled
        self._index: list[tuple[Any, ...]] = []  # in the order of INDEX
        self._key = digest_key()

    def read(self, task: FileTask) -> FileRead:
        """Reads a file or its tail. Raises OSError."""
        path = Path(task.path)
        read = FileRead(task.number, task.name, modified=signature(path.stat()))
        reader = LineReader(path, task.start, task.line, Chain(bytes.fromhex(task.chain)))
        counts = _Counts(read)
        lines = self._lines(reader, task, counts)
        last: Line | None = None
        for line in lines:
            if last is not None:
                self._line(last, counts)
            last = line
        self._finish(last, reader, counts)
        read.size, read.digest = reader.bytes_read, reader.digest
        read.first, read.chain = reader.chain.first.hex(), reader.chain.state.hex()
        if read.resume >= 0 and (reader.compressed or reader.fault or read.resume // BLOCK != read.size // BLOCK):
            read.resume = -1
        return read

    def fetch(self, task: FileTask) -> None:
        """The executions of some lines of a file once more (never indexed: they are known). Raises OSError."""
        wanted = dict(task.only)
        reader = LineReader(Path(task.path))
        for line in source_lines(reader):
            if line.number in wanted:
                self._fetch(line.data)
                del wanted[line.number]
            if not reader.compressed and line.ended:
                break  # plain lines are found by their offsets
        with Path(task.path).open("rb") as file:
            for offset in wanted.values() if not reader.compressed else ():
                file.seek(offset)
                self._fetch(file.readline().rstrip(b"\r\n"))

    def close(self) -> None:
        self._write_index()
        self.spill.flush()

    def _fetch(self, data: bytes) -> None:
        for part in read_parts(data, self.now):
            if isinstance(part.found, Recorded):
                blob = pack(part.found, microseconds(part.found.timestamp))
                self._spill(part.found, blob, content_digest(blob, self._key))

    def _lines(self, reader: LineReader, task: FileTask, counts: "_Counts") -> Iterator[Line]:
        """The lines of a log; a document is one line, any other file none."""
        form, lines = (Layout.LINES, iter(reader)) if task.start else open_source(reader)
        if form is Layout.OTHER:
            for _ in lines:  # to the end, for the digest
                pass
            counts.read.ignored = 1
            return iter(())
        counts.read.kind = "executions"
        counts.document = form is Layout.DOCUMENT
        return lines

    def _line(self, line: Line, counts: "_Counts") -> None:
        data = line.data
        counts.lines += 1
        if line.fault is None:
            if (record := read_fast(data, self.now, line.keys)) is not None:
                self._keep(record, line, 0, counts)
                return
            if not data.strip():
                counts.ignored += 1
                return
            for number, part in enumerate(read_parts(data, self.now)):
                found = part.found
                if isinstance(found, Recorded):
                    self._keep(found, line, number, counts)
                elif isinstance(found, Counted):
                    counts.known[found.kind] += found.number
                else:
                    self._quarantine(counts, line.number, line.offset, found, part.data)
        else:
            fault = Fault(line.fault, "longer than any execution or notebook")
            self._quarantine(counts, line.number, line.offset, fault, data)

    def _finish(self, last: Line | None, reader: LineReader, counts: "_Counts") -> None:
        """The last line, which the file's end may have cut off, and what is wrong with the file itself."""
        read = counts.read
        if last is not None and last.ended:
            self._line(last, counts)
            last = None
        counts.store()
        if counts.document or read.kind == "other":
            read.resume = -1
        else:
            read.resume = reader.end if last is None else last.offset
        cut = last is not None and not (last.number != 0 and (last.fault is not None or is_whole(last.data)))
        if last is not None and not cut:
            self._line(last, counts)
        if reader.fault is not None:
            # the torn line belongs to the file's fault
            offset, data = (last.offset, last.data) if last is not None and cut else (0, b"")
            self._quarantine(counts, 0, offset, Fault(reader.fault, reader.detail), data)
        elif last is not None and cut:
            counts.lines += 1
            if reader.closed:
                fault = Fault("truncated_line", "the file ends in the middle of this line")
                self._quarantine(counts, last.number, last.offset, fault, last.data)
            else:
                read.pending = 1
        counts.store_last()

    def _keep(self, record: Recorded, line: Line, part: int, counts: "_Counts") -> None:
        moment = microseconds(record.timestamp)
        blob = pack(record, moment)
        content = content_digest(blob, self._key)
        bucket = self._spill(record, blob, content)
        code = content_digest(novelty_text(record).encode("utf-8"), self._key) if self.labelled else content
        place = (bucket, counts.read.number, line.number, part, line.offset)
        self._index.append((record.execution_id, record.sandbox_id, content, moment, code, *place))
        if len(self._index) >= _INDEX_ROWS:
            self._write_index()

    def _spill(self, record: Recorded, blob: bytes, content: bytes) -> int:
        bucket = bucket_of(record.sandbox_id, self.buckets)
        self.spill.add("records", bucket, (content, record.flags, blob), len(blob) + 64)
        return bucket

    def _quarantine(self, counts: "_Counts", line: int, offset: int, fault: Fault, data: bytes) -> None:
        counts.read.again |= fault.reason == "future_timestamp"
        row = quarantined(counts.read.name, line, offset, fault, data)
        self.spill.add("quarantine", 0, list(row.items()), len(row["text"]) + 200)

    def _write_index(self) -> None:
        if self._index:
            columns = dict(zip(INDEX, zip(*self._index, strict=True), strict=True))
            frame = pl.DataFrame(columns, schema=INDEX).with_columns(gone=False, copy=_NO_COPY)
            for part, rows in partitions(frame, "execution_id", self.indexes):
                self.spill.add_frame("index", part, rows)
            self._index = []


class _Counts:
    """Counts under way."""

    def __init__(self, read: FileRead) -> None:
        self.read, self.document = read, False
        self.lines = self.ignored = 0
        self.known: Counter[str] = Counter()

    def store(self) -> None:
        """What is counted before the last line, which the next look may read again."""
        self.read.lines, self.read.ignored = self.lines, self.read.ignored + self.ignored
        self.read.known = dict(self.known)
        self.lines = self.ignored = 0

    def store_last(self) -> None:
        self.read.last_lines, self.read.last_ignored = self.lines, self.ignored
        self.read.known = dict(self.known) if self.read.resume < 0 else self.read.known


def bucket_of(sandbox_id: str, buckets: int) -> int:
    return zlib.crc32(sandbox_id.encode("utf-8")) % buckets


def partitions(frame: pl.DataFrame, key: str, count: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """`frame` in parts by the hash of a column (of this Polars alone: for what does not outlive a look)."""
    if count == 1:
        yield 0, frame
        return
    marked = frame.with_columns((pl.col(key).hash(seed=0) % count).alias("_part"))
    for (part,), rows in marked.partition_by("_part", as_dict=True, include_key=False).items():
        yield int(part), rows


def quarantined(name: str, line: int, offset: int, fault: Fault, data: bytes) -> dict[str, Any]:
    """A row of the quarantine; the text is redacted before it is cut."""
    digest = keyed_digest(data)
    identity = f"{name}\n{line}\n{fault.reason}\n{fault.detail}\n{digest}".encode("utf-8", "surrogateescape")
    return {
        "quarantine_id": hashlib.sha256(identity).hexdigest()[:32],
        "file": name,
        "line": line,
        "offset": offset,
        "reason": fault.reason,
        "detail": quarantine_text(fault.detail.encode("utf-8", "replace")),
        "text": quarantine_text(data),
        "digest": digest,
    }


def source_lines(reader: LineReader) -> Iterator[Line]:
    """The lines of a log; a document is one line, any other file none."""
    form, lines = open_source(reader)
    return iter(()) if form is Layout.OTHER else lines


def open_source(reader: LineReader) -> tuple[Layout, Iterator[Line]]:
    """A file's layout, and its lines accordingly: here, and only here, a format is chosen."""
    lines = iter(reader)
    head: list[Line] = []
    size = 0
    while len(head) < SNIFF_LINES and size < _SNIFF_BYTES and (line := next(lines, None)) is not None:
        head.append(line)
        size += len(line.data)
    form = _layout(head, reader)
    every = itertools.chain(head, lines)
    return form, (iter([_document(every)]) if form is Layout.DOCUMENT else every)


def _layout(head: Sequence[Line], reader: LineReader) -> Layout:
    """The file's layout; one that cannot be decompressed or decoded is a damaged log."""
    if head and head[0].number == 0:
        return layout([head[0].data.replace(b"\0", b"")])
    return layout([line.data for line in head]) if head or reader.bytes_read == 0 or reader.fault else Layout.OTHER


def _document(lines: Iterator[Line]) -> Line:
    """The whole file as one line, which is pending until it is complete JSON."""
    kept, size, fault = [], 0, None
    for line in lines:
        size += len(line.data) + 1
        if size > MAX_DOCUMENT:
            fault = fault or "document_too_large"
        else:
            kept.append(line.data)
    return Line(1, 0, b"\n".join(kept), ended=False, fault=fault)
