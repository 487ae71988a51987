"""Ancestors and descendants of an artifact, by the inputs in the manifests.

A manifest's `inputs` hold `{"upstream": {"<asset>|<partition or _>": "<digest>"}, "recipes": {...}, ...}`.
Content that is published again unchanged keeps its first manifest: these are the inputs that first produced it.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from capibara_assets.errors import IntegrityError
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.manifest import Manifest
from capibara_assets.storage.store import ArtifactStore

UNPARTITIONED = "_"
_SOURCE = re.compile(r"(?P<asset>[^\[\]]+)(\[(?P<partition>[^\[\]]+)\])?")


@dataclass(frozen=True, order=True)
class ArtifactNode:
    """The key of an artifact in the lineage graph."""

    asset: str
    partition: str
    digest: str


@dataclass(frozen=True)
class LineageStep:
    """An artifact reached by a walk, and the artifact through which it was reached."""

    asset: str
    partition: str | None
    digest: str
    depth: int
    """Edges from the start on the shortest path."""
    via: str
    """`asset|partition` of the neighbour nearer the start."""
    artifact: Artifact | None
    """None where the artifact is named by a manifest but no longer in the store."""


def upstream_key(asset: str, partition: str | None) -> str:
    """The name of an input in a manifest: `<asset>|<partition or _>`."""
    return f"{asset}|{partition or UNPARTITIONED}"


def parsed_source(source: str) -> tuple[str, str | None]:
    """(asset, partition) of a checkpoint's source, `asset[partition]`."""
    match = _SOURCE.fullmatch(source)
    return (match["asset"], match["partition"]) if match else (source, None)


def ancestors(store: ArtifactStore, artifact: Artifact) -> list[LineageStep]:
    """All artifacts that this one was made from, nearest first, then by asset, partition and digest.

    Raises:
        IntegrityError: a manifest on the path is damaged or names an input in another form.
    """

    def inputs(node: ArtifactNode, artifact: Artifact | None) -> Iterable[ArtifactNode]:
        return upstream(artifact.manifest) if artifact is not None else ()

    return _walk(store, artifact, inputs)


def descendants(store: ArtifactStore, artifact: Artifact) -> list[LineageStep]:
    """All artifacts in the store made from this one, nearest first; reads every manifest once.

    Raises:
        IntegrityError: a manifest in the store is damaged or names an input in another form.
    """
    made_from: dict[ArtifactNode, list[ArtifactNode]] = {}
    for name in store.names():
        for other in store.list(name):
            for node in upstream(other.manifest):
                made_from.setdefault(node, []).append(_node(other))
    return _walk(store, artifact, lambda node, _: made_from.get(node, ()))


def upstream(manifest: Manifest) -> list[ArtifactNode]:
    """The artifacts that a manifest names as inputs, sorted; inputs that were missing then are left out.

    Raises:
        IntegrityError: a name has another form.
    """
    named = manifest.inputs.get("upstream", {})
    where = upstream_key(manifest.name, manifest.partition)
    if not isinstance(named, dict):
        raise IntegrityError(f"manifest of {where}: upstream is no object")
    nodes = []
    for key, digest in named.items():
        asset, bar, partition = key.partition("|")
        if not (asset and bar and partition and isinstance(digest, str)):
            raise IntegrityError(f"manifest of {where}: upstream {key!r} is not <asset>|<partition or _>: digest")
        if digest:
            nodes.append(ArtifactNode(asset, partition, digest))
    return sorted(nodes)


def _walk(
    store: ArtifactStore, start: Artifact, neighbours: Callable[[ArtifactNode, Artifact | None], Iterable[ArtifactNode]]
) -> list[LineageStep]:
    """Walk breadth first, each artifact once."""
    first = _node(start)
    seen, steps = {first}, list[LineageStep]()
    frontier: list[tuple[ArtifactNode, Artifact | None]] = [(first, start)]
    depth = 0
    while frontier:
        depth += 1
        reached: list[tuple[ArtifactNode, Artifact | None]] = []
        for node, artifact in frontier:
            for neighbour in sorted(neighbours(node, artifact)):
                if neighbour in seen:
                    continue
                seen.add(neighbour)
                partition = None if neighbour.partition == UNPARTITIONED else neighbour.partition
                opened = store.find(neighbour.asset, partition, neighbour.digest)
                via = f"{node.asset}|{node.partition}"
                steps.append(LineageStep(neighbour.asset, partition, neighbour.digest, depth, via, opened))
                reached.append((neighbour, opened))
        frontier = sorted(reached, key=lambda pair: pair[0])
    return sorted(steps, key=lambda step: (step.depth, step.asset, step.partition or "", step.digest))


def _node(artifact: Artifact) -> ArtifactNode:
    return ArtifactNode(artifact.name, artifact.partition or UNPARTITIONED, artifact.digest)
