"""Linear rules: the result is a combination of the voters, with weights that need only their Gram matrix.

Each function returns a `RuleWeights`: the weight of every point, and what led to it. Sources: Krum and Multi-Krum
(Blanchard et al. 2017), geometric median (Weiszfeld 1937), MDA (Rousseeuw 1985; El Mhamdi et al. 2018), SMEA and CAF
(Allouah et al. 2023, 2025), MoNNA (Farhadkhani et al. 2023), centered clipping (Karimireddy et al. 2021).
"""

from dataclasses import dataclass, field
from itertools import combinations, islice
from math import comb
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from capibara_assets.consensus.aggregation.geometric_median import geometric_median_weights
from capibara_assets.consensus.aggregation.geometry import Matrix, Vector

Neighbours = Literal["n-f-2", "n-f-1"]
_MOST_SUBSETS = 2_000_000
_CHUNK = 20_000


@dataclass(frozen=True)
class Cloud:
    """Input of a linear rule: the voters' inner products, distances and shares.

    Attributes:
        gram: (n, n) inner products.
        distances: (n, n) squared distances.
        f: how many of the n may be arbitrary.
        shares: (n,) positive weights that sum to 1 (uniform unless the caller weighs the voters).
        seniority: (n,) the caller's numbering, which breaks exact ties (the lowest wins): two voters that are each
            other's nearest neighbour always have the same Krum score when only one neighbour counts.
    """

    gram: Matrix
    distances: Matrix
    f: int
    shares: Vector
    seniority: NDArray[np.intp]

    @property
    def n(self) -> int:
        return len(self.gram)


@dataclass(frozen=True)
class RuleWeights:
    """Weights (n,) of a linear rule, and the statistics they follow from."""

    weights: Vector
    evidence: dict[str, Any] = field(default_factory=dict)


def mean(cloud: Cloud) -> RuleWeights:
    """The plain average, without any protection: the baseline for the other rules."""
    return RuleWeights(np.full(cloud.n, 1.0 / cloud.n))


def weighted_mean(cloud: Cloud) -> RuleWeights:
    """The average weighted by the caller's shares (FedAvg: numbers of examples)."""
    return RuleWeights(cloud.shares)


def krum_scores(cloud: Cloud, neighbours: Neighbours) -> Vector:
    """(n,) sum of squared distances to the n-f-2 nearest others (the paper), or their mean over n-f-1 (ByzFL)."""
    if neighbours not in get_args(Neighbours):
        raise ValueError(f"neighbours are {' or '.join(get_args(Neighbours))}, not {neighbours!r}")
    count = cloud.n - cloud.f - (2 if neighbours == "n-f-2" else 1)
    count = min(max(count, 1), max(cloud.n - 1, 0))
    if count == 0:
        return np.zeros(cloud.n)
    others = cloud.distances + np.diag(np.full(cloud.n, np.inf))
    nearest = np.sort(others, axis=1)[:, :count].sum(axis=1)
    return np.asarray(nearest if neighbours == "n-f-2" else nearest / count)


def krum(cloud: Cloud, *, neighbours: Neighbours = "n-f-2") -> RuleWeights:
    """The one voter that lies closest to its nearest neighbours."""
    scores = krum_scores(cloud, neighbours)
    return _uniform(cloud, [best(scores, cloud.seniority)[0]], scores=scores.tolist())


def multi_krum(
    cloud: Cloud, *, m: int | None = None, weighted: bool = False, neighbours: Neighbours = "n-f-2"
) -> RuleWeights:
    """The average of the m voters (default n-f) with the best Krum scores, by their shares if `weighted`."""
    keep = cloud.n - cloud.f if m is None else m
    if not 1 <= keep <= cloud.n:
        raise ValueError(f"multi_krum keeps m of n voters, 1 <= m <= {cloud.n}, not m={keep}")
    scores = krum_scores(cloud, neighbours)
    chosen = sorted(best(scores, cloud.seniority)[:keep])
    choice = _uniform(cloud, chosen, scores=scores.tolist())
    if not weighted:
        return choice
    shares = np.where(choice.weights > 0, cloud.shares, 0.0)
    if not shares.sum() > 0:
        raise ValueError(f"the {keep} voters that multi_krum keeps have weight 0, all of them")
    return RuleWeights(shares / shares.sum(), choice.evidence)


def geometric_median(cloud: Cloud) -> RuleWeights:
    """The point with the least sum of distances to the voters, converged; weights are inverse distances to it."""
    weights, iterations, residual = geometric_median_weights(cloud.gram, cloud.distances)
    return RuleWeights(weights, {"iterations": iterations, "residual": residual})


def mda(cloud: Cloud) -> RuleWeights:
    """Minimum diameter averaging: the mean of the n-f voters whose farthest two are closest.

    Subsets may share their farthest pair; of those the one with the least sum of squared distances is chosen.
    """

    def key(subsets: np.ndarray) -> tuple[Vector, Vector]:
        blocks = cloud.distances[subsets[:, :, None], subsets[:, None, :]]
        return blocks.max(axis=(1, 2)), blocks.sum(axis=(1, 2))

    chosen, (diameter, _) = _best_subset(cloud, key)
    return _uniform(cloud, chosen, diameter=float(np.sqrt(diameter)))


def smea(cloud: Cloud) -> RuleWeights:
    """Smallest maximum eigenvalue averaging: the mean of the n-f voters with the least spread in any direction."""
    size = cloud.n - cloud.f

    def key(subsets: np.ndarray) -> tuple[Vector, Vector]:
        # Centred Gram matrix from distances: the same eigenvalues as the covariance's, and no lost digits
        blocks = cloud.distances[subsets[:, :, None], subsets[:, None, :]]
        rows = blocks.mean(axis=2, keepdims=True)
        centred = -0.5 * (blocks - rows - rows.transpose(0, 2, 1) + blocks.mean(axis=(1, 2), keepdims=True))
        return np.linalg.eigvalsh(centred / size)[:, -1], blocks.sum(axis=(1, 2))

    chosen, (eigenvalue, _) = _best_subset(cloud, key)
    return _uniform(cloud, chosen, eigenvalue=float(eigenvalue))


def monna(cloud: Cloud, *, reference: int = 0) -> RuleWeights:
    """The mean of the n-f voters nearest to a trusted reference voter, itself included."""
    return _uniform(cloud, nearest(cloud, reference), reference=reference)


def caf(cloud: Cloud) -> RuleWeights:
    """Covariance-bound agnostic filter: shrink the voters that stick out along the widest direction, keep the
    weighted mean with the least widest direction. The direction is exact (no random start), and a voter whose
    weight is spent no longer sets the scale, so a huge norm costs one round and not thousands.
    """
    left = np.ones(cloud.n)
    kept, spread, rounds = left / cloud.n, np.inf, 0
    while left.sum() > cloud.n - 2 * cloud.f and rounds <= cloud.n:
        rounds += 1
        share = left / left.sum()
        centring = np.eye(cloud.n) - share[None, :]
        centred = centring @ cloud.gram @ centring.T
        root = np.sqrt(share)
        values, vectors = np.linalg.eigh(root[:, None] * centred * root[None, :])
        if values[-1] < spread:
            kept, spread = share, float(values[-1])
        outlying = np.where(left > 0, np.abs(centred @ (root * vectors[:, -1])), 0.0)
        if outlying.max() <= 0.0:
            break
        left = left * (1.0 - np.square(outlying / outlying.max()))  # the squares themselves may overflow
    return RuleWeights(kept, {"rounds": rounds, "eigenvalue": spread})


def centered_clipping(cloud: Cloud, *, tau: float, iterations: int = 1) -> RuleWeights:
    """From the origin, `iterations` times: move by the mean of the differences to the voters, each cut to tau."""
    if not tau > 0 or iterations < 1:
        raise ValueError(f"centered_clipping needs tau > 0 and iterations >= 1, not tau={tau}, iterations={iterations}")
    weights = np.zeros(cloud.n)
    for _ in range(iterations):
        offsets = np.eye(cloud.n) - weights[None, :]
        lengths = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", offsets, cloud.gram, offsets), 0.0))
        factors = tau / np.maximum(lengths, tau)
        weights = weights + (factors @ offsets) / cloud.n
    return RuleWeights(weights, {"tau": tau, "iterations": iterations})


def nearest(cloud: Cloud, i: int) -> list[int]:
    """The n-f points nearest to point i, itself first of all, in ascending order."""
    distances = np.where(np.arange(cloud.n) == i, -1.0, cloud.distances[i])
    return sorted(best(distances, cloud.seniority)[: cloud.n - cloud.f])


def best(scores: Vector, seniority: NDArray[np.intp]) -> list[int]:
    """Positions in ascending order of score; ties go to the lower index."""
    return [int(i) for i in np.lexsort((seniority, scores))]


def _uniform(cloud: Cloud, chosen: list[int], **evidence: Any) -> RuleWeights:
    weights = np.zeros(cloud.n)
    weights[chosen] = 1.0 / len(chosen)
    return RuleWeights(weights, {"selected": chosen, **evidence})


def _best_subset(cloud: Cloud, key: Any) -> tuple[list[int], tuple[float, float]]:
    """The subset of n-f points with the least key (two figures, compared in turn)."""
    size = cloud.n - cloud.f
    if comb(cloud.n, size) > _MOST_SUBSETS:
        raise ValueError(
            f"{comb(cloud.n, size)} subsets of {size} out of {cloud.n} voters are too many to search: "
            "use nnm with trimmed_mean or geometric_median"
        )
    subsets = combinations(range(cloud.n), size)
    least: tuple[float, float, list[int]] | None = None
    while chunk := list(islice(subsets, _CHUNK)):
        table = np.array(chunk, dtype=np.intp)
        first, second = key(table)
        winner = int(np.lexsort((second, first))[0])
        figure = (float(first[winner]), float(second[winner]), chunk[winner])
        if least is None or figure[:2] < least[:2]:
            least = (figure[0], figure[1], list(figure[2]))
    assert least is not None
    return least[2], (least[0], least[1])
