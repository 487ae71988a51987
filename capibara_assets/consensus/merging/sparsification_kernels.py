"""Compiled loops that sparsify differences from a base: masks, and sums of the kept elements."""

import numpy as np

from capibara_assets.consensus.merging.element_kernels import (
    BF16,
    PIECE,
    exact,
    load_deltas,
    read,
    round_to_bfloat16,
    summing,
)


@exact
def mark_between(bits, start, low, low_first, low_last, high, high_last, marks):  # type: ignore[no-untyped-def]
    """Mark 1 where low < bits < high; of elements equal to a bound, those at the given indices."""
    for i in range(len(bits)):
        above = bits[i] > low
        below = bits[i] < high
        marks[i] = above & below
    for i in range(len(bits)):
        if bits[i] == low or bits[i] == high:
            at = start + i
            above = bits[i] > low or low_first <= at <= low_last
            below = bits[i] < high or at <= high_last
            marks[i] = above and below


@exact
def _uniform(key, index):  # type: ignore[no-untyped-def]
    """Uniform in [0, 1): number `index` of the SplitMix64 sequence that starts at `key` (Steele, Lea, Flood 2014)."""
    z = key + (np.uint64(index) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) * 2.0**-53


@exact
def mark_random(key, probability, start, marks):  # type: ignore[no-untyped-def]
    """Mark 1 with the given probability, independently for each element."""
    for i in range(len(marks)):
        marks[i] = _uniform(key, start + i) < probability


@exact
def mark_ranked(ordered, key, density, epsilon, start, marks):  # type: ignore[no-untyped-def]
    """Mark 1 with a probability that grows with the rank in the row from density − epsilon to density + epsilon.

    Args:
        ordered: (rows, columns) uint64, each row ascending: magnitude above, column below bit 32.
    """
    rows, columns = ordered.shape
    step = 2.0 * epsilon / (columns - 1) if columns > 1 else 0.0
    lowest = density - epsilon if columns > 1 else density
    for row in range(rows):
        for rank in range(columns):
            i = row * columns + np.int64(ordered[row, rank] & np.uint64(0xFFFFFFFF))
            marks[i] = _uniform(key, start + i) < lowest + rank * step


@summing
def kept_mass(address, kind, base, base_kind, start, stop, marks):  # type: ignore[no-untyped-def]
    """(Σ |delta|, Σ |delta| where marked)."""
    origin = np.empty(PIECE, np.float32)
    row = np.empty(PIECE, np.float32)
    total = 0.0
    kept = 0.0
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        own = read(address, kind, at, count, row)
        zero = read(base, base_kind, at, count, origin)
        for i in range(count):
            size = np.float64(abs(own[i] - zero[i]))
            total += size
            kept += size * marks[at - start + i]
    return total, kept


@exact
def add_sparse(  # type: ignore[no-untyped-def]
    addresses, kinds, base, base_kind, marks, scales, weights, elect, normalize, factor, start, stop, out
):
    """Base plus the marked deltas, scaled and weighted; with `elect` only those that have the sign of their sum.

    Deltas of bfloat16 models are rounded to bfloat16, before and after weighting, as they are ranked and as tools that
    compute in the models' own type elect signs: elements whose deltas all but cancel turn on it.

    Args:
        marks: (models, stop − start) of 0 and 1.
        normalize: divide by the weights of what was added (0: by 1).
        factor: multiplies the sum.
    """
    n = len(addresses)
    origin = np.empty(PIECE, np.float32)
    rows = np.empty((n, PIECE), np.float32)
    deltas = np.empty((n, PIECE), np.float64)
    total = np.empty(PIECE, np.float64)
    agreed = np.empty(PIECE, np.float64)
    divisor = np.empty(PIECE, np.float64)
    product = np.empty(PIECE, np.float32)
    rounds = base_kind == BF16
    for model in range(n):
        rounds = rounds and kinds[model] == BF16
    if rounds:
        weights = weights.copy()
        for model in range(n):
            product[0] = weights[model]
            round_to_bfloat16(product, 1)
            weights[model] = product[0]
    sum_of_weights = weights.sum()
    if abs(sum_of_weights) < 1e-8:
        sum_of_weights = 1.0
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
        total[:count] = 0.0
        for model in range(n):
            coefficient = scales[model] * weights[model]
            if rounds:
                row = rows[model]
                round_to_bfloat16(row, count)
                for i in range(count):
                    product[i] = np.float32(coefficient * row[i])
                round_to_bfloat16(product, count)
                for i in range(count):
                    deltas[model, i] = product[i] * marks[model, at - start + i]
            else:
                for i in range(count):
                    deltas[model, i] = coefficient * rows[model, i] * marks[model, at - start + i]
            for i in range(count):
                total[i] += deltas[model, i]
        if elect:
            agreed[:count] = 0.0
            divisor[:count] = 0.0
            for model in range(n):
                weight = weights[model]
                for i in range(count):
                    same = deltas[model, i] > 0.0 if total[i] >= 0.0 else deltas[model, i] < 0.0
                    agreed[i] += deltas[model, i] if same else 0.0
                    divisor[i] += weight if same else 0.0
            for i in range(count):
                by = divisor[i] if normalize and divisor[i] != 0.0 else 1.0
                out[at - start + i] = np.float32(origin[i] + factor * (agreed[i] / by))
        else:
            by = sum_of_weights if normalize else 1.0
            for i in range(count):
                out[at - start + i] = np.float32(origin[i] + factor * (total[i] / by))


@summing
def squares(addresses, kinds, base, base_kind, marks, start, stop):  # type: ignore[no-untyped-def]
    """Σ delta² of each model where marked."""
    n = len(addresses)
    origin = np.empty(PIECE, np.float32)
    rows = np.empty((n, PIECE), np.float32)
    sums = np.zeros(n)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
        for model in range(n):
            total = 0.0
            for i in range(count):
                total += np.float64(rows[model, i]) * np.float64(rows[model, i]) * marks[at - start + i]
            sums[model] += total
    return sums


@exact
def add_elected(addresses, kinds, base, base_kind, marks, weights, start, stop, out):  # type: ignore[no-untyped-def]
    """Base plus the weighted mean of those marked deltas that have the sign of their plain sum."""
    n = len(addresses)
    origin = np.empty(PIECE, np.float32)
    rows = np.empty((n, PIECE), np.float32)
    total = np.empty(PIECE, np.float64)
    added = np.empty(PIECE, np.float64)
    divisor = np.empty(PIECE, np.float64)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
        total[:count] = 0.0
        added[:count] = 0.0
        divisor[:count] = 0.0
        for model in range(n):
            for i in range(count):
                rows[model, i] *= marks[at - start + i]
                total[i] += rows[model, i]
        for model in range(n):
            weight = weights[model]
            for i in range(count):
                same = rows[model, i] > 0.0 if total[i] >= 0.0 else rows[model, i] < 0.0
                added[i] += weight * rows[model, i] if same else 0.0
                divisor[i] += weight if same else 0.0
        for i in range(count):
            out[at - start + i] = np.float32(origin[i] + added[i] / max(divisor[i], 1e-6))
