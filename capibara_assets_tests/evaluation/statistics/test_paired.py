"""Pass/fail on the same items: published tables, other implementations, and the laws that intervals must obey."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from capibara_assets.evaluation.statistics.paired import (
    PairedTable,
    mcnemar_exact,
    minimum_detectable_difference,
    paired_difference_interval,
    table_of,
    tango_p_value,
    wilson_interval,
    wilson_p_value,
)

counts = st.integers(0, 40)
tables = st.tuples(counts, counts, counts, counts).filter(any)
METHODS = "newcombe"


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (5, 0), (6, 0), (7, 1), (10, 10), (100, 50), (3, 12)])
def test_mcnemar_is_the_binomial_test_of_the_discordant_items(b: int, c: int):
    # Twice the smaller tail of a fair coin, worked out from its coefficients.
    tail = sum(math.comb(b + c, k) for k in range(min(b, c) + 1)) / 2 ** (b + c)
    assert mcnemar_exact(b, c) == pytest.approx(min(1.0, 2 * tail), abs=1e-12)


def test_a_published_mcnemar():
    # Fagerland, Lydersen & Laake (2013, BMC Med Res Methodol 13:91), airway hyper-responsiveness: 7 against 1.
    assert mcnemar_exact(1, 7) == pytest.approx(0.0703, abs=5e-5)


@pytest.mark.parametrize(
    ("cells", "confidence", "low", "high"),
    [
        ((1, 1, 7, 12), 0.95, -0.517, -0.026),  # Fagerland, Lydersen & Laake (2014)
        ((0, 28, 25, 565), 0.90, -0.0148, 0.0247),  # as R's PropCIs::scoreci.mp(25, 28, 618) has it
    ],
)
def test_tangos_interval_as_published(cells: tuple[int, int, int, int], confidence: float, low: float, high: float):
    assert paired_difference_interval(*cells, confidence) == pytest.approx((low, high), abs=6e-4)


def by_likelihood(b: int, c: int, n: int, difference: float) -> float:
    """The score statistic with the free proportion found by a search for the most likely table, not by its formula."""

    def unlikely(q: float) -> float:
        parts = ((b, q + difference), (c, q), (n - b - c, 1 - 2 * q - difference))
        return -sum(count * math.log(max(p, 1e-300)) for count, p in parts if count)

    bounds = (max(0.0, -difference), (1 - difference) / 2)
    q = optimize.minimize_scalar(unlikely, bounds=bounds, method="bounded", options={"xatol": 1e-13}).x
    return (b - c - n * difference) / math.sqrt(n * (2 * q + difference * (1 - difference)))


@pytest.mark.parametrize(("a", "b", "c", "d"), [(20, 12, 5, 13), (1, 1, 7, 12), (30, 0, 4, 6), (0, 9, 2, 40)])
def test_tangos_ends_solve_the_score_equation(a: int, b: int, c: int, d: int):
    low, high = paired_difference_interval(a, b, c, d, 0.95)
    n, z = a + b + c + d, 1.959963984540054
    assert by_likelihood(b, c, n, low) == pytest.approx(z, abs=2e-3)
    assert by_likelihood(b, c, n, high) == pytest.approx(-z, abs=2e-3)


@given(cells=tables, confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_an_interval_holds_its_estimate_and_turns_with_the_arms(cells: tuple[int, int, int, int], confidence: float):
    a, b, c, d = cells
    low, high = paired_difference_interval(a, b, c, d, confidence)
    assert -1 <= low <= (b - c) / (a + b + c + d) <= high <= 1
    assert high - low > 0
    turned = paired_difference_interval(a, c, b, d, confidence)
    assert turned == pytest.approx((-high, -low), abs=1e-9)
    wider = paired_difference_interval(a, b, c, d, 0.999)
    assert wider[0] <= low + 1e-9 and wider[1] >= high - 1e-9


@given(cells=tables, null=st.floats(-0.99, 0.99))
def test_tangos_p_value_says_what_its_interval_says(cells: tuple[int, int, int, int], null: float):
    a, b, c, d = cells
    low, high = paired_difference_interval(a, b, c, d, 0.95)
    p = tango_p_value(b, c, a + b + c + d, null)
    if min(abs(null - low), abs(null - high)) > 1e-9:
        assert (p < 0.05) == (null < low or null > high)


def test_at_no_difference_tangos_test_is_mcnemars_without_correction():
    for b, c, n in ((12, 2, 50), (3, 9, 12), (40, 41, 200)):
        assert tango_p_value(b, c, n, 0.0) == pytest.approx(2 * stats.norm.sf(abs(b - c) / math.sqrt(b + c)))


@given(
    n=st.integers(1, 200), share=st.floats(0, 1), confidence=st.sampled_from([0.8, 0.95]), null=st.floats(0.01, 0.99)
)
def test_wilson_is_scipys_and_its_p_value_fits(n: int, share: float, confidence: float, null: float):
    passed = round(share * n)
    found = wilson_interval(passed, n, confidence)
    expected = stats.binomtest(passed, n).proportion_ci(confidence, "wilson")
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)
    if min(abs(null - found[0]), abs(null - found[1])) > 1e-9:
        assert (wilson_p_value(passed, n, null) < 1 - confidence) == (null < found[0] or null > found[1])


def test_the_smallest_difference_by_the_normal_approximation():
    # Discordance 15 %: the figures of the usual power tables.
    for n, points in ((500, 4.85), (1000, 3.43), (4000, 1.72)):
        assert 100 * minimum_detectable_difference(0.15, n) == pytest.approx(points, abs=0.01)
        assert minimum_detectable_difference(0.15, n) == pytest.approx(2.8016 * math.sqrt(0.15 / n), rel=1e-4)


@pytest.mark.parametrize(("discordance", "n"), [(0.15, 40), (0.3, 60), (0.5, 25), (0.15, 250)])
def test_the_smallest_difference_of_few_items_has_the_power_it_says(discordance: float, n: int):
    difference = minimum_detectable_difference(discordance, n)
    assert difference is not None
    differ = max(discordance, difference)
    chances = [(differ + difference) / 2, (differ - difference) / 2, 1 - differ]
    drawn = np.random.default_rng(5).multinomial(n, chances, size=4_000)
    fewer, differing = drawn[:, :2].min(axis=1), drawn[:, :2].sum(axis=1)
    power = np.mean(2 * stats.binom.cdf(fewer, differing, 0.5) < 0.05)
    assert 0.775 <= power <= 0.83


def test_too_few_items_find_nothing():
    assert minimum_detectable_difference(0.5, 4) is None  # even four wins of four are no evidence
    assert minimum_detectable_difference(0.0, 400) == pytest.approx(7.849 / 400, rel=1e-3)


@settings(max_examples=15)
@given(discordance=st.floats(0, 1), n=st.integers(6, 250))
def test_more_items_show_no_less(discordance: float, n: int):
    fewer, more = (minimum_detectable_difference(discordance, count) for count in (n, 2 * n))
    assert fewer is not None and more is not None and more <= fewer + 0.02 and 0 < more <= 1


def test_a_table_counts_who_passed():
    first, second = np.array([1.0, 1.0, 0.0, 0.0, 1.0]), np.array([1.0, 0.0, 1.0, 0.0, 0.0])
    found = table_of(first, second)
    assert found == PairedTable(a=1, b=2, c=1, d=1) and found.n == 5


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [([0.5], [1.0], "0 and 1"), ([], [], "at least one"), ([1.0], [1.0, 0.0], "equally many")],
)
def test_what_is_no_table_is_refused(first: list[float], second: list[float], said: str):
    with pytest.raises(ValueError, match=said):
        table_of(np.array(first), np.array(second))


def test_counts_that_are_none_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        paired_difference_interval(0, 0, 0, 0, 0.95)
    with pytest.raises(ValueError, match="at least one"):
        paired_difference_interval(3, -1, 0, 0, 0.95)
    with pytest.raises(ValueError, match="no proportion"):
        wilson_interval(3, 2, 0.95)
    with pytest.raises(ValueError, match="must be a share"):
        minimum_detectable_difference(1.5, 10)
