"""Groups and splits of imported examples: similar ones share a split, and existing ones never move."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

import polars as pl

from capibara_assets.datasets.duplicates.near import first_of
from capibara_assets.datasets.groups import hashed_split
from capibara_assets.datasets.imported.traits import Traits, linked_pairs
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Split
from capibara_assets.storage.digests import sha256_bytes

BRIDGE = "resembles examples of two splits"
STRICTEST: tuple[Split | None, ...] = (
    "test",
    "validation",
    "train",
    None,
)  # the first of two splits stays


def too_close(split: Split) -> str:
    """The reason of an example that is left out because it resembles one of another split."""
    return f"too close to an example in {split}, which stays"


def find_places(
    known: pl.DataFrame,
    known_traits: Sequence[Traits],
    fresh: Sequence[tuple[Traits, Split | None]],
    recipe: DatasetRecipe,
) -> list[tuple[str, Split] | str]:
    """(group, split) of each fresh example, or the reason why it is left out.

    Args:
        known: examples that keep their group and split.
        fresh: traits, and the requested split; in the order of STRICTEST.
    """
    first = known.height
    traits = [*known_traits, *(trait for trait, _ in fresh)]
    labels: list[Split | None] = [*known["split"], *(split for _, split in fresh)]
    unlabelled = labels.count(None)
    edges = [pair for pair in linked_pairs(traits, labels, recipe) if pair[1] >= first]  # known examples stay
    near: dict[int, list[int]] = defaultdict(list)
    for left, right in edges:
        near[left].append(right)
        near[right].append(left)
    out: dict[int, str] = {}
    for position in range(first, len(traits)):
        label = labels[position]
        beside = {labels[n] for n in near[position] if n < position and n not in out} - {None, label}
        if label is not None and beside:
            out[position] = too_close(min(beside, key=STRICTEST.index))  # type: ignore[arg-type]
    out |= _spread(labels, near, out)
    members = _components(len(traits), edges, out)
    groups = known["group_id"].to_list()
    places: dict[int, tuple[str, Split]] = {}
    for inside in members.values():
        new = [m for m in inside if m >= first]
        if not new:
            continue
        of_known = sorted(groups[m] for m in inside if m < first)
        digest = min(traits[m].text for m in new)
        group = of_known[0] if of_known else sha256_bytes(f"imported:{digest}".encode())[:32]
        stated = next((labels[m] for m in inside if labels[m] is not None), None)
        split = stated or _split_of(group, len(new), unlabelled, recipe)
        places |= dict.fromkeys(new, (group, split))
    return [out[m] if m in out else places[m] for m in range(first, len(traits))]


def _spread(labels: list[Split | None], near: Mapping[int, list[int]], out: Mapping[int, str]) -> dict[int, str]:
    """Label unlabelled examples with the split of those they resemble, nearest first; returns those between two."""
    bridges: dict[int, str] = {}
    queue = deque(position for position, label in enumerate(labels) if label is not None and position not in out)
    while queue:
        for position in sorted(near.get(queue.popleft(), ())):
            if labels[position] is not None or position in bridges:
                continue
            beside = {labels[n] for n in near[position] if n not in out and labels[n] is not None}
            if len(beside) == 1:
                labels[position] = next(iter(beside))
                queue.append(position)
            else:
                bridges[position] = BRIDGE
    return bridges


def _split_of(group: str, size: int, whole: int, recipe: DatasetRecipe) -> Split:
    """The split by the group's digest; a group that would dominate validation or test trains."""
    split = hashed_split(group, recipe)
    return SPLITS[0] if size > 1 and size > 1.5 * recipe.splits[split] * whole else split


def _components(size: int, edges: Sequence[tuple[int, int]], without: Mapping[int, str]) -> dict[int, list[int]]:
    """First position -> members of each connected component; those `without` are in none."""
    kept = [edge for edge in edges if edge[0] not in without and edge[1] not in without]
    members: dict[int, list[int]] = defaultdict(list)
    for position, first in enumerate(first_of(kept, size)):
        if position not in without:
            members[first].append(position)
    return members
