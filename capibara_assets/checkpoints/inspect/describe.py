"""What can be said of a checkpoint from its manifest and its neighbours': the answers of `capibara checkpoint show`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capibara_assets.checkpoints.content import nbytes
from capibara_assets.checkpoints.inspect.diff import layer_of
from capibara_assets.checkpoints.retention import Kept, by_any_id, names, pieces_of
from capibara_assets.checkpoints.store.manifest import CheckpointManifest


@dataclass(frozen=True)
class ElementType:
    """All tensors of one element type."""

    tensors: int
    elements: int
    bytes: int


@dataclass(frozen=True)
class Ancestor:
    """A checkpoint that training went on from, and before it the one that that one went on from."""

    id: str
    version: str | None
    """`model@v7`; None where it was pruned: what it named is then not known, and nothing needs it."""
    step: int | None


@dataclass(frozen=True)
class Neighbour:
    """Another checkpoint that holds some of the same pieces, which are stored once."""

    id: str
    version: str
    pieces: int
    bytes: int
    """Plain bytes of the pieces that both hold."""


@dataclass(frozen=True)
class Description:
    """One checkpoint. All digests are hexadecimal SHA-256, keyed under encryption."""

    id: str
    version: str
    """`model@v7`."""
    also: tuple[str, ...]
    """Other versions that are this very checkpoint."""
    former_ids: tuple[str, ...]
    """Those it had before its store was encrypted or decrypted: they still find it."""
    kind: str
    step: int
    created: str
    run: str | None
    tags: tuple[str, ...]
    metrics: Mapping[str, float]
    base_digest: str | None
    base_version: str | None
    """The checkpoint that is the base model, where it is in this store."""
    dataset_digest: str | None
    recipe: Mapping[str, Any] | None
    code_version: str | None
    sources: Mapping[str, str]
    named_by: tuple[str, ...]
    """Checkpoints that name this one as their base or source, and so keep it."""
    parents: tuple[Ancestor, ...]
    """Nearest first."""
    origin: str | None
    """The format it was imported from."""
    tensors: int
    parameters: int
    """Elements of all tensors, tied ones once."""
    types: Mapping[str, ElementType]
    layers: int
    ties: Mapping[str, str]
    files: Mapping[str, int]
    """Name -> bytes."""
    plain_bytes: int
    """Bytes of its tensors and files as its formats write them."""
    distinct_bytes: int
    """Plain bytes of its distinct pieces."""
    stored_bytes: int | None
    """Bytes that its pieces take in the store; shared ones count in every checkpoint that holds them."""
    exclusive_bytes: int
    """Plain bytes of the pieces that no other checkpoint holds: what goes with it."""
    shares: tuple[Neighbour, ...]
    """Most first."""


def describe(checkpoint: Kept, everything: Sequence[Kept], stored_bytes: int | None = None) -> Description:
    """All that the manifests of a store say of one of its checkpoints.

    Args:
        everything: every checkpoint of the store.
    """
    manifest, about = checkpoint.manifest, checkpoint.manifest.about
    known = by_any_id(everything)
    own = {checkpoint.id, *manifest.aliases}
    pieces = pieces_of(manifest)
    others = {one.id: one for one in everything if one.id != checkpoint.id}
    held = {name: pieces_of(one.manifest).keys() & pieces.keys() for name, one in others.items()}
    base = known.get(about.base_digest or "")
    return Description(
        id=checkpoint.id,
        version=version_of(checkpoint),
        also=tuple(version_of(one) for one in everything if one.id == checkpoint.id and one != checkpoint),
        former_ids=manifest.aliases,
        kind=manifest.kind,
        step=about.step,
        created=manifest.created,
        run=about.run,
        tags=about.tags,
        metrics=about.metrics,
        base_digest=about.base_digest,
        base_version=version_of(base) if base is not None else None,
        dataset_digest=about.dataset_digest,
        recipe=about.recipe,
        code_version=about.code_version,
        sources=about.sources,
        named_by=tuple(version_of(one) for one in others.values() if own & names(one.manifest).keys()),
        parents=tuple(_parents(checkpoint, known)),
        origin=manifest.origin.get("format"),
        tensors=len(manifest.tensors),
        parameters=sum(math.prod(entry.shape) for entry in manifest.tensors.values()),
        types=_types(manifest),
        layers=len({layer_of(name) for name in manifest.tensors}),
        ties=manifest.ties,
        files={name: math.prod(entry.shape) for name, entry in sorted(manifest.files.items())},
        plain_bytes=plain_bytes(manifest),
        distinct_bytes=sum(pieces.values()),
        stored_bytes=stored_bytes,
        exclusive_bytes=sum(pieces[digest] for digest in pieces.keys() - set[str]().union(*held.values())),
        shares=_shares(pieces, held, others),
    )


def version_of(checkpoint: Kept) -> str:
    """`model@v7`: a reference that the store opens."""
    return f"{checkpoint.manifest.about.model}@v{checkpoint.version}"


def plain_bytes(manifest: CheckpointManifest) -> int:
    """Bytes of all tensors and files, as a format without deduplication writes them."""
    return sum(nbytes(entry.dtype, entry.shape) for entry in (*manifest.tensors.values(), *manifest.files.values()))


def _parents(checkpoint: Kept, known: Mapping[str, Kept]) -> Iterable[Ancestor]:
    seen = {checkpoint.id}
    name = checkpoint.manifest.about.parent
    while name is not None:
        found = known.get(name)
        if found is None:
            yield Ancestor(name, None, None)
            return
        if found.id in seen:
            return
        seen.add(found.id)
        yield Ancestor(found.id, version_of(found), found.manifest.about.step)
        name = found.manifest.about.parent


def _types(manifest: CheckpointManifest) -> dict[str, ElementType]:
    found: dict[str, ElementType] = {}
    for entry in manifest.tensors.values():
        before = found.get(entry.dtype, ElementType(0, 0, 0))
        found[entry.dtype] = ElementType(
            before.tensors + 1,
            before.elements + math.prod(entry.shape),
            before.bytes + nbytes(entry.dtype, entry.shape),
        )
    return dict(sorted(found.items(), key=lambda item: -item[1].bytes))


def _shares(
    pieces: Mapping[str, int], held: Mapping[str, set[str]], others: Mapping[str, Kept]
) -> tuple[Neighbour, ...]:
    found = [
        Neighbour(name, version_of(others[name]), len(common), sum(pieces[digest] for digest in common))
        for name, common in held.items()
        if common
    ]
    return tuple(sorted(found, key=lambda one: (-one.bytes, one.version)))
