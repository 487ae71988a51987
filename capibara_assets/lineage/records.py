"""Trace an execution, example, bullet or tenant through the artifacts, to its sources and to its results."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.executions.ingest.forgotten import read_forgotten
from capibara_assets.lineage.ancestors import descendants, upstream_key
from capibara_assets.lineage.columns import columns, one_of
from capibara_assets.lineage.trails import (
    BulletPlace,
    BulletTrail,
    ExampleTrail,
    ExampleUse,
    ExecutionPlace,
    ExecutionTrail,
    PublishedResult,
    TenantTrail,
    VoterExposure,
)
from capibara_assets.lineage.voters import SEEN, dataset, voters_of
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.manifest import title_of
from capibara_assets.storage.store import ArtifactStore

_PLACE = ["execution_id", "source_file", "source_line", "sandbox_id", "agent_id", "tenant", "licence", "source"]
_EXAMPLE = [
    "example_id", "domain", "kind", "split", "group_id", "cluster_id", "language", "verified", "provenance",
    "execution_ids", "bullet_ids", "licence", "source", "tenants",
]  # fmt: skip
_MODELS = ("consensus_checkpoint", "merged_checkpoint", "moe_checkpoint", "evaluation", "promoted_model")


@dataclass(frozen=True)
class Results:
    """An artifact store and its current artifacts: (asset, partition or None) -> artifact."""

    store: ArtifactStore
    current: Mapping[tuple[str, str | None], Artifact]
    lost: frozenset[tuple[str, str | None, str]] = frozenset()
    """(asset, partition, digest) of those that count now and are not in the store, though nothing removed them."""

    def get(self, asset: str, partition: str | None = None) -> Artifact | None:
        """The current artifact of an asset; None: not materialized."""
        return self.current.get((asset, partition))

    def every(self, asset: str) -> dict[str, Artifact]:
        """The current artifacts of a partitioned asset: domain -> artifact."""
        return {domain: artifact for domain in DOMAINS if (artifact := self.get(asset, domain.value)) is not None}

    def is_current(self, artifact: Artifact) -> bool:
        """Whether an artifact is the current one of its asset and partition."""
        current = self.get(artifact.name, artifact.partition)
        return current is not None and current.digest == artifact.digest

    def without(self, artifacts: Collection[Artifact]) -> "Results":
        """These results as if artifacts were not there; those of them that count now are lost."""
        gone = {key: one for key, one in self.current.items() if one in artifacts}
        current = {key: one for key, one in self.current.items() if key not in gone}
        return Results(self.store, current, self.lost | {(*key, one.digest) for key, one in gone.items()})

    def hint(self, asset: str, hint: str) -> str:
        """What to do where an id is not known, and which of an asset's results cannot be asked for it."""
        lost = sorted(f"{title_of(name, partition)} {digest}" for name, partition, digest in self.lost if name == asset)
        return f"{hint}; not in the store, and so not asked: {', '.join(lost)}" if lost else hint


def example_trail(results: Results, wanted: str) -> ExampleTrail:
    """Trace an example by its id or an unambiguous prefix. Raises InputError: no such example, or several."""
    tables = {d: columns(a, "examples", _EXAMPLE) for d, a in results.every("moe_dataset").items()}
    ids = (name for frame in tables.values() for name in frame["example_id"])
    hint = results.hint("moe_dataset", "`capibara run --select moe_dataset` makes them")
    example_id = one_of("example", wanted, ids, hint)
    domain, rows = next(
        (d, matching) for d, frame in tables.items() if (matching := frame.filter(example_id=example_id)).height
    )
    row = rows.row(0, named=True)
    places = execution_places(results, row["execution_ids"])
    made = results.every("moe_dataset")[domain]
    seen, models = _seen(results, {domain: {example_id}}, made.digest)
    return ExampleTrail(
        example_id=example_id,
        domain=domain,
        dataset=made.digest,
        **{name: row.get(name) for name in ("kind", "language", "split", "group_id", "cluster_id", "verified")},  # type: ignore[arg-type]
        provenance=row.get("provenance") or "experience",
        licence=row["licence"],
        source=row["source"],
        tenants=tuple(row.get("tenants") or ()),
        executions=tuple(
            ExecutionPlace(**{**vars(places[name]), "role": "answer" if number == 0 else "context"})
            for number, name in enumerate(row["execution_ids"])
            if name in places
        ),
        bullets=tuple(bullet_places(results, row.get("bullet_ids") or ())),
        seen_by=seen,
        models=models,
    )


def execution_trail(results: Results, wanted: str) -> ExecutionTrail:
    """Trace an execution by its id or an unambiguous prefix. Raises InputError: no such execution, or several."""
    known = set(known_executions(results))
    if wanted not in known and read_forgotten(results.store).holds(wanted):
        raise InputError(f"execution {wanted!r} was forgotten: nothing of it is kept, and it is not read again")
    hint = results.hint("e2b_logs", "`capibara run --select e2b_logs` reads them")
    execution_id = one_of("execution", wanted, known, hint)
    place = execution_places(results, [execution_id]).get(execution_id)
    groups = results.get("example_groups")
    rows = columns(groups, "groups", ["unit_id", "group_id", "split"]).filter(unit_id=execution_id) if groups else None
    uses, left_out, datasets, inside = _uses(results, execution_id)
    seen, models = _seen(results, inside)
    items = {name for names in inside.values() for name in names}
    return ExecutionTrail(
        execution_id=execution_id,
        place=place,
        domains=_domains(results, execution_id),
        group_id=rows["group_id"][0] if rows is not None and rows.height else None,
        split=rows["split"][0] if rows is not None and rows.height else None,
        left_out=left_out,
        tables=tuple(
            PublishedResult(artifact.name, artifact.partition, artifact.digest, True)
            for _, artifact in sorted(results.current.items(), key=lambda item: (item[0][0], item[0][1] or ""))
            if holds_execution(artifact, {execution_id})
        ),
        datasets=datasets,
        examples=tuple(uses),
        seen_by=seen,
        evaluated=tuple(sorted(items & _evaluated(results))),
        models=models,
    )


def bullet_trail(results: Results, wanted: str) -> BulletTrail:
    """Trace a bullet by its id or an unambiguous prefix. Raises InputError: no such bullet, or several."""
    books = results.get("ace_playbooks")
    named = ["bullet_id", "agent_id", "source_file", "source_line", "content"]
    frame = columns(books, "bullets", named) if books else pl.DataFrame(schema=dict.fromkeys(named, pl.String))
    hint = results.hint("ace_playbooks", "`capibara run --select ace_playbooks` reads them")
    bullet_id = one_of("bullet", wanted, frame["bullet_id"], hint)
    row = frame.filter(bullet_id=bullet_id).row(0, named=True)
    held = [
        domain
        for domain, artifact in results.every("consolidated_playbook").items()
        if columns(artifact, "bullets", ["origins"])["origins"].list.contains(bullet_id).any()
    ]
    uses = [
        ExampleUse(domain, example_id, kind, split, "bullet")
        for domain, artifact in results.every("moe_dataset").items()
        for example_id, kind, split in columns(artifact, "examples", ["example_id", "kind", "split", "bullet_ids"])
        .filter(pl.col("bullet_ids").list.contains(bullet_id))
        .select("example_id", "kind", "split")
        .iter_rows()
    ]
    place = BulletPlace(bullet_id, row["source_file"], row["source_line"], row["content"])
    return BulletTrail(place, row["agent_id"], tuple(held), tuple(uses))


def tenant_trail(results: Results, wanted: str) -> TenantTrail:
    """Trace the rows of a tenant. Raises InputError: no row names this tenant."""
    logs = results.get("e2b_logs")
    frame = columns(logs, "executions", ["execution_id", "tenant", "domains"]) if logs else None
    known: Iterable[str] = frame["tenant"].drop_nulls().unique() if frame is not None else ()
    tenant = one_of("tenant", wanted, known, results.hint("e2b_logs", "records name theirs in the field `tenant`"))
    assert frame is not None
    own = frame.filter(tenant=tenant)
    by_domain = dict(sorted(Counter(own["domains"].explode().drop_nulls()).items()))
    examples, seen = dict[str, int](), dict[str, int]()
    for domain, artifact in results.every("moe_dataset").items():
        table = columns(artifact, "examples", [*SEEN, "tenants"])
        inside = table.filter(pl.col("tenants").list.contains(tenant))
        examples[domain] = inside.height
        adapters = results.get("trained_adapters", domain)
        for voter in voters_of(adapters) if adapters is not None else ():
            tables = [_examples_of(results.store, *one) for one in voter.datasets]
            parts = [voter.trained(one) for one in tables if one is not None and "tenants" in one.columns]
            if parts:
                theirs = sum(part.filter(pl.col("tenants").list.contains(tenant)).height for part in parts)
                seen[f"{domain}/{voter.name}"] = theirs
    return TenantTrail(tenant, own.height, by_domain, examples, seen)


def known_executions(results: Results) -> set[str]:
    """Ids of all executions in the current tables, before and after selection."""
    ids: set[str] = set()
    if (logs := results.get("e2b_logs")) is not None:
        ids |= set(columns(logs, "executions", ["execution_id"])["execution_id"])
    for artifact in results.every("moe_dataset").values():
        ids |= set(columns(artifact, "examples", ["execution_ids"])["execution_ids"].explode().drop_nulls())
    return ids


def execution_places(results: Results, execution_ids: Iterable[str]) -> dict[str, ExecutionPlace]:
    """Log lines of executions by id; executions that are in no table any more are missing."""
    logs = results.get("e2b_logs")
    if logs is None:
        return {}
    rows = columns(logs, "executions", _PLACE).filter(pl.col("execution_id").is_in(list(execution_ids)))
    named = {"source_file": "file", "source_line": "line"}
    return {row["execution_id"]: ExecutionPlace(**row) for row in rows.rename(named).iter_rows(named=True)}


def bullet_places(results: Results, bullet_ids: Iterable[str]) -> list[BulletPlace]:
    """Playbook lines of bullets, sorted by id."""
    wanted, books = sorted(set(bullet_ids)), results.get("ace_playbooks")
    if not wanted or books is None:
        return []
    rows = columns(books, "bullets", ["bullet_id", "source_file", "source_line", "content"])
    return [BulletPlace(*row) for row in rows.filter(pl.col("bullet_id").is_in(wanted)).sort("bullet_id").iter_rows()]


ONE = ("execution_id", "unit_id", "failing_execution_id", "fixed_execution_id")
"""Columns that hold one execution's id, whatever the table."""
MANY = ("execution_ids",)
"""Columns that hold lists of them."""


def holds_execution(artifact: Artifact, execution_ids: Iterable[str]) -> bool:
    """Whether a table of the artifact has a row of one of these executions. Raises IntegrityError as `columns`."""
    wanted = sorted(execution_ids)
    return any(_holds(artifact, table, wanted) for table in _tables(artifact))


def holds_readably(artifact: Artifact, execution_ids: Iterable[str]) -> bool:
    """As `holds_execution`, by those of its tables that can be read."""
    wanted = sorted(execution_ids)
    for table in _tables(artifact):
        with suppress(IntegrityError):
            if _holds(artifact, table, wanted):
                return True
    return False


def _tables(artifact: Artifact) -> list[str]:
    return [
        name.removesuffix(".parquet")
        for name in artifact.manifest.files
        if name.endswith(".parquet") and "/" not in name
    ]


def _holds(artifact: Artifact, table: str, wanted: Sequence[str]) -> bool:
    for column in columns(artifact, table, [*ONE, *MANY]).get_columns():
        flat = column.explode().drop_nulls() if column.dtype == pl.List else column
        if flat.is_in(wanted).any():
            return True
    return False


def exposures(
    results: Results, inside: Mapping[str, set[str]], skip: Collection[str] = ()
) -> tuple[VoterExposure, ...]:
    """Voters trained on one of these examples (domain -> ids), if their datasets are still stored.

    Args:
        skip: digests of datasets that cannot be read.
    """
    exposed = []
    for artifact in results.store.list("trained_adapters"):
        upstream = artifact.manifest.inputs.get("upstream", {})
        if not any(names and upstream.get(upstream_key("moe_dataset", domain)) for domain, names in inside.items()):
            continue
        now = results.is_current(artifact)
        for voter in voters_of(artifact):
            for domain, digest in voter.datasets:
                if digest in skip:
                    continue
                table, names = _examples_of(results.store, domain, digest), sorted(inside.get(domain, ()))
                if table is None or not table["example_id"].is_in(names).any():
                    continue
                parts = [("train", voter.trained(table))]
                if domain == voter.domain:
                    parts.append(("validation", voter.validated(table)))
                exposed += [
                    VoterExposure(voter.domain, voter.name, voter.digest, voter.artifact, digest, part, now)
                    for part, rows in parts
                    if rows["example_id"].is_in(names).any()
                ]
    return tuple(sorted(exposed, key=lambda one: (one.domain, not one.current, one.artifact, one.voter, one.part)))


def _seen(
    results: Results, inside: Mapping[str, set[str]], dataset_digest: str | None = None
) -> tuple[tuple[VoterExposure, ...], tuple[PublishedResult, ...]]:
    """(voters that saw these examples, models made from their adapters)."""
    exposed = exposures(results, inside)
    if dataset_digest is not None:
        exposed = tuple(one for one in exposed if one.dataset == dataset_digest)
    named = {(one.domain, one.artifact) for one in exposed}
    trained = [one for one in results.store.list("trained_adapters") if (one.partition, one.digest) in named]
    return exposed, models_made_from(results, trained)


def models_made_from(results: Results, artifacts: Iterable[Artifact]) -> tuple[PublishedResult, ...]:
    """The models and decisions that were made from these artifacts, by their stage."""
    models = {
        PublishedResult(
            step.asset, step.partition, step.digest, step.artifact is not None and results.is_current(step.artifact)
        )
        for artifact in artifacts
        for step in descendants(results.store, artifact)
        if step.asset in _MODELS
    }
    return tuple(sorted(models, key=lambda m: (_MODELS.index(m.asset), m.partition or "", m.digest)))


@lru_cache(maxsize=32)
def _examples_of(store: ArtifactStore, domain: str, digest: str) -> pl.DataFrame | None:
    artifact = dataset(store, domain, digest)
    return None if artifact is None else columns(artifact, "examples", [*SEEN, "tenants"])


def _uses(
    results: Results, execution_id: str
) -> tuple[list[ExampleUse], dict[str, str], dict[str, str], dict[str, set[str]]]:
    """(examples with the execution; then by domain: reasons for none, dataset digests, example ids)."""
    uses, left_out, datasets, inside = [], dict[str, str](), dict[str, str](), dict[str, set[str]]()
    for domain, artifact in results.every("moe_dataset").items():
        examples = columns(artifact, "examples", ["example_id", "kind", "split", "execution_ids"])
        rows = examples.filter(pl.col("execution_ids").list.contains(execution_id))
        for example_id, kind, split, ids in rows.iter_rows():
            uses.append(ExampleUse(domain, example_id, kind, split, "answer" if ids[0] == execution_id else "context"))
            inside.setdefault(domain, set()).add(example_id)
        stands_for = _representatives(artifact, execution_id) if artifact.has("clusters") else set[str]()
        others = examples.filter(
            pl.col("example_id").is_in(stands_for), ~pl.col("example_id").is_in(rows["example_id"])
        )
        for example_id, kind, split in others.select("example_id", "kind", "split").iter_rows():
            uses.append(ExampleUse(domain, example_id, kind, split, "cluster member"))
        reasons = columns(artifact, "left_out", ["unit_id", "reason"]).filter(unit_id=execution_id)
        if reasons.height:
            left_out[domain] = reasons["reason"][0]
        if rows.height or reasons.height:
            datasets[domain] = artifact.digest
    return uses, left_out, datasets, inside


def _representatives(artifact: Artifact, execution_id: str) -> set[str]:
    """Examples that stand for a cluster with this execution in it."""
    rows = columns(artifact, "clusters", ["execution_ids", "representative_id"])
    if not {"execution_ids", "representative_id"} <= set(rows.columns):
        return set()
    return set(rows.filter(pl.col("execution_ids").list.contains(execution_id))["representative_id"])


def _domains(results: Results, execution_id: str) -> tuple[str, ...]:
    logs = results.get("e2b_logs")
    if logs is None:
        return ()
    rows = columns(logs, "executions", ["execution_id", "domains"]).filter(execution_id=execution_id)
    return tuple(rows["domains"][0]) if rows.height else ()


def _evaluated(results: Results) -> set[str]:
    tables = (columns(a, "losses", ["example_id"]) for a in results.every("evaluation").values())
    return {name for frame in tables for name in frame["example_id"]}
