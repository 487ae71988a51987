"""Near-duplicate texts: exact Jaccard similarity of word sets, found through rare words, not by comparing all."""

import math
import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_NEGATIONS = frozenset({"not", "never", "no", "don", "dont", "avoid", "without", "cannot", "isn", "doesn", "won"})
NEAR = 0.85


def words(text: str) -> frozenset[str]:
    """The distinct words of a text, lower case."""
    return frozenset(_WORD.findall(text.lower()))


def normalised(text: str) -> str:
    """A text as its words in order: what is equal under this is the same advice."""
    return " ".join(_WORD.findall(text.lower()))


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """|both| / |either|; 1 for two empty sets."""
    return len(left & right) / len(left | right) if left or right else 1.0


def opposed(left: frozenset[str], right: frozenset[str]) -> bool:
    """Whether one says not to do what the other says to do: the two differ in words of negation."""
    return (left & _NEGATIONS) != (right & _NEGATIONS)


def near_pairs(texts: Sequence[str], threshold: float = NEAR) -> list[tuple[int, int]]:
    """Index pairs (i < j) whose word sets have Jaccard similarity of at least `threshold`, sorted; exact.

    Prefix filtering (Chaudhuri, Ganti, Kaushik 2006): with words ordered from rare to common, two sets that similar
    share one of their first |x| - ceil(threshold*|x|) + 1 words.
    """
    sets = [words(text) for text in texts]
    frequency = Counter(word for each in sets for word in each)
    seen_with: dict[str, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    for right, each in enumerate(sets):
        ordered = sorted(each, key=lambda word: (frequency[word], word))
        prefix = ordered[: len(ordered) - math.ceil(threshold * len(ordered) - 1e-9) + 1]
        candidates = {left for word in prefix for left in seen_with.get(word, ())}
        pairs += [(left, right) for left in candidates if jaccard(sets[left], each) >= threshold]
        for word in prefix:
            seen_with.setdefault(word, []).append(right)
    return sorted(pairs)


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
