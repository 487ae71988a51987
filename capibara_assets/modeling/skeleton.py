"""The linear layers of any architecture that Transformers knows, from its config: an empty model is built, none loaded.

The layers are those that PEFT's `all-linear` adapts: every linear layer but the head. Layers outside the blocks
(poolers, the transform in front of a masked model's head) and towers for images or sound are left out. Of a mixture,
Transformers keeps the experts as one parameter of three dimensions, which is no linear layer.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from capibara_assets.errors import InputError
from capibara_assets.modeling.files import require_sane_sizes
from capibara_assets.modeling.heads import Head, head_of, model_class

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

_BLOCK = re.compile(r"^(?:.*?\.)?\d+(?=\.)")
# Names that weight files give an expert's matrices: a target must not end in one of them alone, or it would match them.
_ON_DISK = ("gate_proj", "up_proj", "down_proj", "w1", "w2", "w3", "gate_up_proj")
_NOT_THE_MODELS = ("quantization_config", "dtype", "torch_dtype", "transformers_version", "auto_map")


class Matrix(NamedTuple):
    """A kind of linear layer: the end of its modules' names that PEFT matches, its sizes, and its number."""

    name: str
    inputs: int
    outputs: int
    copies: int


@dataclass(frozen=True)
class Skeleton:
    """What a model's memory and adapters depend on.

    Attributes:
        linear: linear layers of the blocks.
        left_out: names of those that PEFT does not adapt as linear layers: of mixtures, whose names it takes for the
            experts' (and adapts those), and of Mamba, whose kernels read the weight past the layer.
        experts: matrices of the experts, as `experts.<name>`, counted for each expert.
        blocks: number of blocks (an encoder's and a decoder's together).
        parameters: of the whole model, shared ones once.
        embedding: (tokens, width) of the input embedding.
        tied: whether the head shares the embedding; also where there is no head.
        sizes: the config's numbers under Transformers' common names, as far as it has them.
    """

    linear: tuple[Matrix, ...]
    left_out: tuple[str, ...]
    experts: tuple[Matrix, ...]
    blocks: int
    parameters: int
    embedding: tuple[int, int]
    tied: bool
    sizes: Mapping[str, Any]


def skeleton(config: Mapping[str, Any], name: str) -> Skeleton:
    """The layers of the model that a `config.json` describes.

    Args:
        config: a Transformers configuration.
        name: of the model, for messages.

    Raises:
        InputError: Transformers does not know the architecture, cannot build it from this config, or it has no blocks
            of linear layers.
    """
    require_sane_sizes(config, Path(name))
    model, settings = _empty(config, name)
    import torch

    root: nn.Module = model if settings.is_encoder_decoder else model.get_decoder()
    head = model.get_output_embeddings()
    wanted = {id(module) for module in _linear_layers(root) if module is not head}
    modules = {full: module for full, module in model.named_modules() if full}
    chosen = {full: module for full, module in modules.items() if id(module) in wanted and _BLOCK.match(full)}
    if not chosen:
        raise InputError(f"{name}: a {config.get('model_type')} has no blocks of linear layers that LoRA could adapt")
    fused = {
        full: value
        for full, value in model.named_parameters()
        if value.ndim == 3 and re.search(r"\.experts\.\w+$", full)
    }
    others = [*modules, *(f"{full.rpartition('.')[0]}.0.{leaf}" for full in fused for leaf in _ON_DISK)]
    ends = target_ends(chosen, others)
    linear = Counter((ends[full], *_sizes_of(module)) for full, module in chosen.items())
    experts: Counter[tuple[str, int, int]] = Counter()
    embedding = model.get_input_embeddings().weight
    for full, value in fused.items():
        leaf, width = full.rpartition(".")[2], embedding.shape[1]
        other = value[0].numel() // width  # architectures differ in which side comes first
        experts[f"experts.{leaf}", *((other, width) if "down" in leaf else (width, other))] += value.shape[0]
    return Skeleton(
        linear=tuple(Matrix(*key, copies) for key, copies in linear.items()),
        left_out=tuple(sorted({end for end in ends.values() if not _adapted_by_peft(model, end)})),
        experts=tuple(Matrix(*key, copies) for key, copies in experts.items()),
        blocks=len({_BLOCK.match(full).group() for full in chosen}),  # type: ignore[union-attr]
        parameters=sum(value.numel() for value in model.parameters()),
        embedding=(embedding.shape[0], embedding.shape[1]),
        tied=head is None or not isinstance(head, torch.nn.Module) or head.weight is embedding,
        sizes=_numbers(settings.get_text_config()),
    )


def target_ends(chosen: Iterable[str], every: Iterable[str]) -> dict[str, str]:
    """For each chosen module the shortest end of its name that no other module's name has (PEFT matches by ends)."""
    wanted = set(chosen)
    taken = {end for full in every if full not in wanted for end in _ends(full)}
    return {full: next(end for end in _ends(full) if end not in taken and not end.isdigit()) for full in wanted}


def _ends(full: str) -> Iterator[str]:
    parts = full.split(".")
    return (".".join(parts[at:]) for at in range(len(parts) - 1, -1, -1))


def _linear_layers(root: "nn.Module") -> "list[nn.Module]":
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    return [module for module in root.modules() if isinstance(module, nn.Linear | Conv1D)]


def _sizes_of(module: Any) -> tuple[int, int]:
    """(inputs, outputs); GPT-2's Conv1D keeps its weight the other way round."""
    rows, columns = module.weight.shape
    return (rows, columns) if type(module).__name__ == "Conv1D" else (columns, rows)


def _adapted_by_peft(model: "PreTrainedModel", end: str) -> bool:
    """Whether PEFT adapts the linear layers with this name in this model, and nothing else in their place."""
    from capibara_assets.modeling.light_imports import LoraConfig, taken_by_mamba, taken_for_experts

    config = LoraConfig(target_modules=[end])
    try:
        taken_by_mamba(config, model, end.rpartition(".")[2])
        taken_for_experts(config, model, None)
    except ValueError:  # both refuse so: the first a layer, the second a part of what is one parameter now
        return False
    return end in config.target_modules


def _empty(config: Mapping[str, Any], name: str) -> "tuple[PreTrainedModel, Any]":
    """The model without memory for its weights, and Transformers' form of its config."""
    import torch
    import transformers
    from transformers.initialization import no_init_weights

    kind = config.get("model_type")
    values = {key: value for key, value in config.items() if key not in _NOT_THE_MODELS}
    if kind not in transformers.CONFIG_MAPPING:
        raise InputError(
            f"{name}: Transformers {transformers.__version__} knows no model_type {kind!r}, so that it can be neither"
            " planned nor trained: check config.json, or install a Transformers that has it"
        )
    try:
        settings = transformers.CONFIG_MAPPING[kind].from_dict(values)
        with no_init_weights(), torch.device("meta"):
            model = model_class(_head(config, settings)).from_config(settings)
            model.tie_weights()
    except Exception as error:  # whatever the architecture's own code raises for a config that it cannot use
        raise InputError(f"{name}: Transformers cannot build a {kind} from this config.json: {error}") from error
    return model, settings


def _head(config: Mapping[str, Any], settings: Any) -> Head:
    """The head that the config names; without a name the one that Transformers has for the architecture."""
    if (own := head_of(config)) is not None:
        return own
    if settings.is_encoder_decoder:
        return "seq2seq"
    from transformers import AutoModelForCausalLM

    return "causal" if type(settings) in AutoModelForCausalLM._model_mapping else "masked"


def _numbers(settings: Any) -> dict[str, Any]:
    """The config's numbers, by Transformers' common names (`attribute_map` resolves an architecture's own)."""
    names = (
        "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "qk_nope_head_dim", "qk_rope_head_dim",
        "max_position_embeddings", "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk",
        "num_local_experts", "num_experts", "n_routed_experts",
    )  # fmt: skip
    found = {name: getattr(settings, name, None) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, int) and value > 0}
