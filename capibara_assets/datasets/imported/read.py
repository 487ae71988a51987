"""Reader of example files: reports every fault with its line; a file with faults yields no examples at all."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.datasets.imported.formats import ParsedRecord, parse_record
from capibara_assets.errors import InputError
from capibara_assets.executions.formats.lines import LineReader
from capibara_assets.executions.formats.strict_json import Fault, json_type, parse_at, parse_value
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.foreign import require_plain

FAULTS_KEPT = 100  # of one file; the rest is counted
_PARQUET = b"PAR1"


@dataclass(frozen=True)
class FileRow:
    """One example of a file, with its line."""

    line: int
    parsed: ParsedRecord


@dataclass(frozen=True)
class LineFault:
    """The fault of a line; `line` is 0 for a fault of the whole file."""

    line: int
    reason: str
    detail: str


@dataclass
class ExampleFile:
    """A file of examples as read; use its rows only if there are no faults."""

    path: Path
    digest: str
    format: str | None = None
    lines: int = 0
    rows: list[FileRow] = field(default_factory=list)
    faults: list[LineFault] = field(default_factory=list)
    fault_counts: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def add_fault(self, line: int, fault: Fault) -> None:
        """Count a fault, and keep it while there are at most FAULTS_KEPT."""
        self.fault_counts[fault.reason] += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(LineFault(line, fault.reason, fault.detail))


def read_examples(path: Path, format: str | None = None) -> ExampleFile:
    """Read every example and every fault of a file.

    JSON lines, one JSON array, or a Parquet table (whose rows count as lines), plain, gzip or zstd by content.

    Args:
        format: a name of `formats.FORMATS`; by default it is detected, and must be the same in the whole file.

    Raises:
        InputError: there is no such file.
    """
    if not path.is_file():
        raise InputError(f"{path} is no file: give a file of examples (JSON lines, a JSON array or Parquet)")
    require_plain(path)
    file, last = ExampleFile(path, sha256_file(path)), 0
    try:
        for begins, value in _values(path):
            line = last = max(begins, last + 1)  # items of an array may share a line: then they are counted
            file.lines += 1
            if isinstance(value, Fault):
                file.add_fault(line, value)
                continue
            try:
                if not isinstance(value, dict):
                    raise Fault("not_an_object", f"expected a JSON object, found {json_type(value)}")
                parsed = parse_record(value, format)
                file.format = file.format or parsed.format
                if parsed.format != file.format:
                    raise Fault("mixed_formats", f"this is {parsed.format}, the lines before it are {file.format}")
                file.rows.append(FileRow(line, parsed))
            except Fault as fault:
                file.add_fault(line, fault)
    except Fault as fault:  # the rest of the file cannot be read
        file.add_fault(int(fault.value or 0), fault)
    if not file.lines and not file.faults:
        file.add_fault(0, Fault("empty_file", "there is not one example in it"))
    return file


def _values(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line, JSON value or Fault).

    Raises:
        Fault: what ends the file early; its `value` is the line.
    """
    with path.open("rb") as file:
        head = file.read(4)
    if head == _PARQUET:
        yield from _parquet_rows(path)
        return
    reader = LineReader(path, stops=True)
    lines = ((line, line.data.strip(b" \t\r")) for line in reader)
    last, begun = 0, False
    for line, data in lines:
        if reader.fault and line.number == 0:
            break  # UTF-16: the reader says so below
        last = line.number
        if line.fault:
            yield (
                line.number,
                Fault(
                    line.fault, "a line of more than 64 MiB, and nothing behind it is read: write one example per line"
                ),
            )
        elif data.startswith(b"[") and not begun:
            rest = [data, *(more for _, more in lines)]
            if reader.fault is None:
                yield from _array_items(rest, line.number)
                return
            break
        elif data:
            yield line.number, _parsed(data)
        begun = begun or bool(data)
    if reader.fault:
        raise Fault(reader.fault, reader.detail, last)


def _parsed(data: bytes) -> Any:
    try:
        return parse_value(data)
    except Fault as fault:
        hint = ""
        if fault.reason == "invalid_json" and data in (b"{", b"["):
            hint = ": one object per line is expected, or one array"
        return Fault(fault.reason, fault.detail + hint)


def _array_items(lines: list[bytes], first: int) -> Iterator[tuple[int, Any]]:
    """Yield the items of one JSON array, each with the line on which it begins."""
    try:
        text = b"\n".join(lines).decode("utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].count(b"\n")
        raise Fault("invalid_utf8", f"byte {error.start} of the array is not UTF-8", first + before) from None
    starts = [0]
    for line in text.split("\n")[:-1]:
        starts.append(starts[-1] + len(line) + 1)

    def line_at(place: int) -> int:
        return first + bisect_right(starts, place) - 1

    at = 1
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if text[at : at + 1] == "]":
        at += 1
    else:
        while True:
            begins = at
            try:
                value, at = parse_at(text, at, "the item")
            except Fault as fault:
                raise Fault(fault.reason, fault.detail, line_at(begins)) from None
            yield line_at(begins), value
            if text[at : at + 1] not in (",", "]"):
                raise Fault("invalid_json", "an item of the array is followed by neither , nor ]", line_at(at))
            at += 1
            if text[at - 1] == "]":
                break
            while at < len(text) and text[at] in " \t\r\n":
                at += 1
    if more := text[at:].lstrip():
        raise Fault("invalid_json", "there is more behind the end of the array", line_at(len(text) - len(more)))


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        table = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise Fault("invalid_parquet", f"the Parquet table cannot be read: {error}") from None
    yield from enumerate(table.iter_rows(named=True), 1)
