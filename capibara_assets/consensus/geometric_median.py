"""The geometric median, converged: exact at a voter where the optimum lies on one, Newton's method elsewhere."""

import numpy as np

from capibara_assets.consensus.geometry import Matrix, Vector

_MOST_ITERATIONS = 500
_TOLERANCE = 1e-13
# A sum of n unit vectors carries rounding of this order per vector: without it a point whose pull is exactly the number
# of its copies may fail by one digit, and Newton's method then stops beside it, where the gradient is not continuous
_ROUNDING = 1e-12


def geometric_median_weights(distances: Matrix) -> tuple[Vector, int, float]:
    """Weights (n,) of the points in their geometric median, iterations, and the length of the gradient left per point.

    Args:
        distances: (n, n) squared distances between the points; nothing else is needed of them.
    """
    points = _coordinates(distances)
    at_point = _optimal_point(points, distances)
    if at_point is not None:
        same = distances[at_point] == 0.0
        return same / same.sum(), 0, 0.0
    position = points.mean(axis=0)
    iteration, residual = 0, _residual(position, points)
    while residual > _TOLERANCE and iteration < _MOST_ITERATIONS:
        iteration += 1
        offsets, lengths = _from(position, points)
        units = offsets / lengths[:, None]
        pull = units.sum(axis=0)
        inverse = 1.0 / lengths
        hessian = np.eye(points.shape[1]) * inverse.sum() - (units * inverse[:, None]).T @ units
        step = position + np.linalg.lstsq(hessian, pull, rcond=None)[0]
        # Near the optimum the cost is flat to the last digit, so it is the gradient that tells a good Newton step;
        # elsewhere Weiszfeld's step never goes uphill
        if _residual(step, points) >= residual:
            step = position + pull / inverse.sum()
        if np.array_equal(step, position):
            break
        position, residual = step, _residual(step, points)
    inverse = 1.0 / _from(position, points)[1]
    return inverse / inverse.sum(), iteration, residual


def _coordinates(distances: Matrix) -> Matrix:
    """Points (n, r) with these distances, the most central one at the origin.

    A Cholesky factorisation that takes the nearest points first: the error of each point is relative to its own
    distance from the centre, so one voter at 1e6 does not blur the others.
    """
    n = len(distances)
    centre = int(np.argmin(np.median(distances, axis=1)))
    to_centre = distances[centre]
    gram = (to_centre[:, None] + to_centre[None, :] - distances) / 2
    points = np.zeros((n, n))
    rank = 0
    order = np.argsort(to_centre, kind="stable")
    for position, i in enumerate(order):
        pivot = gram[i, i] - points[i, :rank] @ points[i, :rank]
        if pivot <= 1e-13 * gram[i, i]:
            continue
        later = order[position + 1 :]
        points[later, rank] = (gram[later, i] - points[later, :rank] @ points[i, :rank]) / np.sqrt(pivot)
        points[i, rank] = np.sqrt(pivot)
        rank += 1
    return points[:, : max(rank, 1)]


def _optimal_point(points: Matrix, distances: Matrix) -> int | None:
    """The first point that is itself the median: the pull of the others does not exceed the number of its copies."""
    for i, point in enumerate(points):
        apart = distances[i] > 0.0
        offsets = points[apart] - point
        pull = np.linalg.norm((offsets / np.sqrt(distances[i, apart])[:, None]).sum(axis=0))
        if pull <= np.count_nonzero(~apart) + len(offsets) * _ROUNDING:
            return i
    return None


def _from(position: Vector, points: Matrix) -> tuple[Matrix, Vector]:
    offsets = points - position
    return offsets, np.maximum(np.linalg.norm(offsets, axis=1), np.finfo(np.float64).tiny)


def _residual(position: Vector, points: Matrix) -> float:
    offsets, lengths = _from(position, points)
    return float(np.linalg.norm((offsets / lengths[:, None]).sum(axis=0))) / len(points)
