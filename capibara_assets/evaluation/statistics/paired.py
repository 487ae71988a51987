"""Pass/fail of two contenders on the same items, one item per group: exact tests and intervals of 2 × 2 tables.

The table counts items: `a` both pass, `b` only the first, `c` only the second, `d` neither. These methods assume
independent items; where several items share a group (one sandbox session, one problem), use `bootstrap.py`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

_EXACT_UP_TO = 300  # items: beyond, the normal approximation of the smallest difference is as good
_STEPS = 40  # halvings of a bisection


@dataclass(frozen=True)
class PairedTable:
    """Items by who passed: both, only the first, only the second, neither."""

    a: int
    b: int
    c: int
    d: int

    @property
    def n(self) -> int:
        return self.a + self.b + self.c + self.d


def table_of(first: NDArray[np.float64], second: NDArray[np.float64]) -> PairedTable:
    """The 2 × 2 table of two arrays of 0 and 1, shape (n,).

    Raises:
        ValueError: another value, no item, or lengths that differ.
    """
    if len(first) != len(second) or not len(first):
        raise ValueError(f"need equally many items, at least one: {len(first)}, {len(second)}")
    if not (np.isin(first, (0.0, 1.0)).all() and np.isin(second, (0.0, 1.0)).all()):
        raise ValueError("a table of pass and fail takes scores of 0 and 1 only")
    one, other = first == 1, second == 1
    return PairedTable(
        int((one & other).sum()), int((one & ~other).sum()), int((~one & other).sum()), int((~one & ~other).sum())
    )


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided exact p-value that `b` and `c` discordant items are a fair coin's (McNemar 1947, conditional)."""
    return float(stats.binomtest(min(b, c), b + c, 0.5).pvalue) if b + c else 1.0


def wilson_interval(passed: float, n: float, confidence: float) -> tuple[float, float]:
    """Score interval of one proportion (Wilson 1927), within 0 and 1.

    Raises:
        ValueError: no item, or more passed than there are.
    """
    if n < 1 or not 0 <= passed <= n:
        raise ValueError(f"{passed} of {n} items is no proportion")
    z, p = float(stats.norm.isf((1 - confidence) / 2)), passed / n
    middle, reach = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = (middle - reach) / (1 + z**2 / n), (middle + reach) / (1 + z**2 / n)
    return 0.0 if passed == 0 else low, 1.0 if passed == n else high


def wilson_p_value(passed: float, n: float, null: float) -> float:
    """Two-sided p-value that the true proportion is `null`: below 1 − confidence where the interval excludes it."""
    if not 0 < null < 1:
        return 1.0 if passed == null * n else 0.0
    return float(2 * stats.norm.sf(abs(passed / n - null) / math.sqrt(null * (1 - null) / n)))


def paired_difference_interval(a: float, b: float, c: float, d: float, confidence: float) -> tuple[float, float]:
    """Interval of the difference of two paired proportions, first minus second: (b − c) / n.

    It inverts the score test under the constrained maximum likelihood (Tango 1998, Statistics in Medicine 17:891).

    Args:
        a, b, c, d: items by who passed (see above); need not be whole numbers.

    Raises:
        ValueError: a negative count, or none at all.
    """
    if min(a, b, c, d) < 0 or a + b + c + d == 0:
        raise ValueError(f"counts of items, at least one: {a}, {b}, {c}, {d}")
    z = float(stats.norm.isf((1 - confidence) / 2))
    n = a + b + c + d
    estimate, edge = (b - c) / n, 1 - 1e-12

    def excess(difference: float) -> float:
        return abs(_score(b, c, n, difference)) - z

    low = brentq(excess, -edge, estimate, xtol=1e-12) if estimate > -edge and excess(-edge) > 0 else -1.0
    high = brentq(excess, estimate, edge, xtol=1e-12) if estimate < edge and excess(edge) > 0 else 1.0
    return float(low), float(high)


def tango_p_value(b: float, c: float, n: float, null: float) -> float:
    """Two-sided p-value that the true difference (first − second) is `null`, consistent with Tango's interval."""
    if abs(null) >= 1:
        return 1.0 if b - c == null * n else 0.0
    return float(2 * stats.norm.sf(abs(_score(b, c, n, null))))


def minimum_detectable_difference(discordance: float, n: int, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """The smallest difference of paired proportions that a test of `n` items finds with that power.

    By the normal approximation (z₁₋α/₂ + z_power)·√(discordance / n), that is 2.80·√(d/n) at 5 % and 80 % (Miettinen
    1968); up to 300 items by the power of the exact McNemar test itself.

    Args:
        discordance: share of items on which exactly one of the two passes, 0..1; a difference beyond it, which it does
            not allow, is judged at a discordance as large as the difference.

    Returns:
        None: so few items find no difference at all with that power.
    """
    if n < 1 or not 0 <= discordance <= 1:
        raise ValueError(f"discordance {discordance} must be a share, {n} items at least one")
    if n > _EXACT_UP_TO:
        z = float(stats.norm.isf(alpha / 2) + stats.norm.isf(1 - power))
        approximate = z * math.sqrt(discordance / n)
        return approximate if 0 < approximate <= discordance else z**2 / n
    if _power(1.0, 1.0, n, alpha) < power:
        return None
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        enough = _power(middle, max(middle, discordance), n, alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def _power(difference: float, discordance: float, n: int, alpha: float) -> float:
    """Probability that exact McNemar is significant: over the number of discordant items, then over who wins them."""
    if discordance == 0:
        return 0.0
    counts = np.arange(n + 1)
    # The largest k with P(X <= k) <= alpha / 2 of a fair coin: what rejects is k or fewer, or m - k or more.
    k = stats.binom.ppf(alpha / 2, counts, 0.5)
    k = np.where(stats.binom.cdf(k, counts, 0.5) <= alpha / 2, k, k - 1)
    p = (discordance + difference) / (2 * discordance)
    rejects = stats.binom.cdf(k, counts, p) + stats.binom.sf(counts - k - 1, counts, p)
    return float((stats.binom.pmf(counts, n, discordance) * np.where(k >= 0, rejects, 0.0)).sum())


def _score(b: float, c: float, n: float, difference: float) -> float:
    """Tango's z at a difference in (−1, 1): the variance is that of the most likely table with this difference."""
    linear = (2 * n - b + c) * difference - b - c
    free = (math.sqrt(max(linear**2 + 8 * n * c * difference * (1 - difference), 0.0)) - linear) / (4 * n)
    variance = n * (2 * free + difference * (1 - difference))
    above = b - c - n * difference
    return above / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, above) if above else 0.0
