"""The bench `aggregate`: same vectors every time, the residual is the gradient, peers are asked for."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.consensus.aggregate import RULES, bandwidth_of, fewest_steps, measure, residual, write_vectors
from benchmarks.peers import peer_environment
from capibara_assets.consensus.aggregation.aggregate import aggregate
from capibara_assets.errors import InputError


def test_vectors_do_not_depend_on_the_run(tmp_path: Path) -> None:
    first = write_vectors(tmp_path / "a", 7, 1000, 2)
    assert first.dtype == np.float32
    assert first.shape == (7, 1000)
    assert np.array_equal(first, write_vectors(tmp_path / "b", 7, 1000, 2))
    honest = first[:5].mean(axis=0)
    assert (first[5:] @ honest < 0).all(), "the faulty voters point the other way"


def test_the_residual_is_nought_at_the_median_only(tmp_path: Path) -> None:
    rows = write_vectors(tmp_path / "a", 9, 100_000, 2)
    found = aggregate(rows, "geometric_median", f=2)
    assert residual(rows, found.vector) < 1e-12
    assert residual(rows, found.vector * 1.01) > 1e-3
    offsets = rows - rows[0] * 0.5
    exact = np.linalg.norm((offsets / np.linalg.norm(offsets, axis=1)[:, None]).sum(axis=0)) / 9
    assert residual(rows, rows[0] * 0.5) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 5, 17, 64, 100, 255, 256])
def test_the_fewest_steps_are_found_in_few_tries(wanted: int) -> None:
    tried: list[int] = []

    def left_after(steps: int) -> float:
        tried.append(steps)
        return 1e-5 if steps >= wanted else 1e-4

    assert fewest_steps(left_after) == wanted
    assert len(tried) <= 17 and len(set(tried)) == len(tried)


def test_too_many_steps_are_none() -> None:
    assert fewest_steps(lambda steps: 1.0) is None


def test_bandwidth_has_its_keys(tmp_path: Path) -> None:
    found = bandwidth_of(write_vectors(tmp_path / "a", 4, 50_000, 1), 1)
    assert found["mean_over_read"] > 0
    assert found["gram_over_bandwidth"] > 0


def test_missing_peers_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAPIBARA_BENCH_ENV", str(tmp_path))
    with pytest.raises(InputError, match="bench-env"):
        measure(7, 1000, 1, 1, ("mean",), 60)


@pytest.mark.extended
def test_peers_agree() -> None:
    try:
        peer_environment("consensus/peer_aggregate.py")
    except InputError as error:
        pytest.skip(str(error))
    found = measure(15, 20_000, 3, 1, RULES, 60)
    for rule in RULES:
        limit = 1e-4 if rule == "geometric_median" else 1e-5
        assert found["rules"][rule]["largest_difference"] < limit, rule
        assert found["rules"][rule]["columns"] == 20_000
    assert found["ratio"] == min(found[f"ratio_{r}"] for r in ("krum", "multi_krum", "bulyan", "geometric_median"))
