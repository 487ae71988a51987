"""Coordinate-wise rules: median, trimmed mean, mean around the median, and Bulyan's second half.

Each is a mean of some of a coordinate's sorted values. Voters are sorted by a comparator network, which is a few
whole-array minima and maxima and no per-column call: on blocks of columns with NumPy, or on whole rows with compiled
code that gives the same bits.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from capibara_assets.consensus.aggregation.geometry import Matrix, Rows, Vector


@dataclass(frozen=True)
class SortedMean:
    """A coordinate-wise rule: the mean of each coordinate's sorted values at positions low..high-1.

    Attributes:
        keep: if not 0, the rule is the mean of the `keep` values closest to that mean (the median, then).
        selected: indices of the voters it uses; None for all.
    """

    low: int
    high: int
    keep: int = 0
    selected: tuple[int, ...] | None = None

    def of_block(self, block: Matrix) -> Vector:
        """(width,) the rule on columns (n, width) of the voters."""
        block = block if self.selected is None else block[list(self.selected)]
        return mean_around_median(block, self.keep) if self.keep else row_mean(sorted_rows(block)[self.low : self.high])

    def of_rows(self, rows: Rows, out: Vector) -> bool:
        """Compute the rule into `out` (d,) with compiled code, bit-identical; False where a value is NaN or Inf."""
        from capibara_assets.consensus.aggregation import kernels

        rows = rows if self.selected is None else [rows[i] for i in self.selected]
        low, high = (0, len(rows)) if self.keep else (self.low, self.high)
        return kernels.reduce_sorted(rows, partial_network(len(rows), low, high), self.low, self.high, self.keep, out)


def median(n: int) -> SortedMean:
    """The coordinate-wise median; the mean of the two middle values for an even number of voters."""
    return SortedMean((n - 1) // 2, n // 2 + 1)


def trimmed_mean(n: int, cut: int) -> SortedMean:
    """The mean of each coordinate without its `cut` smallest and `cut` largest values."""
    return SortedMean(cut, n - cut)


def closest_mean(n: int, keep: int, selected: tuple[int, ...] | None = None) -> SortedMean:
    """The mean of the `keep` values of each coordinate that lie closest to the median of all (or of the selected)."""
    middle_of = median(n if selected is None else len(selected))
    return SortedMean(middle_of.low, middle_of.high, keep, selected)


def mean_around_median(block: Matrix, keep: int) -> Vector:
    """(width,) mean of the `keep` values of each coordinate that lie closest to its median."""
    ordered = sorted_rows(block)
    centre = middle(ordered)
    # The values closest to a centre are neighbours in sorted order. Moving that window up by one trades its lowest
    # value for the next higher one, an improvement as long as the newcomer is the closer of the two
    result = row_mean(ordered[:keep])
    for start in range(1, len(ordered) - keep + 1):
        closer = np.abs(ordered[start + keep - 1] - centre) < np.abs(ordered[start - 1] - centre)
        result = np.where(closer, row_mean(ordered[start : start + keep]), result)
    return result


def sorted_rows(block: Matrix) -> Matrix:
    """Sort every column of the block in ascending order."""
    rows = list(block)
    for low, high in network(len(rows)):
        rows[low], rows[high] = np.minimum(rows[low], rows[high]), np.maximum(rows[low], rows[high])
    return np.stack(rows)


def middle(ordered: Matrix) -> Vector:
    n = len(ordered)
    return row_mean(ordered[(n - 1) // 2 : n // 2 + 1])


def row_mean(rows: Matrix) -> Vector:
    total = rows[0] + 0.0  # never -0.0, whichever of two zeros the sort put first
    for row in rows[1:]:
        total += row
    return np.asarray(total / len(rows))


@cache
def network(n: int) -> tuple[tuple[int, int], ...]:
    """Batcher's odd-even merge sort for n wires (Knuth, TAOCP 3, algorithm 5.2.2M)."""
    comparators: list[tuple[int, int]] = []
    top = 1 << max((n - 1).bit_length() - 1, 0)
    p = top
    while n > 1 and p > 0:
        q, r, d = top, 0, p
        while True:
            comparators += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return tuple(comparators)


@cache
def partial_network(n: int, low: int, high: int) -> NDArray[np.int64]:
    """The comparators (m, 2) of `network(n)` that the wires low..high-1 depend on."""
    needed = set(range(low, high))
    kept: list[tuple[int, int]] = []
    for pair in reversed(network(n)):
        if needed & set(pair):
            needed |= set(pair)
            kept.append(pair)
    return np.array(kept[::-1], dtype=np.int64).reshape(-1, 2)
