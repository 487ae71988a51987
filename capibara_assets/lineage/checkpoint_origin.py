"""The origin of a checkpoint: the artifacts it was made from, their datasets, and the executions in them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from capibara_assets.checkpoints.store.manifest import About
from capibara_assets.errors import IntegrityError
from capibara_assets.lineage.adapters import executions_in
from capibara_assets.lineage.ancestors import ancestors
from capibara_assets.lineage.columns import columns
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.removal import removed
from capibara_assets.storage.store import ArtifactStore, MissingArtifact

_SOURCE = re.compile(r"([^\[\]]+)(?:\[([^\[\]]+)\])?")
_DATASET, _LOGS = "moe_dataset", "e2b_logs"
_FIRST = 5


@dataclass(frozen=True)
class OriginArtifact:
    """An artifact that a checkpoint was made from, directly or through others."""

    asset: str
    partition: str | None
    digest: str
    depth: int
    """0: the checkpoint itself names it."""
    state: str
    """present; forgotten (removed, since it held a record that was forgotten); or missing."""
    examples: int | None = None
    """Of a dataset that is present: its train and validation examples."""
    executions: int | None = None
    """Of a dataset that is present: the executions that its tables hold."""


@dataclass(frozen=True)
class ExecutionSource:
    """An execution in one of the datasets, and its log line."""

    execution_id: str
    file: str | None
    """Its log file; None where the ledger's table is gone."""
    line: int | None


@dataclass(frozen=True)
class CheckpointOrigin:
    """Provenance of a checkpoint, as far as the artifact store still holds it."""

    artifacts: tuple[OriginArtifact, ...]
    """Nearest first."""
    executions: int | None
    """Distinct executions in all of the datasets; None where no dataset is present."""
    first: tuple[ExecutionSource, ...]
    store: str


def origin(store: ArtifactStore, about: About) -> CheckpointOrigin:
    """Trace a checkpoint from its sources to executions.

    Raises:
        IntegrityError: a manifest or table on the path is not what was published.
    """
    gone = {(one.asset, one.partition, one.digest) for one in removed(store)}
    reached: dict[tuple[str, str | None, str], tuple[int, Artifact | None]] = {}
    for start in _starts(store, about):
        artifact = _open(store, *start)
        reached.setdefault(start, (0, artifact))
        for step in ancestors(store, artifact) if artifact is not None else ():
            key = (step.asset, step.partition, step.digest)
            if key not in reached or step.depth < reached[key][0]:
                reached[key] = (step.depth, step.artifact)
    artifacts, everything = [], set[str]()
    for key, (depth, artifact) in sorted(reached.items(), key=lambda item: (item[1][0], str(item[0]))):
        state = "present" if artifact is not None else ("forgotten" if key in gone else "missing")
        examples = executions = None
        if artifact is not None and artifact.name == _DATASET:
            inside = executions_in(artifact)
            everything |= inside
            splits = columns(artifact, "examples", ["split"])["split"]
            examples, executions = int(splits.is_in(["train", "validation"]).sum()), len(inside)
        artifacts.append(OriginArtifact(*key, depth, state, examples, executions))
    read = any(one.executions is not None for one in artifacts)
    logs = [artifact for (asset, *_), (_, artifact) in reached.items() if asset == _LOGS and artifact is not None]
    first = tuple(_places(sorted(everything)[:_FIRST], logs))
    return CheckpointOrigin(tuple(artifacts), len(everything) if read else None, first, str(store.root))


def _starts(store: ArtifactStore, about: About) -> Iterable[tuple[str, str | None, str]]:
    """The artifacts that a checkpoint names."""
    for name, digest in about.sources.items():
        match = _SOURCE.fullmatch(name)
        if match is None:
            raise IntegrityError(f"a source of the checkpoint is called {name!r}, not <asset>[<partition>]")
        yield match[1], match[2], digest
    if about.dataset_digest and about.dataset_digest not in about.sources.values():
        named = [one.partition for one in store.list(_DATASET) if one.digest == about.dataset_digest]
        lost = [one.partition for one in removed(store, _DATASET) if one.digest == about.dataset_digest]
        yield _DATASET, next(iter([*named, *lost]), None), about.dataset_digest


def _open(store: ArtifactStore, asset: str, partition: str | None, digest: str) -> Artifact | None:
    try:
        return store.open(asset, partition, digest)
    except (MissingArtifact, ValueError):  # ValueError: no name of an artifact, such as a model's
        return None


def _places(ids: list[str], logs: Iterable[Artifact]) -> Iterable[ExecutionSource]:
    known: dict[str, tuple[str, int]] = {}
    for artifact in logs:
        rows = columns(artifact, "executions", ["execution_id", "source_file", "source_line"])
        for name, file, line in rows.filter(pl.col("execution_id").is_in(ids)).iter_rows():
            known[name] = (file, line)
    for name in ids:
        yield ExecutionSource(name, *known.get(name, (None, None)))
