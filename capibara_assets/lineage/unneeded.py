"""Removal of unneeded files: old checkpoints, journals of finished evaluations, superseded results."""

import fcntl
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fcntl import LOCK_EX
from pathlib import Path
from typing import TYPE_CHECKING

from capibara_assets.checkpoints.artifacts import checkpoints_of
from capibara_assets.checkpoints.retention import RetentionPolicy
from capibara_assets.lineage.ancestors import ancestors
from capibara_assets.lineage.checkpoint_needs import decide
from capibara_assets.lineage.checkpoints import has_checkpoints, made_from, needed_checkpoints
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.removal import discard_artifact
from capibara_assets.storage.store import ArtifactStore

if TYPE_CHECKING:
    from capibara_assets.checkpoints.store.store import Checkpoint

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
    with artifacts.locked(LOCK_EX):  # to decide takes time, in which a result may have come again that names some
        named = needed_checkpoints(artifacts)
        doomed = {identity: one for identity, one in doomed.items() if identity not in named}
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


def unused(store: ArtifactStore, roots: Iterable[Result], *, before: datetime | None = None) -> list[Artifact]:
    """The results that no result in use was made from. Until they are discarded nothing may be published.

    Args:
        roots: results in use. What they were made from, over any number of steps, is in use. So is what a checkpoint
            was trained on or made from: who forgets a record finds the checkpoint by it.
        before: versions that were published since then are in use, too: a run may be about to name them.
    """
    every = [artifact for name in store.names() for artifact in store.list(name)]
    named = {digest for one in _checkpoints(store) for digest in made_from(one)}
    fresh = [
        one.key
        for one in every
        if one.digest in named or (before is not None and datetime.fromisoformat(one.manifest.created) >= before)
    ]
    used = {key for root in (*roots, *fresh) for key in _behind(store, root)}
    return [artifact for artifact in every if artifact.key not in used]


def discard(store: ArtifactStore, artifacts: Iterable[Artifact]) -> Freed:
    """Remove results without a note: they may come back."""
    removed, total = [], 0
    for artifact in artifacts:
        discard_artifact(store, *artifact.key)
        removed.append(artifact.title)
        total += sum(entry.bytes for entry in artifact.manifest.files.values())
    return Freed(tuple(removed), total)


def _checkpoints(store: ArtifactStore) -> "list[Checkpoint]":
    return checkpoints_of(store).list() if has_checkpoints(store) else []


def _behind(store: ArtifactStore, root: Result) -> Iterator[Result]:
    """A result and everything that it was made from."""
    yield root
    artifact = store.find(*root)
    for step in ancestors(store, artifact) if artifact is not None else ():
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
