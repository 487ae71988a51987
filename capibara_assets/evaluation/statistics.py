"""Paired comparison of losses: a cluster bootstrap over groups of held-out examples."""

import numpy as np
from numpy.typing import NDArray

from capibara_assets.evaluation.schema import Interval

Array = NDArray[np.float64]


def relative_gain(
    candidate: Array,
    reference: Array,
    tokens: Array,
    groups: NDArray[np.str_],
    *,
    confidence: float,
    resamples: int,
    seed: int,
) -> Interval:
    """1 − Σ candidate / Σ reference with a percentile interval over resampled groups (paired cluster bootstrap).

    Args:
        candidate, reference: summed nats of each example under the two contenders, shape (n,).
        tokens: scored tokens of each example, shape (n,); equal for both: the ratio of sums is that of mean losses.
        groups: group of each example, shape (n,): examples of one group are resampled together.

    Raises:
        ValueError: no example, lengths differ, or a loss is not finite.

    Source: Field & Welsh (2007), "Bootstrapping clustered data"; the pairs come from the same held-out items.
    """
    if not len(candidate) or not len(candidate) == len(reference) == len(tokens) == len(groups):
        raise ValueError(
            f"need equally many, at least one: {len(candidate)}, {len(reference)}, {len(tokens)}, {len(groups)}"
        )
    if not (np.isfinite(candidate).all() and np.isfinite(reference).all()):
        raise ValueError("a loss is not finite")
    names, index = np.unique(groups, return_inverse=True)
    by_group = np.zeros((len(names), 2))
    np.add.at(by_group, index, np.stack([candidate, reference], axis=1))
    random = np.random.default_rng(seed)
    picks = random.integers(0, len(names), size=(resamples, len(names)))
    sums = by_group[picks].sum(axis=1)
    gains = 1 - sums[:, 0] / sums[:, 1]
    tail = (1 - confidence) / 2
    low, high = np.quantile(gains, [tail, 1 - tail])
    estimate = 1 - candidate.sum() / reference.sum()
    return Interval(estimate=float(estimate), low=float(low), high=float(high), n=len(candidate), groups=len(names))
