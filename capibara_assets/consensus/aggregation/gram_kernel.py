"""The Gram matrix of one block of columns, in registers: a compiled pass written in vectors of eight float64.

The compiler left to itself takes half of a processor's vector width and lets each read wait for the arithmetic. Here
four rows meet four in sixteen sums of eight lanes, and the next strip is asked for while this one is multiplied. What
a pair of rows gives depends on these two alone, whatever their places: sums are added in one order.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from capibara_assets.consensus.aggregation.kernel_compilation import compiled, pointer

_plain = compiled(error_model="numpy")
_STRIP = 192  # columns of a strip: 16 rows of it in float64 are 24 KB, half of a first-level cache
_LANES = 8
_LINE = 64  # bytes that memory comes in
_WORD = ir.IntType(64)
_NUMBER = ir.DoubleType()


@_plain
def strip_of(address, like, start, length):  # type: ignore[no-untyped-def]
    """Columns start..start+length of the row at an address, of the type of `like`."""
    return carray(pointer(address + np.uintp(start * like.itemsize)), (length,), like.dtype)  # type: ignore[call-arg]


@intrinsic
def _ask_for(typing_context: Any, address: Any) -> Any:
    """Has a line of memory brought into the second-level cache; harmless wherever the address points."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        settings = [ir.Constant(flag, value) for value in (0, 2, 1)]  # to read; near; data
        builder.call(prefetch, [builder.inttoptr(arguments[0], byte), *settings])
        return context.get_dummy_value()

    return types.void(types.uintp), generate


def _tile(diagonal: bool) -> Any:
    """Adds the products of four rows with four to a square of the total; on the diagonal, of its upper half."""
    pairs = [(row, column) for row in range(4) for column in range(4) if row <= column or not diagonal]

    @intrinsic
    def tile(
        typing_context: Any, left: Any, right: Any, stride: Any, length: Any, total: Any, across: Any
    ) -> Any:  # addresses of the first rows, bytes between rows, columns (whole lanes), address and width of the total
        vector = ir.VectorType(_NUMBER, _LANES)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            left, right, stride, length, total, across = arguments
            before, body, after = (
                builder.block,
                builder.append_basic_block("columns"),
                builder.append_basic_block("sums"),
            )

            def offset(base: Any, count: Any, size: int) -> Any:
                return builder.add(base, builder.mul(count, ir.Constant(_WORD, size)))

            bases = [[offset(side, stride, place) for place in range(4)] for side in (left, right)]
            builder.branch(body)
            builder.position_at_end(body)
            column = builder.phi(_WORD)
            column.add_incoming(ir.Constant(_WORD, 0), before)
            sums = [builder.phi(vector) for _ in pairs]

            def load(base: Any) -> Any:
                loaded = builder.load(builder.inttoptr(offset(base, column, 8), vector.as_pointer()))
                loaded.align = 8
                return loaded

            rows, columns = ([load(base) for base in side] for side in bases)
            fused = ("contract",)
            added = [
                builder.fadd(old, builder.fmul(rows[i], columns[j], flags=fused), flags=fused)
                for old, (i, j) in zip(sums, pairs, strict=True)
            ]
            for old, new in zip(sums, added, strict=True):
                old.add_incoming(ir.Constant(vector, [0.0] * _LANES), before)
                old.add_incoming(new, body)
            following = builder.add(column, ir.Constant(_WORD, _LANES))
            column.add_incoming(following, body)
            builder.cbranch(builder.icmp_signed("<", following, length), body, after)
            builder.position_at_end(after)
            for lanes, (i, j) in zip(added, pairs, strict=True):
                place = builder.add(builder.mul(across, ir.Constant(_WORD, i)), ir.Constant(_WORD, j))
                cell = builder.inttoptr(offset(total, place, 8), _NUMBER.as_pointer())
                builder.store(builder.fadd(builder.load(cell), _sum_of(builder, lanes)), cell)
            return context.get_dummy_value()

        return types.void(left, right, stride, length, total, across), generate

    return tile


def _sum_of(builder: Any, lanes: Any) -> Any:
    """The sum of a vector's lanes, by halves."""
    parts = [builder.extract_element(lanes, ir.Constant(ir.IntType(32), lane)) for lane in range(_LANES)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [builder.fadd(parts[i], parts[i + half]) for i in range(half)]
    return parts[0]


_square, _half_square = _tile(diagonal=False), _tile(diagonal=True)


@_plain
def gram_of_block(where, like, start, stop):  # type: ignore[no-untyped-def]
    """Upper triangle of the inner products of columns start..stop; rows are at addresses `where`, of `like`'s type.

    Returns:
        (n rounded up to fours) squared float64; what is below the diagonal is not to be read.
    """
    n = len(where)
    size = (n + 3) // 4 * 4
    total, strip = np.zeros((size, size)), np.zeros((size, _STRIP))
    row, cell = 8 * _STRIP, 8
    for first in range(start, stop, _STRIP):
        length = min(_STRIP, stop - first)
        whole = (length + _LANES - 1) // _LANES * _LANES
        for i in range(n):
            source, target = strip_of(where[i], like, first, length), strip[i]
            for k in range(length):
                target[k] = source[k]
            target[length:whole] = 0.0
            ahead = where[i] + np.uintp((first + _STRIP) * like.itemsize)
            for k in range(0, _STRIP * like.itemsize, _LINE):
                _ask_for(ahead + np.uintp(k))  # type: ignore[call-arg]
        rows, cells = np.int64(strip.ctypes.data), np.int64(total.ctypes.data)
        for i in range(0, size, 4):
            _half_square(rows + i * row, rows + i * row, row, whole, cells + (i * size + i) * cell, size)
            for j in range(i + 4, size, 4):
                _square(rows + i * row, rows + j * row, row, whole, cells + (i * size + j) * cell, size)
    return total
