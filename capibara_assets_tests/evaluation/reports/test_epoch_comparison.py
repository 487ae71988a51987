"""Which epoch to keep: known losses, over-fitting that is there and that is not, and one that chance alone makes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.evaluation.reports.epoch_comparison import EpochComparison, EpochLosses, compare_epochs
from capibara_assets.modeling.losses import Losses

N = 120
GROUPS = [f"group-{index // 2}" for index in range(N)]
TOKENS = np.full(N, 10, dtype=np.int64)


def epochs(*means: float, train: tuple[float | None, ...] = (), spread: float = 0.3, seed: int = 0) -> EpochComparison:
    """Epochs of these mean losses; examples differ in difficulty, and a little from epoch to epoch."""
    random = np.random.default_rng(seed)
    difficulty = random.normal(0, spread, N)
    found = []
    for index, mean in enumerate(means):
        own = difficulty + random.normal(0, 0.05, N)
        nll = 10 * (mean + own - own.mean())
        found.append(EpochLosses(str(index), 10 * index, train[index] if train else None, Losses(nll, TOKENS)))
    return compare_epochs(found, GROUPS, resamples=2_000)


def test_overfitting_is_named_with_its_figures() -> None:
    found = epochs(3.0, 2.0, 1.8, 2.1, train=(None, 2.1, 1.5, 0.9))
    assert (found.keep, found.last_differs, found.overfitting) == ("2", True, True)
    assert [round(row.loss.estimate, 6) for row in found.rows] == [3.0, 2.0, 1.8, 2.1]
    last = found.rows[-1]
    assert last.over_kept is not None and last.over_kept.estimate == pytest.approx(0.3)
    assert last.over_kept.low > 0.25 and last.p_value is not None and last.p_value < 0.01
    assert "over-fitting: since then the training loss fell from 1.5000 to 0.9000" in found.verdict
    assert found.rows[2].over_kept is None and found.examples == N and found.groups == N // 2
    document = json.loads(json.dumps(found.document()))
    assert document["rows"][2]["over_kept"] is None and document["rows"][3]["loss"]["n"] == N


def test_a_last_epoch_that_is_best_or_no_worse_beyond_chance_is_no_overfitting() -> None:
    best = epochs(3.0, 2.0, 1.8, train=(None, 2.1, 1.5))
    assert best.keep == "2" and not best.last_differs and "no over-fitting" in best.verdict
    close = epochs(3.0, 1.800, 1.801, train=(None, 2.1, 1.5))
    assert close.keep == "1" and not close.last_differs and "either will do" in close.verdict


def test_a_training_that_went_astray_is_no_overfitting() -> None:
    found = epochs(3.0, 1.8, 2.4, train=(None, 1.5, 2.2))
    assert found.last_differs and not found.overfitting and "went astray" in found.verdict


def test_the_base_is_kept_where_every_epoch_made_it_worse() -> None:
    found = epochs(1.5, 1.9, 2.3, train=(None, 1.0, 0.5))
    assert found.keep == "0" and "keep the base" in found.verdict


def test_the_same_epochs_give_the_same_figures_and_equal_ones_the_earliest() -> None:
    assert epochs(3.0, 2.0, 2.2).document() == epochs(3.0, 2.0, 2.2).document()
    one = EpochLosses("1", 1, None, Losses(np.full(N, 20.0), TOKENS))
    two = EpochLosses("2", 2, None, Losses(np.full(N, 20.0), TOKENS))
    found = compare_epochs([one, two], GROUPS, resamples=200)
    assert found.keep == "1" and not found.last_differs
    assert found.rows[1].over_kept is not None and found.rows[1].over_kept.estimate == 0


@given(st.integers(0, 30))
def test_chance_alone_seldom_counts_as_worse(seed: int) -> None:
    """Two epochs alike but for noise: their difference stays within a few standard errors, whichever is kept."""
    found = epochs(2.0, 2.0, spread=0.1, seed=seed)
    (over,) = [row.over_kept for row in found.rows if row.over_kept is not None]
    assert over.low <= 1e-9 <= over.high + 1e-9


def test_what_cannot_be_compared_is_refused() -> None:
    one = EpochLosses("1", 1, None, Losses(np.ones(N), TOKENS))
    with pytest.raises(ValueError, match="no epoch"):
        compare_epochs([], GROUPS)
    with pytest.raises(ValueError, match="same tokens"):
        compare_epochs([one, EpochLosses("2", 2, None, Losses(np.ones(N), TOKENS + 1))], GROUPS)
    with pytest.raises(ValueError, match="finite"):
        compare_epochs([EpochLosses("1", 1, None, Losses(np.full(N, np.nan), TOKENS))], GROUPS)
