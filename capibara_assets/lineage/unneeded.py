"""Removal of unneeded files: old checkpoints, journals of finished evaluations, superseded results."""

import fcntl
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from capibara_assets.checkpoints.artifacts import checkpoints_of
from capibara_assets.checkpoints.retention import RetentionPolicy
from capibara_assets.lineage.ancestors import ancestors
from capibara_assets.lineage.checkpoint_needs import decide
from capibara_assets.lineage.checkpoints import has_checkpoints
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.removal import discard_superseded
from capibara_assets.storage.store import ArtifactStore, MissingArtifact

Result = tuple[str, str | None, str]
"""Asset, partition and digest of a published result."""


@dataclass(frozen=True)
class Freed:
    """Names of removed items, and the bytes freed on disk or in the bucket."""

    removed: tuple[str, ...]
    bytes: int

    def __str__(self) -> str:
        return f"{len(self.removed)} removed, {self.bytes:,} bytes freed"


def prune_checkpoints(artifacts: ArtifactStore, policy: RetentionPolicy) -> Freed:
    """Remove the checkpoints that no rule keeps and no result needs, and free their storage."""
    if not has_checkpoints(artifacts):
        return Freed((), 0)
    store = checkpoints_of(artifacts)
    every = store.list()
    doomed = {one.checkpoint.id: one for one in decide(store, every, policy, artifacts) if not one.keep}
    store.retire(list(doomed))
    about = {one.id: f"{one.manifest.about.model}@v{one.version}" for one in every if one.id in doomed}
    return Freed(tuple(sorted(about.values())), store.collect().bytes_freed)


def sweep_journals(folders: Mapping[str, Path], finished: Mapping[str, float], *, older_than_s: float) -> Freed:
    """Remove the journals of finished evaluations; an interrupted or running evaluation keeps its journal.

    Its answers would spare a later evaluation of the same contenders some work: hence the wait.

    Args:
        folders: domain -> folder of its journals.
        finished: domain -> Unix time at which its latest evaluation was published; without one it is left out.
        older_than_s: least seconds since then.
    """
    removed, total = [], 0
    for domain, folder in sorted(folders.items()):
        if time.time() - finished.get(domain, math.inf) < older_than_s:
            continue
        for file in sorted(folder.glob("*.jsonl")):
            about = file.stat()
            if about.st_mtime <= finished[domain] and _unlinked(file):
                removed.append(f"{domain}/{file.name}")
                total += about.st_size
    return Freed(tuple(removed), total)


def remove_unused(
    store: ArtifactStore, assets: Iterable[str], roots: Iterable[Result], *, before: datetime | None = None
) -> Freed:
    """Remove the versions of results that no result in use was made from.

    Args:
        assets: names of the assets whose versions may go.
        roots: results in use. What they were made from, over any number of steps, stays.
        before: versions that were published since then stay, too: a run may be about to name them.
    """
    used = {key for root in roots for key in _behind(store, root)}
    removed, total = [], 0
    for artifact in (one for asset in assets for one in store.list(asset)):
        fresh = before is not None and datetime.fromisoformat(artifact.manifest.created) >= before
        if fresh or (artifact.name, artifact.partition, artifact.digest) in used:
            continue
        if not discard_superseded(store, artifact.name, artifact.partition, artifact.digest):
            continue
        where = "" if artifact.partition is None else f"[{artifact.partition}]"
        removed.append(f"{artifact.name}{where} {artifact.digest[:12]}")
        total += sum(entry.bytes for entry in artifact.manifest.files.values())
    return Freed(tuple(removed), total)


def _behind(store: ArtifactStore, root: Result) -> Iterator[Result]:
    """A result and everything that it was made from."""
    yield root
    try:
        artifact: Artifact = store.open(*root)
    except MissingArtifact:
        return
    for step in ancestors(store, artifact):
        yield step.asset, step.partition, step.digest


def _unlinked(file: Path) -> bool:
    """Delete a journal unless another process writes to it."""
    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        file.unlink()
    return True
