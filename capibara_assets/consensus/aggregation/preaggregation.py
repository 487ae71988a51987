"""Pre-aggregation: mixing or clipping of the voters before a rule. Each is a matrix applied to the voters' rows.

Sources: nearest-neighbour mixing (Allouah et al. 2023), adaptive robust clipping (Allouah et al. 2025), static
clipping, bucketing (Karimireddy et al. 2022).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from capibara_assets.consensus.aggregation.geometry import (
    Matrix,
    PointSet,
    Vector,
    as_rows,
    canonical_order,
    squared_distances,
)
from capibara_assets.consensus.aggregation.linear_rules import Cloud, nearest


def nnm(cloud: Cloud) -> Matrix:
    """Replace every voter by the mean of itself and its n-f-1 nearest neighbours."""
    mixing = np.zeros((cloud.n, cloud.n))
    for i in range(cloud.n):
        mixing[i, nearest(cloud, i)] = 1.0 / (cloud.n - cloud.f)
    return mixing


def clipping(cloud: Cloud, *, threshold: float | None = None) -> Matrix:
    """Shorten every voter to `threshold` (default: the median length of the voters)."""
    lengths = _lengths(cloud)
    limit = float(np.median(lengths)) if threshold is None else threshold
    if not limit >= 0:
        raise ValueError(f"clipping needs threshold >= 0, not {limit}")
    return _shortened(lengths, limit)


def arc(cloud: Cloud) -> Matrix:
    """Adaptive robust clipping: the floor(2 f (n-f) / n) longest voters are cut to the length of the next one."""
    lengths = _lengths(cloud)
    clipped = int(2 * cloud.f * (cloud.n - cloud.f) // cloud.n)
    limit = float(np.sort(lengths)[cloud.n - 1 - clipped])
    return _shortened(lengths, limit)


def bucketing(cloud: Cloud, *, size: int | None = None, seed: int = 0) -> Matrix:
    """Means of random buckets of `size` voters (default floor(n / 2f)); the result has fewer points than voters."""
    width = size if size is not None else max(1, cloud.n // (2 * cloud.f)) if cloud.f else 1
    if width < 1:
        raise ValueError(f"bucketing needs buckets of 1 voter at least, not size={size}")
    order = np.random.default_rng(seed).permutation(cloud.n)
    buckets = [order[start : start + width] for start in range(0, cloud.n, width)]
    mixing = np.zeros((len(buckets), cloud.n))
    for row, bucket in zip(mixing, buckets, strict=True):
        row[bucket] = 1.0 / len(bucket)
    return mixing


PREAGGREGATIONS: dict[str, Callable[..., Matrix]] = {
    "nnm": nnm,
    "clipping": clipping,
    "arc": arc,
    "bucketing": bucketing,
}


_OPTIONS = {"clipping": ("threshold",), "bucketing": ("size", "seed")}


def mixing_matrix(cloud: Cloud, name: str, *, strict: bool = True, **options: Any) -> Matrix:
    """The (n', n) matrix of a pre-aggregation by name.

    Raises:
        ValueError: unknown name or option; n > 2f does not hold where the method rests on it (n > f if not `strict`).
    """
    if name not in PREAGGREGATIONS:
        raise ValueError(f"unknown pre-aggregation {name!r}: one of {', '.join(sorted(PREAGGREGATIONS))}")
    allowed = _OPTIONS.get(name, ())
    if odd := sorted(options.keys() - set(allowed)):
        raise ValueError(f"{name} has no option {', '.join(odd)}: {', '.join(allowed) or 'it has none'}")
    if name in ("nnm", "arc") and cloud.n <= (2 * cloud.f if strict else cloud.f):
        raise ValueError(f"{name} needs n > {'2f' if strict else 'f'}, but n={cloud.n}, f={cloud.f}")
    return PREAGGREGATIONS[name](cloud, **options)


def pre_aggregate(
    vectors: ArrayLike | Sequence[ArrayLike], name: str, *, f: int, strict: bool = True, **options: Any
) -> Matrix:
    """Apply a pre-aggregation to the voters' matrix (n, d); row i of the float64 result is made around voter i.

    Non-finite voters have to be removed before: no row could stand for them.

    Raises:
        ValueError: a voter is not finite, the name or an option is unknown, f < 0, or n > 2f does not hold (`strict`).
    """
    if f < 0:
        raise ValueError(f"f, the number of voters that may be arbitrary, has to be 0 at least, not {f}")
    rows = as_rows(vectors)
    order = canonical_order(rows)
    points = PointSet([rows[i] for i in order])
    spoilt = order[~np.isfinite(np.diag(points.gram) * len(rows))]
    if len(spoilt):
        raise ValueError(f"voters {sorted(spoilt.tolist())} hold NaN or Inf: remove them before pre-aggregation")
    distances = squared_distances(points.rows, points.gram)
    cloud = Cloud(points.gram, distances, f, np.full(points.n, 1.0 / points.n), order)
    mixed = PointSet(points.rows, mixing_matrix(cloud, name, strict=strict, **options))
    result = np.empty((mixed.n, mixed.dimension))
    for part, block in mixed.blocks():
        result[:, part] = block
    if mixed.n != len(order):
        return result
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return result[back]


def _lengths(cloud: Cloud) -> Vector:
    return np.asarray(np.sqrt(np.diag(cloud.gram)))


def _shortened(lengths: Vector, limit: float) -> Matrix:
    return np.diag(np.where(lengths > limit, limit / np.maximum(lengths, np.finfo(np.float64).tiny), 1.0))
