"""Reads log files: the one place where their lines are read and checked.

Executions go to the spill, by sandbox, and their positions to the index, by execution id; faults go to the quarantine,
redacted; everything else is counted.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from capibara_assets.executions.formats.detection import CountedEntry, FileLayout, is_whole, read_parts
from capibara_assets.executions.formats.envelope_reader import Fault, Recorded, read_quickly
from capibara_assets.executions.formats.event_folders import signature
from capibara_assets.executions.formats.lines import BLOCK, Chain, LineReader, LogLine
from capibara_assets.executions.formats.opening import lines_at, open_source
from capibara_assets.executions.ingest.spill import Spill
from capibara_assets.executions.quality import novelty_text
from capibara_assets.executions.schema import Quarantined
from capibara_assets.executions.secrets.redact import digest_key, keyed_digest, quarantine_text, redact_name
from capibara_assets.storage.records import polars_schema

_CHUNK_ROWS, _CHUNK = 512, 1 << 20  # executions and bytes of them that become a frame at once
_HELD = 24 << 20  # bytes of executions that wait in memory for others of their partition
_ROW = 200  # bytes of a row beside what it says
_REASON, _DETAIL = 200, 1000  # characters of a reason, and of what is wrong: both may quote the line
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
RECORD_FIELDS = tuple(f.name for f in fields(Recorded) if f.name != "flags")
_SANDBOX_ID, _LANGUAGE, _CODE, _OUTCOME = map(RECORD_FIELDS.index, ("sandbox_id", "language", "code", "outcome"))
# Begin the digest of a record, so that of two under one id that whose outcome is known comes first: a log tells how a
# command in the background ended when it did.
SURE, UNSURE = b"\0", b"\1"
_NUMBERS = {"timestamp": pl.Int64(), "duration_ms": pl.Float64(), "timeout_s": pl.Float64()}
_values: Callable[[Recorded], tuple[Any, ...]] = attrgetter(*RECORD_FIELDS)

# an execution on its way to its sandbox; timestamp in microseconds, flags joined by line feeds
SPILLED: dict[str, pl.DataType] = {
    "content": pl.Binary(),
    "flags": pl.String(),
    "record_digest": pl.String(),
    **{name: _NUMBERS.get(name, pl.String()) for name in RECORD_FIELDS},
}

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

_PLACE = ("bucket", "file", "line", "part", "offset")
# columns of what was read: `same_code` becomes the index's `code`
_READ = SPILLED | {"same_code": INDEX["code"]} | {name: INDEX[name] for name in _PLACE}
_NO_COPY = pl.lit(None, dtype=pl.Int64)


@dataclass(frozen=True)
class FileTask:
    """A file to read whole, the tail of one that grew, or (`only`) single lines of one to read once more."""

    number: int
    path: str
    name: str
    start: int = 0
    line: int = 1
    chain: str = ""
    only: tuple[tuple[int, int], ...] = ()  # (line, offset)


@dataclass
class FileRead:
    """State of a file after it was read: counts, and what the next ingest run needs to continue from there."""

    number: int
    name: str
    kind: str = "other"
    size: int = 0  # bytes read
    modified: tuple[int, ...] = ()
    digest: str = ""
    first: str = ""  # digest of its first block
    chain: str = ""  # digest of its whole blocks
    resume: int = -1  # offset of the line with which the next run starts; -1: read all again
    lines: int = 0  # before `resume` (all of them, where it is -1), as the following
    ignored: int = 0
    known: dict[str, int] = field(default_factory=dict)
    last_lines: int = 0  # of the line at `resume`
    last_ignored: int = 0
    pending: int = 0
    forgotten: int = 0  # before `resume`: kept out by a tombstone
    last_forgotten: int = 0
    again: bool = False  # holds a record of the future, which time may make valid


def record_digest(record: Recorded) -> str:
    """SHA-256 (hex) of a record's values without its flags: independent of formatting, SDK and file."""
    return hashlib.sha256(orjson.dumps(_values(record))).hexdigest()


def keyed(data: bytes, key: bytes) -> bytes:
    """A keyed BLAKE2b digest of 16 bytes, for values that stay in the ledger."""
    return hashlib.blake2b(data, digest_size=16, key=key).digest()


def microseconds(moment: datetime) -> int:
    """Exact microseconds since 1970 UTC."""
    return (moment - _EPOCH) // _MICROSECOND


class Intake:
    """Reads log files into a spill; one per process.

    Args:
        gone: whether a tenant was forgotten; its records are only counted.
    """

    def __init__(
        self,
        spill: Spill,
        now: datetime,
        buckets: int,
        indexes: int,
        labelled: bool = True,
        gone: Callable[[str | None], bool] = lambda _: False,
    ) -> None:
        self.spill, self.now, self.buckets, self.indexes, self.labelled = spill, now, buckets, indexes, labelled
        self._gone = gone
        self._rows: list[tuple[Any, ...]] = []  # in the order of _READ
        self._row_bytes = self._held = 0
        self._chunks: list[pl.DataFrame] = []
        self._faults: list[dict[str, Any]] = []
        self._fault_bytes = 0
        self._key = digest_key()

    def read(self, task: FileTask) -> FileRead:
        """Reads a file or its tail and returns its state. Raises OSError."""
        path = Path(task.path)
        read = FileRead(task.number, task.name, modified=signature(path, path.stat()))
        reader = LineReader(path, task.start, task.line, Chain(bytes.fromhex(task.chain)))
        form, lines = (FileLayout.LINES, iter(reader)) if task.start else open_source(reader)
        read.kind = "other" if form is FileLayout.OTHER else "executions"
        last: LogLine | None = None
        for line in lines:
            if last is not None:
                self._line(last, read)
            last = line if read.kind == "executions" else None  # other files are read for their digest
        self._finish(last, form, reader, read)
        read.size, read.digest = reader.bytes_read, reader.digest
        read.first, read.chain = reader.chain.first.hex(), reader.chain.state.hex()
        if read.resume >= 0 and (reader.compressed or reader.fault or read.resume // BLOCK != read.size // BLOCK):
            read.resume = -1
        return read

    def fetch(self, task: FileTask) -> None:
        """Reads the executions of some lines once more, without indexing them: the index has them. Raises OSError."""
        for line in lines_at(Path(task.path), dict(task.only)):
            for part in read_parts(line.data, self.now):
                if isinstance(part.content, Recorded):
                    self._keep(part.content, (None, None, None, None))

    def close(self) -> None:
        """Writes all buffered rows to the spill."""
        self._write()
        self._write_faults()
        self.spill.flush()

    def _line(self, line: LogLine, read: FileRead) -> None:
        data = line.data
        read.lines += 1
        if line.fault is not None:
            fault = Fault(line.fault, "longer than any execution or notebook")
            self._quarantine(read, line.number, line.offset, fault, data)
        elif (record := read_quickly(data, self.now, line.keys)) is not None:
            self._take(record, read, (read.number, line.number, 0, line.offset))
        elif not data.strip():
            read.ignored += 1
        else:
            for number, part in enumerate(read_parts(data, self.now)):
                content = part.content
                if isinstance(content, Recorded):
                    self._take(content, read, (read.number, line.number, number, line.offset))
                elif isinstance(content, CountedEntry):
                    read.known[content.kind] = read.known.get(content.kind, 0) + content.number
                else:
                    self._quarantine(read, line.number, line.offset, content, part.data)

    def _finish(self, last: LogLine | None, form: FileLayout, reader: LineReader, read: FileRead) -> None:
        """Handles the last line, which the end of the file may have cut off, and faults of the file itself."""
        if last is not None and last.ended:
            self._line(last, read)
            last = None
        if form is FileLayout.OTHER:
            read.ignored = 1
        elif form is FileLayout.LINES:
            read.resume = reader.end if last is None else last.offset
        rest = FileRead(read.number, read.name)  # of the line that the next run reads again
        cut = last is not None and not (last.number != 0 and (last.fault is not None or is_whole(last.data)))
        if last is not None and not cut:
            self._line(last, rest)
        if reader.fault is not None:
            # the torn line belongs to the file's fault
            offset, data = (last.offset, last.data) if last is not None and cut else (0, b"")
            self._quarantine(rest, 0, offset, Fault(reader.fault, reader.detail), data)
        elif last is not None and cut:
            rest.lines += 1
            if reader.closed:
                fault = Fault("truncated_line", "the file ends in the middle of this line")
                self._quarantine(rest, last.number, last.offset, fault, last.data)
            else:
                read.pending = 1
        read.last_lines, read.last_ignored, read.again = rest.lines, rest.ignored, read.again | rest.again
        read.last_forgotten = rest.forgotten
        if read.resume < 0:
            read.known |= {kind: read.known.get(kind, 0) + number for kind, number in rest.known.items()}

    def _take(self, record: Recorded, read: FileRead, place: tuple[int, int, int, int]) -> None:
        if self._gone(record.tenant):
            read.forgotten += 1
        else:
            self._keep(record, place)

    def _keep(self, record: Recorded, place: tuple[int | None, ...]) -> None:
        """Buffers an execution for its sandbox and its position (file, line, part, offset) for the index.

        With positions of None it is not indexed.
        """
        values = _values(record)
        text = orjson.dumps(values)
        digest = hashlib.sha256(text)
        content = (UNSURE if values[_OUTCOME] == "unknown" else SURE) + keyed(digest.digest(), self._key)
        code = content
        if self.labelled:
            code = keyed(novelty_text(values[_LANGUAGE], values[_CODE]).encode("utf-8"), self._key)
        bucket = bucket_of(values[_SANDBOX_ID], self.buckets)
        self._rows.append((content, "\n".join(record.flags), digest.hexdigest(), *values, code, bucket, *place))
        self._row_bytes += len(text) + _ROW
        if len(self._rows) >= _CHUNK_ROWS or self._row_bytes >= _CHUNK:
            self._chunk()
            if self._held >= _HELD:
                self._write()

    def _chunk(self) -> None:
        """Turns buffered rows into a frame while they are in the processor's cache."""
        if self._rows:
            columns = dict(zip(_READ, zip(*self._rows, strict=True), strict=True))
            columns["timestamp"] = tuple(map(microseconds, columns["timestamp"]))
            series = [pl.Series(name, columns[name], dtype=kind) for name, kind in _READ.items()]
            self._chunks.append(pl.DataFrame(series))
            self._held += self._row_bytes
            self._rows, self._row_bytes = [], 0

    def _write_faults(self) -> None:
        if self._faults:
            self.spill.add("quarantine", 0, pl.DataFrame(self._faults, schema=polars_schema(Quarantined)))
            self._faults, self._fault_bytes = [], 0

    def _write(self) -> None:
        """Spills the executions by bucket and their index by execution id."""
        self._chunk()
        if not self._chunks:
            return
        frame = pl.concat(self._chunks)
        self._chunks, self._held = [], 0
        index = frame.filter(pl.col("file").is_not_null()).with_columns(code="same_code", gone=False, copy=_NO_COPY)
        index = index.select(*INDEX, "gone", "copy")
        for part, rows in split_by_hash(index, "execution_id", self.indexes):
            self.spill.add("index", part, rows)
        columns = ["bucket", *SPILLED]
        for (bucket,), rows in frame.select(columns).partition_by("bucket", as_dict=True, include_key=False).items():
            self.spill.add("records", bucket, rows)

    def _quarantine(self, read: FileRead, line: int, offset: int, fault: Fault, data: bytes) -> None:
        read.again |= fault.reason == "future_timestamp"
        row = quarantine_row(read.name, line, offset, fault, data)
        self._faults.append(row)
        self._fault_bytes += len(row["text"]) + _ROW
        if self._fault_bytes >= _CHUNK:
            self._write_faults()


def bucket_of(sandbox_id: str, buckets: int) -> int:
    """The hash bucket of a sandbox: all its executions are redacted and labelled together."""
    return zlib.crc32(sandbox_id.encode("utf-8")) % buckets


def split_by_hash(frame: pl.DataFrame, key: str, count: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Splits `frame` by the hash of a column. Polars may change the hash: only for data of a single ingest run."""
    if count == 1:
        yield 0, frame
        return
    marked = frame.with_columns((pl.col(key).hash(seed=0) % count).alias("_part"))
    for (part,), rows in marked.partition_by("_part", as_dict=True, include_key=False).items():
        yield int(part), rows


def shown_reason(fault: Fault) -> str:
    """The reason of a fault, which may name a key, redacted and then cut."""
    return redact_name(fault.reason)[:_REASON]


def quarantine_row(name: str, line: int, offset: int, fault: Fault, data: bytes) -> dict[str, Any]:
    """One row of the quarantine, as a mapping; what it says is redacted before it is cut to its limit."""
    digest = keyed_digest(data)
    identity = f"{name}\n{line}\n{fault.reason}\n{fault.detail}\n{digest}".encode("utf-8", "surrogateescape")
    return {
        "quarantine_id": hashlib.sha256(identity).hexdigest()[:32],
        "file": name,
        "line": line,
        "offset": offset,
        "reason": shown_reason(fault),
        "detail": quarantine_text(fault.detail.encode("utf-8", "replace"))[:_DETAIL],
        "text": quarantine_text(data),
        "digest": digest,
    }
