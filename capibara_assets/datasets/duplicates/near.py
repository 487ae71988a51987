"""Near-duplicate search: MinHash LSH and a prefix filter propose pairs, exact Jaccard similarity decides."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from capibara_assets.datasets.duplicates.near_on_ray import candidates_on, compared_on
from capibara_assets.datasets.duplicates.postings import CROWD, candidates, count, counted, new_counts, postings
from capibara_assets.datasets.duplicates.shingles import (
    Ints,
    ShingleSets,
    UInts,
    compared,
    hash_sets,
    mixed,
    shingle_texts,
)
from capibara_assets.datasets.recipe import NearDuplicates
from capibara_assets.processes.ray_map import RayCluster


@dataclass(frozen=True)
class Pairs:
    """Pairs of documents.

    Attributes:
        left, right: positions, left < right, sorted, (pairs,) int64.
        similarity: exact Jaccard similarity of their shingles, (pairs,) float64.
    """

    left: Ints
    right: Ints
    similarity: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Equal:
    """Groups of equal sets.

    Attributes:
        first: first document of each group, ascending, (groups,).
        counts: documents of each group, (groups,).
        starts: group n is `members[starts[n] : starts[n] + counts[n]]`, ascending, (groups,).
        members: all documents that are in a group.
    """

    first: Ints
    counts: Ints
    starts: Ints
    members: Ints


def near_pairs(documents: Sequence[Collection[str]], recipe: NearDuplicates) -> list[tuple[int, int]]:
    """Index pairs (i < j, sorted) of shingle sets whose exact Jaccard similarity reaches `recipe.jaccard`.

    Empty sets are similar to nothing. All pairs are listed while there are at most 64 per document in total; beyond
    that, crowds of more than 64 equal sets, or of sets under one search key, are truncated to keep time linear: the
    pairs still connect equal sets, and a set that resembles a crowd to some of its members.
    """
    pairs = similar(hash_sets(documents), recipe)
    return list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))


def near_texts(texts: Sequence[str], recipe: NearDuplicates) -> Pairs:
    """Pairs of texts whose sets of `recipe.shingle`-word shingles reach a Jaccard similarity of `recipe.jaccard`."""
    return similar(shingle_texts(texts, recipe.shingle), recipe)


def similar(sets: ShingleSets, recipe: NearDuplicates, cluster: RayCluster | None = None) -> Pairs:
    """Pairs of sets whose exact Jaccard similarity reaches `recipe.jaccard`; see `near_pairs`.

    With a cluster its workers search and compare where the sets are many; the pairs are the same.
    """
    equal = equal_sets(sets)
    chosen = sets.take(equal.first)
    counts = new_counts(len(chosen.values))
    count(chosen, counts)
    shared = counted(chosen, counts)
    if cluster is None or len(chosen) < cluster.from_texts:
        rows = postings(chosen, np.arange(len(chosen)), shared, recipe, whole=True)
        left, right = candidates(rows, recipe.jaccard)
        similarity = compared(chosen, left, right)
    else:
        left, right = candidates_on(cluster, chosen, shared, recipe)
        similarity = compared_on(cluster, chosen, left, right)
    reached = similarity >= recipe.jaccard
    return _with_twins(left[reached], right[reached], similarity[reached], equal)


def components(left: Ints, right: Ints, documents: int) -> Ints:
    """First document of the connected component of each document, (documents,); pairs are the edges."""
    graph = csr_array((np.ones(len(left), np.bool_), (left, right)), shape=(documents, documents))
    labels = connected_components(graph, directed=False)[1]
    _, first = np.unique(labels, return_index=True)
    return np.asarray(first[labels], np.int64)


def first_of(pairs: Sequence[tuple[int, int]], size: int) -> list[int]:
    """The first position in each position's connected component; pairs are the edges."""
    left, right = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    return [int(first) for first in components(left, right, size)]


def equal_sets(sets: ShingleSets) -> Equal:
    """Groups of equal sets; empty ones belong to none."""
    filled = np.flatnonzero(sets.sizes)
    signature = signatures(sets)[filled]
    order = np.argsort(signature, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], np.diff(signature[order]) != 0])[: len(order)])
    members = filled[order]
    counts = np.diff(np.concatenate([starts, [len(order)]]))
    by_first = np.argsort(members[starts])
    return Equal(members[starts][by_first], counts[by_first], starts[by_first], members)


def signatures(sets: ShingleSets) -> UInts:
    """Hash of each set, (sets,) uint64: the same for equal sets, for others with probability 2^-64."""
    totals = np.zeros(len(sets.values) + 1, np.uint64)
    np.cumsum(mixed(sets.values), out=totals[1:])
    return mixed((totals[sets.offsets[1:]] - totals[sets.offsets[:-1]]) ^ sets.sizes.astype(np.uint64))


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Size of the intersection over size of the union; 0 for two empty sets."""
    shared = len(left & right)
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


def _with_twins(left: Ints, right: Ints, similarity: npt.NDArray[np.float64], equal: Equal) -> Pairs:
    """Expand pairs of distinct sets to pairs of documents.

    All of them, unless these were more than `CROWD` per document: then of more than `CROWD` equal documents only the
    first ones are paired with the others.
    """
    most = int(equal.counts.max(initial=0))
    listed = (equal.counts * (equal.counts - 1) // 2).sum() + (equal.counts[left] * equal.counts[right]).sum()
    if listed > CROWD * len(equal.members):
        most = CROWD
    lows, highs, values = [], [], []
    for rank in range(most):
        groups = np.flatnonzero(equal.counts > rank + 1)
        later = equal.counts[groups] - rank - 1
        of_group, within = _spread(groups, later)
        lows.append(equal.members[equal.starts[of_group] + rank])
        highs.append(equal.members[equal.starts[of_group] + rank + 1 + within])
        values.append(np.ones(len(of_group)))
    ours, theirs = np.minimum(equal.counts[left], most), np.minimum(equal.counts[right], most)
    of_pair, within = _spread(np.arange(len(left)), ours * theirs)
    a = equal.members[equal.starts[left[of_pair]] + within // theirs[of_pair]]
    b = equal.members[equal.starts[right[of_pair]] + within % theirs[of_pair]]
    low, high = np.concatenate([*lows, np.minimum(a, b)]), np.concatenate([*highs, np.maximum(a, b)])
    order = np.argsort(low << 32 | high)
    return Pairs(low[order], high[order], np.concatenate([*values, similarity[of_pair]])[order])


def _spread(items: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Each item repeated by its count, and 0, 1, 2 … within each."""
    return np.repeat(items, counts), np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
