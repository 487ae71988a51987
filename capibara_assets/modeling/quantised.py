"""Bases quantised to 8 or 4 bits by bitsandbytes: loading, saving, and merging deltas with a warning about the loss.

LLM.int8 (Dettmers et al. 2022, arXiv 2208.07339) and NF4 (Dettmers et al. 2023, arXiv 2305.14314) round a weight to few
levels per row or block. Base + delta is rounded to such levels again: a delta below half a step is lost, others are
off by up to half a step. An adapter that is kept beside its base loses nothing.
"""

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.modeling.precision import Precision

_KINDS = {"Params4bit": "4", "Int8Params": "8"}
_PLAIN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class QuantisedLoading:
    """Settings with which Transformers quantises a base while it reads it.

    Attributes:
        arguments: further arguments of `from_pretrained`.
    """

    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, kind: Literal["int8", "nf4"], device: torch.device, precision: Precision) -> "QuantisedLoading":
        """Settings for LLM.int8, or NF4 with quantised scales; matrices are multiplied in `precision`.

        Raises:
            InputError: bitsandbytes is not installed.
        """
        from transformers import BitsAndBytesConfig

        _bitsandbytes()
        compute = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        config = (
            BitsAndBytesConfig(load_in_8bit=True)
            if kind == "int8"
            else BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=compute,
            )
        )
        return cls({"quantization_config": config, "device_map": {"": device}})

    def keep_differentiable(self, model: nn.Module) -> None:
        """Keep the weights in a layout that has a backward pass.

        On a CPU with AVX-512 a forward pass without gradients rearranges NF4 weights in place for inference; the
        operator for that layout has no backward pass, so training after a validation would silently learn nothing
        below the first such layer.
        """
        for layer in model.modules():
            if hasattr(layer, "support_avx512bf16_for_cpu"):
                layer.support_avx512bf16_for_cpu = False


class QuantisedMergeWarning(UserWarning):
    """A delta was merged into quantised weights, and part of it was lost to rounding."""


def is_quantised(layer: nn.Module) -> bool:
    """Whether bitsandbytes keeps this layer's weight in 4 or 8 bits.

    Raises:
        InputError: the weight is quantised in an unknown way; adding to it would give nonsense.
    """
    weight = getattr(layer, "weight", None)
    if type(weight).__name__ in _KINDS:
        return True
    if isinstance(weight, Tensor) and weight.dtype not in _PLAIN:
        raise InputError(
            f"a weight of the base model is kept as {weight.dtype} by {type(layer).__name__}: nothing can be merged "
            "into it; merge into the model that it was quantised from"
        )
    return False


@contextmanager
def merged(layers: Mapping[str, nn.Module], deltas: Mapping[str, Tensor]) -> Iterator[None]:
    """Context in which deltas are added to quantised layers in place; afterwards every layer has its former bits.

    Warns once per call (`QuantisedMergeWarning`).

    Args:
        layers: module name -> layer, each one `is_quantised`.
        deltas: module name -> delta (out, in), float32.

    Raises:
        InputError: bitsandbytes is not installed.
    """
    if not layers:
        yield
        return
    bits = sorted({_KINDS[type(layer.weight).__name__] for layer in layers.values()})
    warnings.warn(
        f"merging into {len(layers)} weights that bitsandbytes keeps in {' and '.join(bits)} bits loses: base + change "
        "is rounded again, and what is smaller than half a step of that is gone; merge into the model from before "
        "quantisation, or keep the adapter beside the base",
        QuantisedMergeWarning,
        stacklevel=5,  # past `merged`, `applied` and contextlib's frames: the caller of the merge
    )
    former = {module: (layer.weight, getattr(layer, "state", None)) for module, layer in layers.items()}
    try:
        for module, layer in layers.items():
            weight = plain_weight(layer)
            _replace(layer, weight + deltas[module].to(device=weight.device, dtype=torch.float32))
        yield
    finally:
        for module, (weight, state) in former.items():
            layers[module].weight = weight
            if state is not None:
                layers[module].state = state


def save_dequantised(model: Any, out: Path) -> None:
    """Write a quantised Transformers model with dequantised float32 weights, the very ones that it computes with.

    Transformers cannot save a model that it quantised while loading; and so the written weights of a merge are those
    that were measured.
    """
    state = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    for module, layer in model.named_modules():
        if hasattr(layer, "weight") and is_quantised(layer):
            beside = (f"{module}.weight.", f"{module}.SCB", f"{module}.weight_format")  # scales, and how they lie
            state = {name: value for name, value in state.items() if not name.startswith(beside)}
            state[f"{module}.weight"] = plain_weight(layer)
    save_torch_state_dict(state, out, shared_tensors_to_discard=list(model.all_tied_weights_keys))
    config = copy.deepcopy(model.config)
    del config.quantization_config
    config.dtype = torch.float32
    config.save_pretrained(out)
    model.generation_config.save_pretrained(out)


def plain_weight(layer: nn.Module) -> Tensor:
    """The dequantised weight of a layer, (out, in), float32."""
    functional = _bitsandbytes().functional
    weight: Any = layer.weight
    if type(weight).__name__ == "Params4bit":
        if getattr(weight.quant_state, "packing_format_for_cpu", False):
            layer.state_dict()  # undoes, in place, the layout for inference on a CPU with AVX-512
        return functional.dequantize_4bit(weight.data, weight.quant_state).float()
    state: Any = layer.state
    scales = weight.SCB if state.SCB is None else state.SCB  # the first forward moves them to the state
    return functional.int8_vectorwise_dequant(weight.data, scales).float()


def _replace(layer: nn.Module, plain: Tensor) -> None:
    """Replace a layer's weight, quantised in the same way."""
    library, weight = _bitsandbytes(), layer.weight
    if type(weight).__name__ == "Params4bit":
        layer.weight = library.nn.Params4bit(
            plain,
            requires_grad=False,
            blocksize=weight.blocksize,
            compress_statistics=weight.compress_statistics,
            quant_type=weight.quant_type,
            quant_storage=weight.quant_storage,
            module=layer,
        ).to(weight.device)
        return
    state: Any = copy.copy(layer.state)
    state.CB = state.SCB = None
    layer.state = state
    layer.weight = library.nn.Int8Params(plain, requires_grad=False, has_fp16_weights=False).to(weight.device)


def _bitsandbytes() -> Any:
    try:
        import bitsandbytes
    except ImportError as error:
        raise InputError("quantised weights (int8, nf4) need bitsandbytes: install the extra `gpu`") from error
    return bitsandbytes
