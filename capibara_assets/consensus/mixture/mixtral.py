"""Mixtral's format for a mixture of experts: its configuration, and its tensors under their published names."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import MixtralConfig

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter

_EXPERT_NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def mixtral_config(config: Any, experts: int, top_k: int, domains: Sequence[Domain] = ()) -> MixtralConfig:
    """The Mixtral configuration of a Llama-like base.

    Raises:
        InputError: another architecture, or biases, which Mixtral cannot express.
    """
    if config.model_type not in ("llama", "mistral"):
        raise InputError(f"a {config.model_type!r} model cannot be written as Mixtral: only Llama and Mistral can")
    if getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False):
        raise InputError("a model with attention or feed-forward biases cannot be written as Mixtral: it has none")
    return MixtralConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        hidden_act=config.hidden_act,
        max_position_embeddings=config.max_position_embeddings,
        initializer_range=config.initializer_range,
        rms_norm_eps=config.rms_norm_eps,
        rope_parameters=dict(config.rope_parameters),
        sliding_window=getattr(config, "sliding_window", None),
        tie_word_embeddings=config.tie_word_embeddings,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        num_local_experts=experts,
        num_experts_per_tok=min(top_k, experts),
        architectures=["MixtralForCausalLM"],
        dtype="float32",
        capibara_experts=[str(domain) for domain in domains],
    )


def mixtral_tensors(
    trunk: Any, base: nn.Module, experts: Sequence[LoraAdapter], gates: Sequence[Tensor]
) -> dict[str, Tensor]:
    """The checkpoint under Mixtral's published names, float32.

    Args:
        trunk: the model that embeddings, attention and norms come from.
        base: the model that the experts' feed-forward deltas are added to.
        gates: of each layer, (experts, hidden).
    """
    tied = bool(trunk.config.tie_word_embeddings)
    tensors = {
        name: tensor.float()
        for name, tensor in trunk.state_dict().items()
        if ".mlp." not in name and not (tied and name == "lm_head.weight")
    }
    for layer, gate in enumerate(gates):
        target = f"model.layers.{layer}.block_sparse_moe"
        tensors[gate_name(layer)] = gate.float()
        for source, name in _EXPERT_NAMES.items():
            module = f"model.layers.{layer}.mlp.{source}"
            weight = base.get_submodule(module).weight.detach().float()
            for number, adapter in enumerate(experts):
                changed = weight + adapter.delta(module) if module in adapter.modules else weight.clone()
                tensors[f"{target}.experts.{number}.{name}.weight"] = changed
    return tensors


def gate_name(layer: int) -> str:
    """Name of a layer's gate in the checkpoint."""
    return f"model.layers.{layer}.block_sparse_moe.gate.weight"
