"""Which linear layers of an architecture LoRA adapts: chosen from the model's config, without loading it."""

from collections.abc import Mapping
from typing import Any, Literal

from capibara_assets.errors import InputError

Scope = Literal["all-linear", "attention", "query-value"]

_LLAMA_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_LLAMA_MLP = ("gate_proj", "up_proj", "down_proj")

# model_type -> (attention projections, other linear layers, the pair that the LoRA paper adapts).
# Names are module names as Transformers 5 spells them. Experts of a mixture are fused 3-d parameters there,
# not linear layers, so only the attention of those models is listed.
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
    "qwen2_moe": (_LLAMA_ATTENTION, (), ("q_proj", "v_proj")),
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
