"""Attestation of one adapter before it is used: its digest, and whether it fits the model and is finite."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, adapter_files
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from capibara_assets.storage.digests import combine, sha256_bytes, sha256_file

Shapes = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Attested:
    """Result of attesting one adapter.

    Attributes:
        problems: in words; empty for a sound adapter.
        norm: Frobenius norm of all weight changes together; None where there are problems.
    """

    problems: tuple[str, ...]
    norm: float | None


def adapter_digest(folder: Path) -> str:
    """SHA-256 over names and bytes of an adapter's config and weights, without manifests, curves and logs.

    Raises:
        InputError: one of the two files is missing.
    """
    files = {name: folder / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}
    for file in files.values():
        if not file.is_file():
            raise InputError(f"{file} is missing: {folder} is not a LoRA adapter in PEFT's format")
    return combine({name: sha256_file(file) for name, file in files.items()})


def digest_of(adapter: LoraAdapter) -> str:
    """The `adapter_digest` of an adapter in memory, as its files would have it."""
    return combine({name: sha256_bytes(content) for name, content in adapter_files(adapter)})


def attest(adapter: LoraAdapter, shapes: Shapes) -> Attested:
    """Check an adapter against the modules it must change: names, shapes, ranks, finite numbers.

    Args:
        shapes: module name -> (out, in) of the weights that have to be adapted, no more and no fewer.
    """
    problems = [*_structure_problems(adapter, shapes)]
    bad = sorted(name for name, tensor in adapter.tensors.items() if not bool(torch.isfinite(tensor).all()))
    if bad:
        problems.append(f"not finite: {len(bad)} of {len(adapter.tensors)} tensors hold NaN or Inf, first {bad[0]}")
        return Attested(tuple(problems), norm=None)
    if problems:
        return Attested(tuple(problems), norm=None)
    norm = delta_norm(adapter)
    if not math.isfinite(norm):
        return Attested(("not finite: the weight change overflows float64",), norm=None)
    return Attested((), norm=norm)


def delta_norm(adapter: LoraAdapter) -> float:
    """Frobenius norm of all weight changes together, from the factors alone: ||BA||^2 = <B'B, AA'>.

    Infinity or NaN where float64 overflows.
    """
    total = 0.0
    for module in adapter.modules:
        a, b = adapter.a(module).double(), adapter.b(module).double()
        total += adapter.scale(module) ** 2 * float(((b.T @ b) * (a @ a.T)).sum())
    return float(max(total, 0.0) ** 0.5)


def module_shapes(model: nn.Module, modules: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """(out, in) of the named modules' deltas; names that the model lacks are left out."""
    shapes: dict[str, tuple[int, int]] = {}
    for name, layer in model.named_modules():
        if name in modules and isinstance(weight := getattr(layer, "weight", None), nn.Parameter) and weight.ndim == 2:
            first, second = weight.shape
            shapes[name] = (second, first) if type(layer).__name__ == "Conv1D" else (first, second)
    return shapes


def _structure_problems(adapter: LoraAdapter, shapes: Shapes) -> list[str]:
    missing, unknown = sorted(shapes.keys() - set(adapter.modules)), sorted(set(adapter.modules) - shapes.keys())
    problems = []
    if missing:
        problems.append(f"modules missing: {_some(missing)}")
    if unknown:
        problems.append(f"modules that are not to be adapted: {_some(unknown)}")
    for module in sorted(shapes.keys() & set(adapter.modules)):
        a, b = tuple(adapter.a(module).shape), tuple(adapter.b(module).shape)
        if len(a) != 2 or len(b) != 2 or a[0] != b[1] or (b[0], a[1]) != tuple(shapes[module]):
            problems.append(f"{module}: A is {a}, B is {b}, the weight is {tuple(shapes[module])}")
            break
        if not 1 <= a[0] <= min(shapes[module]):
            problems.append(f"{module}: rank {a[0]} is beyond the weight {tuple(shapes[module])}")
            break
    return problems


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
