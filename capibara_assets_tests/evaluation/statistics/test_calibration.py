"""Calibration: what is known comes out, what was planted is found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.evaluation.statistics.calibration import (
    calibration,
    choose_threshold,
    fit_isotonic,
    fit_temperature,
    softmax,
)

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("planted", [0.4, 1.0, 2.5])
def test_a_planted_temperature_is_found(planted: float):
    logits = RANDOM.normal(size=(20_000, 4)) * 2
    drawn = np.array([RANDOM.choice(4, p=row) for row in softmax(logits)])
    assert fit_temperature(logits * planted, np.eye(4)[drawn]) == pytest.approx(planted, rel=0.05)


def test_shares_are_targets_too():
    """Half right each: at any finite temperature equal logits are best, so that a sure wrong model is softened."""
    logits = np.array([[4.0, 0.0], [0.0, 4.0]] * 10)
    assert fit_temperature(logits, np.full((20, 2), 0.5)) > 15


def test_temperature_keeps_the_order():
    logits = RANDOM.normal(size=(50, 5))
    np.testing.assert_array_equal(softmax(logits, 0.3).argmax(axis=1), softmax(logits, 7.0).argmax(axis=1))


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60))
def test_the_isotonic_map_never_falls_and_never_promises_all(pairs: list[tuple[float, bool]]):
    scores, right = np.array([score for score, _ in pairs]), np.array([yes for _, yes in pairs])
    found = fit_isotonic(scores, right)(np.linspace(-1, 2, 50))
    assert (np.diff(found) >= -1e-12).all()
    assert 1 / (len(pairs) + 2) - 1e-9 <= found.min() and found.max() <= 1 - 1 / (len(pairs) + 2) + 1e-9


def test_isotonic_calibrates_what_was_overconfident():
    chances = RANDOM.uniform(size=4_000)
    right = RANDOM.uniform(size=4_000) < chances**3
    fitted = fit_isotonic(chances[:2_000], right[:2_000])
    before, after = (
        calibration(chances[2_000:], right[2_000:], 10),
        calibration(fitted(chances[2_000:]), right[2_000:], 10),
    )
    assert before.ece > 0.2 and after.ece < 0.05 and after.brier < before.brier


def test_known_calibration_errors():
    found = calibration(np.array([0.9, 0.9, 0.1, 1.0]), [True, False, False, True], 10)
    assert found.ece == pytest.approx((2 * 0.4 + 0.1 + 0.0) / 4)  # 0.9 and 1.0: bin 9 holds three
    assert found.brier == pytest.approx((0.01 + 0.81 + 0.01 + 0.0) / 4)
    assert [one.count for one in found.bins] == [1, 3]


@pytest.mark.parametrize(
    ("confidence", "right", "cost", "answered"),
    [
        ([0.2, 0.4, 0.9], [False, False, True], 0.5, [False, False, True]),
        ([0.2, 0.4, 0.9], [True, True, True], 0.5, [True, True, True]),
        ([0.2, 0.4, 0.9], [False, False, False], 0.5, [False, False, False]),
        ([0.2, 0.4, 0.9], [False, False, True], 1.0, [True, True, True]),  # abstaining gains nothing
        ([0.5, 0.5, 0.9], [True, False, True], 0.4, [False, False, True]),  # equal ones stand together: 0.8 < 1
        ([0.5, 0.5, 0.9], [True, False, True], 0.5, [True, True, True]),  # a draw: answer
    ],
)
def test_the_threshold_costs_least(confidence: list[float], right: list[bool], cost: float, answered: list[bool]):
    threshold = choose_threshold(np.array(confidence), np.array(right), cost)
    assert [one >= threshold for one in confidence] == answered


@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.9]), st.booleans()), min_size=1, max_size=30),
    st.floats(0.05, 1),
)
def test_no_other_threshold_is_cheaper(pairs: list[tuple[float, bool]], cost: float):
    confidence, right = np.array([one for one, _ in pairs]), np.array([yes for _, yes in pairs])

    def spent(threshold: float) -> float:
        kept = confidence >= threshold
        return float((kept & ~right).sum() + cost * (~kept).sum())

    chosen = choose_threshold(confidence, right, cost)
    assert spent(chosen) <= min(spent(threshold) for threshold in (0.0, 0.2, 0.4, 0.7, 1.1)) + 1e-6


def test_nothing_to_fit_is_refused():
    for fit in (
        lambda: fit_temperature(np.zeros((0, 2)), np.zeros((0, 2))),
        lambda: fit_isotonic(np.zeros(0), np.zeros(0, bool)),
    ):
        with pytest.raises(ValueError, match=r"needs?"):
            fit()
    with pytest.raises(ValueError, match="at least one"):
        calibration(np.zeros(0), [], 10)
