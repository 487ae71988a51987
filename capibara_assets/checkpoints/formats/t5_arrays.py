"""Layouts of T5's parameters in T5X and in Transformers: transposed, split by heads, stacked by layer."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from capibara_assets.checkpoints.content import PieceSource, numpy_dtype, to_numpy
from capibara_assets.checkpoints.formats.zarr import InZarr, regroup

_BLOCK = 1 << 20


@dataclass(frozen=True)
class LayerView:
    """A view of an array: one layer of a stack, its dimensions merged to a matrix, that matrix transposed.

    Reading it takes the memory of the source tensor, or of its layer where the source is in zarr.

    Attributes:
        shape: of the result; as many elements as `matrix`, or as the layer, has.
        layer: (axis, index) of the layer in a stacked source; None where the source is one layer.
        matrix: (rows, columns) before the transposition; None: it is not transposed.
    """

    source: PieceSource = field(repr=False)
    dtype: str
    shape: tuple[int, ...]
    layer: tuple[int, int] | None = None
    matrix: tuple[int, int] | None = None

    def pieces(self) -> Iterator[memoryview]:
        if self.layer is None:
            array = to_numpy(self.source)
        elif isinstance(self.source, InZarr):
            array = self.source.layer(*self.layer)
        else:
            array = np.take(to_numpy(self.source), self.layer[1], self.layer[0])
        return _pieces(array if self.matrix is None else array.reshape(self.matrix).T)


@dataclass(frozen=True)
class LayerStack:
    """Layers stacked in one array along axis 1, the default of flax's scan.

    Attributes:
        shape: (first dimension of a layer, layers, other dimensions).
    """

    layers: tuple[PieceSource, ...] = field(repr=False)
    dtype: str
    shape: tuple[int, ...]

    def pieces(self) -> Iterator[memoryview]:
        stack = np.empty(self.shape, numpy_dtype(self.dtype))
        for index, layer in enumerate(self.layers):
            stack[:, index] = to_numpy(layer)
        return _pieces(stack)


def turned(source: PieceSource, shape: tuple[int, ...] | None = None) -> LayerView:
    """The transpose of a matrix; in `shape`, to split its columns or rows by heads."""
    rows, columns = source.shape
    return LayerView(source, source.dtype, shape or (columns, rows), matrix=(rows, columns))


def stacked(layers: tuple[PieceSource, ...]) -> LayerStack:
    """Layers of equal shape as one array."""
    first, *rest = layers[0].shape
    return LayerStack(layers, layers[0].dtype, (first, len(layers), *rest))


def unturned(source: PieceSource, layer: tuple[int, int] | None, *, rows: int | None) -> LayerView:
    """A layer of T5X in Transformers' layout: a matrix (out, in), or a vector.

    Args:
        layer: (axis, index) in a stacked source.
        rows: number of leading dimensions of T5X's kernel that are inputs; None for a vector.
    """
    shape = list(source.shape)
    if layer is not None:
        del shape[layer[0]]
    if rows is None:
        return LayerView(source, source.dtype, tuple(shape), layer)
    matrix = (prod(shape[:rows]), prod(shape[rows:]))
    return LayerView(source, source.dtype, matrix[::-1], layer, matrix)


def same(one: PieceSource, other: PieceSource) -> bool:
    """Whether two sources have the same type, shape and bytes."""
    if one is other:
        return True
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return all(bytes(left) == bytes(right) for left, right in zip(one.pieces(), other.pieces(), strict=True))


def _pieces(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    """The bytes of an array in row-major order; copied a block of rows at a time."""
    step = max(1, _BLOCK // max(1, prod(array.shape[1:])))
    blocks = (np.ascontiguousarray(array[start : start + step]) for start in range(0, len(array), step))
    return regroup(block.reshape(-1).view(np.uint8).data for block in blocks)
