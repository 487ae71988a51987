"""The accountant against tables and the analytic Gaussian, the clipped mean against Flower, and its sensitivity."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq
from scipy.stats import norm

from capibara_assets.training.strategies.privacy import (
    NoisedSums,
    affordable_steps,
    analytic_noise,
    combined_privacy,
    dp_clipped_mean,
    dp_epsilon,
    dp_noise_multiplier,
    predicted_snr,
    privacy_document,
    privacy_problems,
    replace_one,
)

Row = dict[str, float]


def analytic(noise_multiplier: float, steps: int, delta: float) -> float:
    """Epsilon of the Gaussian mechanism, exactly (Balle and Wang 2018); T steps are one of z / sqrt T."""
    mu = math.sqrt(steps) / noise_multiplier

    def above(epsilon: float) -> float:
        tail = math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
        return float(norm.cdf(-epsilon / mu + mu / 2) - tail) - delta

    return float(brentq(above, 0, 50, xtol=1e-12))


@pytest.fixture(scope="module")
def table(shared: Path) -> dict[str, list[dict[str, float]]]:
    document: dict[str, list[dict[str, float]]] = json.loads(
        (shared / "oracles" / "consensus" / "dp" / "dp_table.json").read_text()
    )
    return document


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.extended)])
def test_epsilon_is_the_tables(table: dict[str, list[dict[str, float]]], every: int) -> None:
    assert len(table["accounting"]) == 12
    for row in table["accounting"][::every]:
        found = dp_epsilon(row["noise_multiplier"], row["sampling_rate"], int(row["steps"]), row["delta"])
        assert found == pytest.approx(row["eps_pld"], rel=1e-3)
        assert found >= row.get("eps_exact_analytic", 0.0) - 1e-6
        assert found <= row["eps_rdp"]  # of Renyi divergences: a looser bound


@pytest.mark.parametrize(
    "some",
    [
        pytest.param(lambda row: (row["rounds"], row["sampling_rate"], row["delta"]) == (5, 1, 1e-5), id="all, 5"),
        pytest.param(lambda row: row["sampling_rate"] == 1, id="all clients", marks=pytest.mark.extended),
        pytest.param(lambda row: (row["rounds"], row["sampling_rate"], row["delta"]) == (5, 0.5, 1e-5), id="half"),
        pytest.param(lambda row: row["sampling_rate"] < 1, id="each half", marks=pytest.mark.extended),
    ],
)
def test_noise_is_the_tables(table: dict[str, list[Row]], some: Callable[[Row], bool]) -> None:
    rows = table["calibration_eps1_20clients"]
    assert len(rows) == 20
    chosen = list(filter(some, rows))
    assert chosen
    for row in chosen:
        values = row["sampling_rate"], int(row["rounds"]), row["delta"]
        found = row["noise_multiplier"]
        assert dp_epsilon(found, *values) == pytest.approx(row["target_epsilon"], rel=1e-4)
        if row["sampling_rate"] == 1 or row["rounds"] == 5:  # the others take seconds each, and show the same
            found = dp_noise_multiplier(row["target_epsilon"], *values)
            assert found == pytest.approx(row["noise_multiplier"], rel=1e-4)
            assert dp_epsilon(found, *values) <= row["target_epsilon"]
        predicted = predicted_snr(1.0, found, row["clients"], 1000, sampling_rate=row["sampling_rate"])
        assert predicted.noise_norm == pytest.approx(row["noise_std_on_mean_over_clip"] * 1000**0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("noise", "steps", "delta"), [(1.0, 1, 1e-5), (3.73, 1, 1e-5), (7.0, 12, 1e-4), (0.5, 1, 1e-2)]
)
def test_the_accountant_bounds_the_analytic_gaussian_closely(noise: float, steps: int, delta: float) -> None:
    exact, found = analytic(noise, steps, delta), dp_epsilon(noise, 1.0, steps, delta)
    assert exact - 1e-6 <= found <= exact * 1.001


def test_noise_for_twenty_clients_at_epsilon_one() -> None:
    noise = dp_noise_multiplier(1.0, 1.0, 1, 1e-5)
    assert analytic(noise, 1, 1e-5) == pytest.approx(1.0, abs=1e-4) and noise == pytest.approx(3.7306, abs=1e-3)
    predicted = predicted_snr(0.3, noise, 20, 1000)
    assert predicted.noise_norm / 0.3 == pytest.approx(5.9, abs=0.01) and predicted.snr == pytest.approx(
        1 / 5.9, rel=0.01
    )
    assert "1,000 trained numbers) / 20 clients = 5.9 x clip" in predicted.arithmetic()


@pytest.mark.extended
def test_large_budgets_need_little_noise() -> None:
    for epsilon in (8.0, 20.0):
        noise = dp_noise_multiplier(epsilon, 1.0, 1, 1e-5)
        assert analytic(noise, 1, 1e-5) == pytest.approx(epsilon, abs=1e-4)
    assert dp_noise_multiplier(math.inf, 1.0, 3, 1e-5) == 0.0 and dp_epsilon(0.0, 1.0, 1, 1e-5) == math.inf


def test_hardly_any_noise_takes_no_more_memory_and_still_no_epsilon_is_too_small() -> None:
    for epsilon in (100.0, 1e8):
        found = dp_epsilon(analytic_noise(epsilon, 1e-5), 1.0, 1, 1e-5)
        assert epsilon * (1 - 1e-6) <= found <= epsilon * (1 + 1e-3)
    assert dp_epsilon(1e-3, 0.5, 20, 1e-5) > 1e5


def test_sampling_amplifies_and_steps_add_up() -> None:
    assert dp_epsilon(8.0, 0.2, 2, 1e-5) < dp_epsilon(8.0, 0.5, 2, 1e-5) < dp_epsilon(8.0, 1.0, 2, 1e-5)
    assert 0.0 == dp_epsilon(8.0, 1.0, 0, 1e-5) < dp_epsilon(8.0, 1.0, 1, 1e-5) < dp_epsilon(8.0, 1.0, 2, 1e-5)
    most = affordable_steps(1.0, 10.0, 1.0, 12, 1e-5)
    assert 0 < most < 12 and analytic(10.0, most, 1e-5) <= 1.0 < analytic(10.0, most + 1, 1e-5)
    assert (
        affordable_steps(1.0, 10.0, 1.0, most - 1, 1e-5) == most - 1 and affordable_steps(1.0, 1.0, 1.0, 3, 1e-5) == 0
    )


@pytest.mark.parametrize(
    "values", [(-1.0, 1.0, 1, 1e-5), (math.nan, 1.0, 1, 1e-5), (1.0, 0.0, 1, 1e-5), (1.0, 1.5, 1, 1e-5),
               (1.0, 1.0, -1, 1e-5), (1.0, 1.0, 1, 0.0), (1.0, 1.0, 1, 1.0)],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(values: tuple[float, float, int, float]) -> None:
    with pytest.raises(ValueError, match=r"noise_multiplier|sampling_rate|steps|delta"):
        dp_epsilon(*values)


def test_the_clipped_mean_is_flowers(shared: Path) -> None:
    folder = shared / "oracles" / "consensus"
    cases = json.loads((folder / "index.json").read_text())["flower"]
    assert len(cases) == 6
    for case in cases:
        data, stated = np.load(folder / case["file"]), case["meta"]["dp"]
        found = dp_clipped_mean(data["inputs"], stated["clip_norm"], 0.0, base=data["base"])
        np.testing.assert_allclose(found, data["expected_dp_clipped_mean"], rtol=case["rtol_f64"], atol=1e-12)
        # And the noise that Flower would add: its standard deviation on the mean, seen in many draws.
        noises = [
            dp_clipped_mean(
                data["inputs"], stated["clip_norm"], stated["noise_multiplier"], base=data["base"], seed=seed
            )
            - found
            for seed in range(40)
        ]
        assert np.std(noises) == pytest.approx(stated["mean_noise_std"], rel=0.06)


ROWS = arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 5)), elements=st.floats(-1e6, 1e6))


@given(ROWS, st.floats(1e-3, 1e3), st.data())
def test_one_client_more_or_less_moves_the_sum_by_the_clip_at_most(
    rows: np.ndarray, clip: float, data: st.DataObject
) -> None:
    gone = data.draw(st.integers(0, len(rows) - 1))
    with_all = dp_clipped_mean(rows, clip, 0.0, denominator=1.0)
    without = dp_clipped_mean(np.delete(rows, gone, axis=0), clip, 0.0, denominator=1.0)
    assert np.linalg.norm(with_all - without) <= clip * (1 + 1e-9)
    # Exchanged for other data it may move by twice that, and it is no more.
    other = rows.copy()
    other[gone] = data.draw(arrays(np.float64, rows.shape[1], elements=st.floats(-1e6, 1e6)))
    assert np.linalg.norm(with_all - dp_clipped_mean(other, clip, 0.0, denominator=1.0)) <= 2 * clip * (1 + 1e-9)


@given(ROWS, st.randoms())
def test_the_mean_does_not_depend_on_the_clients_order(rows: np.ndarray, random: object) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert np.array_equal(dp_clipped_mean(rows, 1.0, 0.7, seed=3), dp_clipped_mean(rows[order], 1.0, 0.7, seed=3))


def test_noise_does_not_depend_on_how_many_answered_and_is_fresh_without_a_seed() -> None:
    rows = np.zeros((20, 4000))
    stds = [np.std(dp_clipped_mean(rows[:n], 2.0, 1.5, denominator=20.0, seed=n)) for n in (1, 5, 20)]
    assert stds == pytest.approx([0.15] * 3, rel=0.05)
    fresh = [dp_clipped_mean(rows, 2.0, 1.5) for _ in range(2)]
    assert not np.array_equal(*fresh)


def test_what_cannot_be_clipped_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 is not finite"):
        dp_clipped_mean([[0.0, 1.0], [np.nan, 1.0]], 1.0, 1.0)
    with pytest.raises(ValueError, match="at least one row"):
        dp_clipped_mean(np.zeros((0, 3)), 1.0, 1.0)
    for clip, noise, denominator in ((0.0, 1.0, None), (1.0, -1.0, None), (1.0, 1.0, 0.0)):
        with pytest.raises(ValueError, match=r"clip|denominator"):
            dp_clipped_mean([[1.0]], clip, noise, denominator=denominator)


def test_a_document_is_checked_by_its_parameters() -> None:
    document = privacy_document(
        NoisedSums(noise_multiplier=4.0, sampling_rate=0.5, steps=3, delta=1e-5, clip=0.1), clients=20
    )
    assert document == json.loads(json.dumps(document)) and not privacy_problems(document)
    assert document["library"].startswith("dp-accounting ") and document["adjacency"] == "add_or_remove_one_client"
    assert "not 0.5" in privacy_problems(document | {"epsilon": 0.5})[0]
    assert "by its parameters" in privacy_problems(document | {"steps": 4})[0]
    assert "lacks delta" in privacy_problems({k: v for k, v in document.items() if k != "delta"})[0]
    assert "moments" in privacy_problems(document | {"accountant": "moments"})[0]
    for endless in ({"steps": 10**12}, {"noise_multiplier": 1e-6, "steps": 99_999}, {"delta": 1e-320}):
        assert privacy_problems(document | endless)  # neither for ever nor out of memory
    assert "at most 64 are computed" in privacy_problems({"voters": {"a": {"voters": {}}}, "without": []})[0]
    assert replace_one(1.0, 1e-5) == {"epsilon": 2.0, "delta": pytest.approx((1 + math.e) * 1e-5)}


def test_voters_add_up_and_one_without_privacy_leaves_none() -> None:
    one = privacy_document(
        NoisedSums(noise_multiplier=4.0, sampling_rate=1.0, steps=1, delta=1e-5, clip=0.1), clients=20
    )
    other = privacy_document(
        NoisedSums(noise_multiplier=8.0, sampling_rate=1.0, steps=1, delta=1e-6, clip=0.1), clients=20
    )
    both = combined_privacy({"b": other, "a": one})
    assert both["epsilon"] == one["epsilon"] + other["epsilon"] and both["delta"] == pytest.approx(1.1e-5)
    assert not privacy_problems(json.loads(json.dumps(both)))
    assert privacy_problems(both | {"epsilon": one["epsilon"]})
    assert privacy_problems(both | {"voters": {"a": one | {"steps": 2}, "b": other}})[0].startswith("a: epsilon is")
    none = combined_privacy({"a": one, "c": None})
    assert none["epsilon"] is None and none["without"] == ["c"] and not privacy_problems(none)
    assert privacy_problems(none | {"epsilon": 1.0})
