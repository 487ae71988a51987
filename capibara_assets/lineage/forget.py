"""Forget executions, or a tenant's: find everything that contains them, and delete it in an order to resume.

A record is recognised by its text, so the artifacts that hold the text are removed last: until then an interrupted
forget can run again and still knows what to search for.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.executions.ingest.forgotten import (
    Forgotten,
    Tombstone,
    as_indexed,
    read_forgotten,
    tenant_digest,
    tenants_named,
    tombstone,
)
from capibara_assets.executions.ingest.intake import INDEX, RECORD_FIELDS
from capibara_assets.executions.ingest.ledger import LEDGERS, Ledger, ledger_table
from capibara_assets.lineage.ancestors import upstream
from capibara_assets.lineage.columns import columns, executions_of, quarantined, tenant_executions
from capibara_assets.lineage.history import objects_holding
from capibara_assets.lineage.lost import Lost, readable
from capibara_assets.lineage.records import Results, holds_execution, holds_readably
from capibara_assets.lineage.traces import TEXTS, holding, holds, needles, pieces, telling
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.foreign import read_stored
from capibara_assets.storage.jsonfiles import delete_durable, parse_json, read_json, write_json_atomic
from capibara_assets.storage.locks import locked
from capibara_assets.storage.removal import finish_removals, remove_artifact, removed
from capibara_assets.storage.store import ArtifactStore

REMADE = ("e2b_logs", "e2b_executions", "e2b_patterns", "example_groups", "moe_dataset", "routing_dataset")
"""Assets upstream of training that hold records: rematerialized without them, in this order."""
KEPT_UNTIL_REMADE = "example_groups"
"""Holds ids and no text, and is the only record of the splits."""
_NOTES = "forget-lines.json"
_LEFT = "forget-left.json"
_PIECES_OF_A_LINE = 3


@dataclass(frozen=True)
class SourceLine:
    """A line of a user's log file that holds a forgotten record; the file is never changed."""

    execution_id: str
    file: str
    line: int


@dataclass(frozen=True)
class ForgetFindings:
    """Everything that contains some executions, before they are forgotten."""

    execution_ids: tuple[str, ...]
    before: tuple[str, ...]
    """Ids that were forgotten earlier."""
    rows: pl.DataFrame
    """Rows of Execution, one for each id that a table still holds."""
    lines: tuple[SourceLine, ...]
    artifacts: tuple[Artifact, ...]
    """Artifacts that hold the executions, in the order of removal."""
    tombstones: tuple[Tombstone, ...]
    quarantined: int
    needles: tuple[str, ...]
    """Pieces of the executions' text that nothing else holds."""
    quoting: tuple[Artifact, ...]
    """Artifacts without weights that hold a piece under no execution's id: an evaluation's answers and grades."""
    domains: tuple[str, ...]
    tenant: str | None = None
    """Whose executions they all are, where a tenant is forgotten."""
    damaged: tuple[Lost, ...] = ()
    """Artifacts with a table that cannot be read; it is searched in their other tables."""


def find(results: Results, execution_ids: Sequence[str], tenant: str | None = None) -> ForgetFindings:
    """Find everything that contains these executions, and all those of a tenant.

    Raises:
        InputError: ids, or a tenant, that no table, ledger or tombstone has; the message names them.
    """
    store, earlier = results.store, read_forgotten(results.store)
    ledgers = [one for one in ledgers_of(store) if one.last() is not None]
    every, damaged = readable(artifact for name in store.names() for artifact in store.list(name))
    wanted = set(execution_ids)
    if tenant is not None:
        wanted |= tenant_executions(tenant, every, ledgers, known=earlier.holds_tenant(tenant))
        # where an interrupted forget removed the tables the notes alone have the ids
        wanted |= {line.execution_id for line in noted_lines(store) if earlier.holds(line.execution_id)}
    results = results.without([artifact for artifact, _ in damaged])
    findings = _findings(results, sorted(wanted), tenant, every, ledgers, earlier)
    also = [artifact for artifact, _ in damaged if holds_readably(artifact, wanted)]
    return replace(
        findings,
        artifacts=tuple(sorted([*findings.artifacts, *also], key=_removal_order)),
        damaged=tuple(one for _, one in damaged),
    )


def _findings(
    results: Results,
    wanted: list[str],
    tenant: str | None,
    every: Sequence[Artifact],
    ledgers: Sequence[Ledger],
    earlier: Forgotten,
) -> ForgetFindings:
    direct = [artifact for artifact in every if holds_execution(artifact, wanted)]
    rows = _rows(direct, ledgers, wanted)
    before = earlier.among(wanted)
    new = sorted({*wanted} - {*before})
    stated = tenant if new or not earlier.holds_tenant(tenant) else None
    elsewhere = set(wanted) - {*before, *rows["execution_id"]}
    if unknown := [name for name in sorted(elsewhere) if not any(holds_execution(one, [name]) for one in direct)]:
        raise InputError(
            f"no execution {', '.join(map(repr, unknown))} in any table, ledger or tombstone: nothing was forgotten; "
            "`capibara lineage execution ID` shows the nearest"
        )
    own = pieces(rows) if rows.height else []
    others = _others(results, wanted, every, ledgers)
    only_there = telling({piece for pieces_of_one in own for piece in pieces_of_one}, others)
    searched = needles(own, only_there)
    quarantine = _quarantine(every, ledgers, wanted, only_there, tenant)
    holding_lines = [a for a in every if a.name == "e2b_logs" and a not in direct and _has_lines(a, quarantine)]
    by_id = [*direct, *holding_lines]
    named = _with_routes(by_id, every, results.store)
    without_id = [a for a in every if a not in named and not a.checkpoints]  # also routes of a dataset that is lost
    quoting = [artifact for artifact in without_id if _quotes(artifact, searched)]
    tainted = [*named, *quoting]
    places = [(ledger, lines) for ledger in ledgers if (lines := _places(ledger, wanted)).height]
    return ForgetFindings(
        execution_ids=tuple(wanted),
        before=tuple(before),
        rows=rows,
        lines=tuple(_lines(places, rows, {line for line in noted_lines(results.store) if line.execution_id in wanted})),
        artifacts=tuple(sorted(tainted, key=_removal_order)),
        tombstones=tuple(_tombstones(new, stated, places, rows, quarantine)),
        quarantined=quarantine.height,
        needles=tuple(searched),
        quoting=tuple(quoting),
        domains=tuple(sorted({str(a.partition) for a in tainted if a.partition is not None})),
        tenant=tenant,
    )


def note_lines(store: ArtifactStore, findings: ForgetFindings) -> None:
    """Keep the lines that hold the records until `drop_lines`: when the ledger is purged, nothing else names them."""
    _write_notes(store, noted_lines(store) | set(findings.lines))


def drop_lines(store: ArtifactStore, findings: ForgetFindings) -> None:
    """The records are forgotten and their lines were told: nothing identifies them any longer."""
    _write_notes(store, {line for line in noted_lines(store) if line.execution_id not in findings.execution_ids})


def noted_lines(store: ArtifactStore) -> set[SourceLine]:
    """Lines of the forgets that were begun and have not ended."""
    file = store.work / _NOTES
    return {SourceLine(**line) for line in read_json(file)} if file.exists() else set()


def _write_notes(store: ArtifactStore, lines: set[SourceLine]) -> None:
    if lines:
        write_json_atomic(store.work / _NOTES, [asdict(line) for line in sorted(lines, key=_line_order)])
    else:
        (store.work / _NOTES).unlink(missing_ok=True)


def alone(store: ArtifactStore) -> AbstractContextManager[None]:
    """Hold the lock that lets one forget run at a time; others wait."""
    return locked(store.work / "forget.lock")


def purge_ledgers(store: ArtifactStore, findings: ForgetFindings, current: Path | None) -> list[str]:
    """Delete the generations of ledgers that contain the records; returns the folders that were deleted.

    The deployment's own ledger keeps its last generation, made after the tombstones. A ledger of another folder of
    logs, which is no longer read, is emptied where it holds one of the records.
    """
    deleted = []
    for ledger in ledgers_of(store):
        if ledger.root == current and not _in_ledger(ledger, findings.execution_ids):
            deleted += [str(path) for path in ledger.keep_last_only()]
        elif _in_ledger(ledger, findings.execution_ids) or holding(ledger.root, findings.needles):
            with ledger.locked():
                for path in sorted(ledger.root.glob("generations/*")):
                    delete_durable(path)
                    deleted.append(str(path))
    return deleted


def work_folders(store: ArtifactStore, digests: Collection[str], needles: Sequence[str]) -> list[Path]:
    """Work in progress and caches to delete: made from removed artifacts, or holding a piece of a record.

    Tokenised sets are always deleted: their text cannot be searched, and they can be made again.
    """
    doomed: set[Path] = set()
    for request in store.work.glob("*/*/*/request.json"):
        try:
            stated = parse_json(read_stored(request))
        except (ValueError, IntegrityError):
            stated = {}
        if not isinstance(stated, dict) or _datasets(stated) & {"", *digests}:
            doomed.add(request.parent)
    kept = (store.work.joinpath(*LEDGERS), store.work / _NOTES, store.work / _LEFT)
    for path in store.work.rglob("*"):
        if any(path.is_relative_to(one) for one in kept) or any(path.is_relative_to(folder) for folder in doomed):
            continue
        made_from_it = path.is_dir() and path.name in digests
        if made_from_it or (path.is_file() and (path.suffix == ".arrow" or holds(path, needles))):
            doomed.add(path)
    return sorted(path for path in doomed if not any(path != other and path.is_relative_to(other) for other in doomed))


def _datasets(request: dict[str, Any]) -> set[str]:
    """Digests of all datasets that a training request names; "" where it names none."""
    further = request.get("further") or {}
    others = {str(one.get("digest", "")) for one in further.values()} if isinstance(further, dict) else {""}
    return {str(request.get("dataset_digest", "")), *others}


def delete(paths: Iterable[Path]) -> None:
    """Delete files and folders; missing ones are ignored."""
    for path in paths:
        delete_durable(path)


def doomed(results: Results, findings: ForgetFindings) -> tuple[list[Artifact], list[Artifact]]:
    """(artifacts to remove, in this order; artifacts that hold a record and have to wait).

    A current artifact that was rematerialized without the records stays, even if an older artifact had the same
    content. The groups wait until they are rematerialized, since they are the only record of the splits.
    """
    gone, waiting = list[Artifact](), list[Artifact]()
    for artifact in findings.artifacts:
        if not results.is_current(artifact):
            gone.append(artifact)
        elif artifact.name == "routing_dataset":
            if any(holds_readably(one, findings.execution_ids) for one in results.every("moe_dataset").values()):
                gone.append(artifact)
        elif artifact in findings.quoting or holds_readably(artifact, findings.execution_ids):
            (waiting if artifact.name == KEPT_UNTIL_REMADE else gone).append(artifact)
    return gone, waiting


def remove(store: ArtifactStore, artifacts: Iterable[Artifact]) -> None:
    """Remove artifacts in their order, and finish earlier removals that were interrupted."""
    for artifact in artifacts:
        remove_artifact(store, artifact.name, artifact.partition, artifact.digest)
    finish_removals(store)


def all_removed(store: ArtifactStore) -> frozenset[str]:
    """Digests of all artifacts that were ever removed."""
    return frozenset(one.digest for one in removed(store))


def ledgers_of(store: ArtifactStore) -> list[Ledger]:
    """Every ledger in the work folder."""
    folder = store.work.joinpath(*LEDGERS)
    return [Ledger(path) for path in sorted(folder.iterdir()) if path.is_dir()] if folder.is_dir() else []


def _rows(artifacts: Sequence[Artifact], ledgers: Sequence[Ledger], wanted: Sequence[str]) -> pl.DataFrame:
    """Whole rows of Execution, one for each id, from any table or ledger that still has it."""
    named = [
        "execution_id",
        *TEXTS,
        *(name for name in RECORD_FIELDS if name not in (*TEXTS, "bullet_ids")),
        "secrets",
        "domains",
    ]
    named = list(dict.fromkeys([*named, "source_file", "source_line", "record_digest"]))
    frames = [
        frame for frame in executions_of(artifacts, ledgers, named, pl.col("execution_id").is_in(wanted)) if len(frame)
    ]
    if not frames:
        return pl.DataFrame(schema={"execution_id": pl.String})
    return pl.concat(frames, how="diagonal").unique("execution_id", keep="first", maintain_order=True)


def _others(
    results: Results, wanted: Sequence[str], every: Sequence[Artifact], ledgers: Sequence[Ledger]
) -> list[pl.DataFrame]:
    """The text of all executions and bullets that stay; of every table and ledger where the logs are lost."""
    logs, books = results.get("e2b_logs"), results.get("ace_playbooks")
    frames = [columns(books, "bullets", ["content"])] if books is not None else []
    named, stays = ["execution_id", "source", *TEXTS], ~pl.col("execution_id").is_in(wanted)
    if logs is not None:
        return [*frames, columns(logs, "executions", named).filter(stays)]
    return [*frames, *executions_of(every, ledgers, named, stays)]


def _quarantine(
    every: Sequence[Artifact],
    ledgers: Sequence[Ledger],
    wanted: Sequence[str],
    needles: Sequence[str],
    tenant: str | None,
) -> pl.DataFrame:
    """Quarantined lines (digest, file, line) that name the tenant or one of the executions, or hold pieces of it."""
    rows = quarantined(every, ledgers, ["digest", "text", "file", "line"])
    named_there = several = pl.lit(False)
    if wanted:
        named_there = pl.col("text").str.contains_any([f'"{name}{end}' for name in wanted for end in ('"', "\\")])
    if needles:  # one piece may be a common phrase; several pieces are the record
        matched = pl.col("text").str.extract_many(list(needles), overlapping=True).list.n_unique()
        several = matched >= min(_PIECES_OF_A_LINE, len(needles))
    theirs = pl.Series([tenant in tenants_named(text) for text in rows["text"]], dtype=pl.Boolean)
    return rows.filter(named_there | several | theirs).drop("text").unique(maintain_order=True)


def _has_lines(artifact: Artifact, quarantine: pl.DataFrame) -> bool:
    wanted = quarantine["digest"].implode()
    return bool(quarantine.height and columns(artifact, "quarantine", ["digest"])["digest"].is_in(wanted).any())


def _quotes(artifact: Artifact, needles: Sequence[str]) -> bool:
    """Whether a file of an artifact holds one of the needles."""
    if artifact.is_local:
        return bool(holding(Path(artifact.path), needles))
    return bool(objects_holding(str(artifact.path), needles))


def all_left(store: ArtifactStore, places: Sequence[str]) -> list[str]:
    """Places that still hold a piece after a forget, and files of earlier ones that are as they were then.

    The files are kept: with the tables went the text that would find the pieces again.
    """
    note = store.work / _LEFT
    known: dict[str, str] = read_json(note) if note.exists() else {}
    now = {name: sha256_file(Path(name)) for name in {*known, *places} if Path(name).is_file()}
    kept = {name: digest for name, digest in now.items() if name in places or known[name] == digest}
    write_json_atomic(note, kept)
    return list(dict.fromkeys([*places, *sorted(kept)]))


def _with_routes(direct: Sequence[Artifact], every: Sequence[Artifact], store: ArtifactStore) -> list[Artifact]:
    """Add the routing datasets made from those datasets, or from removed ones; their prompts carry no ids."""
    datasets = {(a.partition, a.digest) for a in direct if a.name == "moe_dataset"}
    datasets |= {(one.partition, one.digest) for one in removed(store, "moe_dataset")}
    routes = [
        artifact
        for artifact in every
        if artifact.name == "routing_dataset"
        and any(n.asset == "moe_dataset" and (n.partition, n.digest) in datasets for n in upstream(artifact.manifest))
    ]
    return [*direct, *routes]


def _places(ledger: Ledger, wanted: Sequence[str]) -> pl.DataFrame:
    """Lines of the executions in the ledger's index, with the names of their files."""
    with ledger.reading() as last:
        if last is None:
            return pl.DataFrame()
        with ledger_table(last.index) as index:
            rows = index.filter(pl.col("execution_id").is_in(wanted)).collect()
    names = pl.DataFrame(
        {"file": range(len(last.names)), "name": last.names}, schema={"file": pl.Int64, "name": pl.String}
    )
    return rows.join(names, on="file", how="left")


def _lines(
    places: Sequence[tuple[Ledger, pl.DataFrame]], rows: pl.DataFrame, noted: set[SourceLine]
) -> Iterable[SourceLine]:
    """Every line that holds one of the executions, duplicates included; from the table where no ledger has it."""
    known = noted | {
        SourceLine(*row) for _, frame in places for row in frame.select("execution_id", "name", "line").iter_rows()
    }
    if "source_file" in rows.columns:
        known |= {SourceLine(*row) for row in rows.select("execution_id", "source_file", "source_line").iter_rows()}
    return sorted(known, key=_line_order)


def _line_order(line: SourceLine) -> tuple[str, str, int]:
    return line.execution_id, line.file, line.line


def _tombstones(
    execution_ids: Sequence[str],
    tenant: str | None,
    places: Sequence[tuple[Ledger, pl.DataFrame]],
    rows: pl.DataFrame,
    quarantine: pl.DataFrame,
) -> Iterator[Tombstone]:
    lines = tuple(quarantine["digest"])
    if tenant is not None:
        yield Tombstone(tenant=tenant_digest(tenant), lines=tuple(sorted(set(lines))))
    for execution_id in execution_ids:
        frames = [frame.filter(execution_id=execution_id).select(list(INDEX)) for _, frame in places]
        frames = [frame for frame in frames if frame.height]
        if not frames and rows.filter(execution_id=execution_id).height:
            frames = [as_indexed(rows.filter(execution_id=execution_id).row(0, named=True))]
        indexed = pl.concat(frames) if frames else pl.DataFrame()
        yield tombstone(execution_id, indexed, lines if tenant is None else ())


def _in_ledger(ledger: Ledger, wanted: Sequence[str]) -> bool:
    """Whether the ledger's last generation holds one of the executions."""
    with ledger.reading() as last:
        return last is not None and any(_names_one(path, wanted) for path in (last.executions, last.index))


def _names_one(path: Path, wanted: Sequence[str]) -> bool:
    with ledger_table(path) as table:
        return bool(table.select(pl.col("execution_id").is_in(wanted).any()).collect().item())


def _removal_order(artifact: Artifact) -> tuple[int, str, str, str]:
    """Sort key of removal: artifacts with whole executions last, the logs at the end."""
    last = (*reversed(REMADE), "").index(artifact.name) if artifact.name in REMADE else -1
    return (last, artifact.name, artifact.partition or "", artifact.digest)


def examples_of(findings: ForgetFindings) -> dict[str, set[str]]:
    """Examples made from the records in any dataset of the store: domain -> ids."""
    inside: dict[str, set[str]] = {}
    for artifact in findings.artifacts:
        if artifact.name == "moe_dataset" and artifact.digest not in {one.digest for one in findings.damaged}:
            rows = columns(artifact, "examples", ["example_id", "execution_ids"])
            of_them = pl.col("execution_ids").list.set_intersection(list(findings.execution_ids)).list.len() > 0
            inside.setdefault(str(artifact.partition), set()).update(rows.filter(of_them)["example_id"])
    return inside
