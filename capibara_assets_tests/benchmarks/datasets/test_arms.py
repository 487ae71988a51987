"""Differences between arms are of the same held-out examples, pair by pair, over the mean of their seeds."""

import pytest

from benchmarks.datasets.arms import difference, figures_of

FOUND = {
    "base": [{"plain": [3.0, 5.0]}],
    "without": [{"plain": [2.0, 4.0]}, {"plain": [2.2, 4.4]}],
    "with": [{"plain": [1.0, 3.4]}, {"plain": [1.2, 3.6]}],
}


def test_each_seed_has_its_mean() -> None:
    assert figures_of(FOUND) == {
        "base": {"plain": [4.0]}, "without": {"plain": [3.0, 3.3]}, "with": {"plain": [2.2, 2.4]},
    }  # fmt: skip


def test_a_difference_is_of_pairs() -> None:
    found = difference(FOUND, "with", "without", "plain")
    gaps = [1.1 - 2.1, 3.5 - 4.2]
    assert found["difference"] == pytest.approx(sum(gaps) / 2) and found["examples"] == 2
    assert found["standard_error"] == pytest.approx(abs(gaps[0] - gaps[1]) / 2, abs=1e-4)
    assert difference(FOUND, "with", "with", "plain")["difference"] == 0.0
