"""Balance of difficulties: the target is met where the bounds allow it, the weight stays, nothing depends on order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.balance import balance_factors, band, shares
from capibara_assets.datasets.recipe import Balance

EASY, MEDIUM, HARD = 0.1, 0.5, 0.9


@pytest.mark.parametrize(("difficulty", "expected"), [(0.0, 0), (0.333, 0), (0.334, 1), (0.667, 2), (1.0, 2)])
def test_bands(difficulty: float, expected: int) -> None:
    assert band(difficulty) == expected


@pytest.mark.parametrize(
    ("difficulties", "target", "most", "expected"),
    [
        ([EASY] * 8 + [HARD] * 2, (0.5, 0.0, 0.5), 4, [0.625] * 8 + [2.5] * 2),  # 5 of 8, 5 of 2
        ([EASY] * 9 + [HARD], (0.0, 0.0, 1.0), 4, [6 / 9] * 9 + [4.0]),  # the bound holds, the rest takes the rest
        ([EASY] * 3, (0.0, 0.0, 1.0), 4, [1.0] * 3),  # nothing to shift weight to
        ([EASY, HARD], (0.5, 0.0, 0.5), 1, [1.0, 1.0]),
        ([EASY, HARD], None, 4, [1.0, 1.0]),
        ([], (0.3, 0.4, 0.3), 4, []),
    ],
)
def test_known_factors(
    difficulties: list[float], target: tuple[float, float, float] | None, most: float, expected: list[float]
) -> None:
    found = balance_factors(difficulties, [1.0] * len(difficulties), Balance(target=target, most=most))
    assert found == pytest.approx(expected, abs=1e-6)


def test_shares_count_weights() -> None:
    assert shares([EASY, MEDIUM, HARD], [2.0, 1.0, 1.0]) == [0.5, 0.25, 0.25]
    assert shares([], []) == [0.0, 0.0, 0.0]


ROWS = st.lists(st.tuples(st.floats(0, 1), st.floats(1, 5)), min_size=1, max_size=30)
TARGETS = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)).map(
    lambda parts: (parts[0] / sum(parts), parts[1] / sum(parts), 1 - parts[0] / sum(parts) - parts[1] / sum(parts))
)


@given(ROWS, TARGETS, st.floats(1, 6), st.randoms())
def test_bounds_weight_and_order(
    rows: list[tuple[float, float]], target: tuple[float, float, float], most: float, chance: object
) -> None:
    recipe = Balance(target=tuple(max(0.0, share) for share in target), most=most)
    factors = balance_factors([d for d, _ in rows], [w for _, w in rows], recipe)
    assert all(1 / most - 1e-6 <= factor <= most + 1e-6 for factor in factors)
    before, after = sum(w for _, w in rows), sum(w * f for (_, w), f in zip(rows, factors, strict=True))
    assert after == pytest.approx(before, rel=1e-5)
    shuffled = list(enumerate(rows))
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    again = balance_factors([d for _, (d, _) in shuffled], [w for _, (_, w) in shuffled], recipe)
    assert again == [factors[i] for i, _ in shuffled]
