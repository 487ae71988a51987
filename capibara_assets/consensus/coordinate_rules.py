"""Rules that judge every coordinate by itself: median, trimmed mean, mean around the median, Bulyan's second half.

Each works on a block of columns, shape (n, width), so nothing larger than a block is ever copied; voters are sorted
by a comparator network, which is a few whole-array minima and maxima and no per-column call.
"""

from functools import cache

import numpy as np

from capibara_assets.consensus.geometry import Matrix, Vector


def median(block: Matrix) -> Vector:
    """(width,) coordinate-wise median; the mean of the two middle values for an even number of voters."""
    return middle(sorted_rows(block))


def trimmed_mean(block: Matrix, cut: int) -> Vector:
    """(width,) mean of what is left after the `cut` smallest and the `cut` largest values of each coordinate."""
    ordered = sorted_rows(block)
    return row_mean(ordered[cut : len(ordered) - cut])


def mean_around_median(block: Matrix, keep: int) -> Vector:
    """(width,) mean of the `keep` values of each coordinate that lie closest to its median."""
    ordered = sorted_rows(block)
    centre = middle(ordered)
    # The values closest to a centre are neighbours in sorted order. Moving that window up by one trades its lowest
    # value for the next higher one, which pays as long as the newcomer is the closer of the two
    result = row_mean(ordered[:keep])
    for start in range(1, len(ordered) - keep + 1):
        closer = np.abs(ordered[start + keep - 1] - centre) < np.abs(ordered[start - 1] - centre)
        result = np.where(closer, row_mean(ordered[start : start + keep]), result)
    return result


def sorted_rows(block: Matrix) -> Matrix:
    """The block with every column in ascending order."""
    rows = list(block)
    for low, high in _network(len(rows)):
        rows[low], rows[high] = np.minimum(rows[low], rows[high]), np.maximum(rows[low], rows[high])
    return np.stack(rows)


def middle(ordered: Matrix) -> Vector:
    n = len(ordered)
    return row_mean(ordered[(n - 1) // 2 : n // 2 + 1])


def row_mean(rows: Matrix) -> Vector:
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    return np.asarray(total / len(rows))


@cache
def _network(n: int) -> tuple[tuple[int, int], ...]:
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
