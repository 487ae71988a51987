"""One tensor of every model of a merge: its memory, parallel scans over its blocks, and order statistics."""

import ctypes
import functools
import itertools
import mmap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from capibara_assets.consensus.merging import ranking_kernels as kernels
from capibara_assets.consensus.merging.element_kernels import F32, first_non_finite
from capibara_assets.errors import InputError

BLOCK = 1 << 17
"""Elements that one thread processes at a time. Fixed, so that sums do not depend on the number of threads."""

_AT_ONCE = 1 << 20  # elements that a thread scans per task
_POPULATE_READ = 22  # Linux: map the pages of a range at once, instead of one fault after the other
_madvise = ctypes.CDLL(None).madvise
Floats = np.ndarray[Any, np.dtype[np.float64]]
Block = tuple[int, int]


def grouped(blocks: Sequence[Block], most: int) -> Iterator[Sequence[Block]]:
    """Consecutive blocks in groups of at most `most` elements, of one block at least."""
    first = 0
    for number in range(1, len(blocks) + 1):
        if number == len(blocks) or blocks[number][1] - blocks[first][0] > most:
            yield blocks[first:number]
            first = number


@dataclass(frozen=True)
class MappedTensor:
    """One model's tensor.

    Attributes:
        where: the file, for messages.
        data: its bytes, mapped from the file.
        kind: element type, one of `element_kernels`'.
    """

    where: str
    data: np.ndarray[Any, np.dtype[np.uint8]]
    kind: int

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data)


@dataclass(frozen=True)
class Stack:
    """The tensor `name` of all models, and of the base for methods that merge differences from it."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[MappedTensor, ...]
    base: MappedTensor | None
    executor: Executor

    @functools.cached_property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def columns(self) -> int:
        """Length of a row: the last dimension."""
        return self.shape[-1] if self.shape else 1

    @functools.cached_property
    def addresses(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return np.array([part.address for part in self.parts], np.uint64)

    @functools.cached_property
    def kinds(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([part.kind for part in self.parts], np.int64)

    @property
    def origin(self) -> tuple[np.uint64, int]:
        """Address and element type of the base; address 0 where there is none."""
        return (np.uint64(0), 0) if self.base is None else (np.uint64(self.base.address), self.base.kind)

    @property
    def inputs(self) -> tuple[Any, Any, np.uint64, int]:
        """First arguments of most kernels: addresses and element types of the models and of the base."""
        return self.addresses, self.kinds, *self.origin

    def blocks(self) -> list[Block]:
        """(start, stop) of each block."""
        return [(start, min(start + BLOCK, self.size)) for start in range(0, self.size, BLOCK)]

    def row_blocks(self) -> list[Block]:
        """(start, stop) of blocks that consist of whole rows."""
        step = max(1, BLOCK // self.columns) * self.columns
        return [(start, min(start + step, self.size)) for start in range(0, self.size, step)]

    def scan(self, work: Callable[[int, int], Any], blocks: Sequence[Block] | None = None) -> Iterator[Any]:
        """The results of `work(start, stop)` on every block, on several threads, in the order of the blocks."""
        scanned = self.blocks() if blocks is None else blocks

        def some(blocks: Sequence[Block]) -> list[Any]:
            self.page_in(blocks[0][0], blocks[-1][1])
            return [work(*block) for block in blocks]

        if len(scanned) == 1:
            return iter([work(*scanned[0])])
        return itertools.chain.from_iterable(self.executor.map(some, grouped(scanned, _AT_ONCE)))

    @property
    def everything(self) -> tuple[MappedTensor, ...]:
        """Parts of the models and of the base."""
        return self.parts if self.base is None else (*self.parts, self.base)

    def page_in(self, start: int, stop: int) -> None:
        """Prefetch the pages of elements start..stop (advice to the kernel); otherwise they fault in one by one."""
        for part in self.everything:
            width = 4 if part.kind == F32 else 2
            first = (part.address + start * width) // mmap.PAGESIZE * mmap.PAGESIZE
            size = part.address + stop * width - first
            _madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), _POPULATE_READ)

    def page_out(self) -> None:
        """Unmap the whole pages of the tensor, which stay in the file cache."""
        for part in self.everything:
            first = -(-part.address // mmap.PAGESIZE) * mmap.PAGESIZE
            last = (part.address + len(part.data)) // mmap.PAGESIZE * mmap.PAGESIZE
            if last > first:
                _madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED)

    def check_finite(self, start: int, stop: int) -> None:
        """Check elements start..stop. Raises InputError for NaN or infinity, with tensor, index and file."""
        for part in self.everything:
            at = first_non_finite(np.uint64(part.address), part.kind, start, stop)
            if at >= 0:
                place = [int(index) for index in np.unravel_index(at, self.shape)] if self.shape else []
                raise InputError(
                    f"{self.name} of {part.where} holds a value that is not finite, at {place}: nothing was merged; "
                    "leave that model out, or repair it"
                )


@dataclass(frozen=True)
class Ranked:
    """The ranking key of a method, as `ranking_kernels` computes it.

    Attributes:
        what: DELTA, VARIANCE or IMPORTANCE of `ranking_kernels`.
        index: of the model, where only one is ranked.
        factors: of the rows, for IMPORTANCE.
    """

    what: int
    index: int = 0
    factors: np.ndarray[Any, np.dtype[np.float32]] | None = None

    def arguments(self, stack: Stack) -> tuple[Any, ...]:
        factors = np.ones(1, np.float32) if self.factors is None else self.factors
        return (self.what, *stack.inputs, self.index, factors, max(1, stack.columns))


@dataclass(frozen=True)
class Statistic:
    """An order statistic: the bits of its value, and how many elements are smaller or equal."""

    bits: int
    smaller: int
    equal: int

    @property
    def value(self) -> float:
        return float(np.array(self.bits, np.uint32).view(np.float32))


def order_statistics(stack: Stack, ranked: Ranked, positions: Sequence[int]) -> list[Statistic]:
    """Exact order statistics by counting the floats' bits, 16 and then 15 of them: two passes, no sorting, no copy.

    Args:
        positions: of the elements in ascending order, each below the tensor's size.
    """
    arguments = ranked.arguments(stack)
    upper = _histogram(stack, arguments, np.empty(0, np.uint32))[0]
    ends = np.cumsum(upper)
    prefixes = [int(np.searchsorted(ends, position, side="right")) for position in positions]
    distinct = sorted(set(prefixes))
    lower = _histogram(stack, arguments, np.array(distinct, np.uint32))
    statistics = []
    for position, prefix in zip(positions, prefixes, strict=True):
        before = int(ends[prefix] - upper[prefix])
        counts = lower[distinct.index(prefix)]
        within = np.cumsum(counts)
        low = int(np.searchsorted(within, position - before, side="right"))
        statistics.append(Statistic(prefix << 15 | low, before + int(within[low] - counts[low]), int(counts[low])))
    return statistics


def nth_equal(stack: Stack, ranked: Ranked, statistic: Statistic, nth: int) -> int:
    """Index of the nth (from 0) of the elements with exactly this value."""
    arguments, bits = ranked.arguments(stack), np.uint32(statistic.bits)
    blocks = stack.blocks()
    counts = [seen for seen, _ in stack.scan(lambda a, b: kernels.count_equal(*arguments, a, b, bits, -1), blocks)]
    for (start, stop), count in zip(blocks, counts, strict=True):
        if nth < count:
            return int(kernels.count_equal(*arguments, start, stop, bits, nth)[1])
        nth -= count
    raise IndexError(nth)


def _histogram(stack: Stack, arguments: tuple[Any, ...], prefixes: Any) -> Any:
    """Counts over all blocks; integers, so the order of additions does not matter."""
    shape = (max(1, len(prefixes)), 1 << 15 if len(prefixes) else 1 << 16)
    blocks = stack.blocks()
    share = -(-len(blocks) // 8)  # few, long parts: each has a table of counts of its own

    def count(start: int, stop: int) -> Any:
        table = np.zeros(shape, np.int64)
        kernels.histogram(*arguments, start, stop, prefixes, table)
        return table

    spans = [(blocks[i][0], blocks[min(i + share, len(blocks)) - 1][1]) for i in range(0, len(blocks), share)]
    return sum(stack.scan(count, spans), np.zeros(shape, np.int64))
