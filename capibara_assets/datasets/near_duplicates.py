"""Near-duplicates: MinHash with banded LSH finds candidates, the exact Jaccard similarity decides.

Broder, "On the resemblance and containment of documents" (1997); banding as in Leskovec et al., "Mining of Massive
Datasets", chapter 3. With 112 permutations in 14 bands a pair at Jaccard 0.8 is a candidate with probability 0.92, at
0.9 with 0.999.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from rensa import RMinHash

from capibara_assets.datasets.recipe import NearDuplicates

_BATCH = 20_000  # documents sketched at once: bounds the memory of their shingles
_CROWD = 64  # in a band's bucket above this size each document meets the first ones only


def near_pairs(documents: Sequence[frozenset[str]], recipe: NearDuplicates) -> list[tuple[int, int]]:
    """Index pairs (i < j, sorted) of shingle sets whose exact Jaccard similarity reaches `recipe.jaccard`.

    Empty sets are similar to nothing. In a crowded bucket (more than 64 documents, which then resemble each other) each
    document is compared to the first 64 only: the pairs still connect the same clusters, in linear time.
    """
    found = {
        pair
        for pair in _candidates(documents, recipe)
        if jaccard(documents[pair[0]], documents[pair[1]]) >= recipe.jaccard
    }
    return sorted(found)


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Size of the intersection over size of the union; 0 for two empty sets."""
    shared = len(left & right)
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


def _candidates(documents: Sequence[frozenset[str]], recipe: NearDuplicates) -> Iterator[tuple[int, int]]:
    filled = [index for index, document in enumerate(documents) if document]
    if len(filled) < 2:
        return
    sketches = np.concatenate(
        [
            _sketch([documents[i] for i in filled[start : start + _BATCH]], recipe)
            for start in range(0, len(filled), _BATCH)
        ]
    )
    rows = recipe.permutations // recipe.bands
    for band in range(recipe.bands):
        keys = np.ascontiguousarray(sketches[:, band * rows : (band + 1) * rows]).view(f"V{rows * 4}").ravel()
        order = np.argsort(keys, kind="stable")
        borders = np.flatnonzero(keys[order][1:] != keys[order][:-1]) + 1
        for bucket in np.split(order, borders):
            members = [filled[int(i)] for i in bucket]
            for position, later in enumerate(members[1:], 1):
                for earlier in members[: min(position, _CROWD)]:
                    yield earlier, later


def _sketch(documents: list[frozenset[str]], recipe: NearDuplicates) -> np.ndarray:
    """(documents, permutations) uint32."""
    rows = RMinHash.digests_from_token_sets([sorted(d) for d in documents], recipe.permutations, recipe.seed)
    return np.asarray(rows, dtype=np.uint32).reshape(len(documents), recipe.permutations)
