"""LoRA adapters as plain tensors: reading and writing PEFT's format, and adding deltas to a base model without PEFT."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from capibara_assets.errors import InputError, named
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, check_safetensors
from capibara_assets.modeling.lora.adapter_configs import lora_problem
from capibara_assets.modeling.lora.patterns import fits
from capibara_assets.modeling.quantised import is_quantised, merged
from capibara_assets.storage.foreign import read_by_library, require_plain
from capibara_assets.storage.jsonfiles import read_foreign_object, readable_json, write_bytes_atomic

_PREFIX = "base_model.model."
_A, _B, _MAGNITUDE = ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"
# What PEFT initialises by changing the base's weights: the adapter's delta is then relative to others than the base's
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
_MORE_THAN_LORA = (
    "modules_to_save", "lora_bias", "target_parameters", "trainable_token_indices", "layer_replication",
    "alora_invocation_tokens", "use_qalora", "use_bdlora", "arrow_config", "kasa_config", "monteclora_config",
)  # fmt: skip


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

    def rank(self, module: str) -> int:
        """The rank that the config states for a module."""
        return int(_of_pattern(self.config.get("rank_pattern") or {}, module, self.config["r"]))

    def scale(self, module: str) -> float:
        """The factor of B @ A: alpha / r, or alpha / sqrt(r) for rsLoRA (arXiv 2312.03732)."""
        rank = self.rank(module)
        alpha = _of_pattern(self.config.get("alpha_pattern") or {}, module, self.config["lora_alpha"])
        return float(alpha / math.sqrt(rank)) if self.config.get("use_rslora") else float(alpha / rank)

    @property
    def is_dora(self) -> bool:
        """Whether the change of a weight is more than scale * B @ A (DoRA, arXiv 2402.09353)."""
        return bool(self.config.get("use_dora"))

    def magnitude(self, module: str) -> Tensor:
        """DoRA's norms of a module's rows, (out,)."""
        return self.tensors[f"{_PREFIX}{module}{_MAGNITUDE}"]

    def delta(self, module: str) -> Tensor:
        """The change of a module's weight, scale * B @ A: (out, in), float32.

        Raises:
            InputError: the adapter is a DoRA: its change depends on the base's weights.
        """
        if self.is_dora:
            raise InputError(
                f"{module}: DoRA's change of a weight depends on that weight, so that the adapter alone has no delta: "
                "merge it with merge_adapters(..., base=model), or load it with PEFT"
            )
        return self.scale(module) * (self.b(module).float() @ self.a(module).float())

    def deltas(self) -> dict[str, Tensor]:
        """The change of every adapted module's weight, by module name."""
        return {module: self.delta(module) for module in self.modules}


def read_adapter(folder: Path, *, dora: bool = False) -> LoraAdapter:
    """Read an adapter in PEFT's format.

    Args:
        dora: accept DoRA adapters, too; their `delta` raises.

    Raises:
        InputError: a file is missing or damaged, it is not a LoRA adapter, an A without its B, tensors besides
            LoRA pairs, or an option whose delta is not scale * B @ A (DoRA, bias, experts' fused parameters, fully
            trained modules, initialisations that change the base).
    """
    require_plain(folder)
    config_file, weights_file = folder / ADAPTER_CONFIG, folder / ADAPTER_WEIGHTS
    for file in (config_file, weights_file):
        if not file.is_file():
            raise InputError(f"{file} is missing: {folder} is not a LoRA adapter in PEFT's format")
    config = read_foreign_object(config_file)
    check_safetensors(weights_file)
    if problem := lora_problem(config):
        raise InputError(f"{config_file}: {problem}")
    with read_by_library(f"{weights_file} cannot be read"):
        tensors = load_file(weights_file)
    adapter = LoraAdapter(config=config, tensors=tensors)
    check_pairs(adapter, str(config_file), dora=dora)
    return adapter


def write_adapter(adapter: LoraAdapter, folder: Path) -> None:
    """Write an adapter so that `PeftModel.from_pretrained` loads it; the same adapter gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in adapter_files(adapter):
        write_bytes_atomic(folder / name, content)


def adapter_files(adapter: LoraAdapter) -> Iterator[tuple[str, bytes]]:
    """Names and contents of an adapter's two files in PEFT's format."""
    tensors = {name: adapter.tensors[name].detach().contiguous().cpu() for name in sorted(adapter.tensors)}
    # One metadata key only: safetensors writes several in an order that changes from run to run.
    yield ADAPTER_WEIGHTS, save(tensors, metadata={"format": "pt"})
    yield ADAPTER_CONFIG, readable_json(adapter.config)


def pairs_only(adapter: LoraAdapter) -> LoraAdapter:
    """The adapter's LoRA pairs alone, without fully trained layers."""
    pairs = {name: tensor for name, tensor in adapter.tensors.items() if name.endswith((_A, _B))}
    return LoraAdapter({**adapter.config, "modules_to_save": None}, pairs)


@contextmanager
def applied(model: nn.Module, deltas: LoraAdapter | Mapping[str, Tensor], scale: float = 1.0) -> Iterator[nn.Module]:
    """Context in which weight deltas are added to a model in place; afterwards every weight has its former bits.

    Args:
        model: the base model (no PEFT wrappers), its weights in any float type.
        deltas: an adapter, or module name -> float32 (out, in).
        scale: factor of all deltas.

    Weights that bitsandbytes keeps in 8 or 4 bits are quantised again after the sum (`QuantisedMergeWarning`).

    Raises:
        InputError: a module that the model lacks, has no weight, shares its weight with another module, or
            has another shape; quantised weights of an unknown kind.
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
                if is_transposed(layers[module]):
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
        expected = tuple(reversed(weight.shape)) if is_transposed(layer) else tuple(weight.shape)
    if tuple(delta.shape) != expected:
        raise InputError(f"module {module!r}: the delta is {tuple(delta.shape)}, the base's weight {expected}")
    sharers = sum(1 for parameters in model.modules() if getattr(parameters, "weight", None) is weight)
    if sharers > 1:
        raise InputError(f"module {module!r} shares its weight (tied embeddings): a delta there would change both")
    return weight


def is_transposed(layer: nn.Module) -> bool:
    """Whether a layer stores its weight as (in, out), as GPT-2's Conv1D does."""
    return type(layer).__name__ == "Conv1D"


def _of_pattern(pattern: Mapping[str, Any], module: str, default: Any) -> Any:
    """The value of PEFT's `rank_pattern` or `alpha_pattern` for a module; keys are suffixes or regular expressions."""
    for key, value in pattern.items():
        if fits(rf"(.*\.)?({key})$", module):
            return value
    return default


def check_pairs(adapter: LoraAdapter, source: str, *, dora: bool = False) -> None:
    """Refuse an adapter whose change of the base is more than products of its LoRA pairs.

    Args:
        source: name of the adapter in errors.
        dora: accept DoRA, too.

    Raises:
        InputError: names the options or tensors that are not supported.
    """
    config = adapter.config
    unsupported = [name for name in _MORE_THAN_LORA if config.get(name)]
    if adapter.is_dora and not dora:
        unsupported.insert(0, "use_dora")
    if config.get("bias", "none") != "none":
        unsupported.append("bias")
    if str(config.get("init_lora_weights")).lower().startswith(_CHANGES_BASE):
        unsupported.append(f"init_lora_weights={config['init_lora_weights']}")
    if unsupported:
        raise InputError(f"{source}: {', '.join(unsupported)} set: such an adapter is more than scale * B @ A")
    parts = (_A, _B, _MAGNITUDE) if adapter.is_dora else (_A, _B)
    expected = {f"{_PREFIX}{module}{part}" for module in adapter.modules for part in parts}
    odd = sorted(expected ^ adapter.tensors.keys())
    if odd or not expected:
        raise InputError(f"{source}: not LoRA pairs only: {', '.join(map(named, odd[:5])) or 'no tensors'}")
    for module in adapter.modules:
        a, b = adapter.a(module).shape, adapter.b(module).shape
        if len(a) != 2 or len(b) != 2 or a[0] != b[1]:
            raise InputError(
                f"{source}: of {named(module)} lora_A is {_shape(a)} and lora_B {_shape(b)}, expected (r, in) and "
                "(out, r)"
            )
        if a[0] != adapter.rank(module):
            raise InputError(
                f"{source}: the rank of {named(module)} is {adapter.rank(module)}, its factors have {a[0]}"
            )


def _shape(sizes: torch.Size) -> str:
    return named(str(tuple(sizes)))
