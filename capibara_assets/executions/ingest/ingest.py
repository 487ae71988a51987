"""Ingests a folder of logs into the tables of executions, quarantine and files: each valid execution exactly once.

In bounded memory, by partitions on disk: files are read into an encrypted spill by sandbox and an index by execution
id; the index decides which line each execution is kept from; sandboxes that changed are redacted and labelled whole;
their rows and the unchanged rows of the last table are written in the order of their ids.
"""

import hashlib
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.executions.formats.event_folders import size_of
from capibara_assets.executions.ingest.duplicates import KNOWN, Deduplication, kept_lines, resolve_duplicates
from capibara_assets.executions.ingest.file_plan import ReadPlan, log_files, merge_tail, plan_reads
from capibara_assets.executions.ingest.forgotten import NOTHING, Forgotten, count_forgotten
from capibara_assets.executions.ingest.intake import FileRead, FileTask, bucket_of, split_by_hash
from capibara_assets.executions.ingest.ledger import Ledger, LedgerGeneration, holding, ledger_table
from capibara_assets.executions.ingest.ray_workers import RayIngestWorkers
from capibara_assets.executions.ingest.sandbox_rows import KEPT_LINE
from capibara_assets.executions.ingest.spill import Spill, new_key
from capibara_assets.executions.ingest.tables import TableInputs, write_tables
from capibara_assets.executions.ingest.workers import IngestWorkers, WorkerSetup, file_read, start_workers
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.executions.secrets.personal import personal_rules
from capibara_assets.processes.ray_map import RayCluster, connected
from capibara_assets.storage.foreign import hollow
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
    """The tables of Execution, Quarantined and LogFile in memory, and the summary counts."""

    executions: pl.DataFrame
    quarantine: pl.DataFrame
    files: pl.DataFrame
    summary: dict[str, Any]


@dataclass(frozen=True)
class Tables:
    """The tables of an ingest run on disk, and the summary counts."""

    folder: Path
    summary: dict[str, Any]
    lines_read: int  # by this run alone

    def path(self, table: str) -> Path:
        """The Parquet file of a table."""
        return self.folder / f"{table}.parquet"

    def tables(self) -> dict[str, tuple[type[Record], Path]]:
        """Name -> (row type, file)."""
        return {name: (record, self.path(name)) for name, record in TABLES.items()}

    def documents(self) -> dict[str, Any]:
        """Name -> JSON."""
        return {"summary": self.summary}

    def table(self, name: str) -> pl.DataFrame:
        """A table, in memory."""
        return pl.read_parquet(self.path(name))

    def newest(self, rows: int = 20) -> pl.DataFrame:
        """The last executions, by time."""
        return pl.scan_parquet(self.path("executions")).top_k(rows, by="timestamp").collect(engine="streaming")

    def load(self) -> Ingest:
        """All tables, in memory."""
        executions, quarantine, files = (self.table(name) for name in TABLES)
        return Ingest(executions, quarantine, files, self.summary)


def ledger_name(folder: Path, also: Sequence[str] = ()) -> str:
    """Name of the ledger of a folder of logs: another folder, or other redaction, has another ledger."""
    name = "\n".join([str(folder.resolve()), *sorted(also)])
    return hashlib.sha256(name.encode("utf-8")).hexdigest()[:16]


def read_experience(folder: Path, *, now: datetime, files: Sequence[Path] | None = None) -> Ingest:
    """Ingests a folder of logs and returns the tables in memory; arguments as for `ingest`."""
    with ingest(folder, now=now, files=files) as tables:
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
    cluster: RayCluster | None = None,
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
        forgotten: records, and all of tenants, that are dropped, and counted as forgotten, wherever they stand.
        cluster: whose workers read, instead of `processes` here, where there is enough to read.

    Raises:
        InputError: the folder, or a file of `files`, does not exist or cannot be read; `also` names something else.
    """
    personal_rules(also)
    settings = _Settings(now, processes, labelled, tuple(also), forgotten, cluster)
    if ledger is None or files is not None:
        paths = log_files(folder, files)
        with tempfile.TemporaryDirectory(prefix="capibara-ingest-") as scratch:
            yield _run(paths, settings, Path(scratch), None, None)
        return
    history = Ledger(ledger)
    with ExitStack() as held:
        with history.locked() as scratch:  # files may come while this run waits for another
            tables = _run(log_files(folder, None), settings, scratch, history, history.last())
            held.enter_context(holding(tables.folder))
            history.remove_others(tables.folder)
        yield tables


@dataclass(frozen=True)
class _Settings:
    """The settings of an ingest run; `ingest` documents each."""

    now: datetime
    processes: int | None
    labelled: bool
    also: tuple[str, ...]
    forgotten: Forgotten
    cluster: RayCluster | None


def _run(
    paths: dict[str, Path], settings: _Settings, scratch: Path, history: Ledger | None, base: LedgerGeneration | None
) -> Tables:
    """One ingest run: reads what is new since `base`, writes the tables and commits them to the ledger, if any."""
    forgotten = settings.forgotten
    plan = plan_reads(paths, base)
    checked = base is not None and base.forgotten == forgotten.digest
    same = base is not None and base.current and checked
    if base is not None and same and plan.nothing_new and set(paths) == set(base.files):
        return Tables(base.folder, base.summary(), 0)
    size = _text_bytes(plan)
    cluster = settings.cluster if settings.cluster and size >= settings.cluster.from_mib * 2**20 else None
    count = settings.processes or (1 if size < _ALONE else len(os.sched_getaffinity(0)))
    count = cluster.workers if cluster else count
    known = _rows(base.index) if base else 0
    buckets = max(math.ceil(size / _BUCKET), 4 * count if count > 1 else 1)
    setup = WorkerSetup(
        folder=str(scratch / "spill"),
        key=new_key().hex(),
        now=settings.now.isoformat(),
        buckets=min(buckets, 8192),
        indexes=max(1, math.ceil((size / _LINE + known) / _INDEX_ROWS)),
        labelled=settings.labelled,
        also=settings.also,
        base=str(base.executions) if base else None,
        gone=tuple(sorted(forgotten.tenants)),
    )
    Path(setup.folder).mkdir()
    spill = Spill(Path(setup.folder), bytes.fromhex(setup.key), "main")
    with _workers(setup, count, cluster) as pool:
        reads, lines_read = _read(pool, plan, base)
        if base is not None:
            _spill_known_lines(spill, plan, base, setup)
        deduplication = resolve_duplicates(
            spill,
            setup.indexes,
            _SAMPLE,
            stale=base is not None and not base.current,
            forgotten=forgotten,
            checked=checked,
            left=None if base is None or checked else _of_tenants(forgotten, base),
        )
        count_forgotten(reads, ((plan.names[file], line) for file, line in deduplication.forgotten))
        changed = None if base is None else _changed_sandboxes(spill, setup, deduplication)
        _spill_kept_lines(spill, setup, plan, changed)
        ranges = _ranges(deduplication, size / max(1, lines_read))
        if base is not None and changed:
            _fetch(pool, spill, setup, plan, changed, base)
        pool.do("finish", [(bucket, ranges) for bucket in range(setup.buckets)])
    inputs = TableInputs(spill, setup.indexes, plan, deduplication, reads, ranges, base, changed, forgotten)
    tables = scratch / "tables"
    tables.mkdir()
    summary = write_tables(tables, inputs, settings.labelled, settings.now)
    if history is not None:
        tables = history.commit(tables, list(reads.values()), plan.names, forgotten.digest)
    return Tables(tables, summary, lines_read)


@contextmanager
def _workers(setup: WorkerSetup, count: int, cluster: RayCluster | None) -> Iterator[IngestWorkers | RayIngestWorkers]:
    """Those of the cluster, else processes of this machine."""
    if cluster is None:
        with start_workers(setup, count) as here:
            yield here
        return
    with connected(cluster):
        yield RayIngestWorkers(setup, cluster)


def _text_bytes(plan: ReadPlan) -> int:
    """Estimated bytes of text to read; compressed ones count a multiple of their size, holes nothing."""
    total = 0
    for task in plan.tasks:
        path = Path(task.path)
        size = size_of(path) - task.start if path.exists() and not hollow(path, path.stat()) else 0
        total += size * (_PACKED if path.suffix in (".gz", ".zst", ".zstd") else 1)
    return total


def _read(
    pool: IngestWorkers | RayIngestWorkers, plan: ReadPlan, base: LedgerGeneration | None
) -> tuple[dict[str, FileRead], int]:
    """Reads what is new; returns the state of every present file by name, and how many lines were read."""
    sizes = {task.name: -size_of(Path(task.path)) for task in plan.tasks if Path(task.path).exists()}
    # the largest first, so that none is waited for alone
    tasks = sorted(plan.tasks, key=lambda task: sizes.get(task.name, 0))
    answers = pool.do("read", [vars(task) for task in tasks])
    states = {name: base.files[name] for name in plan.kept} if base else {}
    lines = 0
    for task, answer in zip(tasks, answers, strict=True):
        if (read := file_read(answer)) is not None:
            lines += read.lines + read.last_lines
            states[task.name] = merge_tail(read, base.files.get(task.name) if base else None, task)
    return dict(sorted(states.items())), lines


def _spill_known_lines(spill: Spill, plan: ReadPlan, base: LedgerGeneration, setup: WorkerSetup) -> None:
    """Adds the last run's index rows: of unchanged files, and of files that are gone where the table has them."""
    number = {name: i for i, name in enumerate(plan.names)}
    moved = pl.DataFrame(
        {
            "file": range(len(base.names)),
            "now": [number[name] for name in base.names],
            "until": [plan.kept.get(name, 0) for name in base.names],
        },
        schema={"file": pl.Int64, "now": pl.Int64, "until": pl.Int64},
    )
    for rows in base.lines():
        rows = rows.join(moved, on="file", how="left").with_columns(
            gone=pl.col("gone") | (pl.col("line") >= pl.col("until")), file=pl.col("now")
        )
        rows = rows.filter(~pl.col("gone") | pl.col("copy").is_not_null()).select(list(KNOWN))
        for part, frame in split_by_hash(rows, "execution_id", setup.indexes):
            spill.add("index", part, frame)
    spill.flush()


def _changed_sandboxes(spill: Spill, setup: WorkerSetup, deduplication: Deduplication) -> set[str]:
    """Sandboxes that have other rows than in the last generation."""
    changed = set(deduplication.losing_sandboxes)
    for rows in kept_lines(spill, setup.indexes):
        changed |= set(rows.filter(pl.col("copy").is_null())["sandbox_id"])
    return changed


def _spill_kept_lines(spill: Spill, setup: WorkerSetup, plan: ReadPlan, changed: set[str] | None) -> None:
    """Adds the kept lines of changed sandboxes (None: of all) to the spill, by bucket."""
    names = pl.DataFrame(
        {"file": range(len(plan.names)), "source_file": plan.names},
        schema={"file": pl.Int64, "source_file": pl.String},
    )
    sandboxes = pl.Series("sandbox_id", sorted(changed or ()), dtype=pl.String).to_frame()
    for rows in kept_lines(spill, setup.indexes):
        if changed is not None:
            rows = rows.join(sandboxes, on="sandbox_id", how="semi")
            rows = rows.with_columns(bucket=pl.Series(bucket_of(s, setup.buckets) for s in rows["sandbox_id"]))
        frame = rows.join(names, on="file", how="left")
        for (bucket,), part in frame.partition_by("bucket", as_dict=True).items():
            spill.add("kept_lines", int(bucket), part.select(list(KEPT_LINE)))
    spill.flush()


def _ranges(deduplication: Deduplication, line: float) -> list[str]:
    """First ids of the ranges that are sorted at once; `line`: average bytes of a line."""
    ids = sorted(deduplication.ids)
    step = max(1, min(_RANGE_ROWS, int(_RANGE / max(line, 1))) // _SAMPLE)
    return ["", *ids[step::step]]


def _rows(table: Path) -> int:
    with ledger_table(table) as scan:
        return int(scan.select(pl.len()).collect().item())


def _of_tenants(forgotten: Forgotten, base: LedgerGeneration) -> pl.Series:
    with ledger_table(base.executions) as table:
        return forgotten.of_tenants(table)


def _fetch(
    pool: IngestWorkers | RayIngestWorkers,
    spill: Spill,
    setup: WorkerSetup,
    plan: ReadPlan,
    changed: set[str],
    base: LedgerGeneration,
) -> None:
    """Reads the older lines of changed sandboxes again that hold secrets, to be redacted together with the new ones.

    Where nothing was replaced the last table says what was read.
    """
    wanted: dict[int, list[tuple[int, int]]] = {}
    with ledger_table(base.executions) as table:
        redacted = table.filter(pl.col("secrets") > 0, pl.col("sandbox_id").is_in(sorted(changed)))
        ids = redacted.select("execution_id").collect(engine="streaming")
    for rows in kept_lines(spill, setup.indexes) if not ids.is_empty() else ():
        old = rows.filter(~pl.col("gone"), pl.col("copy").is_not_null()).join(ids, on="execution_id", how="semi")
        for file, line, offset in old.select("file", "line", "offset").iter_rows():
            wanted.setdefault(file, []).append((line, offset))
    tasks = [
        FileTask(file, str(plan.paths[plan.names[file]]), plan.names[file], only=tuple(sorted(set(lines))))
        for file, lines in sorted(wanted.items())
    ]
    pool.do("fetch", [vars(task) for task in tasks])
