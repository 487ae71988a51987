"""Sums of deltas: known answers, and what holds for any experts."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.consensus.merging.delta_sums import plain_sum, sparse_sum, sum_experts
from capibara_assets.consensus.recipe import MergeRecipe
from capibara_assets.domains import Domain
from capibara_assets.modeling.adapters import LoraAdapter

FIRST = torch.tensor([[5.0, -1.0, 0.1], [0.0, 2.0, -3.0]])
SECOND = torch.tensor([[4.0, 3.0, -0.2], [0.1, -4.0, -2.0]])
RECIPE = MergeRecipe(ties_density=0.5, dare_density=0.5, svd_rank=3)


def test_ties_keeps_the_largest_and_the_elected_sign() -> None:
    expected = torch.tensor([[9.0, 3.0, 0.0], [0.0, -4.0, -3.0]])
    assert torch.equal(sparse_sum("ties", "m", [FIRST, SECOND], [1.0, 1.0], RECIPE), expected)
    whole = RECIPE.model_copy(update={"ties_density": 1.0})
    assert torch.equal(sparse_sum("ties", "m", [FIRST], [1.0], whole), FIRST)


def test_a_weight_sways_the_election() -> None:
    found = sparse_sum("ties", "m", [FIRST, SECOND], [3.0, 1.0], RECIPE)
    assert torch.equal(found, torch.tensor([[19.0, 3.0, 0.0], [0.0, 6.0, -9.0]]))
    assert torch.equal(plain_sum([FIRST, SECOND], [3.0, 1.0]), 3 * FIRST + SECOND)


def test_dare_keeps_a_share_with_the_same_norm_and_the_same_entries_each_time() -> None:
    delta = torch.randn(200, 100, generator=torch.Generator().manual_seed(1))
    found = sparse_sum("dare_linear", "m", [delta], [1.0], RECIPE)
    kept = found != 0
    assert kept.float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert found.abs().sum().item() == pytest.approx(delta.abs().sum().item(), rel=1e-5)
    assert torch.allclose(found[kept] / delta[kept], (found[kept] / delta[kept])[0].expand(int(kept.sum())))
    assert torch.equal(found, sparse_sum("dare_linear", "m", [delta], [1.0], RECIPE))
    other = RECIPE.model_copy(update={"seed": 1})
    assert not torch.equal(found, sparse_sum("dare_linear", "m", [delta], [1.0], other))
    assert not torch.equal(found, sparse_sum("dare_linear", "n", [delta], [1.0], RECIPE))
    # Without another's share it is the same: the other's weight decides nothing of what is dropped
    assert torch.allclose(found, sparse_sum("dare_linear", "m", [delta, -delta], [1.0, 0.0], RECIPE))


def test_svd_is_the_best_of_its_rank(experts: dict[Domain, LoraAdapter]) -> None:
    weights = {domain: 0.5 + number for number, domain in enumerate(experts)}
    exact, cut = (sum_experts(method, experts, weights, RECIPE) for method in ("task_arithmetic", "svd"))
    lost = whole = 0.0
    for module, delta in exact.deltas.items():
        singular = np.linalg.svd(delta.double().numpy(), compute_uv=False)
        found = cut.deltas[module].double().numpy()
        assert np.linalg.matrix_rank(found, tol=1e-4) <= 3
        error = np.linalg.norm(delta.double().numpy() - found)
        assert error == pytest.approx(math.sqrt(np.square(singular[3:]).sum()), rel=1e-3)
        lost, whole = lost + error**2, whole + float(np.square(singular).sum())
    assert cut.relative_error == pytest.approx(math.sqrt(lost / whole), rel=1e-3)
    assert exact.relative_error == 0.0


@given(st.integers(1, 5), st.integers(0, 2**31), st.floats(0.05, 1.0))
def test_ties_as_the_paper_writes_it(n: int, seed: int, density: float) -> None:
    random = np.random.default_rng(seed)
    deltas = random.normal(size=(n, 35)).astype(np.float32)
    weights = random.uniform(0.5, 2.0, n)
    recipe = RECIPE.model_copy(update={"ties_density": density})
    found = sparse_sum("ties", "m", [torch.from_numpy(d.reshape(7, 5)) for d in deltas], weights.tolist(), recipe)
    kept = int(np.count_nonzero(sparse_sum("ties", "m", [torch.from_numpy(deltas[0].reshape(7, 5))], [1.0], recipe)))
    assert abs(kept - density * 35) <= 1
    limits = np.sort(np.abs(deltas), axis=1)[:, -kept][:, None]
    trimmed = weights[:, None] * np.where(np.abs(deltas) >= limits, deltas, 0.0)
    elected = np.sign(trimmed.sum(axis=0))
    expected = np.where(np.sign(trimmed) == elected, trimmed, 0.0).sum(axis=0)
    np.testing.assert_allclose(found.numpy().reshape(-1), expected, rtol=1e-5, atol=1e-6)
