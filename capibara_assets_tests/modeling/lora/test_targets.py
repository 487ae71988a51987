"""LoRA targets of known architectures: published parameter counts, and the experts of mixtures."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, MistralConfig

from capibara_assets.modeling.lora.targets import is_expert
from capibara_assets.modeling.skeleton import target_ends
from capibara_assets.planning.models import from_config

SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 128, "moe_intermediate_size": 48, "num_local_experts": 4,
    "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("rank", "modules", "expected"), [(8, ("q_proj", "v_proj"), 3_407_872), (64, None, 167_772_160)]
)
def test_published_parameter_counts_of_a_7b_mistral(rank: int, modules: Any, expected: int) -> None:
    """From the config alone: PEFT on a model without memory, and planning's arithmetic."""
    config = MistralConfig()
    shape = from_config(config.to_dict() | {"architectures": ["MistralForCausalLM"]}, "mistral-7b")
    targets = modules or shape.lora_targets
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        adapted = get_peft_model(model, LoraConfig(r=rank, target_modules=list(targets), task_type="CAUSAL_LM"))
    assert adapted.get_nb_trainable_parameters()[0] == expected
    assert shape.lora_parameters(rank, targets) == expected


@pytest.mark.parametrize("model_type", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_experts_are_adapted_as_fused_parameters(model_type: str) -> None:
    config = AutoConfig.for_model(model_type, **SIZES, shared_expert_intermediate_size=40)
    shape = from_config(config.to_dict(), model_type)
    names = [module.name for module in shape.linear_modules if is_expert(module.name)]
    assert len(names) == 2 and not any(map(is_expert, shape.lora_targets))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        lora = LoraConfig(r=2, target_modules=[], target_parameters=names, task_type="CAUSAL_LM")
        adapted = get_peft_model(model, lora)
    assert adapted.get_nb_trainable_parameters()[0] == shape.lora_parameters(2, tuple(names))


def test_a_target_is_the_shortest_end_that_no_other_module_has() -> None:
    blocks = ["m.layers.0.attn.out", "m.layers.0.mlp.out", "m.layers.1.mlp.out", "m.layers.0.attn.q"]
    assert set(target_ends(blocks, [*blocks, "m.layers.0", "m.head"]).values()) == {"out", "q"}
    ends = target_ends(blocks, [*blocks, "m.pooler.out", "head.q"])
    assert ends == {
        "m.layers.0.attn.out": "attn.out",
        "m.layers.0.mlp.out": "mlp.out",
        "m.layers.1.mlp.out": "mlp.out",
        "m.layers.0.attn.q": "attn.q",
    }
