"""Candidate pairs of the near-duplicate search: documents that share a key, which is an LSH band or a rare shingle.

Two searches complete each other:

- MinHash with banded LSH (Broder, "On the resemblance and containment of documents", 1997; Leskovec et al., "Mining of
  Massive Datasets", chapter 3): a fixed number of keys per document. 112 permutations in 14 bands propose a pair at
  Jaccard 0.8 with probability 0.92, at 0.9 with 0.999.
- The prefix filter of exact similarity joins (Bayardo et al., "Scaling up all pairs similarity search", 2007; Xiao et
  al., "Efficient similarity joins for near duplicate detection", 2011): under any one order of all shingles, two sets
  x, y of Jaccard >= t share one of the first |x| - ceil(t|x|) + 1 of x and of y. With the rarest first, few sets
  meet by chance. It proposes what LSH misses.

A shingle of one document only occupies a place in the prefix but needs no key; a document whose places are all of that
kind resembles no other, and is not sketched.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rensa import RMinHash, RMinHashDigestMatrix, RMinHashLSH

from capibara_assets.datasets.duplicates.shingles import Ints, ShingleSets, UInts, as_sets, mixed
from capibara_assets.datasets.recipe import NearDuplicates

CROWD = 64  # comparisons per row at most, on the whole: time stays linear
_UNDER_A_BAND = np.uint64(0xD6E8FEB86659FD93)  # keeps the keys of bands and of shingles apart
_SLOTS_PER_SHINGLE = 4
_RANK_BITS = 16  # of a shingle's count in the order of a prefix; 47 bits of its hash follow
_FULL = 1 << 15  # a slot stops counting here

Counts = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Postings:
    """Documents under keys, one row each.

    Attributes:
        key: (rows,) uint64.
        document: position of the document, (rows,) int64.
        size: shingles of the document, (rows,) int64.
        rest: most shingles that can be shared, given that the key is the first shared one, (rows,) int64.
    """

    key: UInts
    document: Ints
    size: Ints
    rest: Ints

    def take(self, chosen: Ints) -> "Postings":
        """The rows at the positions `chosen`, in that order."""
        return Postings(self.key[chosen], self.document[chosen], self.size[chosen], self.rest[chosen])


@dataclass(frozen=True)
class Searched:
    """Result of a search under some keys, and the part that depends on other keys.

    Attributes:
        pairs: left << 32 | right of documents (left < right), distinct, ascending, (pairs,) int64.
        rows: postings under keys of several documents.
        compared: comparisons made.
        crowds: the postings under keys of more than `CROWD` documents that have more to compare, by key and size.
        open_rows: which rows of `crowds` have more to compare, ascending.
    """

    pairs: Ints
    rows: int
    compared: int
    crowds: Postings
    open_rows: Ints


def new_counts(shingles: int, most: int = 1 << 28) -> Counts:
    """Zeroed slots for `count`, for about so many shingles: a power of two, `most` at most."""
    return np.zeros(min(most, 1 << max(10, (_SLOTS_PER_SHINGLE * shingles - 1).bit_length())), np.uint16)


def count(sets: ShingleSets, counts: Counts) -> None:
    """Add to each shingle's slot the number of sets that have it, up to half of a slot's range.

    Shingles may share a slot, so counts are upper bounds; they only serve to order shingles by rarity.
    """
    slots = _slots(sets.values, counts)
    for part in np.split(slots, np.arange(_FULL, len(slots), _FULL)):  # so few at once cannot overflow
        np.add.at(counts, part[counts[part] < _FULL], np.uint16(1))


def counted(sets: ShingleSets, counts: Counts) -> Counts:
    """How many of the counted sets have each shingle, or more, (len(sets.values),)."""
    return counts[_slots(sets.values, counts)]


def postings(
    sets: ShingleSets, documents: Ints, shared: Counts, recipe: NearDuplicates, *, whole: bool = False
) -> Postings:
    """Postings of distinct sets.

    Args:
        sets: the shingles of each document.
        documents: their positions among all documents, (len(sets),).
        shared: of all documents, how many have each shingle (`counted`), (len(sets.values),).
        recipe: permutations, bands, seed and least Jaccard similarity.
        whole: these are all documents, so those that share no band with another get no band keys.
    """
    alone = np.diff(np.cumsum(np.concatenate([[0], shared < 2]))[sets.offsets])
    places = sets.sizes - _least_shared(sets.sizes, recipe.jaccard) + 1 - alone
    chosen = np.flatnonzero((places > 0) & (sets.sizes > 0))
    if not len(chosen):
        return Postings(np.empty(0, np.uint64), *(np.empty(0, np.int64) for _ in range(3)))
    inside = np.repeat((places > 0) & (sets.sizes > 0), sets.sizes)
    sets, shared, alone, places = sets.take(chosen), shared[inside], alone[chosen], places[chosen]
    with ThreadPoolExecutor(2) as pool:  # both run mostly outside the interpreter's lock
        futures = (pool.submit(_by_band, sets, recipe, whole), pool.submit(_by_prefix, sets, shared, alone, places))
        key, at, rest = (np.concatenate(column) for column in zip(*(f.result() for f in futures), strict=True))
    return Postings(key, documents[chosen[at]], sets.sizes[at], rest)


def candidates(listed: Postings, jaccard: float) -> tuple[Ints, Ints]:
    """Pairs of documents (left < right, distinct, sorted) that share a key and may reach the similarity.

    Dropped are pairs whose sizes differ too much, and those that can share too little after the first common key.
    Under a key each document is paired with the next larger ones: with all of them, unless crowds would need more than
    `CROWD` comparisons per row in total; then with at least the `CROWD` next ones. A key of one document has no row.
    """
    return finished([searched(listed, jaccard)], jaccard)


def searched(listed: Postings, jaccard: float) -> Searched:
    """The part of `candidates` that needs no other keys than these: of each document, with the `CROWD` next ones."""
    rows = _of_several(listed)
    first, compared, batches = np.arange(len(rows.key)), 0, []
    for step in range(1, CROWD + 1):
        compared += len(first)
        first, pairs = _paired(rows, first, step, jaccard)
        batches.append(pairs)
    inside = np.flatnonzero(np.isin(rows.key, rows.key[first]))
    return Searched(_distinct(batches), len(rows.key), compared, rows.take(inside), np.searchsorted(inside, first))


def finished(parts: Sequence[Searched], jaccard: float) -> tuple[Ints, Ints]:
    """`candidates` of all keys, given the searches under some of them each, no key in two."""
    starts = np.cumsum([0, *(len(part.crowds.key) for part in parts)])
    rows = concatenated([part.crowds for part in parts])
    first = np.concatenate([start + part.open_rows for start, part in zip(starts, parts, strict=False)])
    compared, budget = sum(part.compared for part in parts), CROWD * sum(part.rows for part in parts)
    step, batches = CROWD, [part.pairs for part in parts]
    while len(first) and compared + len(first) <= budget:
        step += 1
        compared += len(first)
        first, pairs = _paired(rows, first, step, jaccard)
        batches.append(pairs)
    distinct = _distinct(batches)
    return distinct >> 32, distinct & 0xFFFFFFFF


def concatenated(parts: Sequence[Postings]) -> Postings:
    """The rows of all parts, in their order; at least one part."""
    return Postings(
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.document for part in parts]),
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.rest for part in parts]),
    )


def _of_several(listed: Postings) -> Postings:
    """The rows whose key has others, by key, then size, then document."""
    rows = listed.take(np.lexsort((listed.document, listed.size, listed.key)))
    same = np.concatenate([[False], rows.key[1:] == rows.key[:-1], [False]])
    return rows.take(np.flatnonzero(same[1:] | same[:-1])) if len(rows.key) else rows


def _paired(rows: Postings, first: Ints, step: int, jaccard: float) -> tuple[Ints, Ints]:
    """Those of the rows `first` that have one to compare with `step` rows on, and the pairs that may be similar."""
    first = first[first + step < len(rows.key)]
    second = first + step
    # sizes ascend under a key: what is too small for this one is too small for those that follow
    fits = (rows.key[first] == rows.key[second]) & (rows.size[first] >= jaccard * rows.size[second] - 1e-9)
    first, second = first[fits], second[fits]
    needed = np.ceil(jaccard / (1 + jaccard) * (rows.size[first] + rows.size[second]) - 1e-9)
    enough = np.minimum(rows.rest[first], rows.rest[second]) >= needed
    left, right = rows.document[first[enough]], rows.document[second[enough]]
    return first, np.minimum(left, right) << 32 | np.maximum(left, right)


def _distinct(found: Sequence[Ints]) -> Ints:
    """All pairs once, ascending, without those of a document with itself."""
    pairs = np.unique(np.concatenate(found))
    return np.asarray(pairs[pairs >> 32 != pairs & 0xFFFFFFFF], np.int64)


def _by_prefix(sets: ShingleSets, shared: Counts, alone: Ints, places: Ints) -> tuple[UInts, Ints, Ints]:
    """Prefix keys, with their sets and rests: each set's rarest shingles that others may share, one per place."""
    others = shared > 1
    rank = shared[others].astype(np.uint64) << np.uint64(63 - _RANK_BITS)
    ranked = as_sets(rank | sets.values[others] >> np.uint64(_RANK_BITS), sets.sizes - alone)
    at = np.repeat(np.arange(len(ranked)), ranked.sizes)
    position = np.arange(len(at)) - ranked.offsets[at]
    inside = position < places[at]
    at = at[inside]
    return mixed(ranked.values[inside]), at, sets.sizes[at] - alone[at] - position[inside]


def _by_band(sets: ShingleSets, recipe: NearDuplicates, whole: bool) -> tuple[UInts, Ints, Ints]:
    """Band keys, with their sets and rests: one key per band of each set's sketch."""
    at = np.arange(len(sets))
    digests = _sketched(sets, recipe)
    if whole:
        lsh = RMinHashLSH(recipe.jaccard, recipe.permutations, recipe.bands)
        at = np.flatnonzero(lsh.query_duplicate_flags_matrix_one_shot(digests))
        digests = _sketched(sets.take(at), recipe)  # sketching again is faster than reading rows that are not needed
    rows = np.array(digests.to_rows(), np.uint64).reshape(len(at), recipe.bands, recipe.permutations // recipe.bands)
    keys = np.broadcast_to(np.arange(recipe.bands, dtype=np.uint64) * _UNDER_A_BAND, rows.shape[:2])
    for row in range(rows.shape[2]):
        keys = mixed(keys ^ rows[:, :, row])
    repeated = np.repeat(at, recipe.bands)
    return (keys ^ _UNDER_A_BAND).ravel(), repeated, sets.sizes[repeated]


def _sketched(sets: ShingleSets, recipe: NearDuplicates) -> RMinHashDigestMatrix:
    offsets = sets.offsets.astype(np.uint64)
    return RMinHash.digest_matrix_from_flat_token_hashes(sets.values, offsets, recipe.permutations, recipe.seed)


def _least_shared(sizes: Ints, jaccard: float) -> Ints:
    """Fewest shingles of a set that another one must share to reach the similarity."""
    return np.asarray(np.ceil(jaccard * sizes - 1e-9), np.int64)


def _slots(values: UInts, counts: Counts) -> Ints:
    return (values & np.uint64(len(counts) - 1)).astype(np.int64)
