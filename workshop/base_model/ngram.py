"""An interpolated Kneser-Ney n-gram model over token ids: the yardstick that a neural base model has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer]
Keys = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Level:
    """One order: sorted n-gram keys with discounted counts, and per context its total and its number of successors."""

    grams: Keys
    counts: Floats
    contexts: Keys
    totals: Floats
    successors: Floats
    discount: float


@dataclass(frozen=True)
class NGram:
    """Interpolated Kneser-Ney, one discount per order (Chen & Goodman 1999, section 2.7); sums to 1 in any context."""

    vocabulary: int
    levels: tuple[_Level, ...]  # the unigrams first

    @property
    def order(self) -> int:
        return len(self.levels)

    def probabilities(self, contexts: NDArray[np.integer], tokens: Ids) -> Floats:
        """P(token | context), for (n, order - 1) contexts (nearest token last) and (n,) tokens; both may be any ids."""
        history = np.asarray(contexts, np.int64).reshape(len(tokens), self.order - 1)
        probability = np.full(len(tokens), 1.0 / self.vocabulary)
        for length, level in enumerate(self.levels):
            context = _pack(history[:, self.order - 1 - length :], self.vocabulary)
            gram = context * self.vocabulary + np.asarray(tokens, np.int64)
            count = _look_up(level.grams, level.counts, gram)
            total = _look_up(level.contexts, level.totals, context)
            spread = _look_up(level.contexts, level.successors, context)
            seen = total > 0
            safe = np.where(seen, total, 1.0)
            mixed = (np.maximum(count - level.discount, 0.0) + level.discount * spread * probability) / safe
            probability = np.where(seen, mixed, probability)
        return probability

    def losses(self, stream: Ids, batch: int = 1_000_000) -> Floats:
        """-log P of each token of ``stream`` given those before it, (n - order + 1,): the first ones lack a context."""
        windows = np.lib.stride_tricks.sliding_window_view(np.asarray(stream, np.int64), self.order)
        parts = [
            -np.log(self.probabilities(windows[start : start + batch, :-1], windows[start : start + batch, -1]))
            for start in range(0, len(windows), batch)
        ]
        return np.concatenate(parts)


def _pack(tokens: NDArray[np.int64], vocabulary: int) -> Keys:
    keys = np.zeros(len(tokens), np.int64)
    for column in tokens.T:
        keys = keys * vocabulary + column
    return keys


def _look_up(keys: Keys, values: Floats, wanted: Keys) -> Floats:
    """The values of the wanted keys, 0 where absent; ``keys`` are sorted and not empty."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0.0)


def _level(grams: Keys, counts: NDArray[np.int64], vocabulary: int) -> _Level:
    contexts, first = np.unique(grams // vocabulary, return_index=True)
    totals = np.add.reduceat(counts, first)
    successors = np.diff(np.append(first, len(grams)))
    ones, twos = int((counts == 1).sum()), int((counts == 2).sum())
    # The absolute discount of Ney, Essen & Kneser (1994); a corpus without singletons still has to leave some mass.
    discount = min(max(ones / (ones + 2 * twos) if ones else 0.0, 0.1), 0.95)
    return _Level(grams, counts.astype(float), contexts, totals.astype(float), successors.astype(float), discount)


def fit_ngram(stream: Ids, vocabulary: int, order: int = 5) -> NGram:
    """Count ``stream`` (ids below ``vocabulary``) into a model of the given order.

    Raises:
        ValueError: an n-gram would not fit a 63-bit key, or the stream is shorter than one n-gram.
    """
    if vocabulary**order >= 2**63:
        raise ValueError(f"{order}-grams over {vocabulary} tokens do not fit a 63-bit key")
    if len(stream) < order:
        raise ValueError(f"{len(stream)} tokens hold no {order}-gram")
    tokens = np.asarray(stream, np.int64)
    keys = _pack(np.lib.stride_tricks.sliding_window_view(tokens, order), vocabulary)
    grams, counts = np.unique(keys, return_counts=True)
    levels = [_level(grams, counts, vocabulary)]
    for length in range(order - 1, 0, -1):
        # Continuation counts: in how many different contexts (one token to the left) the shorter n-gram was seen.
        grams, counts = np.unique(grams % vocabulary**length, return_counts=True)
        levels.append(_level(grams, counts, vocabulary))
    return NGram(vocabulary, tuple(reversed(levels)))
