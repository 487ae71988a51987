"""Combinations of LoRA adapters as LoRA adapters again: on the deltas scale * B @ A, never on A and B apart.

A weighted sum of products is exactly one product of the stacked factors, [w1 s1 B1 | w2 s2 B2] @ [A1; A2]; a smaller
rank is the best one by the SVD of that product, computed from the factors (Eckart and Young 1936), never from the
dense matrix.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from capibara_assets.consensus.geometry import Matrix
from capibara_assets.modeling.adapters import LoraAdapter

_NAME = "base_model.model.{module}.lora_{half}.weight"
Factors = tuple[Matrix, Matrix]


@dataclass(frozen=True)
class MergedAdapter(LoraAdapter):
    """An adapter that stands for a combination of others.

    Attributes:
        relative_error: Frobenius norm of what a smaller rank lost, relative to the exact combination's; 0 if exact.
    """

    relative_error: float = 0.0


def merge_adapters(adapters: Sequence[LoraAdapter], weights: Sequence[float], rank: int | None = None) -> MergedAdapter:
    """The adapter whose delta is sum_i weights[i] * delta_i, for any ranks, alphas, rsLoRA and target modules.

    Args:
        rank: None for the exact sum (ranks add up), else the best approximation of at most this rank per module.

    Raises:
        ValueError: no adapter, or not one weight each.
    """
    if not adapters or len(adapters) != len(weights):
        raise ValueError(f"{len(adapters)} adapters need as many weights, at least one, not {len(weights)}")
    used = [(adapter, weight) for adapter, weight in zip(adapters, weights, strict=True) if weight != 0.0]
    used = used or [(adapters[0], 0.0)]
    modules = sorted({module for adapter, _ in used for module in adapter.modules})
    exact = {module: stacked([(a, w) for a, w in used if module in a.modules], module) for module in modules}
    config = adapters[0].config
    if tuple(modules) != adapters[0].modules:
        config = {**config, "target_modules": modules}
    return from_factors(exact, config, rank)


def from_factors(factors: Mapping[str, Factors], config: Mapping[str, Any], rank: int | None = None) -> MergedAdapter:
    """An adapter with scale 1 out of (B, A) per module, cut to the best `rank` where that is smaller.

    Args:
        factors: module -> B (out, r) and A (r, in), float64.
        config: PEFT config to take the rest from (base model, task type, target modules).
    """
    chosen: dict[str, Factors] = {}
    lost = whole = 0.0
    for module, (b, a) in factors.items():
        if rank is None or rank >= len(a):
            chosen[module] = b, a
            whole += float(np.sum((b.T @ b) * (a @ a.T)))
            continue
        chosen[module], singular = truncated(b, a, rank)
        lost += float(np.square(singular[rank:]).sum())
        whole += float(np.square(singular).sum())
    ranks = {module: len(a) for module, (_, a) in chosen.items()}
    usual = Counter(ranks.values()).most_common(1)[0][0]
    tensors = {}
    for module, (b, a) in chosen.items():
        tensors[_NAME.format(module=module, half="A")] = torch.from_numpy(a.astype(np.float32))
        tensors[_NAME.format(module=module, half="B")] = torch.from_numpy(b.astype(np.float32))
    odd = {module: count for module, count in ranks.items() if count != usual}
    settings = {
        **config,
        "use_rslora": False,
        "lora_dropout": 0.0,
        "r": usual,
        "lora_alpha": usual,
        "rank_pattern": odd,
        "alpha_pattern": odd,
    }
    return MergedAdapter(settings, tensors, relative_error=(lost / whole) ** 0.5 if whole > 0 else 0.0)


def stacked(parts: Sequence[tuple[LoraAdapter, float]], module: str) -> Factors:
    """B (out, sum of ranks) and A (sum of ranks, in) with B @ A = sum of weight * delta, float64."""
    b = [weight * adapter.scale(module) * _array(adapter.b(module)) for adapter, weight in parts]
    return np.concatenate(b, axis=1), np.concatenate([_array(adapter.a(module)) for adapter, _ in parts])


def truncated(b: Matrix, a: Matrix, rank: int) -> tuple[Factors, Matrix]:
    """The best factors of `rank` for b @ a, and all its singular values; signs are fixed, so it is deterministic."""
    q_b, r_b = np.linalg.qr(b)
    q_a, r_a = np.linalg.qr(a.T)
    left, singular, right = np.linalg.svd(r_b @ r_a.T)
    rank = min(rank, len(singular))
    left, right = q_b @ left[:, :rank], right[:rank] @ q_a.T
    peaks = np.take_along_axis(left, np.abs(left).argmax(axis=0)[None, :], axis=0)[0]
    signs = np.where(peaks < 0, -1.0, 1.0)
    root = np.sqrt(singular[:rank])
    return (left * (signs * root), right * (signs * root)[:, None]), singular


def inner_products(adapters: Sequence[LoraAdapter]) -> Matrix:
    """(n, n) inner products of the adapters' whole deltas, from the factors: <B A, B' A'> = sum (B^T B') * (A A'^T)."""
    n = len(adapters)
    gram = np.zeros((n, n))
    for module in sorted({module for adapter in adapters for module in adapter.modules}):
        holders = [i for i in range(n) if module in adapters[i].modules]
        factors = {i: stacked([(adapters[i], 1.0)], module) for i in holders}
        for i in holders:
            for j in holders:
                if j >= i:
                    (b, a), (d, c) = factors[i], factors[j]
                    gram[i, j] += np.sum((b.T @ d) * (a @ c.T))
    return np.triu(gram) + np.triu(gram, 1).T


def _array(tensor: torch.Tensor) -> Matrix:
    return np.asarray(tensor.detach().cpu().double().numpy())
