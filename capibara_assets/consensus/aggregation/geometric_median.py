"""The geometric median to convergence: exact where the optimum lies on a voter, Newton's method elsewhere."""

import numpy as np
from numpy.typing import NDArray

from capibara_assets.consensus.aggregation.geometry import Matrix, Vector

_MOST_ITERATIONS = 500
_TOLERANCE = 1e-13
_HALVINGS = 40
_SAME = 1e-12
# A sum of n unit vectors carries rounding of this order per vector: without it a point whose pull is exactly the number
# of its copies may fail by one digit, and Newton's method then stops beside it, where the gradient is not continuous
_ROUNDING = 1e-12
_TINY = float(np.finfo(np.float64).tiny)


def geometric_median_weights(gram: Matrix, distances: Matrix) -> tuple[Vector, int, float]:
    """Weights (n,) of the points in their geometric median, the iterations, and the final gradient norm per point.

    Damped Newton's method on the sum of distances starts at the best of the points and only goes downhill, so it never
    reaches another point, where there is no gradient.

    Args:
        gram: (n, n) inner products of the points.
        distances: (n, n) squared distances between them.
    """
    points, copies = _coordinates(gram, distances), _copies(gram, distances)
    at_points = _optimal_points(points, copies)
    if len(at_points):
        return at_points.mean(axis=0), 0, 0.0
    best = int(np.sqrt(distances).sum(axis=1).argmin())
    position = _off_point(points, best, copies[best])
    iteration, residual = 0, _residual(position, points)
    while residual > _TOLERANCE and iteration < _MOST_ITERATIONS:
        iteration += 1
        step = _step(position, points, residual)
        if step is None:
            break
        position, residual = step, _residual(step, points)
    lengths = _from(position, points)[1]
    inverse = lengths.min() / lengths
    return inverse / inverse.sum(), iteration, residual


def _step(position: Vector, points: Matrix, residual: float) -> Vector | None:
    """A better position; None where float64 finds none."""
    offsets, lengths = _from(position, points)
    units = offsets / lengths[:, None]
    # Inverse lengths in units of the largest of them: of voters that lie 1e30 apart the sum may overflow
    nearest = float(lengths.min())
    pull, inverse = units.sum(axis=0), nearest / lengths
    hessian = np.eye(points.shape[1]) * inverse.sum() - (units * inverse[:, None]).T @ units
    direction = nearest * np.linalg.lstsq(hessian, pull, rcond=None)[0]
    # Near the optimum the cost is flat to the last digit, so it is the gradient that tells a good Newton step there
    if _residual(position + direction, points) < residual / 2:
        return np.asarray(position + direction)
    # Weiszfeld's step never goes uphill: it is used where Newton's, however short, is no better
    for move in (*(direction / 2.0**halved for halved in range(_HALVINGS)), nearest * pull / inverse.sum()):
        if _cost_change(position, move, points) < 0.0:
            return np.asarray(position + move)
    return None


def _copies(gram: Matrix, distances: Matrix) -> NDArray[np.bool_]:
    """(n, n) which points are equal, as far as float64 can tell for vectors of their length."""
    lengths = np.sqrt(np.diag(gram))
    return np.asarray(np.sqrt(distances) <= _SAME * (lengths[:, None] + lengths[None, :]))


def _off_point(points: Matrix, start: int, same: NDArray[np.bool_]) -> Vector:
    """A position downhill from a point that is not the optimum (Vardi and Zhang 2000), where there is a gradient."""
    pull, inverse = _pull(points, start, same)
    share = 1.0 - np.count_nonzero(same) / np.linalg.norm(pull)
    return np.asarray(points[start] + share * pull / inverse)


def _pull(points: Matrix, at: int, same: NDArray[np.bool_]) -> tuple[Vector, float]:
    """Sum of the unit vectors from a point to all but its copies, and the sum of the inverse distances."""
    offsets, lengths = _from(points[at], points[~same])
    return (offsets / lengths[:, None]).sum(axis=0), float((1.0 / lengths).sum())


def _cost_change(position: Vector, move: Vector, points: Matrix) -> float:
    """Change of the sum of distances by a move, without the cancellation of a difference of two sums."""
    offsets, before = _from(position, points)
    after = np.linalg.norm(offsets - move, axis=1)
    return float((((move - 2.0 * offsets) @ move) / (before + after)).sum())


def _coordinates(gram: Matrix, distances: Matrix) -> Matrix:
    """Points (n, r) with these distances, the most central one at the origin.

    A Cholesky factorisation with the nearest points first: the error of each point is relative to its own
    distance from the centre, so one voter at 1e6 does not blur the others.
    """
    n = len(distances)
    centre = int(np.argmin(np.median(distances, axis=1)))
    to_centre = distances[centre]
    central = _central_products(gram, distances, centre)
    points = np.zeros((n, n))
    rank = 0
    order = np.argsort(to_centre, kind="stable")
    for position, i in enumerate(order):
        pivot = central[i, i] - points[i, :rank] @ points[i, :rank]
        if pivot <= 1e-13 * central[i, i]:
            continue
        later = order[position + 1 :]
        points[later, rank] = (central[later, i] - points[later, :rank] @ points[i, :rank]) / np.sqrt(pivot)
        points[i, rank] = np.sqrt(pivot)
        rank += 1
    return points[:, : max(rank, 1)]


def _central_products(gram: Matrix, distances: Matrix, centre: int) -> Matrix:
    """(n, n) inner products of the points relative to one of them, each computed the way that loses fewer digits.

    Squared distances keep those of points that lie together far from the origin. They lose those of a voter that is
    1e15 long, whose direction is all that counts: its squared distances to all others are the same number.
    """
    lengths = np.sqrt(np.diag(gram))
    to_centre = distances[centre]
    by_distances = (to_centre[:, None] + to_centre[None, :] - distances) / 2
    by_products = gram - gram[centre][:, None] - gram[centre][None, :] + gram[centre, centre]
    lost_distances = np.maximum(np.maximum(to_centre[:, None], to_centre[None, :]), distances)
    lost_products = (lengths[:, None] + lengths[centre]) * (lengths[None, :] + lengths[centre])
    products = np.where(lost_products < lost_distances, by_products, by_distances)
    np.fill_diagonal(products, to_centre)
    return np.asarray(products)


def _optimal_points(points: Matrix, copies: NDArray[np.bool_]) -> Matrix:
    """(k, n) points that are themselves the median, as shares of their copies: the others' pull is no stronger.

    There are two where points lie on a line with as many on either side; everything between them is optimal as well.
    """
    optimal: list[Vector] = []
    for i, same in enumerate(copies):
        if same[:i].any():
            continue
        pull = np.linalg.norm(_pull(points, i, same)[0])
        if pull <= np.count_nonzero(same) + np.count_nonzero(~same) * _ROUNDING:
            optimal.append(same / same.sum())
    return np.array(optimal)


def _from(position: Vector, points: Matrix) -> tuple[Matrix, Vector]:
    offsets = points - position
    return offsets, np.maximum(np.linalg.norm(offsets, axis=1), _TINY)


def _residual(position: Vector, points: Matrix) -> float:
    offsets, lengths = _from(position, points)
    return float(np.linalg.norm((offsets / lengths[:, None]).sum(axis=0))) / len(points)
