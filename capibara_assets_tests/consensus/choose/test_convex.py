"""Certified mixture weights against other solvers and closed forms; simplex least squares against known answers."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from capibara_assets.consensus.choose.convex import convex_weights, mixture_gap, simplex_least_squares


def objective(losses: np.ndarray, weights: np.ndarray, lambda_reg: float) -> float:
    """As the docstring writes it, by another route: logarithms of sums of exponentials."""
    with np.errstate(divide="ignore"):
        mixed = np.logaddexp.reduce(np.log(weights)[:, None] - losses, axis=0)
    return float(mixed.mean() - lambda_reg * np.square(weights - 1 / len(weights)).sum())


def best_known(losses: np.ndarray, lambda_reg: float) -> float:
    """SLSQP with exact gradients, from the centre and from near every corner."""
    k = len(losses)
    likelihoods = np.exp(-(losses - losses.min(axis=0)))

    def slope(w: np.ndarray) -> np.ndarray:
        return np.asarray((likelihoods / (w @ likelihoods)).mean(axis=1) - 2 * lambda_reg * (w - 1 / k))

    found = []
    for start in (np.full(k, 1 / k), *(0.9 * np.eye(k) + 0.1 / k)):
        result = minimize(
            lambda w: -objective(losses, w, lambda_reg),
            start,
            jac=lambda w: -slope(w),
            bounds=[(1e-14, 1)] * k,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(k)},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        weights = np.maximum(result.x, 0) / np.maximum(result.x, 0).sum()
        found.append(objective(losses, weights, lambda_reg))
    return max(found)


def drawn(seed: int, k: int, tokens: int, spread: float = 1.0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.gamma(2.0, 1.0, (1, tokens)) + spread * random.gamma(1.0, 1.0, (k, tokens))


@pytest.mark.parametrize("lambda_reg", [0.0, 1e-4, 0.01, 1.0, 100.0])
@pytest.mark.parametrize(("k", "tokens", "spread"), [(2, 7, 1.0), (3, 40, 3.0), (5, 200, 0.3), (8, 100, 10.0)])
def test_no_solver_finds_a_better_mixture(lambda_reg: float, k: int, tokens: int, spread: float) -> None:
    losses = drawn(k * tokens, k, tokens, spread)
    weights, gap = convex_weights(losses, lambda_reg)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert gap < 1e-9
    assert best_known(losses, lambda_reg) <= objective(losses, weights, lambda_reg) + gap


@given(
    seed=st.integers(0, 10_000),
    k=st.integers(2, 6),
    tokens=st.integers(1, 60),
    spread=st.sampled_from([0.01, 1.0, 20.0]),
    lambda_reg=st.sampled_from([0.0, 0.01, 3.0]),
    iterations=st.integers(0, 3),
)
def test_the_gap_bounds_what_is_missing_converged_or_not(
    seed: int, k: int, tokens: int, spread: float, lambda_reg: float, iterations: int
) -> None:
    losses = drawn(seed, k, tokens, spread)
    best, certified = convex_weights(losses, lambda_reg)
    assert certified < 1e-8
    early, gap = convex_weights(losses, lambda_reg, max_iterations=iterations)
    top = objective(losses, best, lambda_reg)
    assert top - objective(losses, early, lambda_reg) <= gap
    anywhere = np.random.default_rng(seed).dirichlet(np.ones(k))
    bound = mixture_gap(losses, anywhere, lambda_reg)
    assert top - objective(losses, anywhere, lambda_reg) <= bound
    if lambda_reg > 0:
        assert np.square(anywhere - best).sum() <= (bound + certified) / lambda_reg * 1.001


def test_a_closed_form() -> None:
    """Each model writes its own tokens with certainty and no others: the weights are the shares of the tokens."""
    losses = np.full((3, 10), 800.0)
    losses[0, :5] = losses[1, 5:8] = losses[2, 8:] = 0.0
    weights, gap = convex_weights(losses, 0.0)
    assert np.allclose(weights, [0.5, 0.3, 0.2], atol=1e-9)
    assert gap < 1e-9
    heavy, _ = convex_weights(losses, 1e6)
    assert np.allclose(heavy, 1 / 3, atol=1e-5)


def test_two_models_by_bisection() -> None:
    losses = drawn(3, 2, 500)
    likelihoods = np.exp(-losses)
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        mixed = middle * likelihoods[0] + (1 - middle) * likelihoods[1]
        rise = ((likelihoods[0] - likelihoods[1]) / mixed).mean() - 2 * 0.01 * 2 * (middle - 0.5)
        low, high = (middle, high) if rise > 0 else (low, middle)
    assert convex_weights(losses, 0.01).weights[0] == pytest.approx(low, abs=1e-9)


def test_losses_and_log_probabilities_are_told_apart_by_sign() -> None:
    losses = drawn(1, 4, 50)
    assert np.array_equal(convex_weights(losses).weights, convex_weights(-losses).weights)
    with pytest.raises(ValueError, match="on both sides of 0"):
        convex_weights(losses - losses.mean())
    assert np.allclose(convex_weights(np.zeros((3, 4))).weights, 1 / 3)


def test_what_is_not_finite_is_named() -> None:
    losses = drawn(1, 4, 50)
    losses[2, 3] = np.nan
    losses[3, :2] = np.inf
    with pytest.raises(ValueError, match=r"model 2 \(1 NaN, 0 infinite\), 3 \(0 NaN, 2 infinite\) are not finite"):
        convex_weights(losses)
    with pytest.raises(ValueError, match="not finite"):
        convex_weights([[-np.inf, -1.0], [-1.0, -1.0]])


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (5,), (2, 2, 2)])
def test_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="models, tokens"):
        convex_weights(np.ones(shape))


def test_settings_have_to_make_sense() -> None:
    for settings in ({"lambda_reg": -0.1}, {"lambda_reg": float("nan")}, {"max_iterations": -1}):
        with pytest.raises(ValueError, match="have to be finite and >= 0"):
            convex_weights(np.ones((2, 2)), **settings)
    for weights in ([0.5, 0.6], [1.5, -0.5], [1.0]):
        with pytest.raises(ValueError, match="that sum to 1"):
            mixture_gap(np.ones((2, 2)), weights)


def test_large_and_tiny_losses() -> None:
    """Losses that no exponential of float64 holds; a shift of a token's losses for all models changes nothing."""
    losses = drawn(5, 4, 300)
    shifted = losses + np.linspace(0, 5e4, 300)
    assert np.allclose(convex_weights(shifted).weights, convex_weights(losses).weights, atol=1e-7)
    weights, gap = convex_weights([[0.0, 5000.0, 0.0], [9000.0, 0.0, 9000.0]], 0.0)
    assert np.allclose(weights, [2 / 3, 1 / 3], atol=1e-9)
    assert gap < 1e-9
    alone = mixture_gap([[0.0, 5000.0, 0.0], [9000.0, 0.0, 9000.0]], [1.0, 0.0], 0.0)
    assert alone == float("inf"), "a token that only the other model could have written"


def test_one_model_and_equal_models() -> None:
    assert convex_weights(np.ones((1, 9))) == (np.ones(1), 0.0)
    first, second, third = drawn(8, 3, 80)
    for lambda_reg in (0.0, 0.01):
        weights, gap = convex_weights([first, second, first, third, first], lambda_reg)
        assert weights[0] == weights[2] == weights[4]
        assert gap < 1e-9
    merged, _ = convex_weights([first, second, third], 0.0)
    assert weights_of_groups(convex_weights([first, second, first, third], 0.0).weights) == pytest.approx(
        merged, abs=1e-6
    )


def weights_of_groups(weights: np.ndarray) -> np.ndarray:
    return np.array([weights[0] + weights[2], weights[1], weights[3]])


def test_a_model_that_is_a_mixture_of_others() -> None:
    """Singular without regularisation."""
    first, second = np.exp(-drawn(4, 2, 60))
    weights, gap = convex_weights(-np.log([first, second, (first + second) / 2]), 0.0)
    assert gap < 1e-9
    assert weights.sum() == pytest.approx(1.0)


@given(seed=st.integers(0, 1000), k=st.integers(2, 7), lambda_reg=st.sampled_from([0.0, 0.01]))
def test_neither_order_nor_threads_show(seed: int, k: int, lambda_reg: float) -> None:
    losses = drawn(seed, k, 5000 if seed % 10 == 0 else 90)
    order = np.random.default_rng(seed).permutation(k)
    weights, gap = convex_weights(losses, lambda_reg)
    with threadpool_limits(limits=2):
        moved = convex_weights(losses[order], lambda_reg)
    assert np.array_equal(moved.weights, weights[order])
    assert moved.duality_gap == gap
    target = losses.mean(axis=0) + 0.1
    assert np.array_equal(simplex_least_squares(losses[order], target), simplex_least_squares(losses, target)[order])


def test_simplex_oracles(shared: Path) -> None:
    folder = shared / "oracles" / "consensus"
    cases = json.loads((folder / "index.json").read_text())["convex"]
    assert len(cases) == 7
    for case in cases:
        answers = np.load(folder / case["file"])
        inputs, target = answers["inputs"].astype(np.float64), answers["target"].astype(np.float64)
        weights = simplex_least_squares(answers["inputs"], answers["target"])
        right = answers["expected_weights"]
        if case["unique"]:
            assert np.abs(weights - right).max() <= case["atol_weights"], case["name"]
        else:
            assert weights[0] + weights[2] == pytest.approx(right[0] + right[2], abs=case["atol_weights"])
            assert weights[0] == weights[2]
        assert np.allclose(weights @ inputs, answers["expected_merged"], atol=1e-6)
        assert kkt_residual(inputs, target, weights) <= 1e-11, case["name"]


def kkt_residual(models: np.ndarray, target: np.ndarray, weights: np.ndarray) -> float:
    """How far gradients are from one value on the support and from at least that value elsewhere."""
    slope = 2 * models @ (weights @ models - target)
    level = float(weights @ slope)
    return float(max(np.abs(slope - level)[weights > 0].max(), (level - slope).max()))


@given(
    seed=st.integers(0, 10_000), k=st.integers(1, 9), d=st.integers(1, 30), offset=st.sampled_from([0.0, 1.0, 100.0])
)
def test_stationary_for_any_models(seed: int, k: int, d: int, offset: float) -> None:
    """Also with more models than dimensions, where models depend on each other."""
    random = np.random.default_rng(seed)
    models = random.normal(size=(k, d)) * random.choice([1e-3, 1.0, 10.0], size=(k, 1)) + offset
    target = random.normal(size=d) + offset
    weights = simplex_least_squares(models, target)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    # Gradients are products with the models: an offset costs its digits
    assert kkt_residual(models - offset, target - offset, weights) <= 1e-9 * (1 + offset)


def test_simplex_edges() -> None:
    assert np.array_equal(simplex_least_squares([[1.0, 2.0]], [9.0, 9.0]), [1.0])
    assert np.allclose(simplex_least_squares([[1.0, 2.0]] * 3, [0.0, 0.0]), 1 / 3)
    assert np.allclose(simplex_least_squares([[0.0], [1.0]], [0.25]), [0.75, 0.25])
    assert np.array_equal(simplex_least_squares([[0.0], [1.0]], [7.0]), [0.0, 1.0])
    with pytest.raises(ValueError, match="a model in each row"):
        simplex_least_squares(np.ones((5, 3)), np.ones(5))
    with pytest.raises(ValueError, match="have to be finite"):
        simplex_least_squares([[np.nan, 0.0]], [0.0, 0.0])
