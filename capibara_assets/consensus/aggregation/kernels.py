"""Compiled passes over voters' rows at memory speed: inner products, combinations and sorting networks.

Each pass cuts the columns into blocks of a fixed width, works on a strip of them that stays in the first-level cache,
and gives the blocks to threads. What a block yields depends on its values alone, and sums over blocks are added in
their order, so the number of threads never shows. Everything is added up in float64, in the order of the rows. Rows
need not lie in one matrix: each is reached by its address, so a list of arrays or memory maps is not copied.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capibara_assets.consensus.aggregation.gram_kernel import gram_of_block, strip_of
from capibara_assets.consensus.aggregation.kernel_compilation import compiled
from capibara_assets.processes.cores import cores_here

Rows = Sequence[NDArray[np.floating]]

BLOCK = 1 << 17  # columns that a thread takes at a time
_STRIP = 256  # columns of a strip: 16 rows of it in float64 are 32 KB
_STRETCH = 1 << 15  # columns that are summed at a time: the sums are 256 KB, within a second-level cache
_LONG_BLOCK = 1 << 20
_plain = compiled(error_model="numpy")


def gram(rows: Rows) -> NDArray[np.float64]:
    """(n, n) inner products of n rows of equal length and type (float32 or float64).

    A row that is not finite spoils its own row and column only; the diagonal tells.
    """
    where, like = _addresses(rows), rows[0][:0]
    total = np.zeros((len(rows), len(rows)))
    with np.errstate(over="ignore", invalid="ignore"):
        for part in over_blocks(len(rows[0]), lambda start, stop: gram_of_block(where, like, start, stop)):
            total += part[: len(rows), : len(rows)]
    upper = np.triu(total)
    return np.asarray(upper + np.triu(total, 1).T)


def combination(rows: Rows, weights: NDArray[np.float64], out: NDArray[np.float64]) -> bool:
    """Write the sum of weights[i] * rows[i], in row order, into `out` (d,); return whether all of it is finite."""
    where, like = _addresses(rows), rows[0][:0]
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    # Long stretches of a row, or memory is read ahead for columns that are not wanted yet; but some blocks per thread.
    width = max(BLOCK, min(_LONG_BLOCK, len(out) // (4 * cores_here())))
    finite = over_blocks(
        len(out), lambda start, stop: bool(_combine(where, like, weights, start, stop, out, _STRETCH)), width
    )
    return all(finite)


def reduce_sorted(
    rows: Rows, network: NDArray[np.int64], low: int, high: int, keep: int, out: NDArray[np.float64]
) -> bool:
    """Write a mean of some sorted values of each column into `out` (d,); False as soon as a value is NaN or Inf.

    The values are those at positions low..high-1 after `network` (comparators (m, 2)) has run over the rows; with
    `keep` > 0 the `keep` values that lie closest to the mean of those (the median, then).
    """
    where, like = _addresses(rows), rows[0][:0]
    bits = np.empty(0, np.int32 if like.dtype == np.float32 else np.int64)
    # All bits but the sign, and those of Inf
    limits = bits.dtype.type(np.iinfo(str(bits.dtype)).max), np.array(np.inf, like.dtype).view(bits.dtype)[()]
    return all(
        over_blocks(
            len(out),
            lambda start, stop: bool(
                _reduce_sorted(where, like, bits, *limits, network, low, high, keep, start, stop, out, _STRIP)
            ),
        )
    )


def _addresses(rows: Rows) -> NDArray[np.uintp]:
    length, dtype = len(rows[0]), rows[0].dtype
    if any(len(row) != length or row.dtype != dtype or not row.flags.c_contiguous for row in rows):
        raise ValueError("rows must be contiguous, of one length and of one type")
    return np.array([row.ctypes.data for row in rows], dtype=np.uintp)


def over_blocks(columns: int, work: Callable[[int, int], Any], width: int = BLOCK) -> list[Any]:
    """Run work(start, stop) on every block of columns and return the results in the order of the blocks."""
    bounds = [(start, min(start + width, columns)) for start in range(0, columns, width)]
    threads = min(cores_here(), len(bounds))
    if threads < 2:
        return [work(*block) for block in bounds]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda block: work(*block), bounds))


@_plain
def _add(total, a, x):  # type: ignore[no-untyped-def]
    for k in range(total.size):
        total[k] += a * x[k]


@_plain
def _add_four(total, a, b, c, d, x, y, z, w):  # type: ignore[no-untyped-def]
    for k in range(total.size):
        total[k] = total[k] + a * x[k] + b * y[k] + c * z[k] + d * w[k]


@_plain
def _combine(where, like, weights, start, stop, out, width):  # type: ignore[no-untyped-def]
    n = len(where)
    finite = True
    for first in range(start, stop, width):
        length = min(width, stop - first)
        total = out[first : first + length]
        total[:] = 0.0
        for i in range(0, n - n % 4, 4):
            _add_four(
                total, weights[i], weights[i + 1], weights[i + 2], weights[i + 3],
                strip_of(where[i], like, first, length), strip_of(where[i + 1], like, first, length),
                strip_of(where[i + 2], like, first, length), strip_of(where[i + 3], like, first, length),
            )  # fmt: skip
        for i in range(n - n % 4, n):
            _add(total, weights[i], strip_of(where[i], like, first, length))
        bad = 0
        for k in range(length):
            bad |= total[k] - total[k] != 0.0
        finite &= bad == 0
    return finite


@_plain
def _exchange(low, high):  # type: ignore[no-untyped-def]
    for k in range(low.size):
        x, y = low[k], high[k]
        low[k] = x if x < y else y
        high[k] = y if x < y else x


@_plain
def _mean_of(ordered, low, high, length, out):  # type: ignore[no-untyped-def]
    """The mean of rows low..high-1 of a strip, added from the lowest value up."""
    total = out[:length]
    total[:] = 0.0
    for i in range(low, high):
        row = ordered[i]
        for k in range(length):
            total[k] += row[k]
    for k in range(length):
        total[k] /= high - low


@_plain
def _closest_mean(ordered, keep, length, centre, window, out):  # type: ignore[no-untyped-def]
    """As `coordinate_rules.mean_around_median`: the window of sorted values moves up while the newcomer is closer."""
    n = len(ordered)
    _mean_of(ordered, 0, keep, length, out)
    for first in range(1, n - keep + 1):
        _mean_of(ordered, first, first + keep, length, window)
        new, old = ordered[first + keep - 1], ordered[first - 1]
        for k in range(length):
            if abs(new[k] - centre[k]) < abs(old[k] - centre[k]):
                out[k] = window[k]


@_plain
def _peak(values, mask):  # type: ignore[no-untyped-def]
    """The largest of the values' magnitudes as bits: NaN and Inf are at or above Inf's."""
    top = values[0] & mask
    for k in range(values.size):
        top = max(top, values[k] & mask)
    return top


@_plain
def _reduce_sorted(  # type: ignore[no-untyped-def]
    where, like, bits, magnitude, endless, network, low, high, keep, start, stop, out, width
):
    n = len(where)
    strip = np.empty((n, width), like.dtype)
    centre, window = np.empty(width), np.empty(width)
    for first in range(start, stop, width):
        length = min(width, stop - first)
        for i in range(n):
            if _peak(strip_of(where[i], bits, first, length), magnitude) >= endless:
                return False
            strip[i, :length] = strip_of(where[i], like, first, length)
        for c in range(len(network)):
            _exchange(strip[network[c, 0], :length], strip[network[c, 1], :length])
        target = out[first : first + length]
        if keep:
            _mean_of(strip, low, high, length, centre)
            _closest_mean(strip, keep, length, centre, window, target)
        else:
            _mean_of(strip, low, high, length, target)
    return True
