"""Word sets of texts, their similarity, and connected components of similar pairs."""

import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")


def words(text: str) -> frozenset[str]:
    """The distinct words of a text, lower case."""
    return frozenset(_WORD.findall(text.lower()))


def normalised(text: str) -> str:
    """A text's words in order, in lower case: texts with equal results are the same advice."""
    return " ".join(_WORD.findall(text.lower()))


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Jaccard similarity, |intersection| / |union|; 1 for two empty sets."""
    return len(left & right) / len(left | right) if left or right else 1.0


def components(count: int, pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Connected components of 0..count-1 under `pairs`, each sorted, ordered by their first member."""
    if not pairs:
        return [[node] for node in range(count)]
    # imported here: 0.3 s, which loading the asset definitions should not pay
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs), bool), tuple(zip(*pairs, strict=True))), shape=(count, count))
    groups: dict[int, list[int]] = {}
    for node, label in enumerate(connected_components(graph, directed=False)[1].tolist()):
        groups.setdefault(label, []).append(node)
    return list(groups.values())
