"""Weight factors that bring the distribution of difficulties to the recipe's target, without resampling."""

from collections.abc import Sequence

from capibara_assets.datasets.recipe import Balance

BANDS = ("easy", "medium", "hard")
_UNWANTED = 1e-9  # target of a band whose target is zero
_STEPS = 200  # of a bisection: far below the six digits that are kept


def band(difficulty: float) -> int:
    """Band of a difficulty: 0 easy (below 1/3), 1 medium (below 2/3), 2 hard."""
    return min(2, int(difficulty * 3))


def shares(difficulties: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Share of the total weight in each band, rounded to six digits; zeros without examples."""
    sums = _sums(difficulties, weights)
    total = sum(sums)
    return [round(value / total, 6) if total else 0.0 for value in sums]


def balance_factors(difficulties: Sequence[float], weights: Sequence[float], recipe: Balance) -> list[float]:
    """Factor of each example's weight, in order; the sum of the weights does not change.

    Examples of one band have one factor, between 1 / `recipe.most` and `recipe.most`. Where the bounds allow it, the
    bands have their target shares of the weight; where they do not, the bounds hold and the other bands keep their
    proportions. A band without examples leaves its share to the others.
    """
    sums = _sums(difficulties, weights)
    present = [i for i in range(3) if sums[i] > 0]
    if recipe.target is None or not present:
        return [1.0] * len(difficulties)
    total, most = sum(sums), recipe.most
    # an unwanted band shrinks first, but gets what the bounds keep from the others
    target = [max(share, _UNWANTED) for share in recipe.target]

    def factors(scale: float) -> dict[int, float]:
        return {i: min(most, max(1 / most, scale * target[i] * total / sums[i])) for i in present}

    def excess(scale: float) -> float:
        return sum(sums[i] * factor for i, factor in factors(scale).items()) - total

    low, high = 0.0, 1.0
    while excess(high) < 0:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    of_band = factors(high)
    return [round(of_band[band(difficulty)], 6) for difficulty in difficulties]


def _sums(difficulties: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Weight in each band; summed in sorted order, so that the order of rows does not matter."""
    sums = [0.0, 0.0, 0.0]
    for difficulty, weight in sorted(zip(difficulties, weights, strict=True)):
        sums[band(difficulty)] += weight
    return sums
