"""Model soups: one model by averaging the weights of several (Wortsman et al. 2022, arXiv 2203.05482)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.greedy import GreedyStep, greedy_choice
from capibara_assets.modeling.low_rank import merge_adapters

Method = Literal["uniform", "weighted", "greedy"]
Model = Any
"""A NumPy array, a tensor, a dict of them, or a LoraAdapter; all of one soup alike."""


@dataclass(frozen=True)
class SoupResult:
    """An averaged model, and how it was made.

    Attributes:
        model: the average. Arrays come back in float64, tensors in their own type; an adapter is the exact sum of
            weight * delta, its ranks added up.
        weights: one per model, in the caller's order, summing to 1; 0 for those left out.
        members: indices of the models in it; of a greedy soup in the order in which they joined.
        score: of the soup.
        scores: of the models alone, where they were needed (weighted and greedy); else empty.
        tried: attempts of the greedy soup: indices with the newcomer last, the score, whether it was kept.
    """

    model: Model
    weights: tuple[float, ...]
    members: tuple[int, ...]
    score: float
    scores: tuple[float, ...] = ()
    tried: tuple[GreedyStep[int], ...] = ()


def soup(models: Sequence[Model], score: Callable[[Model], float], method: Method = "greedy") -> SoupResult:
    """Average models: uniformly, weighted by score, or greedily.

    Args:
        models: at least one.
        score: of a model on held-out data; higher is better.
        method: "uniform"; "weighted", in proportion to each one's score (accuracy, 1 / perplexity); or "greedy": best
            first (ties by index), each of the others joins if the average with it scores no worse (>=) than without.
            A greedy soup is never worse than the best model on the data of the score.

    Raises:
        ValueError: no model; an unknown method; models that differ in names or shapes; a score that is not finite, or
            negative in a weighted soup.
    """
    if not models:
        raise ValueError("a soup needs one model at least")
    if method not in get_args(Method):
        raise ValueError(f"unknown method {method!r}: one of {', '.join(get_args(Method))}")
    n = len(models)
    if method == "uniform":
        return _finished(models, (1.0 / n,) * n, tuple(range(n)), score)
    scores = tuple(float(score(model)) for model in models)
    if odd := [index for index, one in enumerate(scores) if not math.isfinite(one)]:
        raise ValueError(f"model {odd[0]} scores {scores[odd[0]]}: leave out models that cannot be scored")
    if method == "weighted":
        weights = proportional(scores)
        return _finished(models, weights, tuple(i for i in range(n) if weights[i]), score, scores)
    best_first = sorted(range(n), key=lambda index: (-scores[index], index))
    members, best, tried = greedy_choice(
        best_first, scores[best_first[0]], lambda some: float(score(average([models[i] for i in some])))
    )
    weights = tuple(1.0 / len(members) if index in members else 0.0 for index in range(n))
    return SoupResult(average([models[i] for i in members]), weights, members, best, scores, tried)


def average(models: Sequence[Model], weights: Sequence[float] | None = None) -> Model:
    """The weighted sum of models (default: their mean) in float64; one model with weight 1 is returned unchanged.

    Raises:
        ValueError: they are not alike: kinds, names or shapes differ.
    """
    weights = [1.0 / len(models)] * len(models) if weights is None else list(weights)
    first = models[0]
    if any(isinstance(model, LoraAdapter) != isinstance(first, LoraAdapter) for model in models):
        raise ValueError("adapters cannot be averaged with other models")
    if isinstance(first, LoraAdapter):
        return first if weights == [1.0] else merge_adapters(models, weights)
    if isinstance(first, Mapping):
        if odd := [i for i, model in enumerate(models) if not _has_names(model, first)]:
            raise ValueError(f"model {odd[0]} has other tensors than model 0")
        return {name: average([model[name] for model in models], weights) for name in first}
    if odd := [i for i, model in enumerate(models) if np.shape(model) != np.shape(first)]:
        raise ValueError(f"model {odd[0]} has shape {np.shape(models[odd[0]])}, model 0 {np.shape(first)}")
    if isinstance(first, torch.Tensor):
        total = torch.zeros(first.shape, dtype=torch.float64, device=first.device)
        for model, weight in zip(models, weights, strict=True):
            total += weight * model.detach().double()
        return total.to(first.dtype)
    return sum(
        (weight * np.asarray(model, dtype=np.float64) for model, weight in zip(models, weights, strict=True)),
        np.zeros(np.shape(first)),
    )


def proportional(scores: Sequence[float]) -> tuple[float, ...]:
    """Normalise scores to weights that sum to 1.

    Raises:
        ValueError: a negative score, or nothing but zeros.
    """
    total = math.fsum(scores)
    if min(scores) < 0 or total <= 0:
        raise ValueError("weights in proportion to scores need scores >= 0, one above: pass accuracy or 1 / perplexity")
    return tuple(score / total for score in scores)


def _finished(
    models: Sequence[Model],
    weights: tuple[float, ...],
    members: tuple[int, ...],
    score: Callable[[Model], float],
    scores: tuple[float, ...] = (),
) -> SoupResult:
    made = average([models[i] for i in members], [weights[i] for i in members])
    return SoupResult(made, weights, members, float(score(made)), scores)


def _has_names(model: Model, first: Mapping[str, Any]) -> bool:
    return isinstance(model, Mapping) and model.keys() == first.keys()
