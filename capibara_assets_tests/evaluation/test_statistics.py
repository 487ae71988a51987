"""The paired cluster bootstrap: known answers, the properties a ratio of sums must have, and its real coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capibara_assets.evaluation.schema import Interval
from capibara_assets.evaluation.statistics import relative_gain

Array = NDArray[np.float64]
losses = st.lists(
    st.tuples(st.floats(0.5, 50), st.floats(0.5, 50), st.sampled_from("abcdef")), min_size=1, max_size=30
).map(lambda rows: [np.array(column) for column in zip(*rows, strict=True)])


def gain(candidate: Array, reference: Array, groups: NDArray[np.str_] | None = None, **options: float) -> Interval:
    named = np.array([f"g{i:03}" for i in range(len(candidate))]) if groups is None else groups
    chosen = {"confidence": 0.95, "resamples": 1_000, "seed": 1} | options
    return relative_gain(candidate, reference, np.ones(len(candidate)), named, **chosen)


def noisy(seed: int, groups: int, per_group: int = 1) -> tuple[Array, Array, NDArray[np.str_]]:
    """References with groups of their own height, and candidates that are a quarter lower on average."""
    random = np.random.default_rng(seed)
    height = np.repeat(random.gamma(4.0, 5.0, groups), per_group)
    share = np.repeat(random.normal(0.75, 0.2, groups), per_group)
    return height * share, height, np.repeat([f"g{i:03}" for i in range(groups)], per_group)


def test_a_gain_that_is_the_same_everywhere_has_no_width():
    found = gain(np.array([7.0, 14.0, 28.0]), np.array([8.0, 16.0, 32.0]))
    assert (found.estimate, found.low, found.high) == (0.125, 0.125, 0.125)
    assert (found.n, found.groups) == (3, 3)


def test_the_estimate_is_of_sums_not_a_mean_of_ratios():
    # 1 - (1 + 90) / (2 + 100): the long example counts for what it weighs
    assert gain(np.array([1.0, 90.0]), np.array([2.0, 100.0])).estimate == pytest.approx(1 - 91 / 102)


def test_a_worse_candidate_has_a_negative_gain():
    found = gain(np.array([12.0, 24.0]), np.array([8.0, 16.0]))
    assert found.high == found.low == -0.5


@given(rows=losses)
def test_the_interval_lies_between_the_worst_and_the_best_group(rows: list[Array]):
    candidate, reference, groups = rows
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


@settings(max_examples=25)
@given(where=st.integers(0, 4), value=st.sampled_from([np.nan, np.inf, -np.inf]), side=st.booleans())
def test_a_loss_that_is_not_finite_is_refused(where: int, value: float, side: bool):
    pair = [np.ones(5), np.ones(5)]
    pair[side][where] = value
    with pytest.raises(ValueError, match="not finite"):
        gain(*pair)


@pytest.mark.parametrize(
    ("candidate", "reference", "groups"),
    [(0, 0, 0), (3, 2, 3), (2, 3, 2), (3, 3, 2)],
    ids=["none", "reference short", "candidate short", "groups short"],
)
def test_unequal_or_no_examples_are_refused(candidate: int, reference: int, groups: int):
    with pytest.raises(ValueError, match="equally many, at least one"):
        gain(np.ones(candidate), np.ones(reference), np.array(["g"] * groups))
