"""Compiled loops for merges by linear combination: inner products, and weighted sums of models."""

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from capibara_assets.consensus.aggregation.kernel_compilation import pointer
from capibara_assets.consensus.merging.element_kernels import (
    BF16,
    PIECE,
    exact,
    load,
    load_deltas,
    read,
    summing,
    to_bfloat16,
)


@summing
def _dot(left, right, count):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(count):
        total += np.float64(left[i]) * np.float64(right[i])
    return total


@summing
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


@summing
def _dots_of_two(a, b, origin, count):  # type: ignore[no-untyped-def]
    aa = ab = bb = 0.0
    for i in range(count):
        x, y = np.float64(a[i] - origin[i]), np.float64(b[i] - origin[i])
        aa += x * x
        ab += x * y
        bb += y * y
    return aa, ab, bb


@exact
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
            load_deltas(addresses, kinds, base, base_kind, at, count, scratch, rows)
            for i in range(n):
                for j in range(i, n):
                    products[i, j] += _dot(rows[i], rows[j], count)
    for i in range(n):
        for j in range(i):
            products[i, j] = products[j, i]
    return products


@exact
def gram_of_columns(addresses, kinds, base, base_kind, columns, start, stop):  # type: ignore[no-untyped-def]
    """Inner products (columns, n, n) of each column's elements among start..stop, which begin and end with a row."""
    n = len(addresses)
    products = np.zeros((columns, n, n))
    rows = np.empty((n, PIECE), np.float32)
    origin = np.empty(PIECE, np.float32)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
        for i in range(count):
            column = (at + i) % columns
            for j in range(n):
                for k in range(n):
                    products[column, j, k] += np.float64(rows[j, i]) * np.float64(rows[k, i])
    return products


@exact
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


@exact
def combine(addresses, kinds, coefficients, start, stop, out):  # type: ignore[no-untyped-def]
    """out = Σ coefficient × model, in float64 from the first model to the last, rounded once.

    Up to four models in one pass over them, as fast as memory gives them; more by a sum that stays in the first cache.
    """
    rows = np.empty((4, PIECE), np.float32)
    total = np.empty(PIECE, np.float64)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        _combine(addresses, kinds, coefficients, at, count, rows, total, out[at - start : at - start + count])


@exact
def combine_into(addresses, kinds, coefficients, start, stop, target, kind):  # type: ignore[no-untyped-def]
    """`combine`, rounded to `kind` (F32 or BF16) at the address `target`; False as soon as a value is not finite there.

    Results stay in the L1 cache until they are stored, which saves a pass over memory.
    """
    rows = np.empty((4, PIECE), np.float32)
    total = np.empty(PIECE, np.float64)
    made = np.empty(PIECE, np.float32)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        if kind == BF16:
            place = pointer(np.uint64(target) + np.uint64(2 * (at - start)))
            _combine(addresses, kinds, coefficients, at, count, rows, total, made)
            if to_bfloat16(made[:count], carray(place, (count,), np.uint16)) >= 0:
                return False
            continue
        place = pointer(np.uint64(target) + np.uint64(4 * (at - start)))
        out = carray(place, (count,), np.float32)
        _combine(addresses, kinds, coefficients, at, count, rows, total, out)
        bits = out.view(np.uint32)
        largest = np.uint32(0)
        for i in range(count):
            largest = max(largest, bits[i] & np.uint32(0x7FFFFFFF))
        if largest >= np.uint32(0x7F800000):
            return False
    return True


@exact
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
