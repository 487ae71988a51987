"""The paired cluster bootstrap: known answers, the properties a ratio of sums must have, and its real coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from capibara_assets.evaluation.schema import Interval
from capibara_assets.evaluation.statistics.bootstrap import (
    Resamples,
    Statistic,
    difference,
    holm,
    interval,
    items_needed,
    p_value,
    resample,
)

Array = NDArray[np.float64]
losses = st.lists(
    st.tuples(st.floats(0.5, 50), st.floats(0.5, 50), st.sampled_from("abcdef")), min_size=1, max_size=30
).map(lambda rows: [np.array(column) for column in zip(*rows, strict=True)])


def saved_share(candidate: Array, reference: Array) -> Array:
    """The share of the reference's loss that the candidate saves: 1 − candidate / reference."""
    return 1 - candidate / reference


def cluster_bootstrap(
    candidate: Array,
    reference: Array,
    groups: NDArray[np.str_],
    *,
    statistic: Statistic = difference,
    weights: Array | None = None,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """A statistic of two contenders' figures on the same items, with an interval over resampled groups."""
    ones = np.ones(len(candidate)) if weights is None else weights
    drawn = resample(np.column_stack([candidate, reference]), ones, groups, resamples=resamples, seed=seed)
    estimate = statistic(drawn.estimates[:1], drawn.estimates[1:])
    return interval(statistic(drawn.draws[:, 0], drawn.draws[:, 1]), float(estimate[0]), drawn, confidence)


def gain(candidate: Array, reference: Array, groups: NDArray[np.str_] | None = None, **options: float) -> Interval:
    named = np.array([f"g{i:03}" for i in range(len(candidate))]) if groups is None else groups
    chosen = {"confidence": 0.95, "resamples": 1_000, "seed": 1} | options
    return cluster_bootstrap(candidate, reference, named, statistic=saved_share, **chosen)


def noisy(seed: int, groups: int, per_group: int = 1) -> tuple[Array, Array, NDArray[np.str_]]:
    """References with groups of their own height, and candidates that are a quarter lower on average."""
    random = np.random.default_rng(seed)
    height = np.repeat(random.gamma(4.0, 5.0, groups), per_group)
    share = np.repeat(random.normal(0.75, 0.2, groups), per_group)
    return height * share, height, np.repeat([f"g{i:03}" for i in range(groups)], per_group)


def test_a_gain_that_is_the_same_everywhere_has_no_width():
    found = gain(np.array([7.0, 14.0, 28.0]), np.array([8.0, 16.0, 32.0]))
    assert (found.estimate, found.low, found.high) == pytest.approx((0.125, 0.125, 0.125), abs=1e-15)
    assert (found.n, found.groups) == (3, 3)


def test_the_estimate_is_of_sums_not_a_mean_of_ratios():
    # 1 - (1 + 90) / (2 + 100): the long example counts for what it weighs
    assert gain(np.array([1.0, 90.0]), np.array([2.0, 100.0])).estimate == pytest.approx(1 - 91 / 102)


def test_a_worse_candidate_has_a_negative_gain():
    found = gain(np.array([12.0, 24.0]), np.array([8.0, 16.0]))
    assert (found.low, found.high) == pytest.approx((-0.5, -0.5), abs=1e-15)


@given(rows=losses)
def test_the_interval_lies_between_the_worst_and_the_best_group(rows: list[Array]):
    # Ten groups, so that percentiles can be told; of fewer, the interval reaches beyond what was seen.
    candidate, reference, groups = (np.tile(part, 10) for part in rows)
    groups = np.char.add(groups, np.repeat(np.arange(10), len(rows[2])).astype(str))
    found = gain(candidate, reference, groups)
    per_group = [1 - candidate[groups == g].sum() / reference[groups == g].sum() for g in np.unique(groups)]
    assert min(per_group) - 1e-9 <= found.low <= found.high <= max(per_group) + 1e-9
    assert min(per_group) - 1e-9 <= found.estimate <= max(per_group) + 1e-9
    assert found.groups == len(per_group) and found.n == len(candidate)


@given(rows=losses, order=st.randoms(use_true_random=False), factor=st.sampled_from([0.25, 2.0, 1024.0]))
def test_neither_the_order_nor_the_unit_matters(rows: list[Array], order: np.random.Generator, factor: float):
    candidate, reference, groups = rows
    shuffled = list(range(len(candidate)))
    order.shuffle(shuffled)
    plain = gain(candidate, reference, groups)
    other = gain(candidate[shuffled] * factor, reference[shuffled] * factor, groups[shuffled])
    for part in ("estimate", "low", "high"):
        assert getattr(other, part) == pytest.approx(getattr(plain, part), abs=1e-9)


def test_copies_within_a_group_add_no_evidence():
    candidate, reference, groups = noisy(3, groups=20)
    once = gain(candidate, reference, groups)
    often = gain(np.repeat(candidate, 8), np.repeat(reference, 8), np.repeat(groups, 8))
    assert (often.low, often.high) == pytest.approx((once.low, once.high))
    assert often.n == 160 and often.groups == 20
    # The same copies, taken for independent examples, would pretend to know more.
    alone = gain(np.repeat(candidate, 8), np.repeat(reference, 8))
    assert alone.high - alone.low < 0.6 * (once.high - once.low)


def test_more_confidence_and_less_data_widen_it():
    candidate, reference, groups = noisy(5, groups=80)
    width = {c: (found := gain(candidate, reference, groups, confidence=c)).high - found.low for c in (0.8, 0.95, 0.99)}
    assert width[0.8] < width[0.95] < width[0.99]
    few = gain(candidate[:10], reference[:10], groups[:10])
    assert few.high - few.low > 1.5 * width[0.95]


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    candidate, reference, groups = noisy(7, groups=30)
    first, again = gain(candidate, reference, groups), gain(candidate, reference, groups)
    assert first == again
    assert gain(candidate, reference, groups, seed=2) != first


def test_pairing_removes_what_both_contenders_share():
    """Examples differ in height a hundredfold; the gain hardly does: the interval must know the pairs."""
    random = np.random.default_rng(11)
    reference = random.uniform(1, 100, 60)
    candidate = reference * random.normal(0.8, 0.01, 60)
    paired = gain(candidate, reference)
    broken = gain(candidate, random.permutation(reference))
    assert paired.high - paired.low < 0.02 < 10 * (paired.high - paired.low) < broken.high - broken.low


def test_a_95_percent_interval_covers_the_truth_about_as_often():
    experiments = [gain(*noisy(seed, groups=60, per_group=2)) for seed in range(120)]
    covered = sum(found.low <= 0.25 <= found.high for found in experiments)
    assert 0.89 <= covered / len(experiments) <= 0.99
    missed = [found for found in experiments if not found.low <= 0.25 <= found.high]
    assert any(found.low > 0.25 for found in missed) and any(found.high < 0.25 for found in missed)


@given(where=st.integers(0, 4), value=st.sampled_from([np.nan, np.inf, -np.inf]), side=st.booleans())
def test_a_loss_that_is_not_finite_is_refused(where: int, value: float, side: bool):
    pair = [np.ones(5), np.ones(5)]
    pair[side][where] = value
    with pytest.raises(ValueError, match="not finite"):
        gain(*pair)


@pytest.mark.parametrize(
    ("scores", "weights", "groups"),
    [(0, 0, 0), (3, 2, 3), (2, 3, 2), (3, 3, 2)],
    ids=["none", "weights short", "scores short", "groups short"],
)
def test_unequal_or_no_examples_are_refused(scores: int, weights: int, groups: int):
    with pytest.raises(ValueError, match="equally many, at least one"):
        resample(np.ones((scores, 2)), np.ones(weights), np.array(["g"] * groups), resamples=10, seed=0)


def resamples(draws: Array, groups: int) -> Resamples:
    return Resamples(np.zeros(1), draws[:, None], groups, groups)


@given(
    seed=st.integers(0, 50),
    groups=st.integers(2, 60),
    null=st.floats(-3, 3),
    confidence=st.sampled_from([0.8, 0.95, 0.99, 0.99999]),
)
def test_a_p_value_says_what_its_interval_says(seed: int, groups: int, null: float, confidence: float):
    draws = np.random.default_rng(seed).normal(0.5, 1.0, 999)
    found = interval(draws, 0.5, resamples(draws, groups), confidence)
    excluded = null < found.low or null > found.high
    assert (p_value(draws, 0.5, groups, null) < 1 - confidence) == excluded


def test_an_interval_of_few_groups_reaches_further():
    """Student's t and √(g / (g − 1)): of a normal statistic it is its t interval."""
    draws = np.random.default_rng(1).normal(0.0, 1.0, 200_000)
    for groups, reach in ((5, 2.776 * np.sqrt(5 / 4)), (10, 2.262 * np.sqrt(10 / 9)), (1000, 1.963)):
        found = interval(draws, 0.0, resamples(draws, groups), 0.95)
        assert (found.low, found.high) == (pytest.approx(-reach, rel=0.05), pytest.approx(reach, rel=0.05))


@pytest.mark.parametrize("groups", [8, 15])
def test_few_groups_call_no_difference_significant_hardly_more_often_than_they_say(groups: int):
    errors = 0
    for seed in range(400):
        random = np.random.default_rng(seed)
        reference = random.gamma(4.0, 1.0, groups)
        names = np.array([f"g{n}" for n in range(groups)])
        candidate = reference + random.normal(0.0, 1.0, groups)
        found = cluster_bootstrap(candidate, reference, names, resamples=1_000, seed=seed)
        errors += found.p_value < 0.05
    assert errors / 400 <= 0.085


def test_of_one_group_nothing_is_known():
    found = cluster_bootstrap(np.array([1.0, 2.0]), np.array([0.0, 0.0]), np.array(["g", "g"]), resamples=1_000)
    assert found.p_value == 1.0 and found.detectable == 0.0


def test_a_difference_of_means_and_of_weighted_means():
    candidate, reference = np.array([1.0, 0.0, 1.0, 1.0]), np.array([0.0, 0.0, 1.0, 0.5])
    names = np.array(list("abcd"))
    found = cluster_bootstrap(candidate, reference, names, resamples=1_000)
    assert found.estimate == pytest.approx(0.375) and found.low < 0.375 < found.high
    weighed = cluster_bootstrap(candidate, reference, names, weights=np.array([1.0, 1.0, 1.0, 5.0]), resamples=1_000)
    assert weighed.estimate == pytest.approx(1.5 / 8) and (weighed.n, weighed.groups) == (4, 4)


def test_many_groups_are_drawn_in_parts():
    """More picks than are drawn at once: still the same for the same seed, and about as wide as theory says."""
    random = np.random.default_rng(3)
    values, names = random.normal(0, 1, 3_000), np.array([f"g{n}" for n in range(3_000)])
    first, again = (cluster_bootstrap(values, 0 * values, names, resamples=1_500, seed=4) for _ in range(2))
    assert first == again
    assert first.high - first.low == pytest.approx(2 * 1.96 / np.sqrt(3_000), rel=0.1)


def test_holms_adjustment_as_published():
    # The example of the R documentation of p.adjust's method, worked by hand: 4 × .01, 3 × .02, 2 × .03 (raised), .04
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.02}) == pytest.approx(
        {"a": 0.04, "b": 0.06, "c": 0.06, "d": 0.06}
    )


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1)))
def test_holm_lies_between_the_raw_value_and_bonferronis(values: dict[str, float]):
    adjusted = holm(values)
    assert list(adjusted) == list(values)
    for name, p in values.items():
        assert p <= adjusted[name] <= min(1.0, len(values) * p) + 1e-15
    assert all(adjusted[a] <= adjusted[b] for a in values for b in values if values[a] < values[b])


@pytest.mark.parametrize(
    ("low", "high", "bar", "n", "needed"),
    [
        (0.0625, 0.3125, 0.125, 20, 60),  # it reaches 1/8 down, the bar is 1/16 away: four times the items
        (-0.125, 0.3125, 0.125, 16, 16 * 48),  # 7/32 up, 1/32 away: 49-fold
        (0.0, 0.25, 0.125, 10, 990),  # on the bar no number suffices: capped at a hundredfold
        (0.2, 0.3, 0.125, 10, 0),
        (0.0, 0.1, 0.125, 10, 0),
    ],
)
def test_how_many_more_items(low: float, high: float, bar: float, n: int, needed: int):
    found = Interval(estimate=(low + high) / 2, low=low, high=high, n=n, groups=n)
    assert items_needed(found, bar) == needed
