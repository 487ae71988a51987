"""Linear combinations of LoRA adapters as one LoRA adapter: of the deltas scale * B @ A, never of A and B apart.

A weighted sum of products is exactly one product of the stacked factors, [w1 s1 B1 | w2 s2 B2] @ [A1; A2]; a smaller
rank is the best one by the SVD of that product, computed from the factors (Eckart and Young 1936), never from the
dense matrix.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import nn

from capibara_assets.errors import InputError
from capibara_assets.modeling import dora
from capibara_assets.modeling.adapters import LoraAdapter, check_pairs, read_adapter

_NAME = "base_model.model.{module}.lora_{half}.weight"
_MAGNITUDE = "base_model.model.{module}.lora_magnitude_vector"
Matrix = NDArray[np.float64]
Factors = tuple[Matrix, Matrix]


@dataclass(frozen=True)
class MergedAdapter(LoraAdapter):
    """An adapter whose delta is a combination of other adapters' deltas.

    Attributes:
        relative_error: Frobenius norm of the truncation error, relative to the exact combination's norm; 0 if exact.
    """

    relative_error: float = 0.0


def merge_adapters(
    adapters: Sequence[LoraAdapter | Path | str],
    weights: Sequence[float],
    rank: int | Mapping[str, int] | None = None,
    *,
    base: nn.Module | None = None,
) -> MergedAdapter:
    """The adapter whose delta is sum_i weights[i] * delta_i, for any ranks, alphas, rsLoRA and target modules.

    The sum is in float64 and ordered by the adapters' content, so it does not depend on their order here. An adapter
    that lacks a module counts as zero there. Where one is a DoRA, so is the result; see `modeling.dora`.

    Args:
        adapters: adapters, or folders in PEFT's format.
        rank: None for the exact sum (ranks add up), else the most that a module may have, one for all or by module.
        base: the model that they were trained on; only needed for DoRA, whose delta depends on it.

    Raises:
        InputError: a folder without a LoRA adapter; an adapter that changes more than its pairs say (fully trained
            layers, biases, fused experts), by name.
        ValueError: no adapter, not one finite weight each, a rank below 1, factors that do not fit each other or
            what the config says; DoRA without a base.
    """
    if not adapters or len(adapters) != len(weights):
        raise ValueError(f"{len(adapters)} adapters need as many weights, at least one, not {len(weights)}")
    if not all(math.isfinite(weight) for weight in weights):
        raise ValueError(f"weights have to be finite: {list(weights)}")
    loaded = [_read(adapter, number) for number, adapter in enumerate(adapters)]
    used = sorted(
        ((adapter, float(weight)) for adapter, weight in zip(loaded, weights, strict=True) if weight != 0.0),
        key=lambda pair: (_content(pair[0]), pair[1]),
    ) or [(loaded[0], 0.0)]
    modules = sorted({module for adapter, _ in used for module in adapter.modules})
    _check_factors([adapter for adapter, _ in used], modules)
    ranks = _ranks(modules, rank)
    config = {**used[0][0].config}
    if any(tuple(modules) != adapter.modules for adapter, _ in used):
        # Named one by one: what selected the modules of one adapter does not select those of all
        config |= {"target_modules": modules, "exclude_modules": None}
        config |= {"layers_to_transform": None, "layers_pattern": None}
    if any(adapter.is_dora for adapter, _ in used):
        return _merged_dora(used, modules, config, ranks, base)
    exact = {module: stacked([(a, w) for a, w in used if module in a.modules], module) for module in modules}
    return from_factors(exact, config, ranks)


def from_factors(
    factors: Mapping[str, Factors], config: Mapping[str, Any], rank: int | Mapping[str, int] | None = None
) -> MergedAdapter:
    """An adapter with scale 1 from (B, A) per module, truncated to the best `rank` where that is smaller.

    Args:
        factors: module -> B (out, r) and A (r, in), float64.
        config: PEFT config to take the rest from (base model, task type, target modules).
    """
    chosen, lost, whole = cut(factors, rank)
    tensors = {}
    for module, (b, a) in chosen.items():
        tensors[_NAME.format(module=module, half="A")] = torch.from_numpy(a.astype(np.float32))
        tensors[_NAME.format(module=module, half="B")] = torch.from_numpy(b.astype(np.float32))
    error = (lost / whole) ** 0.5 if whole > 0 else 0.0
    return MergedAdapter(_settings(config, chosen), tensors, relative_error=error)


def cut(
    factors: Mapping[str, Factors], rank: int | Mapping[str, int] | None
) -> tuple[dict[str, Factors], float, float]:
    """The best factors of at most `rank`, and the squared norms of the truncation error and of the whole."""
    chosen: dict[str, Factors] = {}
    lost = whole = 0.0
    for module, (b, a) in factors.items():
        most = rank[module] if isinstance(rank, Mapping) else rank
        if most is None or most >= len(a):
            chosen[module] = b, a
            whole += float(np.sum((b.T @ b) * (a @ a.T)))
            continue
        chosen[module], singular = truncated(b, a, most)
        lost += float(np.square(singular[most:]).sum())
        whole += float(np.square(singular).sum())
    return chosen, lost, whole


def _settings(config: Mapping[str, Any], factors: Mapping[str, Factors]) -> dict[str, Any]:
    """The config of an adapter with scale 1 and these ranks."""
    ranks = {module: len(a) for module, (_, a) in factors.items()}
    usual = Counter(ranks.values()).most_common(1)[0][0]
    odd = {_pattern(module, ranks): count for module, count in sorted(ranks.items()) if count != usual}
    settings = {
        **config,
        "use_rslora": False,
        "lora_dropout": 0.0,
        "r": usual,
        "lora_alpha": usual,
        "rank_pattern": odd,
        "alpha_pattern": odd,
    }
    return settings | ({"init_lora_weights": True} if isinstance(config.get("init_lora_weights"), str) else {})


def _pattern(module: str, modules: Iterable[str]) -> str:
    """A key of PEFT's patterns, which match ends of names, for this module alone."""
    return f"^{module}" if any(other.endswith(f".{module}") for other in modules) else module


def stacked(parts: Sequence[tuple[LoraAdapter, float]], module: str) -> Factors:
    """B (out, sum of ranks) and A (sum of ranks, in) with B @ A = sum of weight * delta, float64.

    Raises:
        InputError: a DoRA, whose delta is not scale * B @ A.
    """
    if any(adapter.is_dora for adapter, _ in parts):
        raise InputError(f"{module}: an adapter is a DoRA, and its delta depends on the base: see merge_adapters")
    b = [weight * adapter.scale(module) * _array(adapter.b(module)) for adapter, weight in parts]
    return np.concatenate(b, axis=1), np.concatenate([_array(adapter.a(module)) for adapter, _ in parts])


def truncated(b: Matrix, a: Matrix, rank: int) -> tuple[Factors, Matrix]:
    """The best factors of `rank` for b @ a, and all its singular values; signs are fixed, so it is deterministic."""
    with threadpool_limits(limits=1, user_api="blas"):  # more threads may add in another order
        q_b, r_b = np.linalg.qr(b)
        q_a, r_a = np.linalg.qr(a.T)
        left, singular, right = _svd(r_b @ r_a.T)
        rank = min(rank, len(singular))
        left, right = q_b @ left[:, :rank], right[:rank] @ q_a.T
    peaks = np.take_along_axis(left, np.abs(left).argmax(axis=0)[None, :], axis=0)[0]
    signs = np.where(peaks < 0, -1.0, 1.0)
    root = np.sqrt(singular[:rank])
    return (left * (signs * root), right * (signs * root)[:, None]), singular


def _svd(matrix: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """U, singular values and V^T."""
    try:
        left, singular, right = np.linalg.svd(matrix)
    except np.linalg.LinAlgError:
        # LAPACK's divide and conquer gives up on some finite matrices of low rank, QR iteration does not
        left, singular, right = scipy.linalg.svd(matrix, lapack_driver="gesvd")
    return left, singular, right


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


def _merged_dora(
    used: Sequence[tuple[LoraAdapter, float]],
    modules: Sequence[str],
    config: Mapping[str, Any],
    ranks: Mapping[str, int] | None,
    base: nn.Module | None,
) -> MergedAdapter:
    if base is None:
        raise ValueError(
            "an adapter is a DoRA: its change of a weight W is magnitude * (W + scale * B A) / |W + scale * B A| - W, "
            "row by row, which the factors alone do not determine. Give the model: merge_adapters(..., base=model)"
        )
    chosen, tensors = {}, {}
    lost = whole = 0.0
    for module in modules:
        weight = dora.weight_of(base, module)
        exact = dora.summed([(a, w) for a, w in used if module in a.modules], module, weight)
        whole += float(dora.row_squares(weight, exact.rows - 1.0, exact.b, exact.a).sum())
        part, missing, _ = cut({module: (exact.b, exact.a)}, ranks)
        chosen[module], lost = part[module], lost + missing
        a, b, magnitude = dora.expressed(dora.Sum(exact.rows, *part[module]), weight)
        tensors[_NAME.format(module=module, half="A")] = a
        tensors[_NAME.format(module=module, half="B")] = b
        tensors[_MAGNITUDE.format(module=module)] = magnitude
    settings = {**_settings(config, chosen), "use_dora": True}
    return MergedAdapter(settings, tensors, relative_error=(lost / whole) ** 0.5 if whole > 0 else 0.0)


def _read(adapter: LoraAdapter | Path | str, number: int) -> LoraAdapter:
    if not isinstance(adapter, LoraAdapter):
        return read_adapter(Path(adapter), dora=True)
    check_pairs(adapter, f"adapter {number}", dora=True)
    return adapter


def _content(adapter: LoraAdapter) -> str:
    """Digest of the adapter's tensors and scales."""
    digest = sha256()
    for name, tensor in sorted(adapter.tensors.items()):
        raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(raw.numpy())
    digest.update(" ".join(str(adapter.scale(module)) for module in adapter.modules).encode())
    return digest.hexdigest()


def _check_factors(adapters: Sequence[LoraAdapter], modules: Sequence[str]) -> None:
    for module in modules:
        shapes = set()
        for adapter in adapters:
            if module not in adapter.modules:
                continue
            a, b, stated = adapter.a(module), adapter.b(module), adapter.rank(module)
            if a.ndim != 2 or b.ndim != 2 or not a.shape[0] == b.shape[1] == stated:
                raise ValueError(
                    f"{module}: factors B {tuple(b.shape)} and A {tuple(a.shape)} are no product of the rank {stated} "
                    "that the config states"
                )
            shapes.add((b.shape[0], a.shape[1]))
        if len(shapes) > 1:
            raise ValueError(f"{module}: the adapters change weights of different shapes, {sorted(shapes)}")


def _ranks(modules: Sequence[str], rank: int | Mapping[str, int] | None) -> Mapping[str, int] | None:
    if rank is None:
        return None
    ranks = rank if isinstance(rank, Mapping) else dict.fromkeys(modules, rank)
    if missing := [module for module in modules if module not in ranks]:
        raise ValueError(f"no rank is given for module {', '.join(missing)}")
    if low := [module for module in modules if ranks[module] < 1]:
        raise ValueError(f"a rank has to be 1 at least, not {ranks[low[0]]} ({low[0]})")
    return ranks


def _array(tensor: torch.Tensor) -> Matrix:
    return np.asarray(tensor.detach().cpu().double().numpy())
