"""From a folder of logs to the tables of executions, quarantine and files: each valid execution exactly once.

In bounded memory, by partitions on disk: files are read into a sealed spill by sandbox and an index by execution id;
the index decides which lines the table takes; the sandboxes in which something changed are redacted and labelled
whole; their rows and those of the last table are written in the order of their ids.
"""

import hashlib
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.executions.ingest.exactly_once import KNOWN, Settled, settle, taken
from capibara_assets.executions.ingest.file_plan import Plan, log_files, merged, plan
from capibara_assets.executions.ingest.forgotten import NOTHING, Forgotten, count_forgotten
from capibara_assets.executions.ingest.intake import FileRead, FileTask, bucket_of, partitions
from capibara_assets.executions.ingest.ledger import Generation, Ledger
from capibara_assets.executions.ingest.sandbox_rows import VERDICT
from capibara_assets.executions.ingest.spill import Spill, new_key
from capibara_assets.executions.ingest.tables import Sources, write_tables
from capibara_assets.executions.ingest.workers import Setup, Workers, read_of, workers
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.executions.secrets.personal import personal_rules
from capibara_assets.storage.records import Record

TABLES: dict[str, type[Record]] = {"executions": Execution, "quarantine": Quarantined, "files": LogFile}
VOLATILE = ("files.parquet", "summary.json")
"""Outside the data version: names of files, and counts of what else was in them."""
_BUCKET = 24 << 20  # bytes of text in a partition of sandboxes
_INDEX_ROWS = 150_000  # lines in a partition of the index
_RANGE_ROWS, _RANGE = 24_000, 48 << 20  # executions sorted at once, and bytes of their lines
_LINE = 2_000  # bytes of a line, about
_PACKED = 6  # how much smaller compressed logs are, about
_ALONE = 24 << 20  # bytes of text that are read faster than processes start
_SAMPLE = 64


@dataclass(frozen=True)
class Ingest:
    """What was read: tables of Execution, Quarantined and LogFile, and the counts for people."""

    executions: pl.DataFrame
    quarantine: pl.DataFrame
    files: pl.DataFrame
    summary: dict[str, Any]


@dataclass(frozen=True)
class Tables:
    """The same on disk."""

    folder: Path
    summary: dict[str, Any]
    lines_read: int  # of this look alone

    def path(self, table: str) -> Path:
        return self.folder / f"{table}.parquet"

    def tables(self) -> dict[str, tuple[type[Record], Path]]:
        """Name -> (row type, file)."""
        return {name: (record, self.path(name)) for name, record in TABLES.items()}

    def documents(self) -> dict[str, Any]:
        """Name -> JSON."""
        return {"summary": self.summary}

    def table(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.path(name))

    def newest(self, rows: int = 20) -> pl.DataFrame:
        """The last executions, by time."""
        return pl.scan_parquet(self.path("executions")).top_k(rows, by="timestamp").collect(engine="streaming")

    def load(self) -> Ingest:
        executions, quarantine, files = (self.table(name) for name in TABLES)
        return Ingest(executions, quarantine, files, self.summary)


def ledger_name(folder: Path, also: Sequence[str] = ()) -> str:
    """Name of the ledger of a folder of logs: another folder, or other redaction, is another experience."""
    name = "\n".join([str(folder.resolve()), *sorted(also)])
    return hashlib.sha256(name.encode("utf-8")).hexdigest()[:16]


def read_experience(
    folder: Path, *, now: datetime, files: Sequence[Path] | None = None, ledger: Path | None = None
) -> Ingest:
    """`ingest` with the tables in memory."""
    with ingest(folder, now=now, files=files, ledger=ledger) as tables:
        return tables.load()


@contextmanager
def ingest(
    folder: Path,
    *,
    now: datetime,
    files: Sequence[Path] | None = None,
    ledger: Path | None = None,
    processes: int | None = None,
    labelled: bool = True,
    also: Sequence[str] = (),
    forgotten: Forgotten = NOTHING,
) -> Iterator[Tables]:
    """Reads, checks, deduplicates, redacts, classifies and scores every execution below `folder`.

    The folder `e2b_logs` in it is read where there is one, else everything. Whether a file is an execution log is told
    by its content: others are counted as ignored. The tables are there until the end of the block.

    Args:
        now: the clock; a record more than a day after it goes to quarantine.
        files: only these (absolute, or relative to `folder`), without a ledger.
        ledger: folder that remembers what was read: only what is new is read then, and executions whose file is gone
            stay in the table. One ledger belongs to one `folder`.
        processes: how many read; by default as many as there are cores, and one for little.
        labelled: False leaves out domains, repairs and quality.
        also: personal data that is redacted beside secrets: "email", "ip".
        forgotten: records that are dropped, and counted as forgotten, wherever they stand.

    Raises:
        InputError: the folder, or a file of `files`, does not exist or cannot be read; `also` names something else.
    """
    personal_rules(also)
    asked = _Settings(now, processes, labelled, tuple(also), forgotten)
    paths = log_files(folder, files)
    if ledger is None or files is not None:
        with tempfile.TemporaryDirectory(prefix="capibara-ingest-") as scratch:
            yield _look(paths, asked, Path(scratch), None, None)
        return
    book = Ledger(ledger)
    with book.look() as scratch:
        # listed again: another look may have waited long for this one
        paths = log_files(folder, None)
        tables = _look(paths, asked, scratch, book, book.last())
    yield tables


@dataclass(frozen=True)
class _Settings:
    """How `ingest` is to read; its arguments say what each means."""

    now: datetime
    processes: int | None
    labelled: bool
    also: tuple[str, ...]
    forgotten: Forgotten


def _look(
    paths: dict[str, Path], asked: _Settings, scratch: Path, book: Ledger | None, base: Generation | None
) -> Tables:
    forgotten = asked.forgotten
    planned = plan(paths, base)
    same = base is not None and base.current and base.forgotten == forgotten.digest
    if base is not None and same and planned.nothing_new and set(paths) == set(base.files):
        return Tables(base.folder, base.summary(), 0)
    size = _text_bytes(planned)
    count = asked.processes or (1 if size < _ALONE else len(os.sched_getaffinity(0)))
    known = pl.scan_parquet(base.index).select(pl.len()).collect().item() if base else 0
    buckets = max(math.ceil(size / _BUCKET), 4 * count if count > 1 else 1)
    setup = Setup(
        folder=str(scratch / "spill"),
        key=new_key().hex(),
        now=asked.now.isoformat(),
        buckets=min(buckets, 8192),
        indexes=max(1, math.ceil((size / _LINE + known) / _INDEX_ROWS)),
        labelled=asked.labelled,
        also=asked.also,
        base=str(base.executions) if base else None,
    )
    Path(setup.folder).mkdir()
    spill = Spill(Path(setup.folder), bytes.fromhex(setup.key), "main")
    with workers(setup, count) as crew:
        reads, lines_read = _read(crew, planned, base)
        if base is not None:
            _remember(spill, planned, base, setup)
        settled = settle(
            spill,
            setup.indexes,
            _SAMPLE,
            stale=base is not None and not base.current,
            forgotten=forgotten,
            checked=base is not None and base.forgotten == forgotten.digest,
        )
        count_forgotten(reads, ((planned.names[file], line) for file, line in settled.forgotten))
        touched = None if base is None else _touched(spill, setup, settled)
        _verdicts(spill, setup, planned, touched)
        ranges = _ranges(settled, size / max(1, lines_read))
        if base is not None and touched:
            _fetch(crew, spill, setup, planned, touched)
        crew.do("finish", [(bucket, ranges) for bucket in range(setup.buckets)])
    sources = Sources(spill, setup.indexes, planned, settled, reads, ranges, base, touched, forgotten)
    tables = scratch / "tables"
    tables.mkdir()
    summary = write_tables(tables, sources, asked.labelled, asked.now)
    if book is not None:
        tables = book.commit(tables, list(reads.values()), planned.names, forgotten.digest)
    return Tables(tables, summary, lines_read)


def _text_bytes(planned: Plan) -> int:
    """About how much text there is to read."""
    total = 0
    for task in planned.tasks:
        path = Path(task.path)
        size = path.stat().st_size - task.start if path.exists() else 0
        total += size * (_PACKED if path.suffix in (".gz", ".zst", ".zstd") else 1)
    return total


def _read(crew: Workers, planned: Plan, base: Generation | None) -> tuple[dict[str, FileRead], int]:
    """State of every file there is, after what is new was read, and how many lines that was."""
    sizes = {task.name: -Path(task.path).stat().st_size for task in planned.tasks if Path(task.path).exists()}
    # the largest first, so that none is waited for alone
    tasks = sorted(planned.tasks, key=lambda task: sizes.get(task.name, 0))
    answers = crew.do("read", [asdict(task) for task in tasks])
    found = {name: base.files[name] for name in planned.kept} if base else {}
    lines = 0
    for task, answer in zip(tasks, answers, strict=True):
        if (read := read_of(answer)) is not None:
            lines += read.lines + read.last_lines
            found[task.name] = merged(read, base.files.get(task.name) if base else None, task)
    return dict(sorted(found.items())), lines


def _remember(spill: Spill, planned: Plan, base: Generation, setup: Setup) -> None:
    """The lines of the last look: those of files that stand as they were, and what else the table holds."""
    number = {name: i for i, name in enumerate(planned.names)}
    moved = pl.DataFrame(
        {
            "file": range(len(base.names)),
            "now": [number[name] for name in base.names],
            "until": [planned.kept.get(name, 0) for name in base.names],
        },
        schema={"file": pl.Int64, "now": pl.Int64, "until": pl.Int64},
    )
    for rows in base.lines():
        rows = rows.join(moved, on="file", how="left").with_columns(
            gone=pl.col("gone") | (pl.col("line") >= pl.col("until")), file=pl.col("now")
        )
        rows = rows.filter(~pl.col("gone") | pl.col("copy").is_not_null()).select(list(KNOWN))
        for part, frame in partitions(rows, "execution_id", setup.indexes):
            spill.add("index", part, frame)
    spill.flush()


def _touched(spill: Spill, setup: Setup, settled: Settled) -> set[str]:
    """Sandboxes of which something is not as in the last table."""
    found = set(settled.left)
    for rows in taken(spill, setup.indexes):
        found |= set(rows.filter(pl.col("copy").ne_missing(pl.col("copy_now")))["sandbox_id"])
    return found


def _verdicts(spill: Spill, setup: Setup, planned: Plan, touched: set[str] | None) -> None:
    """What each bucket takes."""
    names = pl.DataFrame(
        {"file": range(len(planned.names)), "source_file": planned.names},
        schema={"file": pl.Int64, "source_file": pl.String},
    )
    sandboxes = pl.Series("sandbox_id", sorted(touched or ()), dtype=pl.String).to_frame()
    for rows in taken(spill, setup.indexes):
        if touched is not None:
            rows = rows.join(sandboxes, on="sandbox_id", how="semi")
            rows = rows.with_columns(bucket=pl.Series(bucket_of(s, setup.buckets) for s in rows["sandbox_id"]))
        frame = rows.join(names, on="file", how="left")
        for (bucket,), part in frame.partition_by("bucket", as_dict=True).items():
            spill.add("verdicts", int(bucket), part.select(list(VERDICT)))
    spill.flush()


def _ranges(settled: Settled, line: float) -> list[str]:
    """Where the ranges of ids begin that are sorted at once, for lines of so many bytes on average."""
    ids = sorted(settled.ids)
    step = max(1, min(_RANGE_ROWS, int(_RANGE / max(line, 1))) // _SAMPLE)
    return ["", *ids[step::step]]


def _fetch(crew: Workers, spill: Spill, setup: Setup, planned: Plan, touched: set[str]) -> None:
    """Reads the older lines of touched sandboxes again: they are redacted anew, together with what is new."""
    wanted: dict[int, list[tuple[int, int]]] = {}
    sandboxes = pl.Series("sandbox_id", sorted(touched), dtype=pl.String).to_frame()
    for rows in taken(spill, setup.indexes):
        old = rows.filter(~pl.col("gone"), pl.col("copy").is_not_null()).join(sandboxes, on="sandbox_id", how="semi")
        for file, line, offset in old.select("file", "line", "offset").iter_rows():
            wanted.setdefault(file, []).append((line, offset))
    tasks = [
        FileTask(file, str(planned.paths[planned.names[file]]), planned.names[file], only=tuple(sorted(set(lines))))
        for file, lines in sorted(wanted.items())
    ]
    crew.do("fetch", [asdict(task) for task in tasks])
