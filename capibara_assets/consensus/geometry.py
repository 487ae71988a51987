"""What the rules see of the voters: a canonical order, the Gram matrix in blocks, and squared distances."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

BLOCK = 1 << 14  # columns per block: n rows of it in float64 stay in the second-level cache
_NEAR = 1e-6  # below this share of the norms a squared distance out of the Gram matrix has lost too many digits
_KEY_COLUMNS = 64


def canonical_order(vectors: NDArray[np.floating]) -> NDArray[np.intp]:
    """An order of the rows that depends on their values alone, so that no result depends on who came first."""
    keys = [row[:_KEY_COLUMNS].tobytes() for row in vectors]
    if len(set(keys)) < len(keys):
        keys = [row.tobytes() for row in vectors]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)


@dataclass(frozen=True)
class Points:
    """n points of dimension d: the rows of `mixing @ rows` (of `rows` itself without a mixing), never formed whole.

    Attributes:
        rows: (m, d) voters' vectors, float32 or float64, finite.
        mixing: (n, m) coefficients, or None for the rows as they are.
    """

    rows: NDArray[np.floating]
    mixing: Matrix | None = None

    @property
    def n(self) -> int:
        return len(self.rows) if self.mixing is None else len(self.mixing)

    @property
    def dimension(self) -> int:
        return int(self.rows.shape[1])

    def blocks(self) -> Iterator[tuple[slice, Matrix]]:
        """Column slices and the points' float64 values there, shape (n, width)."""
        for start in range(0, self.dimension, BLOCK):
            part = slice(start, min(start + BLOCK, self.dimension))
            block = self.rows[:, part].astype(np.float64)
            yield part, block if self.mixing is None else combine_rows(self.mixing, block)

    @cached_property
    def gram(self) -> Matrix:
        """(n, n) inner products, accumulated in float64 block by block."""
        if self.mixing is not None:
            return np.asarray(self.mixing @ Points(self.rows).gram @ self.mixing.T)
        total = np.zeros((self.n, self.n))
        for _, block in self.blocks():
            total += block @ block.T
        return (total + total.T) / 2

    @cached_property
    def squared_distances(self) -> Matrix:
        """(n, n) squared Euclidean distances; near-duplicates are measured directly, so a copy is at exactly 0."""
        distances = distances_of(self.gram)
        norms = np.diag(self.gram)
        near = np.argwhere(np.triu(distances <= _NEAR * (norms[:, None] + norms[None, :]), k=1))
        for i, j in near:
            distances[i, j] = distances[j, i] = self._distance(int(i), int(j))
        return distances

    def _distance(self, i: int, j: int) -> float:
        return float(sum(np.square(block[i] - block[j]).sum() for _, block in self.blocks()))

    def combination(self, weights: Vector) -> Vector:
        """(d,) sum of weights[i] * point i, added in row order: the same bits for any number of threads."""
        coefficients = weights if self.mixing is None else weights @ self.mixing
        result = np.empty(self.dimension)
        for part, block in Points(self.rows).blocks():
            result[part] = combine_rows(coefficients[None, :], block)[0]
        return result


def combine_rows(mixing: Matrix, block: Matrix) -> Matrix:
    """`mixing @ block`, row by row in a fixed order of additions (BLAS may order them by thread count)."""
    result = np.zeros((len(mixing), block.shape[1]))
    for target, coefficients in zip(result, mixing, strict=True):
        for coefficient, row in zip(coefficients, block, strict=True):
            if coefficient != 0.0:
                target += coefficient * row
    return result


def distances_of(gram: Matrix) -> Matrix:
    """Squared distances out of a Gram matrix; the diagonal is exactly zero."""
    norms = np.diag(gram)
    distances = np.maximum(norms[:, None] + norms[None, :] - 2.0 * gram, 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances
