"""Equal questions across programming languages, by words and numbers weighted by rarity.

This finds again, from the texts that train, what grouping finds from code (problems.py): a check of it must not ask the
same question of the same data.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from capibara_assets.datasets.schema import SPLITS

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_ROWS = 256  # compared at once: bounds the memory
_SAME = 0.85  # cosine; of the shared experience's problems in two languages three in four reach it, no two problems do


def translated(texts: Sequence[str], languages: Sequence[str], splits: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pairs of texts of different languages and splits whose words and pairs of words are nearly the same."""
    weights = _weights(texts)
    language, split = np.array(languages), np.array(splits)
    held = np.flatnonzero(split != SPLITS[0])  # one of each pair does not train
    for start in range(0, len(held), _ROWS):
        rows = held[start : start + _ROWS]
        alike = (weights[rows] @ weights.T).tocoo()
        left, right = rows[alike.coords[0]], alike.coords[1]
        same = (alike.data >= _SAME) & (language[left] != language[right]) & (split[left] != split[right])
        yield from zip(left[same].tolist(), right[same].tolist(), strict=True)


def _weights(texts: Sequence[str]) -> csr_array:
    """Words and pairs of words of each text, weighted by tf-idf, as rows of length one."""
    counted = []
    for text in texts:
        words = [word.lower() for word in _WORD.findall(text)]
        counted.append(Counter([*words, *(f"{left} {right}" for left, right in pairwise(words))]))
    columns: dict[str, int] = {}
    places = [columns.setdefault(word, len(columns)) for counts in counted for word in counts]
    holders = np.bincount(places, minlength=len(columns)) if places else np.empty(0)
    rarity = np.log((1 + len(texts)) / (1 + holders)) + 1
    often = np.fromiter((n for counts in counted for n in counts.values()), np.float64, len(places))
    starts = np.cumsum([0, *map(len, counted)])
    values = (1 + np.log(often)) * rarity[places]
    lengths = np.sqrt(np.add.reduceat(np.append(values**2, 0.0), starts[:-1])) if len(texts) else np.empty(0)
    values /= np.repeat(lengths, np.diff(starts)) if len(places) else 1.0
    return csr_array((values, places, starts), shape=(len(texts), len(columns)))
