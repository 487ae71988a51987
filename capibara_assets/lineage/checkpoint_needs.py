"""Checkpoints that published results still need: named by artifacts, attested by certificates, or promoted."""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from capibara_assets.checkpoints.inspect.verify import adapter_digest
from capibara_assets.checkpoints.retention import RetentionDecision, RetentionPolicy, plan
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.lineage.checkpoints import needed_checkpoints
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.store import ArtifactStore

if TYPE_CHECKING:
    from capibara_assets.checkpoints.store.checkpoint import Checkpoint
    from capibara_assets.checkpoints.store.store import CheckpointStore

_DIGEST = re.compile(r"[0-9a-f]{64}")


def named_digests(artifacts: ArtifactStore) -> dict[str, list[str]]:
    """Digests that published artifacts, certificates and promoted models refer to, with their origin.

    Of any artifact: the checkpoints that hold its files. Of a certificate: its voters' adapters, its result, and any
    other digest in its document but its own and those of the artifacts it was made from. Of a promoted model: every
    digest in its documents.

    Raises:
        IntegrityError: a document is not what was published.
    """
    named_by = {identity: [reason] for identity, reason in needed_checkpoints(artifacts).items()}
    for artifact in artifacts.list("consensus_checkpoint"):
        certificate = artifact.document("certificate")
        named = f"the certificate of consensus_checkpoint[{artifact.partition}] {artifact.digest[:12]}"
        rest = {key: value for key, value in certificate.items() if key not in ("context", "digest", "base_digest")}
        for digest, place in _digests(rest, ()):
            named_by.setdefault(digest, []).append(f"{named} names it ({place})")
    for artifact in artifacts.list("promoted_model"):
        for name, document in _documents(artifact):
            for digest, place in _digests(document, (name,)):
                named_by.setdefault(digest, []).append(f"promoted_model {artifact.digest[:12]} names it ({place})")
    return named_by


def decide(
    store: "CheckpointStore",
    every: "list[Checkpoint]",
    policy: RetentionPolicy,
    artifacts: ArtifactStore,
    models: Collection[str] = (),
) -> list[RetentionDecision]:
    """The retention plan of a store; certificates and promoted models are read only if something would be removed.

    Args:
        every: all checkpoints of the store.
        artifacts: the deployment's results, which may need some of them.
        models: those that the policy applies to; empty: all.
    """
    chosen = set(models) or None
    going = {one.checkpoint.id for one in plan(every, policy, models=chosen) if not one.keep}
    doomed = {one.id: one for one in every if one.id in going}
    return plan(every, policy, needed(store, doomed.values(), named_digests(artifacts)), chosen)


def needed(
    store: "CheckpointStore", doomed: Iterable["Checkpoint"], named: dict[str, list[str]]
) -> dict[str, list[str]]:
    """The checkpoints to remove that are still needed, by id, by source, or as the adapter they hold: id -> reasons.

    An adapter is attested by the digest of its files, so it is written to a temporary folder and digested there. One
    that cannot be read is kept, since it may be needed.
    """
    reasons_by_id: dict[str, list[str]] = {}
    for checkpoint in doomed if named else ():
        digests = {checkpoint.id, *checkpoint.manifest.aliases, *checkpoint.manifest.about.sources.values()}
        try:
            digests |= {_adapter_digest(store, checkpoint)} if checkpoint.manifest.kind == "adapter" else set()
        except (IntegrityError, InputError) as error:
            reasons_by_id[checkpoint.id] = [f"whether a certificate names it cannot be told: {error}"]
            continue
        if reasons := [reason for digest in sorted(digests & named.keys()) for reason in named[digest]]:
            reasons_by_id[checkpoint.id] = list(dict.fromkeys(reasons))
    return reasons_by_id


def _adapter_digest(store: "CheckpointStore", checkpoint: "Checkpoint") -> str:
    with TemporaryDirectory(prefix="capibara-adapter-") as folder:
        out = Path(folder) / "adapter"
        store.load(checkpoint.id, "huggingface", out)
        return adapter_digest(out)


def _documents(artifact: Artifact) -> Iterator[tuple[str, Any]]:
    for relative in artifact.manifest.files:
        if relative.endswith(".json") and "/" not in relative:
            name = relative.removesuffix(".json")
            yield name, artifact.document(name)


def _digests(node: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(digest, its place) of every string in a document that is a digest."""
    if isinstance(node, dict):
        label = (str(node["name"]),) if isinstance(node.get("name"), str) else ()
        for key, value in node.items():
            yield from _digests(value, (*place, *label, str(key)))
    elif isinstance(node, list):
        for value in node:
            yield from _digests(value, place)
    elif isinstance(node, str) and _DIGEST.fullmatch(node):
        yield node, " ".join(place)
