"""Soups of arrays, tensors, dicts and adapters: known answers, the tie rule, and what a greedy soup promises."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.consensus.choose.soups import soup
from capibara_assets.modeling.adapters import LoraAdapter


def test_soup_oracles(shared: Path) -> None:
    folder = shared / "oracles" / "consensus"
    cases = json.loads((folder / "index.json").read_text())["soup"]
    assert len(cases) == 4
    for case in cases:
        data = np.load(folder / case["file"])
        inputs, labels = data["Xval"], data["yval"]

        def correct(model: np.ndarray, inputs: np.ndarray = inputs, labels: np.ndarray = labels) -> float:
            return float((np.argmax(inputs @ model.T, axis=1) == labels).sum())

        models = list(data["models"])
        uniform, weighted = soup(models, correct, "uniform"), soup(models, correct, "weighted")
        assert np.allclose(uniform.model, data["expected_uniform"], atol=1e-12)
        assert uniform.score == case["uniform_correct"]
        assert np.allclose(weighted.model, data["expected_weighted_by_acc"], atol=1e-12)
        assert weighted.score == case["weighted_by_acc_correct"]
        assert list(weighted.scores) == case["individual_correct"]
        greedy, expected = soup(models, correct, "greedy"), case["greedy"]["ge"]
        assert np.allclose(greedy.model, data["expected_greedy_ge"], atol=1e-12)
        assert (list(greedy.members), greedy.score) == (expected["ingredients"], expected["correct"])
        assert [(s.tried[-1], s.score, s.kept) for s in greedy.tried] == [
            (step["candidate"], step["correct"], step["accepted"]) for step in expected["trace"]
        ]


def test_an_equal_score_stays_in() -> None:
    """>= and not >: the known answers never tie."""
    greedy = soup([np.array([1.0]), np.array([3.0])], lambda _: 5.0, "greedy")
    assert greedy.members == (0, 1)
    assert greedy.model == np.array([2.0])


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8), st.floats(-3, 3))
def test_greedy_is_never_worse_than_the_best(points: list[float], target: float) -> None:
    def nearness(model: np.ndarray) -> float:
        return -float(abs(model - target))

    greedy = soup([np.float64(point) for point in points], nearness, "greedy")
    assert greedy.score >= max(greedy.scores)
    assert greedy.score == nearness(greedy.model)
    assert sum(greedy.weights) == pytest.approx(1.0)
    assert {i for i, weight in enumerate(greedy.weights) if weight} == set(greedy.members)


def test_a_score_that_is_nan_on_the_way_never_stays() -> None:
    greedy = soup([1.0, 2.0, 3.0], lambda model: model if model in (1.0, 2.0, 3.0) else float("nan"), "greedy")
    assert greedy.members == (2,)
    assert not any(step.kept for step in greedy.tried[:1])


def test_dicts_of_tensors_keep_their_types() -> None:
    models = [{"w": torch.full((2,), value, dtype=torch.bfloat16), "b": torch.tensor(value)} for value in (1.0, 2.0)]
    mixed = soup(models, lambda model: float(model["b"]), "weighted")
    assert mixed.weights == pytest.approx((1 / 3, 2 / 3))
    assert mixed.model["w"].dtype == torch.bfloat16
    assert float(mixed.model["b"]) == pytest.approx(5 / 3)
    assert mixed.score == pytest.approx(5 / 3)


def test_adapters_are_averaged_by_their_products(honest: dict[str, LoraAdapter]) -> None:
    adapters = list(honest.values())
    mixed = soup(adapters, lambda _: 1.0, "uniform")
    for module in adapters[0].modules:
        mean = torch.stack([adapter.delta(module) for adapter in adapters]).mean(dim=0)
        assert torch.allclose(mixed.model.delta(module), mean, atol=1e-6)
    best = soup(adapters, lambda adapter: -float(adapter.config["r"]), "greedy")
    assert best.members == (0,), "ranks add up, so that every attempt is worse by this score"
    assert best.model is adapters[0]


def test_what_cannot_be_averaged() -> None:
    with pytest.raises(ValueError, match="one model at least"):
        soup([], lambda _: 1.0)
    with pytest.raises(ValueError, match="unknown method 'best'"):
        soup([1.0], lambda _: 1.0, "best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"model 1 has shape \(3,\), model 0 \(2,\)"):
        soup([np.ones(2), np.ones(3)], lambda _: 1.0, "uniform")
    with pytest.raises(ValueError, match="model 1 has other tensors"):
        soup([{"a": np.ones(2)}, {"b": np.ones(2)}], lambda _: 1.0, "uniform")
    with pytest.raises(ValueError, match="model 1 scores nan"):
        soup([1.0, 2.0], lambda model: 1.0 if model == 1.0 else float("nan"), "greedy")
    for score in (-1.0, 0.0):
        with pytest.raises(ValueError, match="pass accuracy or 1 / perplexity"):
            soup([1.0, 2.0], lambda _, score=score: score, "weighted")
