"""What results were made from and that cannot be read in their store: what it held is not known, and not nothing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capibara_assets.errors import IntegrityError
from capibara_assets.lineage.ancestors import UNPARTITIONED, ancestors, parsed_source, upstream
from capibara_assets.lineage.checkpoints import title
from capibara_assets.lineage.records import Results, holds_execution
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.manifest import title_of
from capibara_assets.storage.removal import removed
from capibara_assets.storage.store import ArtifactStore

if TYPE_CHECKING:
    from capibara_assets.checkpoints.store.store import Checkpoint

Key = tuple[str, str | None, str]
_WAY = ("moe_dataset", "trained_adapters", "consensus_checkpoint")
"""Assets through which a model leads back to records: whatever names a lost one may have seen any."""
_COUNTING = (*_WAY, "e2b_logs", "e2b_executions", "e2b_patterns", "example_groups", "routing_dataset", "ace_playbooks",
             "consolidated_playbook")  # fmt: skip
"""Assets whose current result says where a record is."""
MISSING = "missing"


@dataclass(frozen=True, order=True)
class Lost:
    """An artifact that is named and cannot be read, and no note says that it was removed."""

    asset: str
    partition: str | None
    digest: str
    why: str = MISSING
    """Missing, or what is damaged."""
    of: tuple[str, ...] = ()
    """Titles of the results and checkpoints that name it as what they were made from."""

    def __str__(self) -> str:
        return f"{title_of(self.asset, self.partition)} {self.digest} ({self.why})"


def lost(results: Results, checkpoints: Iterable["Checkpoint"] = (), damaged: Iterable[Lost] = ()) -> tuple[Lost, ...]:
    """What results and checkpoints lead back to, or counts now, and is not in the store.

    Args:
        checkpoints: those that are asked, too.
        damaged: artifacts that are in the store and cannot be read; all of them are returned, with what names them.
    """
    store, every = results.store, list(checkpoints)
    there = [artifact for name in store.names() for artifact in store.list(name)]
    known = {artifact.key for artifact in there} | {(one.asset, one.partition, one.digest) for one in removed(store)}
    broken = {(one.asset, one.partition, one.digest): one.why for one in damaged}
    of: dict[Key, set[str]] = {key: set() for key in broken}
    of |= {key: set() for key in results.lost if key[0] in _COUNTING}
    for artifact in there:
        for node in upstream(artifact.manifest):
            key = (node.asset, None if node.partition == UNPARTITIONED else node.partition, node.digest)
            of.setdefault(key, set()).add(f"{title_of(artifact.name, artifact.partition)} {artifact.digest}")
    for one in every:
        for source, digest in one.manifest.about.sources.items():
            of.setdefault((*parsed_source(source), digest), set()).add(title(one))
    asked = {key: names for key, names in of.items() if key in broken or (key not in known and _asked(key, results))}
    for one in every:  # an epoch names its dataset by the digest alone
        for key, names in asked.items():
            if key[2] == one.manifest.about.dataset_digest:
                names.add(title(one))
    found = (Lost(*key, broken.get(key, MISSING), tuple(sorted(names))) for key, names in asked.items())
    return tuple(sorted(found, key=str))


def readable(artifacts: Iterable[Artifact]) -> tuple[list[Artifact], list[tuple[Artifact, Lost]]]:
    """(artifacts whose tables can be read, and the others with what is damaged)."""
    whole, damaged = list[Artifact](), list[tuple[Artifact, Lost]]()
    for artifact in artifacts:
        try:
            holds_execution(artifact, ())
        except IntegrityError as error:
            damaged.append((artifact, Lost(*artifact.key, str(error))))
        else:
            whole.append(artifact)
    return whole, damaged


def still_damaged(store: ArtifactStore, damaged: Iterable[Lost]) -> list[Lost]:
    """Those of some damaged artifacts that were not published again since."""
    return [
        one
        for one in damaged
        if (artifact := store.find(one.asset, one.partition, one.digest)) is None or readable([artifact])[1]
    ]


def lost_models(store: ArtifactStore, artifact: Artifact) -> Iterator[str]:
    """The trainings and agreements behind a model that are not in the store: who its voters were is not known."""
    for step in ancestors(store, artifact):
        if step.artifact is None and step.asset in _WAY and step.asset != "moe_dataset":
            state = absent_state(store, step.asset, step.digest)
            yield f"{title_of(step.asset, step.partition)} {step.digest} ({state})"


def absent_state(store: ArtifactStore, asset: str, digest: str) -> str:
    """Why an artifact is not in the store: forgotten (removed, as it held a record that was) or missing."""
    return "forgotten" if digest in {gone.digest for gone in removed(store, asset)} else MISSING


def _asked(key: Key, results: Results) -> bool:
    return key[0] in _WAY or key in results.lost
