"""LoRA targets: every linear layer of the blocks, against real architectures, and published parameter counts."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, MistralConfig

from capibara_assets.errors import InputError
from capibara_assets.modeling.lora_targets import expert_parameters, is_expert, target_modules
from capibara_assets.planning.models import from_config

SMALL: dict[str, dict[str, Any]] = {
    "llama": {}, "mistral": {}, "qwen2": {}, "qwen3": {}, "gemma": {}, "gemma2": {}, "granite": {}, "olmo2": {},
    "stablelm": {}, "starcoder2": {}, "phi": {}, "phi3": {"pad_token_id": 0}, "gpt_neox": {}, "gpt2": {}, "opt": {},
    "bert": {}, "t5": {}, "smollm3": {"pad_token_id": 0}, "olmo": {}, "gemma3_text": {},
}  # fmt: skip
SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 128, "ffn_dim": 64, "word_embed_proj_dim": 32, "d_model": 32, "d_ff": 64,
    "num_layers": 2, "n_embd": 32, "n_layer": 2, "n_head": 2,
}  # fmt: skip


def linear_layers(model_type: str) -> list[str]:
    """Names of the matrices in the blocks of a small model of the architecture."""
    config = AutoConfig.for_model(model_type, **SIZES, **SMALL[model_type])
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    kinds = (nn.Linear, *((type(model.h[0].attn.c_attn),) if model_type == "gpt2" else ()))
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, kinds) and any(part.isdigit() for part in name.split("."))
    ]


@pytest.mark.parametrize("model_type", SMALL)
def test_all_linear_layers_of_the_blocks_and_nothing_else(model_type: str) -> None:
    names = linear_layers(model_type)
    targets = target_modules({"model_type": model_type})
    missed = [name for name in names if not any(name == t or name.endswith(f".{t}") for t in targets)]
    assert names and not missed
    attention = target_modules({"model_type": model_type}, "attention")
    assert set(target_modules({"model_type": model_type}, "query-value")) <= set(attention) < set(targets)


def test_published_parameter_counts_of_a_7b_mistral() -> None:
    config = MistralConfig()
    with torch.device("meta"):
        model = AutoModel.from_config(config)

    def parameters(rank: int, scope: Any) -> int:
        suffixes = tuple(f".{name}" for name in target_modules(config, scope))
        return sum(
            rank * (module.in_features + module.out_features)
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and name.endswith(suffixes)
        )

    assert parameters(8, "query-value") == 3_407_872
    assert parameters(64, "all-linear") == 167_772_160


@pytest.mark.parametrize(
    ("rank", "scope", "expected"), [(8, "query-value", 3_407_872), (64, "all-linear", 167_772_160)]
)
def test_peft_and_the_planner_count_the_same(rank: int, scope: Any, expected: int) -> None:
    """From the config alone: PEFT on a model without memory, and planning's arithmetic."""
    config = MistralConfig()
    targets = target_modules(config, scope)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        adapted = get_peft_model(model, LoraConfig(r=rank, target_modules=list(targets), task_type="CAUSAL_LM"))
    assert adapted.get_nb_trainable_parameters()[0] == expected
    shape = from_config(config.to_dict() | {"architectures": ["MistralForCausalLM"]}, "mistral-7b")
    assert shape.lora_parameters(rank, targets) == expected


@pytest.mark.parametrize("model_type", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_experts_are_adapted_as_fused_parameters(model_type: str) -> None:
    sizes = SIZES | {"moe_intermediate_size": 48, "num_local_experts": 4, "num_experts": 4, "head_dim": 16}
    config = AutoConfig.for_model(model_type, **sizes, shared_expert_intermediate_size=40)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        names = list(expert_parameters(config))
        lora = LoraConfig(r=2, target_modules=[], target_parameters=names, task_type="CAUSAL_LM")
        adapted = get_peft_model(model, lora)
    fused = [value for name, value in model.named_parameters() if name.endswith((".gate_up_proj", ".down_proj"))]
    assert len(fused) == 4 and all(value.ndim == 3 for value in fused)
    expected = sum(2 * len(value) * (value.shape[1] + value.shape[2]) for value in fused)  # a pair for each expert
    assert adapted.get_nb_trainable_parameters()[0] == expected
    assert all(map(is_expert, names)) and not any(map(is_expert, target_modules(config)))
    assert expert_parameters({"model_type": "llama"}) == ()


def test_an_unknown_architecture_is_named_with_what_is_known() -> None:
    with pytest.raises(InputError, match=r"'mamba' \(known: .*llama"):
        target_modules({"model_type": "mamba"})
