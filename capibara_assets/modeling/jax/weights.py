"""Conversion of weights: Transformers' safetensors to the step's stacked arrays and back, LoRA to PEFT files."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG, GENERATION, weight_files
from capibara_assets.modeling.jax.lora import A, B
from capibara_assets.modeling.jax.sizes import ModelSizes, StepSettings, Table
from capibara_assets.modeling.jax.step import base_table

Tree = dict[str, Any]
_DECODER = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
_MLP = ("gate_proj", "up_proj", "down_proj")
_GLOBAL = {
    "decoder": {"embedding": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"},
    "t5": {
        "embedding": "shared.weight",
        "head": "lm_head.weight",
        **{f"{side}_norm": f"{side}.final_layer_norm.weight" for side in ("encoder", "decoder")},
        **{
            f"{side}_positions": f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            for side in ("encoder", "decoder")
        },
    },
}


def transformers_name(sizes: ModelSizes, name: str, layer: int = 0) -> str:
    """Name of the tensor in a Transformers checkpoint that holds our `name` (of one layer, where it is stacked)."""
    if name in _GLOBAL[sizes.family]:
        return _GLOBAL[sizes.family][name]
    stack, rest = name.split(".", 1)
    module, _, bias = rest.partition(".")
    kind = "bias" if bias else "weight"
    if sizes.family == "decoder":
        if module in _DECODER:
            return f"model.layers.{layer}.{_DECODER[module]}.{kind}"
        return f"model.layers.{layer}.{'mlp' if module in _MLP else 'self_attn'}.{module}.{kind}"
    last = 2 if stack == "decoder" else 1
    place, within = f"{stack}.block.{layer}.layer", module
    if module == "mlp_norm":
        return f"{place}.{last}.layer_norm.weight"
    if module.startswith("w"):
        return f"{place}.{last}.DenseReluDense.{module}.weight"
    index, attention = (1, "EncDecAttention") if module.startswith("cross_") else (0, "SelfAttention")
    within = module.removeprefix("cross_")
    if within == "norm":
        return f"{place}.{index}.layer_norm.weight"
    if within == "positions":
        return f"{place}.0.SelfAttention.relative_attention_bias.weight"
    return f"{place}.{index}.{attention}.{within}.weight"


def _pieces(sizes: ModelSizes, table: Table) -> Iterator[tuple[str, str, int | None]]:
    """(our name, Transformers' name, layer) of every tensor; layer None where nothing is stacked."""
    for name, weight in table.items():
        if name in _GLOBAL[sizes.family]:
            yield name, transformers_name(sizes, name), None
        else:
            for layer in range(weight.size[0]):
                yield name, transformers_name(sizes, name, layer), layer


def from_transformers(sizes: ModelSizes, state: Mapping[str, Any]) -> Tree:
    """The step's float32 arrays from tensors by Transformers' names (numpy, any float dtype).

    Raises:
        InputError: a tensor is missing or has another size.
    """
    import numpy as np

    table = base_table(sizes)
    arrays: Tree = {name: np.empty(weight.size, np.float32) for name, weight in table.items()}
    for name, theirs, layer in _pieces(sizes, table):
        if theirs not in state:
            raise InputError(f"{sizes.name}: the weights have no tensor {theirs}")
        value = np.asarray(state[theirs], np.float32)
        turned = value.T if layer is not None and value.ndim == 2 and not name.endswith("positions") else value
        place = arrays[name] if layer is None else arrays[name][layer]
        if turned.shape != place.shape:
            raise InputError(f"{sizes.name}: {theirs} is {value.shape}, which does not fit {name} {place.shape}")
        place[...] = turned
    return arrays


def to_transformers(sizes: ModelSizes, weights: Mapping[str, Any]) -> Tree:
    """Tensors by Transformers' names from the step's arrays: the inverse of `from_transformers`."""
    import numpy as np

    state: Tree = {}
    for name, theirs, layer in _pieces(sizes, base_table(sizes)):
        value = np.asarray(weights[name]) if layer is None else np.asarray(weights[name][layer])
        turned = layer is not None and value.ndim == 2 and not name.endswith("positions")
        state[theirs] = np.ascontiguousarray(value.T if turned else value)
    return state


def read_model(sizes: ModelSizes, folder: Path) -> Tree:
    """Read the weights of a model's folder (safetensors, one file or several) as float32.

    Raises:
        InputError: no weights, a tensor missing, or rotary positions of another type than the default (Llama 3.1's are
            rescaled, which the sizes cannot express).
    """
    import numpy as np
    from safetensors import safe_open

    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind != "default":
        raise InputError(f"{folder}: rotary positions of type {kind!r}; the JAX step has the plain ones")
    state: dict[str, np.ndarray] = {}
    for file in weight_files(folder):
        # torch, because NumPy's reader knows no bfloat16.
        with safe_open(file, "pt") as tensors:
            state |= {name: tensors.get_tensor(name).float().numpy() for name in tensors.keys()}  # noqa: SIM118
    return from_transformers(sizes, state)


def save_model(sizes: ModelSizes, weights: Mapping[str, Any], base: Path, folder: Path) -> None:
    """Write a folder that Transformers loads: float32 weights, and the configuration and tokenizer of `base`."""
    import shutil

    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    for pattern in (CONFIG, GENERATION, "tokenizer*", "chat_template*", "special_tokens_map.json"):
        for file in base.glob(pattern):
            shutil.copyfile(file, folder / file.name)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    config["dtype"] = "float32"
    (folder / CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")
    save_file(to_transformers(sizes, weights), folder / "model.safetensors", {"format": "pt"})


def read_adapter(sizes: ModelSizes, table: Table, folder: Path) -> Tree:
    """Read a PEFT adapter as the step's float32 factors: the inverse of `save_adapter`.

    Args:
        table: of the factors.

    Raises:
        InputError: a tensor is missing or has another size.
    """
    import numpy as np
    from safetensors.numpy import load_file

    tensors = load_file(folder / ADAPTER_WEIGHTS)
    factors: Tree = {name: np.empty(weight.size, np.float32) for name, weight in table.items()}
    for name, stacked in factors.items():
        for layer in range(stacked.shape[0]):
            theirs = _peft_name(sizes, name, layer)
            if theirs not in tensors:
                raise InputError(f"{folder}: the adapter has no tensor {theirs}")
            if tensors[theirs].T.shape != stacked[layer].shape:
                raise InputError(f"{folder}: {theirs} is {tensors[theirs].shape}, which does not fit {name}")
            stacked[layer] = tensors[theirs].T
    return factors


def _peft_name(sizes: ModelSizes, name: str, layer: int) -> str:
    """Name in PEFT's file of one layer of a factor."""
    module, half = (name.removesuffix(A), "A") if name.endswith(A) else (name.removesuffix(B), "B")
    return f"base_model.model.{transformers_name(sizes, module, layer).removesuffix('.weight')}.lora_{half}.weight"


def save_adapter(
    sizes: ModelSizes, settings: StepSettings, factors: Mapping[str, Any], base: str, folder: Path
) -> None:
    """Write a folder that PEFT loads: `adapter_model.safetensors` and `adapter_config.json`.

    Args:
        base: the base model's name in the adapter's config.
    """
    import numpy as np
    from safetensors.numpy import save_file

    tensors: Tree = {}
    for name, stacked in factors.items():
        for layer in range(stacked.shape[0]):
            tensors[_peft_name(sizes, name, layer)] = np.ascontiguousarray(np.asarray(stacked[layer]).T)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / ADAPTER_WEIGHTS, {"format": "pt"})
    modules = sorted({name.rsplit(".", 2)[1].removeprefix("cross_") for name in factors})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if sizes.family == "decoder" else "SEQ_2_SEQ_LM",
        "base_model_name_or_path": base,
        "r": settings.lora_rank,
        "lora_alpha": settings.lora_scale * settings.lora_rank,
        "target_modules": modules,
        "lora_dropout": 0.0,
        "bias": "none",
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")
