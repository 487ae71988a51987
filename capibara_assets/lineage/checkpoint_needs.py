"""Checkpoints that something published needs: those it names, that a certificate attests, or that were promoted."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from capibara_assets.checkpoints.inspect.verify import adapter_digest
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.lineage.checkpoints import needed_checkpoints
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.store import ArtifactStore

if TYPE_CHECKING:
    from capibara_assets.checkpoints.store.checkpoint import Checkpoint
    from capibara_assets.checkpoints.store.store import CheckpointStore

_DIGEST = re.compile(r"[0-9a-f]{64}")


def named_digests(artifacts: ArtifactStore) -> dict[str, list[str]]:
    """Digest -> what names it, of everything that published artifacts, certificates and promoted models name.

    Of any artifact: the checkpoints that hold its files. Of a certificate: its voters' adapters, its result, and any
    other digest in its document but its own and those of the artifacts it was made from. Of a promoted model: every
    digest in its documents.

    Raises:
        IntegrityError: a document is not what was published.
    """
    found = {identity: [reason] for identity, reason in needed_checkpoints(artifacts).items()}
    for artifact in artifacts.list("consensus_checkpoint"):
        certificate = artifact.document("certificate")
        named = f"the certificate of consensus_checkpoint[{artifact.partition}] {artifact.digest[:12]}"
        rest = {key: value for key, value in certificate.items() if key not in ("context", "digest", "base_digest")}
        for digest, place in _digests(rest, ()):
            found.setdefault(digest, []).append(f"{named} names it ({place})")
    for artifact in artifacts.list("promoted_model"):
        for name, document in _documents(artifact):
            for digest, place in _digests(document, (name,)):
                found.setdefault(digest, []).append(f"promoted_model {artifact.digest[:12]} names it ({place})")
    return found


def needed(
    store: "CheckpointStore", doomed: Iterable["Checkpoint"], named: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Id -> why, of those of `doomed` that something named needs: by id, by source, or as the adapter they hold.

    An adapter is attested by the digest of its files, so it is written to a temporary folder and digested there. One
    that cannot be read is kept: whether it is needed cannot be told.
    """
    found: dict[str, list[str]] = {}
    for checkpoint in doomed if named else ():
        digests = {checkpoint.id, *checkpoint.manifest.aliases, *checkpoint.manifest.about.sources.values()}
        try:
            digests |= {_adapter_digest(store, checkpoint)} if checkpoint.manifest.kind == "adapter" else set()
        except (IntegrityError, InputError) as error:
            found[checkpoint.id] = [f"whether a certificate names it cannot be told: {error}"]
            continue
        if reasons := [reason for digest in sorted(digests & named.keys()) for reason in named[digest]]:
            found[checkpoint.id] = list(dict.fromkeys(reasons))
    return found


def _adapter_digest(store: "CheckpointStore", checkpoint: "Checkpoint") -> str:
    with TemporaryDirectory(prefix="capibara-adapter-") as folder:
        out = Path(folder) / "adapter"
        store.load(checkpoint.id, "huggingface", out)
        return adapter_digest(out)


def _documents(artifact: Artifact) -> Iterator[tuple[str, Any]]:
    for relative in artifact.manifest.files:
        if relative.endswith(".json") and "/" not in relative:
            yield relative.removesuffix(".json"), json.loads(artifact.read_bytes(relative))


def _digests(node: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(digest, where it stands) of every text in a document that is a digest."""
    if isinstance(node, dict):
        label = (str(node["name"]),) if isinstance(node.get("name"), str) else ()
        for key, value in node.items():
            yield from _digests(value, (*place, *label, str(key)))
    elif isinstance(node, list):
        for value in node:
            yield from _digests(value, place)
    elif isinstance(node, str) and _DIGEST.fullmatch(node):
        yield node, " ".join(place)
