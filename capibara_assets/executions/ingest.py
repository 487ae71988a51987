"""From a folder of logs to the tables of executions, quarantine and files: each valid execution exactly once."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError
from capibara_assets.executions.classify import Label, classify_session
from capibara_assets.executions.lines import Line, LineReader
from capibara_assets.executions.quality import score_all
from capibara_assets.executions.readers import Fault, Recorded
from capibara_assets.executions.redact import keyed_digest, quarantine_text, redact_session
from capibara_assets.executions.repairs import find_repairs
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.executions.sources import Counted, Layout, is_whole, layout, read_parts
from capibara_assets.storage.digests import canonical_json
from capibara_assets.storage.records import conform, polars_schema

LOGS = "e2b_logs"
_SNIFF_LINES = 20
_SNIFF_BYTES = 1 << 20
MAX_DOCUMENT = 256 << 20  # bytes of a file that is one JSON document, which is read as a whole
_RECORD_FIELDS = tuple(f.name for f in fields(Recorded) if f.name != "flags")


@dataclass(frozen=True)
class Ingest:
    """What was read: tables of Execution, Quarantined and LogFile, and the counts for people."""

    executions: pl.DataFrame
    quarantine: pl.DataFrame
    files: pl.DataFrame
    summary: dict[str, Any]


@dataclass
class _File:
    """One file under way."""

    path: str
    kind: str = "other"
    bytes: int = 0
    digest: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)  # things that are no executions, by kind


@dataclass(slots=True)
class _Found:
    """An execution and where it stands."""

    record: Recorded
    file: _File
    line: int
    offset: int
    content: bytes  # digest of what it says
    data: bytes  # the line, for the quarantine should its id be taken

    @property
    def place(self) -> tuple[str, int]:
        return self.file.path, self.line


def read_experience(folder: Path, *, now: datetime, files: Sequence[Path] | None = None) -> Ingest:
    """Reads, checks, deduplicates, redacts, classifies and scores every execution below `folder`.

    The folder `e2b_logs` in it is read where there is one, else everything. Whether a file is an execution log is told
    by its content: others are counted as ignored.

    Args:
        now: the clock; a record more than a day after it goes to quarantine.
        files: only these (absolute, or relative to `folder`).

    Raises:
        InputError: the folder, or a file of `files`, does not exist or cannot be read.
    """
    found: list[_Found] = []
    quarantine: list[dict[str, Any]] = []
    logs: list[_File] = []
    for path in _log_files(folder, files):
        log = _File(_relative(path, folder))
        logs.append(log)
        try:
            _read_file(path, log, now, found, quarantine)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    kept = _exactly_once(found, quarantine)
    executions = _executions(kept)
    quarantined = conform(Quarantined, pl.DataFrame(quarantine, schema=polars_schema(Quarantined)))
    table = _file_table(logs)
    known = sum((log.known for log in logs), Counter[str]())
    return Ingest(
        executions,
        quarantined,
        table,
        _summary(executions, quarantined, table) | {"known": dict(sorted(known.items()))},
    )


# --- files --------------------------------------------------------------------------------------------------------


def _log_files(folder: Path, files: Sequence[Path] | None) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"no experience folder at {folder}: give a folder with execution logs (JSON lines)")
    if files is not None:
        chosen = [folder / file for file in files]
        if missing := [str(file) for file in chosen if not file.is_file()]:
            raise InputError(f"no such log file: {', '.join(missing)}")
        return sorted(set(chosen))
    root = folder / LOGS if (folder / LOGS).is_dir() else folder
    hidden = (path for path in root.rglob("*") if path.is_file())
    return sorted(path for path in hidden if not any(part.startswith(".") for part in path.relative_to(root).parts))


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()


def _read_file(path: Path, log: _File, now: datetime, found: list[_Found], quarantine: list[dict[str, Any]]) -> None:
    reader = LineReader(path)
    head: list[Line] = []
    lines = iter(reader)
    size = 0
    while len(head) < _SNIFF_LINES and size < _SNIFF_BYTES and (line := next(lines, None)) is not None:
        head.append(line)
        size += len(line.data)
    form = _layout(head, reader)
    if form is Layout.OTHER:
        for _ in lines:  # to the end, for the digest
            pass
        log.counts["ignored"] = 1
    else:
        log.kind = "executions"
        last = None
        for line in [_document(head, lines)] if form is Layout.DOCUMENT else (*head, *lines):
            if last is not None:
                _read_one(last, log, now, found, quarantine)
            last = line
        _finish(last, reader, log, now, found, quarantine)
    log.bytes, log.digest = reader.bytes_read, reader.digest


def _layout(head: Sequence[Line], reader: LineReader) -> Layout:
    """The file's layout; one that cannot be decompressed or decoded is a damaged log."""
    if head and head[0].number == 0:
        return layout([head[0].data.replace(b"\0", b"")])
    return layout([line.data for line in head]) if head or reader.bytes_read == 0 or reader.fault else Layout.OTHER


def _document(head: Sequence[Line], lines: Iterator[Line]) -> Line:
    """The whole file as one line, which is pending until it is complete JSON."""
    kept, size, fault = [], 0, None
    for line in (*head, *lines):
        size += len(line.data) + 1
        if size > MAX_DOCUMENT:
            fault = fault or "document_too_large"
        else:
            kept.append(line.data)
    return Line(1, 0, b"\n".join(kept), ended=False, fault=fault)


def _read_one(line: Line, log: _File, now: datetime, found: list[_Found], quarantine: list[dict[str, Any]]) -> None:
    log.counts["lines"] += 1
    if not line.data.strip():
        log.counts["ignored"] += 1
        return
    try:
        if line.fault is not None:
            raise Fault(line.fault, "longer than any execution or notebook")
        for part in read_parts(line.data, now):
            match part.found:
                case Fault(reason=reason, detail=detail):
                    quarantine.append(_quarantined(log, line.number, line.offset, reason, detail, part.data))
                case Counted(kind=kind, number=number):
                    log.known[kind] += number
                case record:
                    found.append(_Found(record, log, line.number, line.offset, _content(record), part.data))
    except Fault as fault:
        quarantine.append(_quarantined(log, line.number, line.offset, fault.reason, fault.detail, line.data))


def _finish(
    last: Line | None,
    reader: LineReader,
    log: _File,
    now: datetime,
    found: list[_Found],
    quarantine: list[dict[str, Any]],
) -> None:
    """The last line, which the file's end may have cut off, and what is wrong with the file itself."""
    cut = last is not None and not last.ended and not _is_whole(last)
    if last is not None and not cut:
        _read_one(last, log, now, found, quarantine)
    if reader.fault is not None:
        # the torn line belongs to the file's fault
        offset, data = (last.offset, last.data) if last is not None and cut else (0, b"")
        quarantine.append(_quarantined(log, 0, offset, reader.fault, reader.detail, data))
    elif last is not None and cut:
        log.counts["lines"] += 1
        if reader.closed:
            detail = "the file ends in the middle of this line"
            quarantine.append(_quarantined(log, last.number, last.offset, "truncated_line", detail, last.data))
        else:
            log.counts["pending"] += 1


def _is_whole(line: Line) -> bool:
    """Whether a line without a line feed is complete: an object that parses cannot grow into another."""
    return line.number != 0 and (line.fault is not None or is_whole(line.data))


def _quarantined(log: _File, line: int, offset: int, reason: str, detail: str, data: bytes) -> dict[str, Any]:
    log.counts["quarantined"] += 1
    digest = keyed_digest(data)
    identity = hashlib.sha256(f"{log.path}\n{line}\n{reason}\n{detail}\n{digest}".encode("utf-8", "surrogateescape"))
    return {
        "quarantine_id": identity.hexdigest()[:32],
        "file": log.path,
        "line": line,
        "offset": offset,
        "reason": reason,
        "detail": quarantine_text(detail.encode("utf-8", "replace")),
        "text": quarantine_text(data),
        "digest": digest,
    }


# --- exactly once -------------------------------------------------------------------------------------------------


def _content(record: Recorded) -> bytes:
    """Digest of what a record says, the same whatever its formatting, SDK and file."""
    values = (getattr(record, name) for name in _RECORD_FIELDS)
    text = "\x1f".join("\x00" if value is None else f"{value}" for value in values)
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def _exactly_once(found: list[_Found], quarantine: list[dict[str, Any]]) -> list[_Found]:
    """One record per execution id: the earliest by time; other content under the same id goes to quarantine.

    The order of files and lines only decides which place of equal records is named.
    """
    by_id: dict[str, list[_Found]] = defaultdict(list)
    for item in found:
        by_id[item.record.execution_id].append(item)
    kept = []
    for items in by_id.values():
        items.sort(key=lambda item: (item.record.timestamp, item.content, item.place))
        first = items[0]
        kept.append(first)
        first.file.counts["kept"] += 1
        for item in items[1:]:
            if item.content == first.content:
                item.file.counts["duplicates"] += 1
            else:
                holder = f"{first.file.path}:{first.line}"
                detail = f"the execution id {item.record.execution_id!r} belongs to another execution ({holder})"
                reason = "conflicting_execution_id"
                quarantine.append(_quarantined(item.file, item.line, item.offset, reason, detail, item.data))
    return sorted(kept, key=lambda item: (item.record.timestamp, item.record.execution_id))


# --- the table ----------------------------------------------------------------------------------------------------


def _executions(kept: list[_Found]) -> pl.DataFrame:
    """Redacted, classified, scored and labelled executions."""
    sessions: dict[str, list[int]] = defaultdict(list)
    for i, item in enumerate(kept):
        sessions[item.record.sandbox_id].append(i)
    secrets = [0] * len(kept)
    labels = [Label((), 0.0, "")] * len(kept)
    for indices in sessions.values():
        session = [kept[i].record for i in indices]
        for i, count in zip(indices, redact_session(session), strict=True):
            secrets[i] = count
        for i, label in zip(indices, classify_session(session), strict=True):
            labels[i] = label
    records = [item.record for item in kept]
    columns: dict[str, list[Any]] = {name: [getattr(record, name) for record in records] for name in _RECORD_FIELDS}
    columns |= {
        "flags": [record.flags for record in records],
        "domains": [[str(domain) for domain in label.domains] for label in labels],
        "confidence": [label.confidence for label in labels],
        "evidence": [label.evidence for label in labels],
        "quality": score_all(records),
        "secrets": secrets,
        "record_digest": [_record_digest(record) for record in records],
        "source_file": [item.file.path for item in kept],
        "source_line": [item.line for item in kept],
        "source_offset": [item.offset for item in kept],
    }
    frame = conform(Execution, pl.DataFrame(columns, schema_overrides=polars_schema(Execution)))
    return with_debug(frame, find_repairs(frame))


def with_debug(executions: pl.DataFrame, repairs: pl.DataFrame) -> pl.DataFrame:
    """`executions` with the label `debug` on both executions of each repair pair, and on no others."""
    ids = pl.concat([repairs["failing_execution_id"], repairs["fixed_execution_id"]]).unique()
    others = pl.col("domains").list.set_difference([str(Domain.DEBUG)])
    paired = pl.col("execution_id").is_in(ids.implode())
    labelled = pl.when(paired).then(pl.concat_list(others, pl.lit([str(Domain.DEBUG)]))).otherwise(others)
    return executions.with_columns(labelled.alias("domains"))


def _record_digest(record: Recorded) -> str:
    values = {name: getattr(record, name) for name in _RECORD_FIELDS}
    values["timestamp"] = record.timestamp.isoformat()
    return hashlib.sha256(canonical_json(values)).hexdigest()


def _file_table(logs: Sequence[_File]) -> pl.DataFrame:
    counted = ("lines", "kept", "quarantined", "duplicates", "ignored", "pending")
    rows = [
        {"path": log.path, "kind": log.kind, "bytes": log.bytes, "digest": log.digest}
        | {name: log.counts[name] for name in counted}
        for log in logs
    ]
    return conform(LogFile, pl.DataFrame(rows, schema=polars_schema(LogFile)))


def _summary(executions: pl.DataFrame, quarantine: pl.DataFrame, files: pl.DataFrame) -> dict[str, Any]:
    labels = executions["domains"].explode(empty_as_null=False, keep_nulls=False)
    return {
        "executions": len(executions),
        "sandboxes": executions["sandbox_id"].n_unique(),
        "quarantined": len(quarantine),
        "reasons": dict(sorted(Counter(quarantine["reason"].to_list()).items())),
        "files": len(files),
        "logs": int((files["kind"] == "executions").sum()),
        "lines": int(files["lines"].sum()),
        "duplicates": int(files["duplicates"].sum()),
        "ignored": int(files["ignored"].sum()),
        "pending": int(files["pending"].sum()),
        "secrets": int(executions["secrets"].sum()),
        "by_domain": {str(domain): int((labels == str(domain)).sum()) for domain in DOMAINS},
        "no_domain": int((executions["domains"].list.len() == 0).sum()),
        "by_outcome": dict(sorted(Counter(executions["outcome"].to_list()).items())),
        "by_language": dict(sorted(Counter(executions["language"].to_list()).items())),
        "newest": None if executions.is_empty() else executions["timestamp"].max().isoformat(),  # type: ignore[union-attr]
    }
