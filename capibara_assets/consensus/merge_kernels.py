"""Compiled loops of merges: they read tensors where they lie in memory, in their own element type, in small pieces.

Each kernel works on elements start..stop of tensors given by address and element type. A piece fits the processor's
first cache, so that nothing but the result is ever written to memory. Sums are float64 over pieces of a fixed size:
they do not depend on the number of threads.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, njit  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

F32, BF16, F16 = 0, 1, 2
"""Element types that kernels read; everything is computed in float32 or wider."""

DELTA, VARIANCE, IMPORTANCE = 0, 1, 2
"""What is ranked: |model − base| of one model, the variance of the deltas over models, |model − base| × row factor."""

PIECE = 2048
_TOO_LARGE = np.uint32(0x7F7F8000)  # bits of the smallest float32 that bfloat16 rounds to infinity
_compiled: Callable[..., Any] = njit(nogil=True, cache=True, boundscheck=False)
_summing: Callable[..., Any] = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})


_intrinsic: Callable[..., Any] = intrinsic


@_intrinsic
def _pointer(context: Any, address: Any) -> Any:
    """The address (an integer) as a pointer."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), code


@_compiled
def load(address, kind, start, count, out):  # type: ignore[no-untyped-def]
    """Elements start..start+count as float32 into `out`."""
    bits = out.view(np.uint32)
    if kind == F32:
        singles = carray(_pointer(np.uint64(address) + np.uint64(4 * start)), (count,), np.float32)
        for i in range(count):
            out[i] = singles[i]
        return
    halves = carray(_pointer(np.uint64(address) + np.uint64(2 * start)), (count,), np.uint16)
    if kind == BF16:
        for i in range(count):
            bits[i] = np.uint32(halves[i]) << np.uint32(16)
        return
    for i in range(count):  # the exponent moves from bias 15 to 127 by a product, which also lifts subnormal numbers
        bits[i] = np.uint32(halves[i] & 0x7FFF) << np.uint32(13)
    for i in range(count):
        out[i] *= np.float32(2.0**112)
    for i in range(count):
        if (halves[i] & 0x7C00) == 0x7C00:
            bits[i] |= np.uint32(0x7F800000)
        bits[i] |= np.uint32(halves[i] & 0x8000) << np.uint32(16)


@_compiled
def read(address, kind, start, count, scratch):  # type: ignore[no-untyped-def]
    """Elements start..start+count as float32: where they lie, if they are, or else in `scratch`. Not to be written."""
    if kind == F32:
        return carray(_pointer(np.uint64(address) + np.uint64(4 * start)), (count,), np.float32)
    load(address, kind, start, count, scratch)
    return scratch[:count]


@_compiled
def first_non_finite(address, kind, start, stop):  # type: ignore[no-untyped-def]
    """Index of the first NaN or infinity; −1 if there is none."""
    scratch = np.empty(PIECE, np.float32)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        bits = read(address, kind, at, count, scratch).view(np.uint32)
        largest = np.uint32(0)
        for i in range(count):
            largest = max(largest, bits[i] & np.uint32(0x7FFFFFFF))
        if largest >= np.uint32(0x7F800000):
            for i in range(count):
                if (bits[i] & np.uint32(0x7FFFFFFF)) >= np.uint32(0x7F800000):
                    return at + i
    return -1


@_compiled
def to_bfloat16(values, out):  # type: ignore[no-untyped-def]
    """Float32 to the bits of bfloat16, to nearest, ties to even; index of the first that is not finite then, or −1."""
    bits = values.view(np.uint32)
    largest = np.uint32(0)
    for i in range(len(values)):
        even = (bits[i] >> np.uint32(16)) & np.uint32(1)
        out[i] = np.uint16((bits[i] + np.uint32(0x7FFF) + even) >> np.uint32(16))
        largest = max(largest, bits[i] & np.uint32(0x7FFFFFFF))
    if largest >= _TOO_LARGE:
        for i in range(len(values)):
            if (bits[i] & np.uint32(0x7FFFFFFF)) >= _TOO_LARGE:
                return i
    return -1


@_compiled
def _round(values, count):  # type: ignore[no-untyped-def]
    """Finite float32 to the nearest bfloat16, in place."""
    bits = values.view(np.uint32)
    for i in range(count):
        even = (bits[i] >> np.uint32(16)) & np.uint32(1)
        bits[i] = (bits[i] + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)


@_compiled
def _load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows):  # type: ignore[no-untyped-def]
    """Models minus base (address 0: the models themselves) into `rows` (models, PIECE), the base into `origin`."""
    if not base:
        for model in range(len(addresses)):
            load(addresses[model], kinds[model], at, count, rows[model])
        return
    load(base, base_kind, at, count, origin)
    for model in range(len(addresses)):
        row = rows[model]
        own = read(addresses[model], kinds[model], at, count, row)
        for i in range(count):
            row[i] = own[i] - origin[i]


@_summing
def _dot(left, right, count):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(count):
        total += np.float64(left[i]) * np.float64(right[i])
    return total


@_summing
def _dots(a, b, c, origin, count):  # type: ignore[no-untyped-def]
    """Inner products of three rows minus the origin, each with each, in one pass."""
    aa = ab = ac = bb = bc = cc = 0.0
    for i in range(count):
        x, y, z = np.float64(a[i] - origin[i]), np.float64(b[i] - origin[i]), np.float64(c[i] - origin[i])
        aa += x * x
        ab += x * y
        ac += x * z
        bb += y * y
        bc += y * z
        cc += z * z
    return aa, ab, ac, bb, bc, cc


@_summing
def _dots_of_two(a, b, origin, count):  # type: ignore[no-untyped-def]
    aa = ab = bb = 0.0
    for i in range(count):
        x, y = np.float64(a[i] - origin[i]), np.float64(b[i] - origin[i])
        aa += x * x
        ab += x * y
        bb += y * y
    return aa, ab, bb


@_compiled
def gram(addresses, kinds, base, base_kind, start, stop):  # type: ignore[no-untyped-def]
    """Inner products (n, n) of the models' elements start..stop, minus those of the base where there is one.

    Two and three models are multiplied where they lie: as fast as memory gives them.
    """
    n = len(addresses)
    products = np.zeros((n, n))
    rows = np.empty((n, PIECE), np.float32)
    scratch = np.zeros(PIECE, np.float32)  # without a base: the origin
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        if n == 2 or n == 3:
            origin = read(base, base_kind, at, count, scratch) if base else scratch[:count]
            a = read(addresses[0], kinds[0], at, count, rows[0])
            b = read(addresses[1], kinds[1], at, count, rows[1])
            if n == 2:
                aa, ab, bb = _dots_of_two(a, b, origin, count)
            else:
                c = read(addresses[2], kinds[2], at, count, rows[2])
                aa, ab, ac, bb, bc, cc = _dots(a, b, c, origin, count)
                products[0, 2] += ac
                products[1, 2] += bc
                products[2, 2] += cc
            products[0, 0] += aa
            products[0, 1] += ab
            products[1, 1] += bb
        else:
            _load_deltas(addresses, kinds, base, base_kind, at, count, scratch, rows)
            for i in range(n):
                for j in range(i, n):
                    products[i, j] += _dot(rows[i], rows[j], count)
    for i in range(n):
        for j in range(i):
            products[i, j] = products[j, i]
    return products


@_compiled
def gram_of_columns(addresses, kinds, base, base_kind, columns, start, stop):  # type: ignore[no-untyped-def]
    """Inner products (columns, n, n) of each column's elements among start..stop, which begin and end with a row."""
    n = len(addresses)
    products = np.zeros((columns, n, n))
    rows = np.empty((n, PIECE), np.float32)
    origin = np.empty(PIECE, np.float32)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        _load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
        for i in range(count):
            column = (at + i) % columns
            for j in range(n):
                for k in range(n):
                    products[column, j, k] += np.float64(rows[j, i]) * np.float64(rows[k, i])
    return products


@_compiled
def _combine(addresses, kinds, coefficients, at, count, rows, total, made):  # type: ignore[no-untyped-def]
    """A piece of `combine`; `rows` (4, PIECE) and `total` (PIECE) are scratch."""
    n = len(addresses)
    a, wa = read(addresses[0], kinds[0], at, count, rows[0]), coefficients[0]
    if n == 1:
        for i in range(count):
            made[i] = np.float32(wa * a[i])
        return
    b, wb = read(addresses[1], kinds[1], at, count, rows[1]), coefficients[1]
    if n == 2:
        for i in range(count):
            made[i] = np.float32(wa * a[i] + wb * b[i])
        return
    c, wc = read(addresses[2], kinds[2], at, count, rows[2]), coefficients[2]
    if n == 3:
        for i in range(count):
            made[i] = np.float32(wa * a[i] + wb * b[i] + wc * c[i])
        return
    d, wd = read(addresses[3], kinds[3], at, count, rows[3]), coefficients[3]
    if n == 4:
        for i in range(count):
            made[i] = np.float32(wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i])
        return
    for i in range(count):
        total[i] = wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i]
    for model in range(4, n):
        more, weight = read(addresses[model], kinds[model], at, count, rows[0]), coefficients[model]
        for i in range(count):
            total[i] += weight * more[i]
    for i in range(count):
        made[i] = np.float32(total[i])


@_compiled
def combine(addresses, kinds, coefficients, start, stop, out):  # type: ignore[no-untyped-def]
    """out = Σ coefficient × model, in float64 from the first model to the last, rounded once.

    Up to four models in one pass over them, as fast as memory gives them; more by a sum that stays in the first cache.
    """
    rows = np.empty((4, PIECE), np.float32)
    total = np.empty(PIECE, np.float64)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        _combine(addresses, kinds, coefficients, at, count, rows, total, out[at - start : at - start + count])


@_compiled
def combine_into(addresses, kinds, coefficients, start, stop, target, kind):  # type: ignore[no-untyped-def]
    """`combine`, rounded to `kind` (F32 or BF16) at the address `target`; False as soon as a value is not finite there.

    What is made stays in the first cache until it is in its place: a pass less than to make it, look and round.
    """
    rows = np.empty((4, PIECE), np.float32)
    total = np.empty(PIECE, np.float64)
    made = np.empty(PIECE, np.float32)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        if kind == BF16:
            place = _pointer(np.uint64(target) + np.uint64(2 * (at - start)))
            _combine(addresses, kinds, coefficients, at, count, rows, total, made)
            if to_bfloat16(made[:count], carray(place, (count,), np.uint16)) >= 0:
                return False
            continue
        place = _pointer(np.uint64(target) + np.uint64(4 * (at - start)))
        out = carray(place, (count,), np.float32)
        _combine(addresses, kinds, coefficients, at, count, rows, total, out)
        bits = out.view(np.uint32)
        largest = np.uint32(0)
        for i in range(count):
            largest = max(largest, bits[i] & np.uint32(0x7FFFFFFF))
        if largest >= np.uint32(0x7F800000):
            return False
    return True


@_compiled
def combine_groups(addresses, kinds, coefficients, inner, by_row, start, stop, out):  # type: ignore[no-untyped-def]
    """`combine` with coefficients (groups, models) for each row (or column) of a matrix with `inner` columns."""
    row = np.empty(PIECE, np.float32)
    total = np.empty(PIECE, np.float64)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        total[:count] = 0.0
        for model in range(len(addresses)):
            load(addresses[model], kinds[model], at, count, row)
            for i in range(count):
                group = (at + i) // inner if by_row else (at + i) % inner
                total[i] += coefficients[group, model] * row[i]
        for i in range(count):
            out[at - start + i] = np.float32(total[i])


@_compiled
def _measure(what, addresses, kinds, base, base_kind, index, factors, inner, at, count, origin, rows, out):  # type: ignore[no-untyped-def]
    """Fill `out` with what is ranked: non-negative float32."""
    if what == VARIANCE:
        n = len(addresses)
        _load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
        for i in range(count):
            mean = 0.0
            for model in range(n):
                mean += rows[model, i]
            mean /= n
            total = 0.0
            for model in range(n):
                total += (rows[model, i] - mean) ** 2
            out[i] = np.float32(total / n)
        return
    own = read(addresses[index], kinds[index], at, count, out)
    zero = read(base, base_kind, at, count, origin)
    if what == IMPORTANCE:
        for i in range(count):
            out[i] = abs(own[i] - zero[i]) * factors[(at + i) // inner]
        return
    for i in range(count):
        out[i] = abs(own[i] - zero[i])
    if base_kind == BF16 and kinds[index] == BF16:
        _round(out, count)


@_compiled
def histogram(what, addresses, kinds, base, base_kind, index, factors, inner, start, stop, prefixes, counts):  # type: ignore[no-untyped-def]
    """Add to `counts` (1, 65536) the upper 16 of the 31 bits, or, for each prefix, to its row the 15 bits below it.

    The bits of non-negative floats are ordered as the floats are.
    """
    origin = np.empty(PIECE, np.float32)
    rows = np.empty((len(addresses), PIECE), np.float32)
    values = np.empty(PIECE, np.float32)
    bits = values.view(np.uint32)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        _measure(what, addresses, kinds, base, base_kind, index, factors, inner, at, count, origin, rows, values)
        if len(prefixes) == 0:
            for i in range(count):
                counts[0, (bits[i] & np.uint32(0x7FFFFFFF)) >> np.uint32(15)] += 1
        else:
            for which in range(len(prefixes)):
                prefix = prefixes[which]
                for i in range(count):
                    if (bits[i] & np.uint32(0x7FFFFFFF)) >> np.uint32(15) == prefix:
                        counts[which, bits[i] & np.uint32(0x7FFF)] += 1


@_compiled
def count_equal(  # type: ignore[no-untyped-def]
    what, addresses, kinds, base, base_kind, index, factors, inner, start, stop, wanted, nth
):
    """(number of elements with the bits `wanted`, index of the nth of them counted from 0 or −1)."""
    origin = np.empty(PIECE, np.float32)
    rows = np.empty((len(addresses), PIECE), np.float32)
    values = np.empty(PIECE, np.float32)
    bits = values.view(np.uint32)
    seen = 0
    place = -1
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        _measure(what, addresses, kinds, base, base_kind, index, factors, inner, at, count, origin, rows, values)
        for i in range(count):
            if bits[i] == wanted:
                if seen == nth:
                    place = at + i
                seen += 1
    return seen, place


@_compiled
def measures(what, addresses, kinds, base, base_kind, index, factors, inner, start, stop, out):  # type: ignore[no-untyped-def]
    """What is ranked, elements start..stop."""
    origin = np.empty(PIECE, np.float32)
    rows = np.empty((len(addresses), PIECE), np.float32)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        values = out[at - start : at - start + count]
        _measure(what, addresses, kinds, base, base_kind, index, factors, inner, at, count, origin, rows, values)


@_compiled
def mark_between(bits, start, low, low_first, low_last, high, high_last, marks):  # type: ignore[no-untyped-def]
    """1 where low < bits < high; among elements that equal a bound, those at the given indices."""
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


@_compiled
def _uniform(key, index):  # type: ignore[no-untyped-def]
    """Uniform in [0, 1): number `index` of the SplitMix64 sequence that starts at `key` (Steele, Lea, Flood 2014)."""
    z = key + (np.uint64(index) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) * 2.0**-53


@_compiled
def mark_random(key, probability, start, marks):  # type: ignore[no-untyped-def]
    """1 with the given probability, each element on its own."""
    for i in range(len(marks)):
        marks[i] = _uniform(key, start + i) < probability


@_compiled
def mark_ranked(ordered, key, density, epsilon, start, marks):  # type: ignore[no-untyped-def]
    """1 with a probability that grows with the rank in the row from density − epsilon to density + epsilon.

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


@_summing
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


@_compiled
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
            _round(product, 1)
            weights[model] = product[0]
    sum_of_weights = weights.sum()
    if abs(sum_of_weights) < 1e-8:
        sum_of_weights = 1.0
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        _load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
        total[:count] = 0.0
        for model in range(n):
            coefficient = scales[model] * weights[model]
            if rounds:
                row = rows[model]
                _round(row, count)
                for i in range(count):
                    product[i] = np.float32(coefficient * row[i])
                _round(product, count)
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


@_summing
def squares(addresses, kinds, base, base_kind, marks, start, stop):  # type: ignore[no-untyped-def]
    """Σ delta² of each model where marked."""
    n = len(addresses)
    origin = np.empty(PIECE, np.float32)
    rows = np.empty((n, PIECE), np.float32)
    sums = np.zeros(n)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        _load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
        for model in range(n):
            total = 0.0
            for i in range(count):
                total += np.float64(rows[model, i]) * np.float64(rows[model, i]) * marks[at - start + i]
            sums[model] += total
    return sums


@_compiled
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
        _load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
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
