"""Weighted sums of experts' deltas, one delta per module.

Task arithmetic (Ilharco et al. 2023) sums them; TIES (Yadav et al. 2023) trims each, elects a sign per entry and sums
what agrees; DARE (Yu et al. 2024) drops entries at random and scales the others up, before a plain sum or TIES'
election, as in `merge_checkpoints`. "svd" is the exact sum cut to its best low rank. Weights are not normalised,
because a common scale is searched as well.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from capibara_assets.consensus.merging.element_kernels import F32
from capibara_assets.consensus.merging.interface import Recipe
from capibara_assets.consensus.merging.sparsification import dare_linear, dare_ties, ties
from capibara_assets.consensus.merging.stack import MappedTensor, Stack
from capibara_assets.consensus.recipe import MergeMethod, MergeRecipe
from capibara_assets.domains import Domain
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.low_rank import merge_adapters

_SPARSE = {"ties": ties, "dare_linear": dare_linear, "dare_ties": dare_ties}


@dataclass(frozen=True)
class DeltaSum:
    """The weighted sum of the experts' deltas.

    Attributes:
        deltas: module -> (out, in), float32.
        relative_error: Frobenius norm of the error of a lower rank, relative to the exact sum's; 0 without a cut.
    """

    deltas: dict[str, Tensor]
    relative_error: float = 0.0


def sum_experts(
    method: MergeMethod,
    experts: Mapping[Domain, LoraAdapter],
    weights: Mapping[Domain, float],
    recipe: MergeRecipe,
) -> DeltaSum:
    """The experts' weighted sum by `method`.

    The entries that DARE drops depend on the recipe's seed, the module and the expert's position alone: to leave an
    expert out, set its weight to 0.
    """
    if method == "svd":
        cut = merge_adapters(list(experts.values()), [weights[domain] for domain in experts], recipe.svd_rank)
        return DeltaSum(cut.deltas(), cut.relative_error)
    deltas = {}
    for module in sorted({module for adapter in experts.values() for module in adapter.modules}):
        holders = {domain: adapter.delta(module) for domain, adapter in experts.items() if module in adapter.modules}
        parts, shares = list(holders.values()), [weights[domain] for domain in holders]
        if method in _SPARSE:
            deltas[module] = sparse_sum(method, module, parts, shares, recipe)
        else:
            deltas[module] = plain_sum(parts, shares)
    return DeltaSum(deltas)


def plain_sum(parts: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """sum_i weights[i] * parts[i], left to right, float32."""
    total = weights[0] * parts[0]
    for weight, part in zip(weights[1:], parts[1:], strict=True):
        total += weight * part
    return total


def sparse_sum(
    method: str, module: str, parts: Sequence[Tensor], weights: Sequence[float], recipe: MergeRecipe
) -> Tensor:
    """Sum deltas by `ties`, `dare_linear` or `dare_ties`, without averaging; DARE restores the L1 norm."""
    density = recipe.ties_density if method == "ties" else recipe.dare_density
    options = Recipe(
        weights=tuple(weights),
        density=(density,) * len(parts),
        normalize=False,
        rescale=method != "ties",
        seed=recipe.seed,
    )
    arrays = [np.ascontiguousarray(part.numpy(), np.float32) for part in parts]
    nothing = np.zeros_like(arrays[0])  # the base, which deltas are differences from
    out = np.empty(arrays[0].size, np.float32)
    with ThreadPoolExecutor(1) as executor:
        stack = Stack(module, nothing.shape, tuple(map(_part, arrays)), _part(nothing), executor)
        merge = _SPARSE[method](stack, options)
        for start, stop in merge.blocks:
            merge.emit(start, stop, out[start:stop])
    return torch.from_numpy(out.reshape(nothing.shape))


def _part(array: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> MappedTensor:
    return MappedTensor("memory", array.reshape(-1).view(np.uint8), F32)
