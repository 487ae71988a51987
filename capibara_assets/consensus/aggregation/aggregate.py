"""Robust aggregation: one vector from n voters' vectors, of which up to f may be arbitrary.

Every rule checks the precondition of the theorem it rests on, and refuses where it does not hold. Sums are float64 in
an order that depends on the voters' values only, so results depend neither on the order of voters nor on the number
of threads. Only exact ties go to the lowest index: mutual nearest neighbours when Krum counts one neighbour, which also
decides Bulyan's last pick for f <= 2. To make those independent of the order, pass the voters sorted by digest.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capibara_assets.consensus.aggregation import coordinate_rules, linear_rules
from capibara_assets.consensus.aggregation.coordinate_rules import SortedMean
from capibara_assets.consensus.aggregation.geometry import (
    BLOCK,
    Matrix,
    PointSet,
    Vector,
    as_rows,
    canonical_order,
    combine_rows,
    distances_of,
    squared_distances,
)
from capibara_assets.consensus.aggregation.linear_rules import Cloud, Neighbours, RuleWeights
from capibara_assets.consensus.aggregation.preaggregation import mixing_matrix

LINEAR_RULES: dict[str, Callable[..., RuleWeights]] = {
    "mean": linear_rules.mean,
    "weighted_mean": linear_rules.weighted_mean,
    "krum": linear_rules.krum,
    "multi_krum": linear_rules.multi_krum,
    "geometric_median": linear_rules.geometric_median,
    "mda": linear_rules.mda,
    "smea": linear_rules.smea,
    "monna": linear_rules.monna,
    "caf": linear_rules.caf,
    "centered_clipping": linear_rules.centered_clipping,
}
COORDINATE_RULES = ("median", "trimmed_mean", "meamed", "bulyan")
RULES = (*LINEAR_RULES, *COORDINATE_RULES)
NOT_IN_RECIPES = ("weighted_mean", "monna", "centered_clipping")  # need weights, a reference voter or an option
_NO_PRODUCTS = ("mean", "weighted_mean", "median", "trimmed_mean", "meamed")  # all others need inner products

# n >= a f + b, as a theorem states it
_PRECONDITIONS = {"krum": (2, 3), "multi_krum": (2, 3), "bulyan": (4, 3), "mean": (0, 1), "weighted_mean": (0, 1)}
_MAJORITY = (2, 1)

_OPTIONS = {
    "krum": ("neighbours",),
    "multi_krum": ("m", "weighted", "neighbours"),
    "monna": ("reference",),
    "centered_clipping": ("tau", "iterations"),
    "trimmed_mean": ("cut",),
    "bulyan": ("neighbours",),
}
_KEEP_ALL_BUT_F = ("multi_krum", "mda", "smea", "monna", "meamed")


@dataclass(frozen=True)
class Aggregate:
    """Result of an aggregation rule: the aggregated vector and the evidence for it.

    Attributes:
        vector: (d,) float64.
        weights: coefficient of every voter in the result, in the caller's order, 0 for rejected ones; None where the
            rule works per coordinate and there is no such number.
        rejected: indices of the voters that were not finite.
        evidence: figures the rule used (scores, selected voters, distances), enough to check it by hand.
    """

    vector: Vector
    weights: tuple[float, ...] | None
    rejected: tuple[int, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)


def aggregate(
    vectors: ArrayLike | Sequence[ArrayLike],
    rule: str,
    *,
    f: int = 0,
    weights: Sequence[float] | None = None,
    pre: str | None = None,
    pre_options: dict[str, Any] | None = None,
    strict: bool = True,
    **options: Any,
) -> Aggregate:
    """Aggregate n voters' vectors (n, d) by a rule that tolerates up to f arbitrary vectors.

    Voters with a NaN, an Inf or a length beyond float64 are left out first and lower f by their number; norms are
    otherwise not judged here. The vectors may be float32 or float64 arrays, memory maps or torch tensors, as a matrix
    or one by one; they are read in place and never written. The result is float64, whatever came in.

    Args:
        rule: one of `RULES`; options: trimmed_mean `cut` (a count, or a share below 1/2), krum and multi_krum
            `neighbours`, multi_krum `m` and `weighted`, monna `reference` (index of the trusted voter),
            centered_clipping `tau` and `iterations`.
        weights: relative weight of each voter (say, its number of examples), for weighted_mean and
            multi_krum(weighted=True).
        pre: nnm, clipping, arc or bucketing, with `pre_options`.
        strict: refuse where the precondition of the rule or of `pre` does not hold; False computes all the same.

    Raises:
        ValueError: unknown rule or option, precondition violated, more non-finite voters than f, odd shapes.
    """
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}: one of {', '.join(sorted(RULES))}")
    _check_options(rule, options)
    if f < 0:
        raise ValueError(f"f, the number of voters that may be arbitrary, has to be 0 at least, not {f}")
    asked = _Arguments(rule, f, weights, pre, pre_options or {}, strict, options)
    rows = as_rows(vectors)
    ranked = canonical_order(rows)
    points = PointSet([rows[i] for i in ranked])
    gram = points.gram if pre is not None or rule not in _NO_PRODUCTS else None
    # A voter that is not finite spoils its own products only, so they show it. Without products, float32 voters (whose
    # lengths cannot overflow) are assumed finite until the rule itself meets one that is not
    assumed_finite = gram is None and points.large and rows[0].dtype == np.float32 and _holds(rule, len(rows), f)
    aggregated = None
    if assumed_finite:
        aggregated = _aggregated(points, None, ranked, np.full(len(rows), True), asked)
    if aggregated is None:
        finite = np.isfinite((_squared_lengths(points) if gram is None else np.diag(gram)) * len(rows))
        aggregated = _aggregated(points, gram, ranked, finite, asked)
    if aggregated is None:
        raise ValueError(f"{rule} of finite voters is not finite: their values are too large for float64")
    return aggregated


@dataclass(frozen=True)
class _Arguments:
    """The arguments of `aggregate`, which explains them."""

    rule: str
    f: int
    weights: Sequence[float] | None
    pre: str | None
    pre_options: dict[str, Any]
    strict: bool
    options: dict[str, Any]


def _aggregated(
    points: PointSet, gram: Matrix | None, ranked: NDArray[np.intp], finite: NDArray[np.bool_], asked: _Arguments
) -> Aggregate | None:
    """The rule on the finite points, which the caller numbers `ranked`; None where it met NaN or Inf."""
    rule, f, pre, strict, options = asked.rule, asked.f, asked.pre, asked.strict, asked.options
    n = len(ranked)
    rejected = tuple(sorted(ranked[~finite].tolist()))
    if len(rejected) > f:
        raise ValueError(f"{len(rejected)} of {n} voters are not finite, more than f={f}: nothing to rely on")
    order, f_left = ranked[finite], f - len(rejected)
    if not len(order):
        raise ValueError(f"none of the {n} voters is finite")
    if not strict and rule in _KEEP_ALL_BUT_F and len(order) <= f_left:
        raise ValueError(f"{rule} of {len(order)} finite voters leaves out f={f_left}: none is left")
    points = PointSet([row for row, kept in zip(points.rows, finite, strict=True) if kept])
    shares = _shares(asked.weights, n, order)
    if rule == "monna":
        options = {**options, "reference": _position(order, options.get("reference", 0), rejected)}
    products = np.zeros((points.n, points.n)) if gram is None else gram[np.ix_(finite, finite)]
    distances = products if gram is None else squared_distances(points.rows, products)
    cloud = Cloud(products, distances, f_left, shares, order)
    mixing = None if pre is None else mixing_matrix(cloud, pre, strict=strict, **asked.pre_options)
    if mixing is not None:
        if rule == "monna" and len(mixing) != cloud.n:
            raise ValueError(f"after {pre} no point stands for monna's reference voter")
        points = PointSet(points.rows, mixing)
        cloud = _mixed_cloud(cloud, mixing)
    if strict:
        check_precondition(rule, cloud.n, f_left)
    evidence: dict[str, Any] = {"n": n, "f": f, "n_used": points.n, "f_used": f_left, "pre": pre}
    coefficients = None
    if rule in LINEAR_RULES:
        choice = LINEAR_RULES[rule](cloud, **options)
        vector, sound = points.combination(choice.weights)
        coefficients = np.zeros(n)
        coefficients[order] = choice.weights if mixing is None else choice.weights @ mixing
        own_evidence = choice.evidence
    else:
        reduction, own_evidence = _coordinate_rule(rule, cloud, **options)
        vector, sound = _reduced(points, reduction)
    if not sound:
        return None
    named = _in_callers_order(own_evidence, order, n) if mixing is None else own_evidence
    used = None if coefficients is None else tuple(coefficients.tolist())
    return Aggregate(vector, used, rejected, {**evidence, **named})


def _reduced(points: PointSet, rule: SortedMean) -> tuple[Vector, bool]:
    """A coordinate-wise rule on the points (d,), and whether it met finite values only."""
    result = np.empty(points.dimension)
    if not points.large:
        for part, block in points.blocks():
            result[part] = rule.of_block(block)
        return result, bool(np.isfinite(result).all())
    if points.mixing is None:
        return result, rule.of_rows(points.rows, result)
    from capibara_assets.consensus.aggregation import kernels

    def reduce(start: int, stop: int) -> bool:
        return rule.of_rows(list(points.block(slice(start, stop))), result[start:stop])

    return result, all(kernels.over_blocks(points.dimension, reduce, BLOCK))


def linear_weights(gram: Matrix, rule: str, *, f: int, pre: str | None = None, **options: Any) -> RuleWeights:
    """Weights (n,) of a linear rule from the voters' (n, n) inner products alone.

    For vectors that exist only as factors (LoRA): the Gram matrix comes from the factors, and the result is again a
    combination of them.

    Raises:
        ValueError: the rule is not linear, or its precondition does not hold.
    """
    if rule not in LINEAR_RULES:
        raise ValueError(f"{rule!r} has no weights: the linear rules are {', '.join(sorted(LINEAR_RULES))}")
    cloud, mixing = _premixed(gram, rule, f, pre)
    choice = LINEAR_RULES[rule](cloud, **options)
    return choice if mixing is None else RuleWeights(choice.weights @ mixing, choice.evidence)


def coordinate_reducer(
    gram: Matrix, rule: str, *, f: int, pre: str | None = None, **options: Any
) -> tuple[Callable[[Matrix], Vector], dict[str, Any]]:
    """A coordinate-wise rule as a function of any columns (n, width) of the voters, and its evidence.

    For vectors that are made piece by piece (one module at a time): what the rule needs of the whole vectors comes from
    their (n, n) inner products.

    Raises:
        ValueError: the rule is not coordinate-wise, or its precondition does not hold.
    """
    if rule not in COORDINATE_RULES:
        raise ValueError(f"{rule!r} is not coordinate-wise: those are {', '.join(COORDINATE_RULES)}")
    cloud, mixing = _premixed(gram, rule, f, pre)
    reduction, evidence = _coordinate_rule(rule, cloud, **options)
    if mixing is None:
        return reduction.of_block, evidence
    return (lambda block: reduction.of_block(combine_rows(mixing, block))), evidence


def check_precondition(rule: str, n: int, f: int) -> None:
    """Check that n voters are enough for the rule at f. Raises ValueError with the theorem's condition."""
    if not _holds(rule, n, f):
        factor, extra = _PRECONDITIONS.get(rule, _MAJORITY)
        theorem = "n > 2f" if (factor, extra) == _MAJORITY else f"n >= {factor}f + {extra}"
        raise ValueError(f"{rule} needs {theorem}, but n={n}, f={f}")


def _check_options(rule: str, options: dict[str, Any]) -> None:
    allowed = _OPTIONS.get(rule, ())
    if odd := sorted(options.keys() - set(allowed)):
        raise ValueError(f"{rule} has no option {', '.join(odd)}: {', '.join(allowed) or 'it has none'}")
    if rule == "centered_clipping" and "tau" not in options:
        raise ValueError("centered_clipping needs tau, the length that differences are cut to")


def _holds(rule: str, n: int, f: int) -> bool:
    factor, extra = _PRECONDITIONS.get(rule, _MAJORITY)
    return f >= 0 and n >= factor * f + extra


def _premixed(gram: Matrix, rule: str, f: int, pre: str | None) -> tuple[Cloud, Matrix | None]:
    n = len(gram)
    cloud = Cloud(gram, distances_of(gram), f, np.full(n, 1.0 / n), np.arange(n))
    mixing = None if pre is None else mixing_matrix(cloud, pre)
    cloud = cloud if mixing is None else _mixed_cloud(cloud, mixing)
    check_precondition(rule, cloud.n, f)
    return cloud, mixing


def _coordinate_rule(
    rule: str, cloud: Cloud, *, cut: float | None = None, neighbours: Neighbours = "n-f-2"
) -> tuple[SortedMean, dict[str, Any]]:
    n, f = cloud.n, cloud.f
    if rule == "median":
        return coordinate_rules.median(n), {}
    if rule == "meamed":
        return coordinate_rules.closest_mean(n, n - f), {}
    if rule == "trimmed_mean":
        count = f if cut is None else cut if isinstance(cut, Integral) else math.floor(cut * n)
        if not 0 <= count <= (n - 1) // 2:
            raise ValueError(f"trimmed_mean cannot cut {count} values on each side of n={n}")
        return coordinate_rules.trimmed_mean(n, count), {"cut": count}
    selected = _bulyan_selection(cloud, neighbours)
    keep = len(selected) - 2 * f
    if keep < 1:
        raise ValueError(f"bulyan keeps n - 4f values of each coordinate: none for n={n}, f={f}")
    return coordinate_rules.closest_mean(n, keep, tuple(selected)), {"selected": sorted(selected)}


def _bulyan_selection(cloud: Cloud, neighbours: Neighbours) -> list[int]:
    """n - 2f voters, each the Krum winner among those not yet selected (El Mhamdi et al. 2018)."""
    left = list(range(cloud.n))
    selected: list[int] = []
    while len(selected) < cloud.n - 2 * cloud.f:
        part = np.ix_(left, left)
        rest = Cloud(cloud.gram[part], cloud.distances[part], cloud.f, cloud.shares[left], cloud.seniority[left])
        scores = linear_rules.krum_scores(rest, neighbours)
        selected.append(left.pop(linear_rules.best(scores, rest.seniority)[0]))
    return selected


def _mixed_cloud(cloud: Cloud, mixing: Matrix) -> Cloud:
    """The cloud of mixed points; distances from differences of the rows' coefficients, so equal rows are at 0."""
    n = len(mixing)
    offsets = mixing[:, None, :] - mixing[None, :, :]
    distances = np.maximum(np.einsum("ijk,kl,ijl->ij", offsets, cloud.gram, offsets), 0.0)
    shares = mixing @ cloud.shares
    seniority = cloud.seniority if n == cloud.n else np.arange(n)
    return Cloud(mixing @ cloud.gram @ mixing.T, distances, cloud.f, shares / shares.sum(), seniority)


def _squared_lengths(points: PointSet) -> Vector:
    """(n,) squared lengths; not finite for voters with NaN, Inf or squares beyond float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(sum(np.square(block).sum(axis=1) for _, block in points.blocks()))


def _shares(weights: Sequence[float] | None, n: int, order: NDArray[np.intp]) -> Vector:
    if weights is None:
        return np.full(len(order), 1.0 / len(order))
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (n,) or not np.isfinite(given).all() or (given < 0).any() or given[order].sum() <= 0:
        raise ValueError(f"weights must be {n} finite numbers >= 0, not all 0, one for each voter: {weights!r}")
    return np.asarray(given[order] / given[order].sum())


def _position(order: NDArray[np.intp], reference: int, rejected: tuple[int, ...]) -> int:
    if reference in rejected or reference not in order:
        raise ValueError(f"monna's reference voter {reference} is not among the finite voters")
    return int(np.flatnonzero(order == reference)[0])


def _in_callers_order(evidence: dict[str, Any], order: NDArray[np.intp], n: int) -> dict[str, Any]:
    """Evidence with indices and scores as the caller numbers the voters (scores of rejected voters are None)."""
    named = dict(evidence)
    if "selected" in named:
        named["selected"] = sorted(int(order[i]) for i in named["selected"])
    if "reference" in named:
        named["reference"] = int(order[named["reference"]])
    if "scores" in named:
        scores: list[float | None] = [None] * n
        for position, score in zip(order, named["scores"], strict=True):
            scores[position] = score
        named["scores"] = scores
    return named
