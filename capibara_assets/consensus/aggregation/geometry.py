"""Geometry of the voters' vectors: rows, a canonical order, the Gram matrix in blocks, distances, a map in the plane.

Small inputs stay with NumPy; from `LARGE` values on the compiled passes of `kernels` take over.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Rows = Sequence[NDArray[np.floating]]

BLOCK = 1 << 14  # columns per block: n rows of it in float64 stay in the second-level cache
LARGE = 1 << 20  # values; below it NumPy is done before the compiled code is loaded
_NEAR = 1e-6  # below this share of the norms a squared distance out of the Gram matrix has lost too many digits
_KEY_COLUMNS = 64
_TIE = 1e-9  # relative: coordinates nearer than this are equally large


def as_rows(vectors: Any) -> list[NDArray[np.floating]]:
    """Convert the voters' n >= 1 vectors to contiguous rows (d,) of one type: float32 if all are, else float64.

    Accepts an (n, d) array, memory map or tensor, or a sequence of n vectors of these kinds. Contiguous float32 or
    float64 rows are not copied; half and bfloat16 become float32.

    Raises:
        ValueError: anything else than an (n, d) matrix with n, d >= 1, or values that are not real numbers.
    """
    tensor = hasattr(vectors, "detach")
    if not tensor and not isinstance(vectors, np.ndarray | Sequence):
        vectors = list(vectors) if isinstance(vectors, Iterable) else np.asarray(vectors)
    rows = [_as_array(row) for row in (_as_array(vectors) if tensor or isinstance(vectors, np.ndarray) else vectors)]
    shapes = {row.shape for row in rows}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1 or 0 in next(iter(shapes)):
        given = f"{len(rows)} rows of shapes {sorted(shapes)}"
        raise ValueError(f"voters' vectors must form an (n, d) matrix with n, d >= 1, not {given}")
    if any(row.dtype.kind not in "fiub" for row in rows):
        raise ValueError(f"voters' vectors must hold real numbers, not {sorted({str(row.dtype) for row in rows})}")
    single = all(row.dtype in (np.float32, np.float16) for row in rows)
    return [np.ascontiguousarray(row, dtype=np.float32 if single else np.float64) for row in rows]


def _as_array(values: Any) -> NDArray[Any]:
    if hasattr(values, "detach"):  # a torch tensor, without importing torch; NumPy has no bfloat16
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) in ("torch.bfloat16", "torch.float16") else values
        return np.asarray(values.numpy())
    return np.asarray(values)


def canonical_order(rows: Rows) -> NDArray[np.intp]:
    """Order the rows by their values alone, so that results do not depend on the order of submission."""
    columns = np.unique(np.linspace(0, len(rows[0]) - 1, _KEY_COLUMNS).astype(np.intp))
    keys = [row[columns].tobytes() for row in rows]
    again = Counter(keys)
    # A few columns distinguish most voters; voters with equal ones are distinguished by all columns
    keys = [key + sha256(row.data).digest() if again[key] > 1 else key for key, row in zip(keys, rows, strict=True)]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)


@dataclass(frozen=True)
class PointSet:
    """A lazy set of n points of dimension d: the rows of `mixing @ rows` (or of `rows`), never fully materialized.

    Attributes:
        rows: m voters' vectors (d,), contiguous, all float32 or all float64.
        mixing: (n, m) coefficients, or None for the rows themselves.
    """

    rows: Rows
    mixing: Matrix | None = None

    @property
    def n(self) -> int:
        return len(self.rows) if self.mixing is None else len(self.mixing)

    @property
    def dimension(self) -> int:
        return len(self.rows[0])

    @property
    def large(self) -> bool:
        """Whether the compiled passes are faster than NumPy."""
        return len(self.rows) * self.dimension >= LARGE

    def blocks(self) -> Iterator[tuple[slice, Matrix]]:
        """Column slices and the points' float64 values there, shape (n, width)."""
        for start in range(0, self.dimension, BLOCK):
            part = slice(start, min(start + BLOCK, self.dimension))
            yield part, self.block(part)

    def block(self, part: slice) -> Matrix:
        """(n, width) the points' float64 values in some columns."""
        rows = [row[part] for row in self.rows]
        if self.mixing is None:
            return np.stack([row.astype(np.float64) for row in rows])
        if not self.large:
            return combine_rows(self.mixing, np.stack([row.astype(np.float64) for row in rows]))
        from capibara_assets.consensus.aggregation import kernels

        block = np.empty((self.n, len(rows[0])))
        for target, coefficients in zip(block, self.mixing, strict=True):
            used = np.flatnonzero(coefficients).tolist()
            kernels.combination([rows[i] for i in used], coefficients[used], target)
        return block

    @cached_property
    def gram(self) -> Matrix:
        """(n, n) inner products, accumulated in float64 block by block."""
        if self.mixing is not None:
            return np.asarray(self.mixing @ PointSet(self.rows).gram @ self.mixing.T)
        if self.large:
            from capibara_assets.consensus.aggregation import kernels

            return kernels.gram(self.rows)
        total = np.zeros((self.n, self.n))
        with np.errstate(over="ignore", invalid="ignore"):
            for _, block in self.blocks():
                total += block @ block.T
        return (total + total.T) / 2

    def combination(self, weights: Vector) -> tuple[Vector, bool]:
        """(d,) sum of weights[i] * point i, and whether it is finite.

        Added in row order: the same bits for any number of threads.
        """
        coefficients = weights if self.mixing is None else weights @ self.mixing
        result = np.empty(self.dimension)
        if self.large:
            from capibara_assets.consensus.aggregation import kernels

            used = np.flatnonzero(coefficients).tolist()
            return result, kernels.combination([self.rows[i] for i in used], coefficients[used], result)
        for part, block in PointSet(self.rows).blocks():
            result[part] = combine_rows(coefficients[None, :], block)[0]
        return result, bool(np.isfinite(result).all())


def squared_distances(rows: Rows, gram: Matrix) -> Matrix:
    """(n, n) squared Euclidean distances of rows with these inner products.

    Near-duplicates are measured directly: their inner products have lost the digits, and a copy is at exactly 0.
    """
    distances = distances_of(gram)
    norms = np.diag(gram)
    for i, j in np.argwhere(np.triu(distances <= _NEAR * (norms[:, None] + norms[None, :]), k=1)):
        distances[i, j] = distances[j, i] = _squared_distance(rows[int(i)], rows[int(j)])
    return distances


def _squared_distance(left: NDArray[np.floating], right: NDArray[np.floating]) -> float:
    total = 0.0
    for start in range(0, len(left), BLOCK):
        part = slice(start, start + BLOCK)
        difference = left[part].astype(np.float64) - right[part]
        total += float(np.square(difference).sum())
    return total


def combine_rows(mixing: Matrix, block: Matrix) -> Matrix:
    """`mixing @ block`, row by row in a fixed order of additions (BLAS may order them by thread count)."""
    result = np.zeros((len(mixing), block.shape[1]))
    for target, coefficients in zip(result, mixing, strict=True):
        for coefficient, row in zip(coefficients, block, strict=True):
            if coefficient != 0.0:
                target += coefficient * row
    return result


def distances_of(gram: Matrix) -> Matrix:
    """(n, n) squared distances from a Gram matrix; the diagonal is exactly zero."""
    norms = np.diag(gram)
    distances = np.maximum(norms[:, None] + norms[None, :] - 2.0 * gram, 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def classical_scaling(distances: ArrayLike) -> tuple[NDArray[np.float64], float]:
    """Place n points from their (n, n) distances (Torgerson, Psychometrika 17, 1952).

    The doubly centred squares of Euclidean distances are the points' inner products, so the two largest eigenvalues
    hold what a plane can show. The axes are those of greatest spread, each turned so that its largest coordinate is
    positive; voters all equally far apart have no such axes, and lie as the linear-algebra library leaves them.

    Returns:
        (n, 2) coordinates around their mean, in the unit of the distances, and Kruskal's stress
        sqrt(Σ(d − d̂)² / Σd²) over all pairs: 0 where the picture is exact.

    Raises:
        ValueError: not a square, symmetric matrix of finite distances with zeros on its diagonal.
    """
    given = np.asarray(distances, dtype=np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise ValueError(f"distances are an (n, n) matrix, not {given.shape}")
    n = len(given)
    sound = np.isfinite(given).all() and (given >= 0).all() and not np.diag(given).any() and (given == given.T).all()
    if not sound:
        raise ValueError("distances are finite, symmetric, not negative, and 0 on the diagonal")
    points = np.zeros((n, 2))
    largest = given.max(initial=0.0)
    if largest == 0.0:
        return points, 0.0
    squared = (given / largest) ** 2
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    for axis in range(min(2, n)):
        column = vectors[:, -1 - axis] * np.sqrt(max(values[-1 - axis], 0.0))
        size = np.abs(column)
        first = int(np.argmax(size >= size.max() * (1 - _TIE)))
        points[:, axis] = largest * (-column if column[first] < 0 else column)
    shown = np.linalg.norm(points[:, None] - points[None, :], axis=2)
    return points, float(np.sqrt(np.square(given - shown).sum() / np.square(given).sum()))
