"""Exact weighted sums of DoRA adapters as one DoRA adapter (Liu et al. 2024, arXiv 2402.09353).

A DoRA turns a weight W (out, in) into D (W + s B A), with the diagonal D = magnitude / |W + s B A| row by row.
Its change is (D - 1) W + D s B A, so that a weighted sum of changes is

    sum_i w_i delta_i = (C - 1) W + P,    C = 1 + sum_i w_i (D_i - 1),    P = sum_i w_i D_i s_i B_i A_i,

and W + that sum = C (W + C^-1 P): again a DoRA, with factors of C^-1 P and the magnitude C |W + C^-1 P|. A plain LoRA
has D = 1. Norms of rows come from the factors and W; no dense change is formed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, is_transposed
from capibara_assets.modeling.quantised import is_quantised

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_LEAST = 1e-6  # of a row's factor: below it the merged row has no share of the base, which DoRA cannot express
_ROWS = 1024  # of a base's weight in float64 at a time


@dataclass(frozen=True)
class Sum:
    """A weighted sum of changes as C (out,) and the factors of P: B (out, r), A (r, in), float64."""

    rows: Vector
    b: Matrix
    a: Matrix


def summed(parts: Sequence[tuple[LoraAdapter, float]], module: str, weight: torch.Tensor) -> Sum:
    """The weighted sum of the changes of one module by DoRA and plain adapters.

    Raises:
        ValueError: a row of some W + s B A is zero, which no magnitude rescales; the sum cancels a row of W.
    """
    rows = np.ones(len(weight))
    left, right = [], []
    for adapter, share in parts:
        a = _array(adapter.a(module))
        b = adapter.scale(module) * _array(adapter.b(module))
        if adapter.is_dora:
            norms = np.sqrt(row_squares(weight, np.ones(len(weight)), b, a))
            if not (norms > 0).all():
                raise ValueError(f"{module}: row {int(norms.argmin())} of the weight with its LoRA is zero: no DoRA")
            factors = _array(adapter.magnitude(module)) / norms
            rows += share * (factors - 1.0)
            b = factors[:, None] * b
        left.append(share * b)
        right.append(a)
    if np.abs(rows).min() < _LEAST:
        raise ValueError(
            f"{module}: these weights cancel row {int(np.abs(rows).argmin())} of the base, which a DoRA "
            "cannot express: choose other weights"
        )
    return Sum(rows, np.concatenate(left, axis=1), np.concatenate(right))


def expressed(total: Sum, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A, B and magnitude (float32, scale 1) of the DoRA that changes the weight by (C - 1) W + P."""
    a, b = total.a.astype(np.float32), (total.b / total.rows[:, None]).astype(np.float32)
    norms = np.sqrt(row_squares(weight, np.ones(len(weight)), b.astype(np.float64), a.astype(np.float64)))
    return torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy((total.rows * norms).astype(np.float32))


def row_squares(weight: torch.Tensor, factors: Vector, b: Matrix, a: Matrix) -> Vector:
    """Squared norms of the rows of factors * W + B A, (out,), from W, the factors and products with A alone."""
    inner = a @ a.T
    squares = np.empty(len(weight))
    for start in range(0, len(weight), _ROWS):
        part = slice(start, start + _ROWS)
        w, f, left = _array(weight[part]), factors[part], b[part]
        cross = np.einsum("or,or->o", w @ a.T, left)
        squares[part] = f**2 * np.square(w).sum(axis=1) + 2 * f * cross + np.einsum("or,or->o", left @ inner, left)
    return np.maximum(squares, 0.0)


def weight_of(base: nn.Module, module: str) -> torch.Tensor:
    """A module's weight as (out, in).

    Raises:
        InputError: there is none, or it is quantised.
    """
    try:
        layer = base.get_submodule(module)
    except AttributeError as error:
        raise InputError(f"the base model has no module {module!r}: the adapter was made for another model") from error
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.ndim != 2 or is_quantised(layer):
        raise InputError(
            f"module {module!r} of the base model has no matrix in a float type: load the base unquantised"
        )
    return weight.detach().T if is_transposed(layer) else weight.detach()


def _array(tensor: torch.Tensor) -> Matrix:
    return np.asarray(tensor.detach().cpu().double().numpy())
