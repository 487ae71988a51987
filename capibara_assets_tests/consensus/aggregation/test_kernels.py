"""The compiled passes against NumPy: the same bits for sorts and sums, whatever the threads; right products."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.consensus.aggregation import kernels
from capibara_assets.consensus.aggregation.coordinate_rules import (
    SortedMean,
    closest_mean,
    median,
    partial_network,
    trimmed_mean,
)
from capibara_assets.consensus.aggregation.geometry import combine_rows

WIDTH = 1000  # columns: three whole strips and a part


def voters(n: int, width: int, seed: int, dtype: type = np.float32) -> np.ndarray:
    """Values with ties, signed zeros and sizes from 1e-20 to 1e20."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((n, width)) * 10.0 ** random.integers(-20, 21, (n, width))
    rows = np.where(random.random((n, width)) < 0.3, random.integers(-1, 2, (n, width)) * 1.0, rows)
    return np.where(random.random((n, width)) < 0.05, -0.0, rows).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.integers(1, 17), st.integers(0, 10**6), st.data())
def test_sorted_means_have_the_bits_of_numpy(dtype: type, n: int, seed: int, data: st.DataObject) -> None:
    rows = voters(n, WIDTH, seed, dtype)
    keep = data.draw(st.integers(1, n))
    selected = tuple(data.draw(st.permutations(range(n)))[:keep])
    rules = [
        median(n),
        trimmed_mean(n, data.draw(st.integers(0, (n - 1) // 2))),
        closest_mean(n, keep),
        closest_mean(n, data.draw(st.integers(1, keep)), selected),
    ]
    for rule in rules:
        found = np.empty(WIDTH)
        assert rule.of_rows(list(rows), found)
        assert found.tobytes() == rule.of_block(rows.astype(np.float64)).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.integers(1, 17), st.integers(0, 10**6))
def test_combinations_have_the_bits_of_numpy(dtype: type, n: int, seed: int) -> None:
    rows, weights = voters(n, WIDTH, seed, dtype), np.random.default_rng(seed).standard_normal(n)
    found = np.empty(WIDTH)
    assert kernels.combination(list(rows), weights, found)
    assert found.tobytes() == combine_rows(weights[None, :], rows.astype(np.float64))[0].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 3, 4, 5, 16, 17])
def test_inner_products(dtype: type, n: int) -> None:
    rows = np.random.default_rng(n).standard_normal((n, kernels.BLOCK + 777)).astype(dtype)
    found = kernels.gram(list(rows))
    exact = rows.astype(np.longdouble) @ rows.astype(np.longdouble).T
    assert np.abs(found - exact).max() <= 1e-13 * np.abs(exact).max()
    assert np.array_equal(found, found.T)


def test_a_row_that_is_not_finite_spoils_its_own_products_only() -> None:
    rows = np.random.default_rng(0).standard_normal((6, kernels.BLOCK + 5)).astype(np.float32)
    clean = kernels.gram(list(rows))
    rows[2, 3], rows[4, -1] = np.nan, np.inf
    found = kernels.gram(list(rows))
    assert np.isfinite(np.diag(found)).tolist() == [True, True, False, True, False, True]
    kept = np.ix_([0, 1, 3, 5], [0, 1, 3, 5])
    assert np.array_equal(found[kept], clean[kept])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 255, 256, kernels.BLOCK, kernels.BLOCK + 299])
def test_every_value_that_is_not_finite_is_met(value: float, column: int) -> None:
    rows = np.ones((5, kernels.BLOCK + 300), np.float32)
    rows[3, column] = value
    out = np.empty(rows.shape[1])
    assert not median(5).of_rows(list(rows), out)
    assert not kernels.combination(list(rows), np.ones(5), out)


def test_threads_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(voters(7, 5 * kernels.BLOCK + 123, seed=1))
    weights = np.random.default_rng(2).standard_normal(7)

    def bits() -> Sequence[bytes]:
        median_of, sum_of = np.empty(len(rows[0])), np.empty(len(rows[0]))
        median(7).of_rows(rows, median_of)
        kernels.combination(rows, weights, sum_of)
        return median_of.tobytes(), sum_of.tobytes(), kernels.gram(rows).tobytes()

    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(kernels, "cores_here", lambda threads=threads: threads)
        found.append(bits())
    assert found[0] == found[1] == found[2]


@given(st.integers(1, 17), st.integers(0, 10**6), st.data())
def test_partial_network_sorts_what_is_asked(n: int, seed: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, n - 1))
    high = data.draw(st.integers(low + 1, n))
    block = np.random.default_rng(seed).integers(-3, 4, (n, 20))
    ordered = np.sort(block, axis=0)
    network = partial_network(n, low, high)
    for a, b in network:
        block[a], block[b] = np.minimum(block[a], block[b]), np.maximum(block[a], block[b])
    assert np.array_equal(block[low:high], ordered[low:high])
    assert len(network) <= len(partial_network(n, 0, n))


def test_rows_must_be_alike() -> None:
    with pytest.raises(ValueError, match="contiguous, of one length and of one type"):
        kernels.gram([np.ones(4), np.ones(5)])
    with pytest.raises(ValueError, match="contiguous, of one length and of one type"):
        kernels.gram([np.ones(4), np.ones(4, np.float32)])
    with pytest.raises(ValueError, match="contiguous, of one length and of one type"):
        kernels.gram([np.ones(8)[::2], np.ones(8)[::2]])


def test_the_rule_names_its_window() -> None:
    assert median(4) == SortedMean(1, 3)
    assert median(5) == SortedMean(2, 3)
    assert trimmed_mean(16, 3) == SortedMean(3, 13)
