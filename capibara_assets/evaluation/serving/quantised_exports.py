"""Quantise a merged model to 8 or 4 bits for serving, in the compressed-tensors format of vLLM and Transformers.

int8: one scale per row of a matrix; int4: one per group of 128 weights of a row (64 or 32 where that does not divide
the row, else the whole row); symmetric, packed. Weights are rounded to the nearest, or, with calibration texts, by GPTQ
(Frantar et al. 2022, arXiv 2210.17323): later columns compensate the rounding errors of earlier ones. Embeddings,
norms and the output head are not quantised. Format, scales and packing are the library's.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.modeling.base import Base, load_base

Kind = Literal["int8", "int4"]
KINDS: tuple[Kind, ...] = ("int8", "int4")
_BITS = {"int8": 8, "int4": 4}
_GROUPS = (128, 64, 32)
_DAMPING = 0.01  # of the mean of the Hessian's diagonal, as published
_COLUMNS = 128  # rounded before their errors are carried to the rest of the matrix
_TOKENS = 512  # of a calibration text


def exporter(kind: Kind, texts: Sequence[str] = ()) -> Callable[[Path, Path], Mapping[str, Any]]:
    """A function that quantises the model in its first folder into its second, and returns a description.

    Args:
        texts: calibration texts; none: rounding to the nearest.
    """
    return partial(export, kind=kind, texts=texts)


def export(source: Path, target: Path, *, kind: Kind, texts: Sequence[str] = ()) -> Mapping[str, Any]:
    """Quantise the model in `source` into the new folder `target`.

    Raises:
        InputError: compressed-tensors is not installed, or the model has no matrix to quantise.
    """
    library = _Library()
    base = load_base(source)
    model, layers = base.model, _layers(base.model)
    if not layers:
        raise InputError(f"{source} has no linear layer that could be quantised")
    groups = {leaf: _group([one.in_features for one in own], kind) for leaf, own in _leaves(layers).items()}
    library.apply_quantization_config(model, _config(groups, _BITS[kind]))
    for layer in layers.values():
        scale, zero = _scales(layer.weight.detach(), layer)
        layer.weight_scale.data.copy_(scale)
        layer.weight_zero_point.data.copy_(zero)
    with library.plain(model):
        if texts:
            _calibrate(base, layers, texts)
    library.compress(model, target)
    for path in sorted(source.iterdir()):  # the tokenizer and its like
        if path.is_file() and not (target / path.name).exists() and path.suffix not in (".safetensors", ".md"):
            shutil.copyfile(path, target / path.name)
    return {
        "bits": _BITS[kind],
        "format": "compressed-tensors",
        "rounding": "gptq" if texts else "nearest",
        "calibration_texts": len(texts),
        "layers": len(layers),
        "group_sizes": dict(sorted(groups.items())),
        "bytes": _bytes(target),
        "bytes_before": _bytes(source),
    }


class _Library:
    """The functions of compressed-tensors, an optional dependency that is imported only here."""

    def __init__(self) -> None:
        try:
            self.quantization: Any = import_module("compressed_tensors.quantization")
            self.compressors: Any = import_module("compressed_tensors.compressors")
            self.qparams: Any = import_module("compressed_tensors.quantization.utils").calculate_qparams
        except ImportError as error:
            raise InputError(
                "quantised exports need compressed-tensors: pip install 'capibara-assets[serving]'"
            ) from error

    def apply_quantization_config(self, model: nn.Module, config: Mapping[str, Any]) -> None:
        self.quantization.apply_quantization_config(model, self.quantization.QuantizationConfig(**config))

    @contextmanager
    def plain(self, model: nn.Module) -> Iterator[None]:
        """Let the model compute with its unrounded weights in a block."""
        model.apply(self.quantization.disable_quantization)
        try:
            yield
        finally:
            model.apply(self.quantization.enable_quantization)

    def compress(self, model: Any, target: Path) -> None:
        compressor = self.compressors.ModelCompressor.from_pretrained_model(model)
        compressor.compress_model(model)
        target.mkdir(parents=True)
        model.save_pretrained(target)
        compressor.update_config(str(target))


def _scales(weight: Tensor, layer: Any) -> tuple[Tensor, Tensor]:
    """The library's scales and zero points of a matrix, per row or per group of a row."""
    scheme = layer.quantization_scheme.weights
    size = scheme.group_size if scheme.group_size and scheme.group_size > 0 else weight.shape[1]
    grouped = weight.reshape(weight.shape[0], -1, size)
    qparams: tuple[Tensor, Tensor] = _Library().qparams(grouped.amin(dim=-1), grouped.amax(dim=-1), scheme)
    return qparams


def _layers(model: nn.Module) -> dict[str, Any]:
    """The linear layers but the output head, by name."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return {name: one for name, one in model.named_modules() if isinstance(one, nn.Linear) and one is not head}


def _leaves(layers: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Last part of the name -> its layers: servers fuse layers by these names and want one scheme for each."""
    leaves: dict[str, list[Any]] = {}
    for name, layer in layers.items():
        leaves.setdefault(name.rpartition(".")[2], []).append(layer)
    return leaves


def _group(widths: Sequence[int], kind: Kind) -> int | None:
    """Weights per scale; None: the whole row."""
    if kind == "int8":
        return None
    return next((size for size in _GROUPS if all(width % size == 0 for width in widths)), None)


def _config(groups: Mapping[str, int | None], bits: int) -> dict[str, Any]:
    by_size: dict[int | None, list[str]] = {}
    for leaf, size in sorted(groups.items()):
        by_size.setdefault(size, []).append(leaf)
    schemes = {}
    for number, (size, leaves) in enumerate(sorted(by_size.items(), key=lambda item: -(item[0] or 0))):
        weights = {
            "num_bits": bits,
            "type": "int",
            "symmetric": True,
            "strategy": "channel" if size is None else "group",
        }
        schemes[f"group_{number}"] = {
            "targets": [f"re:.*[.]{leaf}$" for leaf in leaves],
            "weights": weights if size is None else {**weights, "group_size": size},
        }
    return {"config_groups": schemes, "ignore": ["lm_head"], "quantization_status": "frozen"}


def _calibrate(base: Base, layers: Mapping[str, Any], texts: Sequence[str]) -> None:
    """Round the layers in place, block by block, each on the outputs of the rounded blocks before it."""
    ids = [base.tokenizer(text)["input_ids"][:_TOKENS] for text in texts]
    rows = [torch.tensor([row], device=base.model.device) for row in ids if len(row) > 1]
    if not rows:
        raise InputError("none of the calibration texts has a token")
    blocks: dict[str, dict[str, Any]] = {}
    for name, layer in layers.items():
        blocks.setdefault(".".join(name.split(".")[:3]), {})[name] = layer  # model.layers.<number>
    for own in blocks.values():
        hessians = _hessians(base.model, own, rows)
        for name, layer in own.items():
            layer.weight.data.copy_(rounded(layer.weight.detach(), hessians[name], layer.weight_scale.detach(), layer))


def _hessians(model: Any, layers: Mapping[str, Any], rows: Sequence[Tensor]) -> dict[str, Tensor]:
    """Sums of x x^T over what enters each layer, (in, in) float64."""
    hessians = {
        name: torch.zeros(one.in_features, one.in_features, dtype=torch.float64) for name, one in layers.items()
    }

    def keep(name: str, inputs: tuple[Tensor, ...]) -> None:
        flat = inputs[0].reshape(-1, inputs[0].shape[-1]).double().cpu()
        hessians[name] += flat.T @ flat

    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, name=name: keep(name, inputs))
        for name, layer in layers.items()
    ]
    try:
        with torch.no_grad():
            for ids in rows:
                model.base_model(input_ids=ids, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return hessians


def rounded(weight: Tensor, hessian: Tensor, scale: Tensor, layer: Any) -> Tensor:
    """GPTQ's rounding of a matrix (out, in) to multiples of its scales, each column's error carried to the later ones.

    Args:
        hessian: (in, in), of what enters the layer.
        scale: (out, groups).
    """
    limit = 2 ** (layer.quantization_scheme.weights.num_bits - 1)
    width = weight.shape[1]
    size = width // scale.shape[1]
    left, quantised = weight.double().cpu().clone(), torch.empty_like(weight, dtype=torch.float64, device="cpu")
    damped = hessian + torch.eye(width, dtype=torch.float64) * max(_DAMPING * float(hessian.diagonal().mean()), 1e-12)
    inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(damped)), upper=True)
    scales = scale.double().cpu()
    for start in range(0, width, _COLUMNS):
        end = min(start + _COLUMNS, width)
        errors = torch.zeros(weight.shape[0], end - start, dtype=torch.float64)
        for column in range(start, end):
            step = scales[:, column // size]
            quantised[:, column] = (left[:, column] / step).round().clamp(-limit, limit - 1) * step
            errors[:, column - start] = (left[:, column] - quantised[:, column]) / inverse[column, column]
            left[:, column:end] -= errors[:, column - start, None] * inverse[column, None, column:end]
        left[:, end:] -= errors @ inverse[start:end, end:]
    if not math.isfinite(float(quantised.abs().max())):
        raise InputError("a matrix could not be calibrated: its inputs have no finite second moments")
    return quantised.to(weight.dtype)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
