"""pass@k: the chance that one of k answers passes, without bias from n of them (Chen et al. 2021, arXiv 2107.03374)."""

import math
from collections.abc import Iterable


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 − C(n−c, k) / C(n, k): of all ways to draw k of n answers, c of which pass, the share that holds one of the c.

    The quotient is a product of min(c, k) factors, summed as logarithms: exact to rounding for any counts.

    Args:
        n: answers to one item.
        c: those of them that passed.
        k: answers that may be drawn, at most n.

    Raises:
        ValueError: k is not within 1..n, or c not within 0..n.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= c <= n; got n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    fewer, more = sorted((c, k))
    return -math.expm1(math.fsum(math.log1p(-more / (n - i)) for i in range(fewer)))


def mean_pass_at_k(counts: Iterable[tuple[int, int]], k: int) -> float:
    """The mean of `pass_at_k` over items, given (n, c) of each.

    Raises:
        ValueError: no items, or as `pass_at_k`.
    """
    each = [pass_at_k(n, c, k) for n, c in counts]
    if not each:
        raise ValueError("pass@k of no items")
    return math.fsum(each) / len(each)
