"""Rounding of loss-dependent weights to whole parts: the last bits of a loss vary by thread and library."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from capibara_assets.modeling.greedy import SoupMetric, soup_shares

PARTS = 1000
"""Such weights are multiples of 1 / PARTS."""


def rounded_shares(weights: ArrayLike) -> tuple[float, ...]:
    """The nearest weights that are multiples of 1 / PARTS and sum to 1 (largest remainders first, then the first)."""
    exact = np.asarray(weights, dtype=np.float64) * PARTS
    whole = np.floor(exact)
    missing = PARTS - int(whole.sum())
    for place in sorted(range(len(exact)), key=lambda p: (-round(float(exact[p] - whole[p]), 6), p))[:missing]:
        whole[place] += 1
    return tuple(float(part / PARTS) for part in whole)


def weighted_shares(losses: Sequence[float], metric: SoupMetric) -> tuple[float, ...]:
    """The weighted soup's shares, from the validation losses of its models."""
    return rounded_shares(soup_shares(losses, metric))
