"""Paired comparison of contenders on the same items: cluster bootstrap, Holm's correction, the items still needed.

Items of one group (one problem, its sandbox sessions) are resampled together, since they are correlated. For
pass/fail with one item per group, use the exact methods of `paired.py`.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from capibara_assets.evaluation.schema import Interval

Array = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)
Statistic = Callable[[Array, Array], Array]

_AT_ONCE = 1 << 21  # picks of groups drawn at once: bounds the memory
_POWER = 0.8  # of the smallest difference that is stated


@dataclass(frozen=True)
class Resamples:
    """Figures of contenders on all items and on resamples of whole groups; the same resamples for all contenders.

    Attributes:
        estimates: Σ score / Σ weight of each contender, (contenders,).
        draws: the same on each resample, (resamples, contenders).
        n: items.
        groups: independent groups among them.
    """

    estimates: Array
    draws: Array
    n: int
    groups: int


def resample(scores: Array, weights: Array, groups: NDArray[np.str_], *, resamples: int, seed: int) -> Resamples:
    """Paired cluster bootstrap: draw whole groups with replacement, as many as there are.

    Args:
        scores: score of each item under each contender, (n, contenders): 0 or 1, a share, or nats.
        weights: weight of each item, (n,), by whose sum the scores are divided: ones for a mean, scored tokens for a
            mean loss.
        groups: group of each item, (n,).

    Raises:
        ValueError: no item, lengths differ, or a score is not finite.

    Source: Field & Welsh (2007), "Bootstrapping clustered data"; the pairs come from the same held-out items.
    """
    if not len(scores) or not len(scores) == len(weights) == len(groups):
        raise ValueError(f"need equally many, at least one: {len(scores)}, {len(weights)}, {len(groups)}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    names, index = np.unique(groups, return_inverse=True)
    columns = np.column_stack([scores, weights]).astype(np.float64)
    by_group = np.zeros((len(names), columns.shape[1]))
    np.add.at(by_group, index, columns)
    sums = np.concatenate(
        [
            np.stack([np.einsum("rg,g->r", times, column) for column in by_group.T.copy()], axis=1)
            for times in _times(len(names), resamples, seed)
        ]
    )
    totals = columns.sum(axis=0)
    return Resamples(totals[:-1] / totals[-1], sums[:, :-1] / sums[:, -1:], len(scores), len(names))


def difference(candidate: Array, reference: Array) -> Array:
    """Candidate minus reference."""
    return candidate - reference


def interval(draws: Array, estimate: float, of: Resamples, confidence: float) -> Interval:
    """The expanded percentile interval of a statistic, and its p-value against 0.

    Percentiles of a bootstrap over few groups lie too close together: they are moved outwards, by Student's t and
    the factor √(g / (g − 1)) (Hesterberg 2015, The American Statistician 69:371, section 4.2). Where that asks for a
    percentile beyond the last resample, the interval is that of their standard deviation, the range at least.

    Args:
        draws: the statistic on each resample, (resamples,).
        estimate: the statistic on the items themselves.
    """
    rank = math.floor(_tail(confidence, of.groups) * (len(draws) + 1))
    if rank >= 1:
        ordered = np.partition(draws, [rank - 1, len(draws) - rank])
        low, high = float(ordered[rank - 1]), float(ordered[len(draws) - rank])
    else:
        reach = _t(confidence, of.groups) * _spread(draws, of.groups)
        low, high = min(float(draws.min()), estimate - reach), max(float(draws.max()), estimate + reach)
    z = float(stats.norm.isf((1 - confidence) / 2) + stats.norm.isf(1 - _POWER))
    return Interval(
        estimate=estimate,
        low=low,
        high=high,
        n=of.n,
        groups=of.groups,
        confidence=confidence,
        method="cluster bootstrap",
        p_value=p_value(draws, estimate, of.groups),
        detectable=z * _spread(draws, of.groups),
    )


def p_value(draws: Array, estimate: float, groups: int, null: float = 0.0) -> float:
    """Two-sided p-value that the true statistic is `null`: below 1 − confidence just where `interval` excludes it.

    Of one group nothing is known: 1.
    """
    if groups < 2:
        return 1.0
    beyond = min(int((draws <= null).sum()), int((draws >= null).sum()))
    tail = min((beyond + 1) / (len(draws) + 1), 0.5)
    counted = _of_t(-float(stats.norm.ppf(tail)) / math.sqrt(groups / (groups - 1)), groups)
    if beyond:
        return counted
    spread, distance = _spread(draws, groups), abs(estimate - null)
    return min(counted, _of_t(distance / spread, groups) if spread > 0 else 0.0 if distance else 1.0)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Adjusted p-values of a family of tests (Holm 1979): all below α together err with probability α at most."""
    ordered = sorted(p_values, key=lambda key: (p_values[key], str(key)))
    adjusted: dict[Key, float] = {}
    largest = 0.0
    for position, key in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - position) * p_values[key]))
        adjusted[key] = largest
    return {key: adjusted[key] for key in p_values}


def items_needed(figure: Interval, bar: float, most: float = 99.0) -> int:
    """Items to add until the figure no longer straddles the bar, if the estimate stays (its width goes with 1/√n).

    At most `most` times as many as there are, since on the bar itself no number suffices. 0: it does not straddle.
    """
    if not figure.low < bar <= figure.high:
        return 0
    reach = figure.estimate - figure.low if figure.estimate >= bar else figure.high - figure.estimate
    distance = abs(figure.estimate - bar)
    times = (reach / distance) ** 2 - 1 if distance > 0 else math.inf
    return max(1, math.ceil(figure.n * min(times, most)))


def _times(groups: int, resamples: int, seed: int) -> Iterable[Array]:
    """How often each group is in each resample, in chunks of shape (rows, groups)."""
    return _drawn(groups, resamples, seed) if groups * resamples <= _AT_ONCE else _draw(groups, resamples, seed)


@lru_cache(maxsize=4)
def _drawn(groups: int, resamples: int, seed: int) -> tuple[Array, ...]:
    return tuple(_draw(groups, resamples, seed))


def _draw(groups: int, resamples: int, seed: int) -> Iterator[Array]:
    random, most = np.random.default_rng(seed), max(1, _AT_ONCE // groups)
    for start in range(0, resamples, most):
        rows = min(most, resamples - start)
        picks = random.integers(0, groups, size=(rows, groups)) + groups * np.arange(rows)[:, None]
        yield np.bincount(picks.ravel(), minlength=rows * groups).reshape(rows, groups).astype(np.float64)


def _tail(confidence: float, groups: int) -> float:
    """Share of the resamples beyond each end of the interval; 0 for a single group."""
    if groups < 2:
        return 0.0
    return float(stats.norm.sf(math.sqrt(groups / (groups - 1)) * _t(confidence, groups)))


def _t(confidence: float, groups: int) -> float:
    return float(stats.t.isf((1 - confidence) / 2, groups - 1)) if groups > 1 else 0.0


def _of_t(value: float, groups: int) -> float:
    return min(1.0, float(2 * stats.t.sf(value, groups - 1)))


def _spread(draws: Array, groups: int) -> float:
    """Standard error: that of the resamples, which groups drawn with replacement make too small by √((g − 1) / g)."""
    return float(draws.std()) * math.sqrt(groups / (groups - 1)) if groups > 1 else 0.0
