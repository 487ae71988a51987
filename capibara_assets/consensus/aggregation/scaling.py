"""Classical multidimensional scaling: points in the plane whose distances come close to those given."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_TIE = 1e-9


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
