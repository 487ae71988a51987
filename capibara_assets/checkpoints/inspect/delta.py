"""Differences of two LoRA adapters' weight changes scale * B @ A, computed from the factors."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from capibara_assets.checkpoints.content import Content, to_bytes, to_numpy
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.files import ADAPTER_CONFIG
from capibara_assets.modeling.lora.adapter_configs import lora_problem
from capibara_assets.storage.jsonfiles import foreign_object

_A = re.compile(r"^(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<embedding>embedding_)?A(?P<rest>(?:\.[^./]+)*)$")

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class DeltaDiff:
    """Difference of one module's weight change (out, in). Distances are None if a factor is not finite."""

    module: str
    """Name in the base model."""
    ranks: tuple[int, int]
    scales: tuple[float, float]
    l2: float | None
    """Frobenius norm of the difference."""
    relative: float | None
    """`l2` over the norm of A's change; None where that is 0."""
    cosine: float | None
    """None where a change is 0."""
    norms: tuple[float | None, float | None]


def deltas(
    a: Content, b: Content, equal: Collection[str], names: tuple[str, str] = ("A", "B")
) -> tuple[tuple[DeltaDiff, ...], tuple[str, ...]]:
    """(differing weight changes, by module; notes on what could not be compared).

    Args:
        equal: names of equal tensors; a module whose factors and scale are equal is left out.
        names: the user's names of the two sides, for messages.

    Raises:
        InputError: an adapter_config.json that is not JSON, or not that of a LoRA (`lora_problem`).
    """
    pairs = {name: pair for name in sorted(a.tensors.keys() & b.tensors.keys()) if (pair := _pair(name, a, b))}
    if not pairs:
        return (), ()
    configs = []
    for content, called in zip((a, b), names, strict=True):
        if ADAPTER_CONFIG not in content.files:
            return (), (f"weight changes are not compared: {called} has no {ADAPTER_CONFIG}, so its scale is unknown",)
        configs.append(_config(to_bytes(content.files[ADAPTER_CONFIG]), called))
    if any(config.get("use_dora") for config in configs):
        return (), ("weight changes are not compared: DoRA's are more than scale * B @ A",)
    differing = list[DeltaDiff]()
    for name_a, (module, name_b) in pairs.items():
        scales = tuple(LoraAdapter(config, {}).scale(module) for config in configs)
        if name_a in equal and name_b in equal and scales[0] == scales[1]:
            continue
        factors = [
            tuple(to_numpy(content.tensors[name]).astype(np.float64) for name in (name_a, name_b)) for content in (a, b)
        ]
        if all(_fits(*pair) for pair in factors) and _outer(*factors[0]) == _outer(*factors[1]):
            differing.append(_difference(module, factors[0], factors[1], (scales[0], scales[1])))
    return tuple(differing), ()


def _pair(name: str, a: Content, b: Content) -> tuple[str, str] | None:
    """(module, name of B) for the name of an A whose B both sides have; None for other names."""
    match = _A.match(name)
    if match is None:
        return None
    other = f"{name[: match.start('rest') - 1]}B{match['rest']}"
    return (match["module"], other) if other in a.tensors and other in b.tensors else None


def _difference(module: str, a: tuple[Matrix, ...], b: tuple[Matrix, ...], scales: tuple[float, float]) -> DeltaDiff:
    """The difference from the factors A (r, in) and B (out, r) of both sides.

    It is a product of stacked factors, [s2 B2, -s1 B1] [A2; A1], and its norm that of the product of their triangular
    factors (QR), which is accurate to float64's rounding. The difference of Gram products,
    |D2|^2 - 2 <D1, D2> + |D1|^2, would cancel and lose half of the digits of two nearly equal adapters.
    """
    ranks = (a[0].shape[0], b[0].shape[0])
    if not all(np.isfinite(factor).all() for factor in (*a, *b)):
        return DeltaDiff(module, ranks, scales, None, None, None, (None, None))
    with np.errstate(over="ignore", invalid="ignore"):
        left = _triangle(np.hstack([scales[1] * b[1], -scales[0] * a[1]]))
        right = _triangle(np.vstack([b[0], a[0]]).T)
        l2 = float(np.linalg.norm(left @ right.T))
        norms = tuple(abs(scale) * _norm(*side) for scale, side in zip(scales, (a, b), strict=True))
        inner = scales[0] * scales[1] * float(np.sum((a[1].T @ b[1]) * (a[0] @ b[0].T)))
    if not all(map(math.isfinite, (l2, inner, *norms))):
        return DeltaDiff(module, ranks, scales, None, None, None, (None, None))
    cosine = max(-1.0, min(1.0, inner / norms[0] / norms[1])) if all(norms) else None
    return DeltaDiff(module, ranks, scales, l2, l2 / norms[0] if norms[0] else None, cosine, (norms[0], norms[1]))


def _triangle(matrix: Matrix) -> Matrix:
    """R of the QR decomposition: |matrix x| = |R x| for every x."""
    return cast("Matrix", np.linalg.qr(matrix, mode="r"))


def _norm(a: Matrix, b: Matrix) -> float:
    """|B A|: sqrt(<B'B, AA'>)."""
    return math.sqrt(max(0.0, float(np.sum((b.T @ b) * (a @ a.T)))))


def _fits(a: Matrix, b: Matrix) -> bool:
    return a.ndim == b.ndim == 2 and a.shape[0] == b.shape[1]


def _outer(a: Matrix, b: Matrix) -> tuple[int, int]:
    return b.shape[0], a.shape[1]


def _config(data: bytes, called: str) -> dict[str, Any]:
    where = f"{ADAPTER_CONFIG} of {called}"
    config = foreign_object(data, where)
    if problem := lora_problem(config):
        raise InputError(f"{where}: {problem}")
    return config
