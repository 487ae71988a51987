"""Merge methods that combine the models, or their differences from a base, with one coefficient per model.

Coefficients hold for the whole tensor, or for a row or column. They follow from the options, or from the models' inner
products alone: such a method needs one pass for the Gram matrix and one for the result.
"""

import math
from typing import Any, Literal

import numpy as np

from capibara_assets.consensus.merging import combination_kernels as kernels
from capibara_assets.consensus.merging.interface import Merge, Recipe
from capibara_assets.consensus.merging.stack import Floats, Stack

_Groups = Literal["all", "rows", "columns"]


def linear(stack: Stack, recipe: Recipe) -> Merge:
    """Weighted mean (Wortsman et al. 2022, model soups); with normalize=False the weighted sum."""
    weights = np.array(recipe.weights, np.float64)
    return _combination(stack, weights / weights.sum() if recipe.normalize else weights)


def convex(stack: Stack, recipe: Recipe) -> Merge:
    """Weighted mean with the given weights, which lie on the simplex."""
    return _combination(stack, np.array(recipe.weights, np.float64))


def slerp(stack: Stack, recipe: Recipe) -> Merge:
    """Spherical interpolation from the first to the second model (Shoemake 1985); linear where nearly parallel."""
    products = _gram(stack)
    norms = np.sqrt(products.diagonal())
    norms[norms <= recipe.eps] = 1.0
    cosine = float(np.clip(products[0, 1] / (norms[0] * norms[1]), -1.0, 1.0))
    t = recipe.t
    if abs(cosine) > 0.9995:
        return _combination(stack, np.array([1.0 - t, t]))
    angle = math.acos(cosine)
    return _combination(stack, np.array([math.sin((1.0 - t) * angle), math.sin(t * angle)]) / math.sin(angle))


def nuslerp(stack: Stack, recipe: Recipe) -> Merge:
    """Spherical interpolation by relative weights, of the models or of their differences from a base.

    Of the whole tensor, of each row (flatten=False) or of each column (flatten=False, row_wise=True: the name is
    mergekit's).
    """
    total = sum(recipe.weights)
    t = 0.5 if abs(total) < 1e-6 else recipe.weights[1] / total
    groups = _groups(stack, not recipe.flatten, recipe.row_wise)
    products = _grams(stack, groups)
    norms = np.maximum(np.sqrt(np.einsum("gii->gi", products)), 1e-7)
    cosine = np.clip(products[:, 0, 1] / (norms[:, 0] * norms[:, 1]), -1.0, 1.0)
    parallel = 1.0 - cosine**2 <= recipe.eps**2
    angle = np.arccos(np.where(parallel, 0.0, cosine))
    ends = np.stack([np.sin((1.0 - t) * angle), np.sin(t * angle)], 1) / np.sin(angle)[:, None]
    return _grouped(stack, np.where(parallel[:, None], [1.0 - t, t], ends), groups)


def multislerp(stack: Stack, recipe: Recipe) -> Merge:
    """Barycentric interpolation on the sphere, in the tangent space at the weighted mean direction (Goddard 2025)."""
    if len(stack.parts) == 1:
        return _combination(stack, np.ones(1), around_base=False)
    weights = np.array(recipe.weights, np.float64)
    if recipe.normalize_weights:
        weights = weights / weights.sum()
    products = _gram(stack)
    norms = np.sqrt(products.diagonal())
    if not norms.any():  # zero in all models: there is no direction, and nothing to turn
        return _combination(stack, weights)
    units = np.diag(1.0 / (norms + recipe.eps))
    mean = weights @ units
    length = _length(mean, products)
    if length < recipe.eps:
        if len(weights) == 2:
            return _combination(stack, weights)
        raise ValueError(
            f"{stack.name}: the weighted directions of the models cancel each other, so that they have no mean: "
            "give other weights"
        )
    mean = mean / length
    tangent = weights @ (units - (units @ products @ mean)[:, None] * mean)
    bent = _length(tangent, products) + recipe.eps
    direction = mean * math.cos(bent) + tangent * (math.sin(bent) / bent)
    return _combination(stack, direction * float(norms @ weights))


def karcher(stack: Stack, recipe: Recipe) -> Merge:
    """Riemannian centre of mass of the directions (Karcher 1977), times the mean norm."""
    products = _gram(stack)
    norms = np.sqrt(products.diagonal())
    alike = np.full(len(norms), 1.0 / len(norms))
    kept = norms > recipe.tol
    if not kept.any():
        return _combination(stack, np.zeros(len(norms)))
    units = np.diag(np.divide(1.0, norms, out=np.zeros(len(norms)), where=kept))[kept]
    alphas = alike[kept] / alike[kept].sum()
    mean = alphas @ units
    length = _length(mean, products)
    mean = units[0] if length < recipe.tol else mean / length
    for _ in range(recipe.max_iter):
        tangent = np.zeros(len(norms))
        for alpha, unit in zip(alphas, units, strict=True):
            cosine = float(np.clip(mean @ products @ unit, -1.0, 1.0))
            angle = math.acos(cosine)
            if angle >= recipe.tol:
                tangent += alpha * (angle / math.sin(angle)) * (unit - cosine * mean)
        length = _length(tangent, products)
        if length < recipe.tol:
            break
        mean = math.cos(length) * mean + math.sin(length) * (tangent / length)
        if (norm := _length(mean, products)) > recipe.tol:
            mean = mean / norm
    return _combination(stack, float(alike @ norms) * mean)


def model_stock(stack: Stack, recipe: Recipe) -> Merge:
    """Interpolate from base to mean of the models, nearer to the mean the more they agree (Jang et al. 2024)."""
    groups = _groups(stack, recipe.filter_wise, False)
    products = _grams(stack, groups)
    count = len(stack.parts)
    norms = np.sqrt(np.einsum("gii->gi", products))
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    cosines = [np.clip(products[:, i, j] / np.maximum(norms[:, i] * norms[:, j], 1e-6), -1.0, 1.0) for i, j in pairs]
    cosine = np.mean(cosines, axis=0)
    divisor = 1.0 + (count - 1) * cosine
    singular = np.abs(divisor) < 1e-6
    t = np.where(singular, 0.0, count * cosine / np.where(singular, 1.0, divisor))
    return _grouped(stack, np.repeat((t / count)[:, None], count, 1), groups)


def task_arithmetic(stack: Stack, recipe: Recipe) -> Merge:
    """Base plus the weighted sum of the differences (Ilharco et al. 2023)."""
    weights = np.array(recipe.weights, np.float64)
    if recipe.normalize and abs(weights.sum()) >= 1e-8:
        weights = weights / weights.sum()
    return _combination(stack, recipe.lambda_ * weights)


def _groups(stack: Stack, grouped: bool, by_column: bool) -> _Groups:
    """The groups of entries that inner products are computed over; a vector is a single group."""
    if not grouped or not stack.shape or (len(stack.shape) == 1):
        return "all"
    return "columns" if by_column else "rows"


def _gram(stack: Stack) -> Floats:
    """Inner products (n, n) over the whole tensor."""
    products: Floats = _grams(stack, "all")[0]
    return products


def _grams(stack: Stack, groups: _Groups) -> Floats:
    """Inner products (groups, n, n).

    Raises:
        InputError: a value is not finite. It has to be named here: through a coefficient it would spoil other blocks
            of the result, where it is not.
    """
    columns, count = stack.columns, len(stack.parts)
    if groups == "columns" and len(stack.shape) > 2:
        raise ValueError(f"{stack.name} has {len(stack.shape)} dimensions: row_wise merges matrices and vectors only")

    def whole(start: int, stop: int) -> Any:
        return kernels.gram(*stack.inputs, start, stop)

    def of_rows(start: int, stop: int) -> Any:
        return np.stack([kernels.gram(*stack.inputs, at, at + columns) for at in range(start, stop, columns)])

    def of_columns(start: int, stop: int) -> Any:
        return kernels.gram_of_columns(*stack.inputs, columns, start, stop)

    products: Floats
    if groups == "all":
        products = sum(stack.scan(whole), np.zeros((count, count)))[None]
    elif groups == "rows":
        products = np.concatenate(list(stack.scan(of_rows, stack.row_blocks())))
    else:
        products = sum(stack.scan(of_columns, stack.row_blocks()), np.zeros((columns, count, count)))
    if not np.isfinite(products).all():
        stack.check_finite(0, stack.size)
    return products


def _length(coefficients: Floats, products: Floats) -> float:
    """Norm of a combination; what rounding makes negative is zero."""
    return math.sqrt(max(0.0, float(coefficients @ products @ coefficients)))


def _combination(stack: Stack, coefficients: Floats, around_base: bool = True) -> Merge:
    """Σ coefficient × model; with a base, base + Σ coefficient × (model − base)."""
    if stack.base is not None and around_base:
        coefficients = np.append(coefficients, 1.0 - coefficients.sum())
        addresses = np.append(stack.addresses, stack.origin[0])
        kinds = np.append(stack.kinds, stack.origin[1])
    else:
        addresses, kinds = stack.addresses, stack.kinds

    def emit(start: int, stop: int, out: Any) -> None:
        kernels.combine(addresses, kinds, coefficients, start, stop, out)

    def write(start: int, stop: int, address: np.uint64, kind: int) -> bool:
        return bool(kernels.combine_into(addresses, kinds, coefficients, start, stop, address, kind))

    return Merge(stack.blocks(), emit, spreads=True, write=write)


def _grouped(stack: Stack, coefficients: Floats, groups: _Groups) -> Merge:
    """A combination with coefficients (groups, models) of its own for each row or column."""
    if groups == "all":
        return _combination(stack, coefficients[0])
    addresses, kinds = stack.addresses, stack.kinds
    if stack.base is not None:
        coefficients = np.concatenate([coefficients, 1.0 - coefficients.sum(1, keepdims=True)], 1)
        addresses = np.append(addresses, stack.origin[0])
        kinds = np.append(kinds, stack.origin[1])

    def emit(start: int, stop: int, out: Any) -> None:
        kernels.combine_groups(addresses, kinds, coefficients, stack.columns, groups == "rows", start, stop, out)

    return Merge(stack.blocks(), emit, spreads=True)
