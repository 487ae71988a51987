"""LoRA adapters as plain tensors: read and written in PEFT's format, and added to a base model without PEFT."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.modeling.base import ADAPTER_CONFIG, ADAPTER_WEIGHTS, check_safetensors
from capibara_assets.modeling.quantised import is_quantised, merged
from capibara_assets.storage.jsonfiles import write_bytes_atomic, write_json_atomic

_PREFIX = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True)
class LoraAdapter:
    """One LoRA adapter.

    Attributes:
        config: PEFT's `adapter_config.json`.
        tensors: PEFT's names (`base_model.model.<module>.lora_A.weight`) to tensors; A is (r, in), B is (out, r).
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Names of the adapted modules, as the base model spells them, sorted."""
        return tuple(sorted(name[len(_PREFIX) : -len(_A)] for name in self.tensors if name.endswith(_A)))

    def a(self, module: str) -> Tensor:
        """The down-projection of a module, (r, in)."""
        return self.tensors[f"{_PREFIX}{module}{_A}"]

    def b(self, module: str) -> Tensor:
        """The up-projection of a module, (out, r)."""
        return self.tensors[f"{_PREFIX}{module}{_B}"]

    def scale(self, module: str) -> float:
        """What B @ A is multiplied by: alpha / r, or alpha / sqrt(r) for rsLoRA (arXiv 2312.03732)."""
        rank = _of_pattern(self.config.get("rank_pattern") or {}, module, self.config["r"])
        alpha = _of_pattern(self.config.get("alpha_pattern") or {}, module, self.config["lora_alpha"])
        return float(alpha / math.sqrt(rank)) if self.config.get("use_rslora") else float(alpha / rank)

    def delta(self, module: str) -> Tensor:
        """The change of a module's weight, scale * B @ A: (out, in), float32."""
        return self.scale(module) * (self.b(module).float() @ self.a(module).float())

    def deltas(self) -> dict[str, Tensor]:
        """The change of every adapted module's weight, by module name."""
        return {module: self.delta(module) for module in self.modules}


def read_adapter(folder: Path) -> LoraAdapter:
    """Read an adapter in PEFT's format.

    Raises:
        InputError: a file is missing or damaged, it is not a LoRA adapter, an A without its B, tensors besides
            LoRA pairs, or an option whose delta is not scale * B @ A (DoRA, bias, fully trained modules).
    """
    config_file, weights_file = folder / ADAPTER_CONFIG, folder / ADAPTER_WEIGHTS
    for file in (config_file, weights_file):
        if not file.is_file():
            raise InputError(f"{file} is missing: {folder} is not a LoRA adapter in PEFT's format")
    try:
        config = json.loads(config_file.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"{config_file} is not JSON: {error}") from error
    check_safetensors(weights_file)
    adapter = LoraAdapter(config=config, tensors=load_file(weights_file))
    _check(adapter, config_file)
    return adapter


def write_adapter(adapter: LoraAdapter, folder: Path) -> None:
    """Write an adapter so that `PeftModel.from_pretrained` loads it; the same adapter gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: adapter.tensors[name].detach().contiguous().cpu() for name in sorted(adapter.tensors)}
    # One metadata key only: safetensors writes several in an order that changes from run to run.
    write_bytes_atomic(folder / ADAPTER_WEIGHTS, save(tensors, metadata={"format": "pt"}))
    write_json_atomic(folder / ADAPTER_CONFIG, adapter.config)


@contextmanager
def applied(model: nn.Module, deltas: LoraAdapter | Mapping[str, Tensor], scale: float = 1.0) -> Iterator[nn.Module]:
    """Add weight deltas to a model in place; on leaving, every touched weight has its exact former bits again.

    Args:
        model: the base model (no PEFT wrappers), its weights in any float type.
        deltas: an adapter, or module name -> float32 (out, in).
        scale: factor of all deltas.

    Weights that bitsandbytes keeps in 8 or 4 bits are rounded to as many again: `QuantisedMergeWarning` says so.

    Raises:
        InputError: a module that the model lacks, has no weight, shares its weight with another module, or
            whose shape is another; weights in few bits of a kind that is not known.
    """
    if isinstance(deltas, LoraAdapter):
        deltas = deltas.deltas()
    weights = {module: _weight(model, module, delta) for module, delta in deltas.items()}
    layers = {module: model.get_submodule(module) for module in weights}
    rounded = {module: layer for module, layer in layers.items() if is_quantised(layer)}
    weights = {module: weight for module, weight in weights.items() if module not in rounded}
    originals = {module: weight.detach().clone() for module, weight in weights.items()}
    try:
        with torch.no_grad():
            for module, weight in weights.items():
                delta = deltas[module].to(device=weight.device, dtype=torch.float32)
                if _is_transposed(layers[module]):
                    delta = delta.T
                # Summed in float32 and rounded once, so that a bfloat16 base loses no more than it must.
                weight.copy_(weight.float() + scale * delta)
        with merged(rounded, {module: scale * deltas[module] for module in rounded}):
            yield model
    finally:
        with torch.no_grad():
            for module, original in originals.items():
                weights[module].copy_(original)


def _weight(model: nn.Module, module: str, delta: Tensor) -> nn.Parameter:
    try:
        layer = model.get_submodule(module)
    except AttributeError as error:
        raise InputError(f"the base model has no module {module!r}: the adapter was made for another model") from error
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.ndim != 2:
        raise InputError(f"module {module!r} of the base model has no matrix to add a delta to")
    if is_quantised(layer):  # 4-bit weights lie packed, in another shape
        expected = (layer.out_features, layer.in_features)
    else:
        expected = tuple(reversed(weight.shape)) if _is_transposed(layer) else tuple(weight.shape)
    if tuple(delta.shape) != expected:
        raise InputError(f"module {module!r}: the delta is {tuple(delta.shape)}, the base's weight {expected}")
    sharers = sum(1 for parameters in model.modules() if getattr(parameters, "weight", None) is weight)
    if sharers > 1:
        raise InputError(f"module {module!r} shares its weight (tied embeddings): a delta there would change both")
    return weight


def _is_transposed(layer: nn.Module) -> bool:
    """GPT-2's Conv1D keeps its weight as (in, out)."""
    return type(layer).__name__ == "Conv1D"


def _of_pattern(pattern: Mapping[str, Any], module: str, default: Any) -> Any:
    """PEFT's `rank_pattern`/`alpha_pattern`: keys are module-name suffixes or regular expressions."""
    for key, value in pattern.items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return default


def _check(adapter: LoraAdapter, source: Path) -> None:
    config = adapter.config
    if config.get("peft_type") != "LORA":
        raise InputError(f"{source}: peft_type is {config.get('peft_type')!r}, expected 'LORA'")
    unsupported = [name for name in ("use_dora", "modules_to_save", "lora_bias") if config.get(name)]
    if config.get("bias", "none") != "none":
        unsupported.append("bias")
    if unsupported:
        raise InputError(f"{source}: {', '.join(unsupported)} set: such an adapter is more than scale * B @ A")
    expected = {f"{_PREFIX}{module}{half}" for module in adapter.modules for half in (_A, _B)}
    odd = sorted(expected ^ adapter.tensors.keys())
    if odd or not expected:
        raise InputError(f"{source.parent}: not LoRA pairs only: {', '.join(odd[:5]) or 'no tensors'}")
