"""Merge methods with sparse task vectors: part of each model's difference from the base is added to it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from capibara_assets.consensus.merging import ranking_kernels as ranking
from capibara_assets.consensus.merging import sparsification_kernels as kernels
from capibara_assets.consensus.merging.element_kernels import load
from capibara_assets.consensus.merging.interface import Merge, Recipe
from capibara_assets.consensus.merging.masks import (
    SORTED,
    Mask,
    at_random,
    by_rank,
    largest,
    most_variable,
    without_extremes,
)
from capibara_assets.consensus.merging.stack import Block, Ranked, Stack, order_statistics


def ties(stack: Stack, recipe: Recipe) -> Merge:
    """Differences trimmed to their largest entries, a sign elected per entry, those that agree merged (Yadav 2023)."""
    masks = [largest(stack, model, density) for model, density in enumerate(recipe.density)]
    return _sparse(stack, recipe, masks, elect=True)


def breadcrumbs(stack: Stack, recipe: Recipe) -> Merge:
    """Differences without their smallest entries and without the outliers (Davari and Belilovsky 2023)."""
    return _sparse(stack, recipe, _breadcrumbs(stack, recipe), elect=False)


def breadcrumbs_ties(stack: Stack, recipe: Recipe) -> Merge:
    """Breadcrumbs, then TIES' election of signs."""
    return _sparse(stack, recipe, _breadcrumbs(stack, recipe), elect=True)


def dare_linear(stack: Stack, recipe: Recipe) -> Merge:
    """Differences with entries dropped at random and the others rescaled (Yu et al. 2024)."""
    return _sparse(stack, recipe, _dropped(stack, recipe), elect=False)


def dare_ties(stack: Stack, recipe: Recipe) -> Merge:
    """DARE, then TIES' election of signs."""
    return _sparse(stack, recipe, _dropped(stack, recipe), elect=True)


def della(stack: Stack, recipe: Recipe) -> Merge:
    """Differences with entries dropped at random, the smaller of a row the likelier, then TIES (Deep et al. 2024)."""
    masks = [
        by_rank(stack, recipe.seed, model, density, epsilon)
        for model, (density, epsilon) in enumerate(zip(recipe.density, recipe.epsilon, strict=True))
    ]
    return _sparse(stack, recipe, masks, elect=True, blocks=stack.row_blocks())


def sce(stack: Stack, recipe: Recipe) -> Merge:
    """Select the most variable entries, calculate weights by squared change, erase minorities (Wan et al. 2024)."""
    mask = most_variable(stack, recipe.select_topk)

    def squared(start: int, stop: int) -> Any:
        return kernels.squares(*stack.inputs, mask(start, stop), start, stop)

    means = sum(stack.scan(squared), np.zeros(len(stack.parts))) / max(1, stack.size)
    weights = np.full(len(means), 1.0 / len(means)) if means.sum() < 1e-6 else means / means.sum()

    def emit(start: int, stop: int, out: Any) -> None:
        kernels.add_elected(*stack.inputs, mask(start, stop), weights, start, stop, out)

    return Merge(stack.blocks(), emit)


def arcee_fusion(stack: Stack, recipe: Recipe) -> Merge:
    """The model's entries where they matter, else the base's: |change| × divergence of the row (Arcee 2024).

    What matters is above median + 1.5 × interquartile range over all entries (mergekit samples a million).
    """
    divergence = np.concatenate(list(stack.scan(lambda a, b: _divergence(stack, a, b), stack.row_blocks())))
    places = [int(np.float32(q) * np.float32(stack.size - 1)) for q in (0.25, 0.5, 0.75)]
    if stack.size <= SORTED:
        # Rounding makes the divergence of rows that hardly changed negative, and so their importance
        ranked = Ranked(ranking.IMPORTANCE, 0, divergence)
        values = np.empty(stack.size, np.float32)
        ranking.measures(*ranked.arguments(stack), 0, stack.size, values)
        values.sort()
        q1, median, q3 = values[places]
    else:
        ranked = Ranked(ranking.IMPORTANCE, 0, np.maximum(divergence, np.float32(0)))
        q1, median, q3 = (np.float32(statistic.value) for statistic in order_statistics(stack, ranked, places))
    least = np.float32(median + np.float32(1.5) * (q3 - q1))
    arguments = ranked.arguments(stack)

    def emit(start: int, stop: int, out: Any) -> None:
        importance = np.empty(stop - start, np.float32)
        ranking.measures(*arguments, start, stop, importance)
        marks = (importance >= least).astype(np.uint8)[None]
        one = np.ones(1)
        kernels.add_sparse(*stack.inputs, marks, one, one, False, False, 1.0, start, stop, out)

    return Merge(stack.blocks(), emit)


def _sparse(
    stack: Stack, recipe: Recipe, masks: Sequence[Mask], *, elect: bool, blocks: Sequence[Block] | None = None
) -> Merge:
    """Base plus the masked differences, each rescaled to its former L1 norm if the options say so."""
    blocks = stack.blocks() if blocks is None else blocks
    weights = np.array(recipe.weights, np.float64)
    scales = np.ones(len(weights))
    if recipe.rescale:
        scales = np.array(
            [
                1.0 if density >= 1.0 else _regained(stack, model, masks[model], blocks)
                for model, density in enumerate(recipe.density)
            ]
        )

    def emit(start: int, stop: int, out: Any) -> None:
        marks = np.stack([mask(start, stop) for mask in masks])
        factors = (elect, recipe.normalize, recipe.lambda_)
        kernels.add_sparse(*stack.inputs, marks, scales, weights, *factors, start, stop, out)

    return Merge(blocks, emit)


def _regained(stack: Stack, model: int, mask: Mask, blocks: Sequence[Block]) -> float:
    """Factor that gives the masked difference the L1 norm of the whole difference."""
    address, kind = stack.addresses[model], stack.kinds[model]

    def sums(start: int, stop: int) -> Any:
        return np.array(kernels.kept_mass(address, kind, *stack.origin, start, stop, mask(start, stop)))

    before, after = sum(stack.scan(sums, blocks), np.zeros(2))
    if before < 1e-7 or after < 1e-7 or not np.isfinite(before + after):  # not finite: named where blocks are made
        return 1.0
    return float(before / after)


def _breadcrumbs(stack: Stack, recipe: Recipe) -> list[Mask]:
    return [
        without_extremes(stack, model, density, gamma)
        for model, (density, gamma) in enumerate(zip(recipe.density, recipe.gamma, strict=True))
    ]


def _dropped(stack: Stack, recipe: Recipe) -> list[Mask]:
    return [at_random(stack, recipe.seed, model, density) for model, density in enumerate(recipe.density)]


def _divergence(stack: Stack, start: int, stop: int) -> Any:
    """Kullback–Leibler divergence of each row's softmax, model from base, float32."""
    model, base = np.empty(stop - start, np.float32), np.empty(stop - start, np.float32)
    load(stack.addresses[0], stack.kinds[0], start, stop - start, model)
    load(*stack.origin, start, stop - start, base)
    p, q = (torch.softmax(torch.from_numpy(part).reshape(-1, stack.columns), -1) + 1e-8 for part in (model, base))
    return (p * torch.log(p / q)).sum(-1).numpy()
