"""LoRA's target modules by architecture, from the model's config without loading it: linear layers, and experts.

Transformers keeps the experts of a mixture as one parameter of three dimensions (experts, out, in). PEFT adapts such a
parameter as a whole (`target_parameters`): the change of each expert is a product of its own, so the adapter is no
longer pairs of one A and one B, and voters' adapters cannot be compared by them.
"""

from collections.abc import Mapping
from typing import Any, Literal

from capibara_assets.errors import InputError

Scope = Literal["all-linear", "attention", "query-value"]

_LLAMA_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_LLAMA_MLP = ("gate_proj", "up_proj", "down_proj")

# model_type -> (attention projections, other linear layers, the pair that the LoRA paper adapts).
# Names are module names as Transformers 5 spells them. Experts of a mixture are not linear layers: see _EXPERTS.
_TARGETS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "llama",
            "mistral",
            "qwen2",
            "qwen3",
            "gemma",
            "gemma2",
            "gemma3_text",
            "granite",
            "olmo",
            "olmo2",
            "smollm3",
            "stablelm",
        ),
        (_LLAMA_ATTENTION, _LLAMA_MLP, ("q_proj", "v_proj")),
    ),
    "mixtral": (_LLAMA_ATTENTION, (), ("q_proj", "v_proj")),
    "qwen2_moe": (_LLAMA_ATTENTION, tuple(f"shared_expert.{name}" for name in _LLAMA_MLP), ("q_proj", "v_proj")),
    "qwen3_moe": (_LLAMA_ATTENTION, (), ("q_proj", "v_proj")),
    "starcoder2": (_LLAMA_ATTENTION, ("c_fc", "c_proj"), ("q_proj", "v_proj")),
    "gpt2": (("c_attn", "attn.c_proj"), ("c_fc", "mlp.c_proj"), ("c_attn",)),
    "gpt_neox": (("query_key_value", "dense"), ("dense_h_to_4h", "dense_4h_to_h"), ("query_key_value",)),
    "opt": (("q_proj", "k_proj", "v_proj", "out_proj"), ("fc1", "fc2"), ("q_proj", "v_proj")),
    "phi": (("q_proj", "k_proj", "v_proj", "dense"), ("fc1", "fc2"), ("q_proj", "v_proj")),
    "phi3": (("qkv_proj", "o_proj"), ("gate_up_proj", "down_proj"), ("qkv_proj",)),
    "bert": (
        ("query", "key", "value", "attention.output.dense"),
        ("intermediate.dense", "output.dense"),
        ("query", "value"),
    ),
    "t5": (("q", "k", "v", "o"), ("wi", "wi_0", "wi_1", "wo"), ("q", "v")),
}

_EXPERTS = ("experts.gate_up_proj", "experts.down_proj")
_MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe")


def architectures() -> tuple[str, ...]:
    """The `model_type`s whose targets are known, sorted."""
    return tuple(sorted(_TARGETS))


def target_modules(config: Mapping[str, Any] | Any, scope: Scope = "all-linear") -> tuple[str, ...]:
    """Module-name suffixes for PEFT's `target_modules`, sorted.

    Args:
        config: a Transformers config object, or the dict of its `config.json`.
        scope: every linear layer of the blocks (the embedding and the head stay frozen), the attention's only,
            or the query and value projections (Hu et al., arXiv 2106.09685, section 4.2).

    Raises:
        InputError: the architecture is unknown.
    """
    model_type = config.get("model_type") if isinstance(config, Mapping) else getattr(config, "model_type", None)
    if model_type not in _TARGETS:
        raise InputError(
            f"no LoRA targets known for model_type {model_type!r} (known: {', '.join(architectures())}): "
            "name the modules in the recipe (lora_modules)"
        )
    attention, other, paper = _TARGETS[model_type]
    chosen = {"all-linear": attention + other, "attention": attention, "query-value": paper}[scope]
    return tuple(sorted(set(chosen)))


def expert_parameters(config: Mapping[str, Any] | Any) -> tuple[str, ...]:
    """Names of the experts' fused parameters; none where the architecture is no mixture."""
    model_type = config.get("model_type") if isinstance(config, Mapping) else getattr(config, "model_type", None)
    return tuple(sorted(_EXPERTS)) if model_type in _MIXTURES else ()


def is_expert(name: str) -> bool:
    """Whether a name stands for a fused parameter of experts and not for a linear layer."""
    return name.startswith("experts.")
