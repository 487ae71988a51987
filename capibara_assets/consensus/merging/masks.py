"""Masks of sparse merges: the entries that are kept, by magnitude, by variance, or at random.

A mask is a function of (start, stop) of a block; it returns 1 where an entry is kept, and 0 elsewhere.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from capibara_assets.consensus.merging import ranking_kernels as ranking
from capibara_assets.consensus.merging import sparsification_kernels as kernels
from capibara_assets.consensus.merging.stack import Ranked, Stack, nth_equal, order_statistics
from capibara_assets.processes.memory import return_free_memory

SORTED = 1 << 22
"""Largest tensor, in entries, in which equal entries at a cut are kept in torch's sort order."""

Mask = Callable[[int, int], Any]


def _everything(start: int, stop: int) -> Any:
    return np.ones(stop - start, np.uint8)


def _nothing(start: int, stop: int) -> Any:
    return np.zeros(stop - start, np.uint8)


def largest(stack: Stack, model: int, density: float) -> Mask:
    """Marks a difference's largest entries."""
    if density >= 1.0:
        return _everything
    if density <= 0.0 or stack.size == 0:
        return _nothing
    return _top(stack, Ranked(ranking.DELTA, model), max(1, int(density * stack.size)))


def without_extremes(stack: Stack, model: int, density: float, gamma: float) -> Mask:
    """Marks a difference's entries but the largest (a share of gamma) and the smallest, down to the density."""
    wanted = int(density * stack.size)
    if density >= 1.0:
        return _everything
    if wanted == 0:
        return _nothing
    first = max(0, stack.size - wanted - int(gamma * stack.size))
    ranked = Ranked(ranking.DELTA, model)
    low, high = order_statistics(stack, ranked, [first, first + wanted - 1])
    if stack.size <= SORTED and not (first == low.smaller and first + wanted == high.smaller + high.equal):
        return _sorted(stack, ranked, first, first + wanted, descending=False)
    from_first = 0 if first == low.smaller else nth_equal(stack, ranked, low, first - low.smaller)
    kept_equal = first + wanted - high.smaller
    to_last = stack.size if kept_equal == high.equal else nth_equal(stack, ranked, high, kept_equal - 1)
    return _between(stack, ranked, (low.bits, from_first, stack.size), (high.bits, to_last))


def at_random(stack: Stack, seed: int, model: int, density: float) -> Mask:
    """Marks each entry with probability `density`."""
    if density >= 1.0:
        return _everything
    key = _key(seed, stack.name, model)

    def mask(start: int, stop: int) -> Any:
        marks = np.empty(stop - start, np.uint8)
        kernels.mark_random(key, density, start, marks)
        return marks

    return mask


def by_rank(stack: Stack, seed: int, model: int, density: float, epsilon: float) -> Mask:
    """Marks each entry with a probability that grows with its rank in the row, from density − epsilon to + epsilon.

    Ranks need a sort of each row, so the mask is stored, a bit for each entry, and serves blocks of whole rows only.
    """
    if density >= 1.0:
        return _everything
    if density <= 0.0:
        return _nothing
    key, columns = _key(seed, stack.name, model), stack.columns
    arguments = Ranked(ranking.DELTA, model).arguments(stack)

    def draw(start: int, stop: int) -> Any:
        sizes = np.empty(stop - start, np.float32)
        ranking.measures(*arguments, start, stop, sizes)
        keys = sizes.view(np.uint32).astype(np.uint64).reshape(-1, columns)
        keys <<= np.uint64(32)
        keys |= np.arange(columns, dtype=np.uint64)
        keys.sort(axis=1)
        marks = np.empty(stop - start, np.uint8)
        kernels.mark_ranked(keys, key, density, epsilon, start, marks)
        return start, np.packbits(marks)

    kept = dict(stack.scan(draw, stack.row_blocks()))
    return lambda start, stop: np.unpackbits(kept[start], count=stop - start)


def _key(seed: int, name: str, model: int) -> np.uint64:
    """Seed of the random sequence for one tensor of one model."""
    digest = hashlib.sha256(f"{seed}\0{model}\0{name}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def most_variable(stack: Stack, share: float) -> Mask:
    """Marks a share of those entries on which the models differ at all: the most variable."""
    if share >= 1.0:
        return _everything
    ranked = Ranked(ranking.VARIANCE)
    arguments = ranked.arguments(stack)
    equal = sum(
        seen
        for seen, _ in stack.scan(lambda start, stop: ranking.count_equal(*arguments, start, stop, np.uint32(0), -1))
    )
    count = int((stack.size - equal) * share)
    return _top(stack, ranked, count) if count > 0 else _nothing


def _between(
    stack: Stack, ranked: Ranked, low: tuple[int, int, int] = (-1, 0, -1), high: tuple[int, int] = (1 << 31, -1)
) -> Mask:
    """Marks entries between two order statistics: (bits, first and last index of the equal entries that count)."""
    arguments = ranked.arguments(stack)
    bounds = (low[0], low[1], low[2], high[0], high[1])

    def mask(start: int, stop: int) -> Any:
        values = np.empty(stop - start, np.float32)
        ranking.measures(*arguments, start, stop, values)
        marks = np.empty(stop - start, np.uint8)
        kernels.mark_between(values.view(np.int32), start, *bounds, marks)
        return marks

    return mask


def _top(stack: Stack, ranked: Ranked, count: int) -> Mask:
    """Marks the `count` largest; of equal ones those that torch's sort puts first, or in large tensors the first."""
    [least] = order_statistics(stack, ranked, [stack.size - count])
    wanted = count - (stack.size - least.smaller - least.equal)
    if wanted < least.equal and stack.size <= SORTED:
        return _sorted(stack, ranked, 0, count, descending=True)
    last = stack.size if wanted == least.equal else nth_equal(stack, ranked, least, wanted - 1)
    return _between(stack, ranked, (least.bits, 0, last))


def _sorted(stack: Stack, ranked: Ranked, first: int, last: int, *, descending: bool) -> Mask:
    """Marks positions first..last of a sorted tensor.

    Which of equal entries are kept at a cut is arbitrary, and bfloat16 has many of them. Tools that sort by torch keep
    them in the order of its sort, which is not stable; this does the same, so that the merged model is the same.
    """
    values = np.empty(stack.size, np.float32)
    ranking.measures(*ranked.arguments(stack), 0, stack.size, values)
    marks = np.zeros(stack.size, np.uint8)
    marks[torch.argsort(torch.from_numpy(values), descending=descending)[first:last].numpy()] = 1
    return_free_memory()  # without it every sort leaves its scratch
    return lambda start, stop: marks[start:stop]
