"""Optimal convex weights of models with a certificate of optimality: maximum likelihood, and least squares.

Both problems are convex, so a solution comes with a proof: an upper bound of how much a better one could gain, or
stationarity that is exact up to rounding. Results depend neither on the models' order nor on the number of threads.
"""

from functools import cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from threadpoolctl import ThreadpoolController

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_BLOCK = 1 << 12  # tokens at a time: K rows of them stay in the processor's cache
_CONVERGED = 1e-12  # of the gap, in nats per token
_ROUNDING = 256 * float(np.finfo(np.float64).eps)  # allowance of the certified gap for the rounding of sums over tokens
_RIDGE = 1e-13  # of the Hessian, where models are combinations of others and there is no regularisation
_SUFFICIENT, _SHORTEST = 1e-4, 2.0**-40  # of the line search: share of the promised gain, and least step


class ConvexWeights(NamedTuple):
    """A point of the simplex, and an upper bound of its distance from the optimum (the duality gap).

    Attributes:
        weights: (K,) float64, >= 0, summing to 1.
        duality_gap: upper bound of the best objective minus this one's, nats per token.
    """

    weights: Vector
    duality_gap: float


def convex_weights(losses_or_logprobs: ArrayLike, lambda_reg: float = 0.01, max_iterations: int = 100) -> ConvexWeights:
    """The mixture of K models that makes T held-out tokens most likely.

    Solved is, over the simplex { w : w_k >= 0, sum_k w_k = 1 } and with u = (1/K, ..., 1/K),

        maximise  F(w) = (1/T) sum_t log sum_k w_k p_k(t)  -  lambda_reg * ||w - u||^2

    which is concave. Newton's method: a quadratic model of F is maximised over the simplex exactly, then a line search.
    The gap is that of Fenchel's dual at the gradient c of the likelihood term,

        max over s in the simplex of  <c, s> - lambda_reg * ||s - u||^2,  minus the same at w,

    which bounds F(best) - F(w) because a concave function lies under its tangents; the maximum is a projection. (With
    lambda_reg = 0 it is the Frank-Wolfe gap.) It holds for any w, converged or not; an allowance for rounding is added.
    With lambda_reg > 0 also ||w - best||^2 <= duality_gap / lambda_reg.

    Args:
        losses_or_logprobs: (K, T). All values >= 0: losses, -log p_k(t) in nats; all <= 0: log-probabilities.
        lambda_reg: pull towards equal weights, >= 0; only above 0 are the weights unique in every case.
        max_iterations: of Newton's method; some ten suffice.

    Raises:
        ValueError: not (K, T) with K, T >= 1; values that are not finite, with the models that have them; values of
            both signs; a negative lambda_reg or max_iterations.
    """
    if not (lambda_reg >= 0 and np.isfinite(lambda_reg)) or max_iterations < 0:
        raise ValueError(f"lambda_reg={lambda_reg} and max_iterations={max_iterations} have to be finite and >= 0")
    losses = _losses(losses_or_logprobs)
    if len(losses) == 1:
        return ConvexWeights(np.ones(1), 0.0)
    order, groups = _canonical(losses)
    likelihoods, shift = _likelihoods(losses, order)
    # One thread: BLAS may order its additions by their number
    with _blas().limit(limits=1):
        weights, gap = _newton(likelihoods, shift, groups, lambda_reg, max_iterations)
    return ConvexWeights(_undone(weights, order), gap)


def mixture_gap(losses_or_logprobs: ArrayLike, weights: ArrayLike, lambda_reg: float = 0.01) -> float:
    """Duality gap of `convex_weights` at other weights, for example rounded ones.

    Raises:
        ValueError: as `convex_weights`; weights that are not a point of the simplex of K models.
    """
    losses, point = _losses(losses_or_logprobs), np.asarray(weights, dtype=np.float64)
    if point.shape != losses.shape[:1] or not (point >= 0).all() or abs(point.sum() - 1.0) > 1e-9:
        raise ValueError(f"{len(losses)} models need as many weights >= 0 that sum to 1, not {point.tolist()}")
    order, _ = _canonical(losses)
    likelihoods, shift = _likelihoods(losses, order)
    with _blas().limit(limits=1):
        value, slope, _ = _expansion(likelihoods, point[order])
        return _certified(point[order], slope, value + shift, lambda_reg)


def simplex_least_squares(X: ArrayLike, y: ArrayLike) -> Vector:
    """The weights w >= 0, sum w = 1, that minimise ||sum_k w_k X[k] - y||^2.

    Exact: the point of the models' convex hull that is nearest to y is a problem of non-negative least squares (Lawson
    and Hanson 1974) with one more row, and the weights of the support it finds come from a QR factorisation; the
    gradients on the support are equal up to rounding. Among equal models the weight is shared equally; where models
    depend affinely on others, one of the minimisers comes back.

    Args:
        X: (K, d), a model in each row.
        y: (d,).

    Raises:
        ValueError: other shapes, no model, or values that are not finite.
    """
    models, target = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if models.ndim != 2 or target.ndim != 1 or models.shape[1:] != target.shape or 0 in models.shape:
        raise ValueError(f"X has to be (K, d), a model in each row, and y (d,), not {models.shape} and {target.shape}")
    if not (np.isfinite(models).all() and np.isfinite(target).all()):
        raise ValueError("X and y have to be finite: leave out models with NaN or Inf")
    order, groups = _canonical(models)
    with _blas().limit(limits=1):
        weights = _nearest(models[order], target)
    return _undone(_shared(weights, groups), order)


def _losses(values: ArrayLike) -> Matrix:
    """(K, T) losses >= 0, whichever sign came in."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"losses have to be (models, tokens) with one of each at least, not {table.shape}")
    if not np.isfinite(table.sum()):
        odd = np.flatnonzero(~np.isfinite(table).all(axis=1))
        if len(odd):
            counts = (f"{k} ({np.isnan(table[k]).sum()} NaN, {np.isinf(table[k]).sum()} infinite)" for k in odd)
            raise ValueError(
                f"losses of model {', '.join(counts)} are not finite: leave out models that are broken or "
                "give a token no probability"
            )
    least, most = table.min(), table.max()
    if least < 0 < most:
        raise ValueError(
            f"values lie on both sides of 0 ({least:g} to {most:g}): losses are all >= 0, log-probabilities all <= 0"
        )
    return table if least >= 0 else -table


def _likelihoods(losses: Matrix, order: NDArray[np.intp]) -> tuple[Matrix, float]:
    """(K, T) p_k(t) divided by the largest of the models' at t, and the mean logarithm of that divisor."""
    least = losses.min(axis=0)
    likelihoods = np.empty(losses.shape)
    for row, model in enumerate(order):
        np.exp(np.subtract(least, losses[model], out=likelihoods[row]), out=likelihoods[row])
    return likelihoods, -float(least.mean())


class _Point(NamedTuple):
    """Weights, and the mean log-likelihood there to the second order."""

    weights: Vector
    value: float
    slope: Vector
    curvature: Matrix


def _newton(
    likelihoods: Matrix, shift: float, groups: NDArray[np.intp], lambda_reg: float, max_iterations: int
) -> tuple[Vector, float]:
    """Weights and their certified gap, by Newton's method from equal weights."""
    k = len(likelihoods)
    uniform = np.full(k, 1.0 / k)
    point = _Point(uniform, *_expansion(likelihoods, uniform))
    gap = _gap(uniform, point.slope, lambda_reg)
    for _ in range(max_iterations):
        if gap <= _CONVERGED:
            break
        direction = _shared(_newton_point(point, lambda_reg), groups) - point.weights
        weights = _line_search(likelihoods, point, direction, lambda_reg)
        moved = _Point(weights, *_expansion(likelihoods, weights))
        moved_gap = _gap(weights, moved.slope, lambda_reg)
        # Values rise until float64 cannot tell them apart; after that the gap has to fall
        risen = _objective(moved.value, weights, lambda_reg) > _objective(point.value, point.weights, lambda_reg)
        if not risen and not moved_gap < gap:
            break
        point, gap = moved, moved_gap
    return point.weights, _certified(point.weights, point.slope, point.value + shift, lambda_reg)


@cache
def _blas() -> ThreadpoolController:
    """NumPy's and SciPy's BLAS: looking through all loaded libraries anew takes tens of milliseconds each time."""
    return ThreadpoolController().select(user_api="blas")


def _newton_point(point: _Point, lambda_reg: float) -> Vector:
    """Where the quadratic model of the objective is largest on the simplex."""
    k = len(point.weights)
    hessian = point.curvature + 2 * lambda_reg * np.eye(k)
    hessian += _RIDGE * np.trace(hessian) * np.eye(k)
    gradient = point.slope - 2 * lambda_reg * (point.weights - 1.0 / k)
    factor: Matrix = np.linalg.cholesky(hessian).astype(np.float64, copy=False)
    return _nearest(factor, factor.T @ point.weights + np.linalg.solve(factor, gradient))


def _line_search(likelihoods: Matrix, point: _Point, direction: Vector, lambda_reg: float) -> Vector:
    """The first of 1, 1/2, 1/4, ... of a step that gains enough (Armijo 1966); all of it where none does."""
    weights, k = point.weights, len(direction)
    promised = float((point.slope - 2 * lambda_reg * (weights - 1.0 / k)) @ direction)
    now, step = _objective(point.value, weights, lambda_reg), 1.0
    while step >= _SHORTEST:
        reached = _on_simplex(weights + step * direction)
        if _objective(_value(likelihoods, reached), reached, lambda_reg) > now + _SUFFICIENT * step * promised:
            return reached
        step /= 2
    return _on_simplex(weights + direction)


def _objective(value: float, weights: Vector, lambda_reg: float) -> float:
    return value - lambda_reg * _square(weights - 1.0 / len(weights))


def _certified(weights: Vector, slope: Vector, value: float, lambda_reg: float) -> float:
    """The gap plus an allowance for rounding."""
    gap = _gap(weights, slope, lambda_reg)
    return gap + _ROUNDING * (1.0 + float(slope.max()) + abs(value)) if np.isfinite(gap) else gap


def _value(likelihoods: Matrix, weights: Vector) -> float:
    """Mean over tokens of log sum_k w_k p_k(t); -inf where a token has no probability left."""
    total = 0.0
    with np.errstate(divide="ignore"):
        for start in range(0, likelihoods.shape[1], _BLOCK):
            total += float(np.log(weights @ likelihoods[:, start : start + _BLOCK]).sum())
    return float(total / likelihoods.shape[1])


def _expansion(likelihoods: Matrix, weights: Vector) -> tuple[float, Vector, Matrix]:
    """Value, gradient and negative Hessian of the mean log-likelihood."""
    k, tokens = likelihoods.shape
    value, slope, curvature = 0.0, np.zeros(k), np.zeros((k, k))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for start in range(0, tokens, _BLOCK):
            block = likelihoods[:, start : start + _BLOCK]
            mixed = weights @ block
            ratios = block / mixed
            value += float(np.log(mixed).sum())
            slope += ratios.sum(axis=1)
            curvature += ratios @ ratios.T
    return value / tokens, slope / tokens, (curvature + curvature.T) / (2 * tokens)


def _gap(weights: Vector, slope: Vector, lambda_reg: float) -> float:
    """Best of <c, s> - lambda ||s - u||^2 over the simplex, minus its value at the weights."""
    if not np.isfinite(slope).all():  # a token that only models of weight 0 could have written
        return float("inf")
    uniform = 1.0 / len(weights)
    relative = slope - slope.max()  # the same differences, but exact where it matters
    if lambda_reg > 0:
        with np.errstate(over="ignore"):
            best = _projected(uniform + relative / (2 * lambda_reg))
    else:
        best = (relative == 0) / np.count_nonzero(relative == 0)
    gain = relative @ (best - weights) - lambda_reg * (_square(best - uniform) - _square(weights - uniform))
    return max(0.0, float(gain))


def _projected(point: Vector) -> Vector:
    """The nearest point of the simplex (Held, Wolfe and Crowder 1974)."""
    largest = np.sort(point)[::-1]
    with np.errstate(invalid="ignore"):
        offsets = (np.cumsum(largest) - 1.0) / np.arange(1, len(point) + 1)
        last = int(np.flatnonzero(largest > offsets)[-1])
    return _on_simplex(point - offsets[last])


def _nearest(models: Matrix, target: Vector) -> Vector:
    """`simplex_least_squares` of models in canonical order."""
    centre = models.mean(axis=0)
    # Only what lies in the models' affine hull depends on the weights
    frame, coordinates = np.linalg.qr((models - centre).T)
    offsets = coordinates.T - (target - centre) @ frame
    size = float(np.sqrt(np.square(offsets).sum(axis=1).max()))
    if size == 0.0:
        return np.full(len(models), 1.0 / len(models))
    system = np.vstack([offsets.T / size, np.ones(len(models))])
    raw, _ = nnls(system, np.append(np.zeros(len(system) - 1), 1.0))
    weights = _on_simplex(raw)
    support = np.flatnonzero(weights)
    if len(support) > 1:
        first, *others = support
        shares, *_ = np.linalg.lstsq((offsets[others] - offsets[first]).T, -offsets[first])
        exact = np.append(1.0 - shares.sum(), shares)
        if (exact > 0).all():
            weights = np.zeros(len(models))
            weights[support] = exact
    return weights


def _canonical(rows: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """An order of the rows by their values alone, and in that order the number of each row's group of equal ones."""
    keys = [sha256(np.ascontiguousarray(row + 0.0).data).digest() for row in rows]  # -0.0 is 0.0
    order = sorted(range(len(keys)), key=keys.__getitem__)
    _, groups = np.unique([keys[row] for row in order], return_inverse=True)
    return np.array(order, dtype=np.intp), np.asarray(groups, dtype=np.intp)


def _shared(weights: Vector, groups: NDArray[np.intp]) -> Vector:
    """Equal models share their weight equally."""
    return np.asarray((np.bincount(groups, weights) / np.bincount(groups))[groups])


def _undone(weights: Vector, order: NDArray[np.intp]) -> Vector:
    result = np.empty(len(weights))
    result[order] = weights
    return result


def _on_simplex(point: Vector) -> Vector:
    positive = np.maximum(point, 0.0)
    return np.asarray(positive / positive.sum())


def _square(vector: Vector) -> float:
    return float(vector @ vector)
