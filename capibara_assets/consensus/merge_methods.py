"""The methods that merge checkpoints, one small function each, on one tensor of all models at a time.

A method makes whatever passes over the tensor it needs, and returns how each block of the result is made. Names and
defaults of the options are those that mergekit's users know. Many methods give a combination of the models whose
coefficients follow from their inner products alone: these need one pass for the Gram matrix and one for the result.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch

from capibara_assets.consensus import merge_kernels as kernels
from capibara_assets.consensus.merge_stack import Block, Floats, Ranked, Stack, nth_equal, order_statistics

Emit = Callable[[int, int, Any], None]
Write = Callable[[int, int, np.uint64, int], bool]
_SORTED = 1 << 22  # entries of a tensor up to which equal ones at a cut are taken in torch's order


@dataclass(frozen=True)
class Recipe:
    """The options as they hold for one tensor; those per model have one entry for each of the stack's parts."""

    weights: tuple[float, ...] = ()
    density: tuple[float, ...] = ()
    gamma: tuple[float, ...] = ()
    epsilon: tuple[float, ...] = ()
    t: float = 0.5
    lambda_: float = 1.0
    normalize: bool = True
    rescale: bool = False
    seed: int = 0
    select_topk: float = 1.0
    max_iter: int = 10
    tol: float = 1e-5
    eps: float = 1e-8
    normalize_weights: bool = True
    row_wise: bool = False
    flatten: bool = True
    filter_wise: bool = False


@dataclass(frozen=True)
class Merge:
    """How a tensor's result is made: `emit(start, stop, out)` writes the elements of one of `blocks`, as float32.

    With `spreads` a value of an input that is not finite makes one in the result, and need not be looked for before.
    `write(start, stop, address, kind)` puts the same, rounded to float32 or bfloat16, where it is to be written from,
    and says False where a value is not finite there.
    """

    blocks: Sequence[Block]
    emit: Emit
    spreads: bool = False
    write: Write | None = None


Build = Callable[[Stack, Recipe], Merge]


@dataclass(frozen=True)
class Method:
    """A method and what it asks for.

    Attributes:
        build: makes the merge of one tensor.
        base: `required`; `optional`; `first`: the base is the first of two ends; `unused`: only its config counts.
        models: least and largest number of models, the base not counted (for `first`: counted).
        options: those that it knows -> the default.
    """

    build: Build
    base: Literal["required", "optional", "first", "unused"]
    models: tuple[int, int | None]
    options: Mapping[str, Any] = field(default_factory=dict)


# Combinations of the models


def linear(stack: Stack, recipe: Recipe) -> Merge:
    """Weighted mean (Wortsman et al. 2022, model soups); with normalize=False the weighted sum."""
    weights = np.array(recipe.weights, np.float64)
    return _combination(stack, weights / weights.sum() if recipe.normalize else weights)


def convex(stack: Stack, recipe: Recipe) -> Merge:
    """Weighted mean with weights of the simplex, as they are."""
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
    """Between base and mean of the models, nearer to the mean the more their changes agree (Jang et al. 2024)."""
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


# Sums of sparse differences


def ties(stack: Stack, recipe: Recipe) -> Merge:
    """Differences trimmed to their largest entries, a sign elected per entry, those that agree merged (Yadav 2023)."""
    masks = [_largest(stack, model, density) for model, density in enumerate(recipe.density)]
    return _sparse(stack, recipe, masks, elect=True)


def breadcrumbs(stack: Stack, recipe: Recipe) -> Merge:
    """Differences without their smallest entries and without the outliers (Davari and Belilovsky 2023)."""
    return _sparse(stack, recipe, _breadcrumbs(stack, recipe), elect=False)


def breadcrumbs_ties(stack: Stack, recipe: Recipe) -> Merge:
    """Breadcrumbs, then TIES' election of signs."""
    return _sparse(stack, recipe, _breadcrumbs(stack, recipe), elect=True)


def dare_linear(stack: Stack, recipe: Recipe) -> Merge:
    """Differences with entries dropped at random and the rest rescaled (Yu et al. 2024)."""
    return _sparse(stack, recipe, _dropped(stack, recipe), elect=False)


def dare_ties(stack: Stack, recipe: Recipe) -> Merge:
    """DARE, then TIES' election of signs."""
    return _sparse(stack, recipe, _dropped(stack, recipe), elect=True)


def della(stack: Stack, recipe: Recipe) -> Merge:
    """Differences with entries dropped at random, the smaller of a row the likelier, then TIES (Deep et al. 2024)."""
    masks = [_pruned(stack, recipe, model) for model in range(len(stack.parts))]
    return _sparse(stack, recipe, masks, elect=True, blocks=stack.row_blocks())


# Others


def sce(stack: Stack, recipe: Recipe) -> Merge:
    """Select the most variable entries, calculate weights by squared change, erase minorities (Wan et al. 2024)."""
    mask = _most_variable(stack, recipe.select_topk)

    def squared(start: int, stop: int) -> Any:
        return kernels.squares(*stack.inputs, mask(start, stop), start, stop)

    means = sum(stack.scan(squared), np.zeros(len(stack.parts))) / max(1, stack.size)
    weights = np.full(len(means), 1.0 / len(means)) if means.sum() < 1e-6 else means / means.sum()

    def emit(start: int, stop: int, out: Any) -> None:
        kernels.add_elected(*stack.inputs, mask(start, stop), weights, start, stop, out)

    return Merge(stack.blocks(), emit)


def arcee_fusion(stack: Stack, recipe: Recipe) -> Merge:
    """The model's entries where they matter, else the base's: |change| × divergence of the row (Arcee 2024).

    What matters is above median + 1.5 × interquartile range, taken over all entries (mergekit samples a million).
    """
    divergence = np.concatenate(list(stack.scan(lambda a, b: _divergence(stack, a, b), stack.row_blocks())))
    places = [int(np.float32(q) * np.float32(stack.size - 1)) for q in (0.25, 0.5, 0.75)]
    if stack.size <= _SORTED:
        # Rounding makes the divergence of rows that hardly changed negative, and so their importance
        ranked = Ranked(kernels.IMPORTANCE, 0, divergence)
        values = np.empty(stack.size, np.float32)
        kernels.measures(*ranked.arguments(stack), 0, stack.size, values)
        values.sort()
        q1, median, q3 = values[places]
    else:
        ranked = Ranked(kernels.IMPORTANCE, 0, np.maximum(divergence, np.float32(0)))
        q1, median, q3 = (np.float32(found.value) for found in order_statistics(stack, ranked, places))
    least = np.float32(median + np.float32(1.5) * (q3 - q1))
    arguments = ranked.arguments(stack)

    def emit(start: int, stop: int, out: Any) -> None:
        importance = np.empty(stop - start, np.float32)
        kernels.measures(*arguments, start, stop, importance)
        marks = (importance >= least).astype(np.uint8)[None]
        one = np.ones(1)
        kernels.add_sparse(*stack.inputs, marks, one, one, False, False, 1.0, start, stop, out)

    return Merge(stack.blocks(), emit)


_TASK = MappingProxyType({"weights": 1.0, "lambda_": 1.0, "normalize": False})
_SPARSE = MappingProxyType({**_TASK, "density": 1.0, "rescale": False})
_RANDOM = MappingProxyType({**_SPARSE, "rescale": True, "seed": 0})
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "linear": Method(linear, "unused", (1, None), {"weights": 1.0, "normalize": True}),
        "slerp": Method(slerp, "first", (2, 2), {"t": None, "eps": 1e-8}),
        "nuslerp": Method(
            nuslerp, "optional", (2, 2), {"weights": 1.0, "flatten": True, "row_wise": False, "eps": 1e-8}
        ),
        "multislerp": Method(
            multislerp, "optional", (1, None), {"weights": 1.0, "normalize_weights": True, "eps": 1e-8}
        ),
        "task_arithmetic": Method(task_arithmetic, "required", (1, None), _TASK),
        "ties": Method(ties, "required", (1, None), {**_SPARSE, "normalize": True}),
        "dare_linear": Method(dare_linear, "required", (1, None), _RANDOM),
        "dare_ties": Method(dare_ties, "required", (1, None), _RANDOM),
        "della": Method(della, "required", (1, None), {**_RANDOM, "normalize": True, "epsilon": 0.15}),
        "breadcrumbs": Method(breadcrumbs, "required", (1, None), {**_SPARSE, "gamma": 0.01}),
        "breadcrumbs_ties": Method(breadcrumbs_ties, "required", (1, None), {**_SPARSE, "gamma": 0.01}),
        "model_stock": Method(model_stock, "required", (2, None), {"filter_wise": False}),
        "karcher": Method(karcher, "unused", (1, None), {"max_iter": 10, "tol": 1e-5}),
        "sce": Method(sce, "required", (1, None), {"select_topk": 1.0}),
        "arcee_fusion": Method(arcee_fusion, "required", (1, 1)),
        "convex": Method(convex, "unused", (1, None), {"weights": None}),
    }
)
"""Every method by name. A default of None: the option must be given."""


# What the methods share

_Groups = Literal["all", "rows", "columns"]
_Mask = Callable[[int, int], Any]


def _groups(stack: Stack, grouped: bool, by_column: bool) -> _Groups:
    """Along what inner products are taken; a vector is one row, and one column per entry."""
    if not grouped or not stack.shape or (len(stack.shape) == 1):
        return "all"
    return "columns" if by_column else "rows"


def _gram(stack: Stack) -> Floats:
    found: Floats = sum(
        stack.scan(lambda start, stop: kernels.gram(*stack.inputs, start, stop)), np.zeros((len(stack.parts),) * 2)
    )
    if not np.isfinite(found).all():
        stack.check_finite(0, stack.size)
    return found


def _grams(stack: Stack, groups: _Groups) -> Floats:
    """Inner products (groups, n, n)."""
    if groups == "all":
        return _gram(stack)[None]
    columns = stack.columns
    if groups == "rows":

        def of_rows(start: int, stop: int) -> Any:
            return np.stack([kernels.gram(*stack.inputs, at, at + columns) for at in range(start, stop, columns)])

        return np.concatenate(list(stack.scan(of_rows, stack.row_blocks())))
    if len(stack.shape) > 2:
        raise ValueError(f"{stack.name} has {len(stack.shape)} dimensions: row_wise merges matrices and vectors only")

    def of_columns(start: int, stop: int) -> Any:
        return kernels.gram_of_columns(*stack.inputs, columns, start, stop)

    found: Floats = sum(
        stack.scan(of_columns, stack.row_blocks()), np.zeros((columns, len(stack.parts), len(stack.parts)))
    )
    return found


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


def _sparse(
    stack: Stack, recipe: Recipe, masks: Sequence[_Mask], *, elect: bool, blocks: Sequence[Block] | None = None
) -> Merge:
    """Base plus the masked differences, each rescaled to the L1 norm it had, if so asked."""
    blocks = stack.blocks() if blocks is None else blocks
    weights = np.array(recipe.weights, np.float64)
    scales = np.ones(len(weights))
    if recipe.rescale:
        scales = np.array(
            [
                1.0 if density >= 1.0 else _regained(stack, model, masks[model], blocks)
                for model, density in enumerate(recipe.density)
            ]
        )

    def emit(start: int, stop: int, out: Any) -> None:
        marks = np.stack([mask(start, stop) for mask in masks])
        factors = (elect, recipe.normalize, recipe.lambda_)
        kernels.add_sparse(*stack.inputs, marks, scales, weights, *factors, start, stop, out)

    return Merge(blocks, emit)


def _regained(stack: Stack, model: int, mask: _Mask, blocks: Sequence[Block]) -> float:
    """By what to multiply what is left of a difference, so that its L1 norm is as before."""
    address, kind = stack.addresses[model], stack.kinds[model]

    def sums(start: int, stop: int) -> Any:
        return np.array(kernels.kept_mass(address, kind, *stack.origin, start, stop, mask(start, stop)))

    before, after = sum(stack.scan(sums, blocks), np.zeros(2))
    if before < 1e-7 or after < 1e-7 or not np.isfinite(before + after):  # not finite: named where blocks are made
        return 1.0
    return float(before / after)


def _everything(start: int, stop: int) -> Any:
    return np.ones(stop - start, np.uint8)


def _nothing(start: int, stop: int) -> Any:
    return np.zeros(stop - start, np.uint8)


def _between(
    stack: Stack, ranked: Ranked, low: tuple[int, int, int] = (-1, 0, -1), high: tuple[int, int] = (1 << 31, -1)
) -> _Mask:
    """Marks what lies between two order statistics: (bits, first and last index of those equal to it that count)."""
    arguments = ranked.arguments(stack)
    bounds = (low[0], low[1], low[2], high[0], high[1])

    def mask(start: int, stop: int) -> Any:
        values = np.empty(stop - start, np.float32)
        kernels.measures(*arguments, start, stop, values)
        marks = np.empty(stop - start, np.uint8)
        kernels.mark_between(values.view(np.int32), start, *bounds, marks)
        return marks

    return mask


def _top(stack: Stack, ranked: Ranked, count: int) -> _Mask:
    """Marks the `count` largest; of equal ones those that torch's sort puts first, or in large tensors the first."""
    [least] = order_statistics(stack, ranked, [stack.size - count])
    wanted = count - (stack.size - least.smaller - least.equal)
    if wanted < least.equal and stack.size <= _SORTED:
        return _sorted(stack, ranked, 0, count, descending=True)
    last = stack.size if wanted == least.equal else nth_equal(stack, ranked, least, wanted - 1)
    return _between(stack, ranked, (least.bits, 0, last))


def _sorted(stack: Stack, ranked: Ranked, first: int, last: int, *, descending: bool) -> _Mask:
    """Marks positions first..last of a sorted tensor.

    Which of equal entries stay at a cut is arbitrary, and in bfloat16 they are many. Tools that sort by torch take
    them in the order of its sort, which is not stable: so does this, that one gets the same model.
    """
    values = np.empty(stack.size, np.float32)
    kernels.measures(*ranked.arguments(stack), 0, stack.size, values)
    marks = np.zeros(stack.size, np.uint8)
    marks[torch.argsort(torch.from_numpy(values), descending=descending)[first:last].numpy()] = 1
    return lambda start, stop: marks[start:stop]


def _largest(stack: Stack, model: int, density: float) -> _Mask:
    """Marks a difference's largest entries."""
    if density >= 1.0:
        return _everything
    if density <= 0.0 or stack.size == 0:
        return _nothing
    return _top(stack, Ranked(kernels.DELTA, model), max(1, int(density * stack.size)))


def _breadcrumbs(stack: Stack, recipe: Recipe) -> list[_Mask]:
    return [
        _inner(stack, model, density, gamma)
        for model, (density, gamma) in enumerate(zip(recipe.density, recipe.gamma, strict=True))
    ]


def _inner(stack: Stack, model: int, density: float, gamma: float) -> _Mask:
    """Marks a difference's entries but the largest (a share of gamma) and the smallest, down to the density."""
    wanted = int(density * stack.size)
    if density >= 1.0:
        return _everything
    if wanted == 0:
        return _nothing
    first = max(0, stack.size - wanted - int(gamma * stack.size))
    ranked = Ranked(kernels.DELTA, model)
    low, high = order_statistics(stack, ranked, [first, first + wanted - 1])
    if stack.size <= _SORTED and not (first == low.smaller and first + wanted == high.smaller + high.equal):
        return _sorted(stack, ranked, first, first + wanted, descending=False)
    from_first = 0 if first == low.smaller else nth_equal(stack, ranked, low, first - low.smaller)
    taken = first + wanted - high.smaller
    to_last = stack.size if taken == high.equal else nth_equal(stack, ranked, high, taken - 1)
    return _between(stack, ranked, (low.bits, from_first, stack.size), (high.bits, to_last))


def _dropped(stack: Stack, recipe: Recipe) -> list[_Mask]:
    return [_at_random(stack, recipe.seed, model, density) for model, density in enumerate(recipe.density)]


def _at_random(stack: Stack, seed: int, model: int, density: float) -> _Mask:
    """Marks each entry with probability `density`."""
    if density >= 1.0:
        return _everything
    key = _key(seed, stack.name, model)

    def mask(start: int, stop: int) -> Any:
        marks = np.empty(stop - start, np.uint8)
        kernels.mark_random(key, density, start, marks)
        return marks

    return mask


def _pruned(stack: Stack, recipe: Recipe, model: int) -> _Mask:
    """DELLA's mask. Its ranks take a sort of each row, so it is kept, a bit for each entry."""
    density, epsilon = recipe.density[model], recipe.epsilon[model]
    if density >= 1.0:
        return _everything
    if density <= 0.0:
        return _nothing
    key, columns = _key(recipe.seed, stack.name, model), stack.columns
    arguments = Ranked(kernels.DELTA, model).arguments(stack)

    def draw(start: int, stop: int) -> Any:
        sizes = np.empty(stop - start, np.float32)
        kernels.measures(*arguments, start, stop, sizes)
        keys = sizes.view(np.uint32).astype(np.uint64).reshape(-1, columns)
        keys <<= np.uint64(32)
        keys |= np.arange(columns, dtype=np.uint64)
        keys.sort(axis=1)
        marks = np.empty(stop - start, np.uint8)
        kernels.mark_ranked(keys, key, density, epsilon, start, marks)
        return start, np.packbits(marks)

    kept = dict(stack.scan(draw, stack.row_blocks()))
    return lambda start, stop: np.unpackbits(kept[start], count=stop - start)


def _key(seed: int, name: str, model: int) -> np.uint64:
    """Where the random sequence of one tensor of one model begins."""
    digest = hashlib.sha256(f"{seed}\0{model}\0{name}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def _most_variable(stack: Stack, share: float) -> _Mask:
    """Marks a share of those entries on which the models differ at all: the most variable."""
    if share >= 1.0:
        return _everything
    ranked = Ranked(kernels.VARIANCE)
    arguments = ranked.arguments(stack)
    equal = sum(
        seen
        for seen, _ in stack.scan(lambda start, stop: kernels.count_equal(*arguments, start, stop, np.uint32(0), -1))
    )
    count = int((stack.size - equal) * share)
    return _top(stack, ranked, count) if count > 0 else _nothing


def _divergence(stack: Stack, start: int, stop: int) -> Any:
    """Kullback–Leibler divergence of each row's softmax, model from base, float32."""
    model, base = np.empty(stop - start, np.float32), np.empty(stop - start, np.float32)
    kernels.load(stack.addresses[0], stack.kinds[0], start, stop - start, model)
    kernels.load(*stack.origin, start, stop - start, base)
    p, q = (torch.softmax(torch.from_numpy(part).reshape(-1, stack.columns), -1) + 1e-8 for part in (model, base))
    return (p * torch.log(p / q)).sum(-1).numpy()
