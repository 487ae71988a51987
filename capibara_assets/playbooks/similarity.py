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
    parent = list(range(count))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for left, right in pairs:
        low, high = sorted((root(left), root(right)))
        parent[high] = low
    groups: dict[int, list[int]] = {}
    for node in range(count):
        groups.setdefault(root(node), []).append(node)
    return [groups[first] for first in sorted(groups)]
