"""Compiled loops that read and round elements of merged tensors in place, in their own type.

The kernels of merges work on elements start..stop of tensors given by address and element type, in pieces that fit the
processor's first cache, so that nothing but the result is ever written to memory. Sums are float64 over pieces of a
fixed size: they do not depend on the number of threads.
"""

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from capibara_assets.consensus.aggregation.kernel_compilation import compiled, pointer

F32, BF16, F16 = 0, 1, 2
"""Element types that kernels read; everything is computed in float32 or wider."""

PIECE = 2048
_TOO_LARGE = np.uint32(0x7F7F8000)  # bits of the smallest float32 that bfloat16 rounds to infinity
exact = compiled(boundscheck=False)
summing = compiled(fastmath={"reassoc", "contract", "nsz"})


@exact
def load(address, kind, start, count, out):  # type: ignore[no-untyped-def]
    """Elements start..start+count as float32 into `out`."""
    bits = out.view(np.uint32)
    if kind == F32:
        singles = carray(pointer(np.uint64(address) + np.uint64(4 * start)), (count,), np.float32)
        for i in range(count):
            out[i] = singles[i]
        return
    halves = carray(pointer(np.uint64(address) + np.uint64(2 * start)), (count,), np.uint16)
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


@exact
def read(address, kind, start, count, scratch):  # type: ignore[no-untyped-def]
    """Elements start..start+count as float32: where they lie, if they are, or else in `scratch`. Not to be written."""
    if kind == F32:
        return carray(pointer(np.uint64(address) + np.uint64(4 * start)), (count,), np.float32)
    load(address, kind, start, count, scratch)
    return scratch[:count]


@exact
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


@exact
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


@exact
def round_to_bfloat16(values, count):  # type: ignore[no-untyped-def]
    """Finite float32 to the nearest bfloat16, in place."""
    bits = values.view(np.uint32)
    for i in range(count):
        even = (bits[i] >> np.uint32(16)) & np.uint32(1)
        bits[i] = (bits[i] + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)


@exact
def load_deltas(addresses, kinds, base, base_kind, at, count, origin, rows):  # type: ignore[no-untyped-def]
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
