"""Description of a checkpoint from its manifest and those of its store, for `capibara checkpoint show`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capibara_assets.checkpoints.content import nbytes
from capibara_assets.checkpoints.inspect.diff import layer_of
from capibara_assets.checkpoints.retention import CheckpointVersion, by_any_id, names, pieces_of
from capibara_assets.checkpoints.store.manifest import CheckpointManifest


@dataclass(frozen=True)
class ElementType:
    """Totals of the tensors of one element type."""

    tensors: int
    elements: int
    bytes: int


@dataclass(frozen=True)
class Ancestor:
    """A checkpoint that training resumed from, directly or through later ones."""

    id: str
    version: str | None
    """`model@v7`; None where it was removed: its own parent is then unknown."""
    step: int | None


@dataclass(frozen=True)
class Neighbour:
    """Another checkpoint that shares pieces, which are stored once."""

    id: str
    version: str
    pieces: int
    bytes: int
    """Plain bytes of the pieces that both hold."""


@dataclass(frozen=True)
class Description:
    """Description of one checkpoint. Digests are hexadecimal SHA-256, keyed in an encrypted store."""

    id: str
    version: str
    """`model@v7`."""
    also: tuple[str, ...]
    """Other versions of the same checkpoint."""
    former_ids: tuple[str, ...]
    """Ids it had before its store was encrypted or decrypted, which still find it."""
    kind: str
    step: int
    created: str
    run: str | None
    tags: tuple[str, ...]
    metrics: Mapping[str, float]
    base_digest: str | None
    base_version: str | None
    """The version of the base model, where it is in this store."""
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
    """Bytes of its tensors and files without deduplication or compression."""
    distinct_bytes: int
    """Plain bytes of its distinct pieces."""
    stored_bytes: int | None
    """Bytes of its pieces in the store; shared pieces count in every checkpoint that holds them."""
    exclusive_bytes: int
    """Plain bytes of the pieces that no other checkpoint holds, which removing it frees."""
    shares: tuple[Neighbour, ...]
    """Neighbours that share the most first."""


def describe(
    checkpoint: CheckpointVersion, everything: Sequence[CheckpointVersion], stored_bytes: int | None = None
) -> Description:
    """Describe a checkpoint from the manifests of its store.

    Args:
        everything: every checkpoint of the store.
        stored_bytes: of its pieces in the store, where known.
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


def version_of(checkpoint: CheckpointVersion) -> str:
    """`model@v7`: a reference that the store opens."""
    return f"{checkpoint.manifest.about.model}@v{checkpoint.version}"


def plain_bytes(manifest: CheckpointManifest) -> int:
    """Bytes of all tensors and files, as a format without deduplication writes them."""
    return sum(nbytes(entry.dtype, entry.shape) for entry in (*manifest.tensors.values(), *manifest.files.values()))


def _parents(checkpoint: CheckpointVersion, known: Mapping[str, CheckpointVersion]) -> Iterable[Ancestor]:
    seen = {checkpoint.id}
    name = checkpoint.manifest.about.parent
    while name is not None:
        parent = known.get(name)
        if parent is None:
            yield Ancestor(name, None, None)
            return
        if parent.id in seen:
            return
        seen.add(parent.id)
        yield Ancestor(parent.id, version_of(parent), parent.manifest.about.step)
        name = parent.manifest.about.parent


def _types(manifest: CheckpointManifest) -> dict[str, ElementType]:
    types: dict[str, ElementType] = {}
    for entry in manifest.tensors.values():
        before = types.get(entry.dtype, ElementType(0, 0, 0))
        types[entry.dtype] = ElementType(
            before.tensors + 1,
            before.elements + math.prod(entry.shape),
            before.bytes + nbytes(entry.dtype, entry.shape),
        )
    return dict(sorted(types.items(), key=lambda item: -item[1].bytes))


def _shares(
    pieces: Mapping[str, int], held: Mapping[str, set[str]], others: Mapping[str, CheckpointVersion]
) -> tuple[Neighbour, ...]:
    neighbours = [
        Neighbour(name, version_of(others[name]), len(common), sum(pieces[digest] for digest in common))
        for name, common in held.items()
        if common
    ]
    return tuple(sorted(neighbours, key=lambda one: (-one.bytes, one.version)))
