"""Compiled loops that rank elements: their ranking keys, and histograms for order statistics."""

import numpy as np

from capibara_assets.consensus.merging.element_kernels import BF16, PIECE, exact, load_deltas, read, round_to_bfloat16

DELTA, VARIANCE, IMPORTANCE = 0, 1, 2
"""What is ranked: |model − base| of one model, the variance of the deltas over models, |model − base| × row factor."""


@exact
def _measure(what, addresses, kinds, base, base_kind, index, factors, inner, at, count, origin, rows, out):  # type: ignore[no-untyped-def]
    """Fill `out` with what is ranked: non-negative float32."""
    if what == VARIANCE:
        n = len(addresses)
        load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows)
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
        round_to_bfloat16(out, count)


@exact
def histogram(what, addresses, kinds, base, base_kind, index, factors, inner, start, stop, prefixes, counts):  # type: ignore[no-untyped-def]
    """Add the upper 16 of the 31 bits to `counts` (1, 65536), or the lower 15 to the row of each prefix.

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


@exact
def count_equal(  # type: ignore[no-untyped-def]
    what, addresses, kinds, base, base_kind, index, factors, inner, start, stop, wanted, nth
):
    """Number of elements with the bits `wanted`, and the index of the nth of them from 0 (or −1)."""
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


@exact
def measures(what, addresses, kinds, base, base_kind, index, factors, inner, start, stop, out):  # type: ignore[no-untyped-def]
    """Ranking keys of elements start..stop."""
    origin = np.empty(PIECE, np.float32)
    rows = np.empty((len(addresses), PIECE), np.float32)
    for at in range(start, stop, PIECE):
        count = min(PIECE, stop - at)
        values = out[at - start : at - start + count]
        _measure(what, addresses, kinds, base, base_kind, index, factors, inner, at, count, origin, rows, values)
