"""A real mixture of experts out of domain experts, as a Mixtral checkpoint that `AutoModelForCausalLM` loads.

Branch-Train-MiX (Sukhbaatar et al. 2024): embeddings, attention and norms of the merged model, per layer one
feed-forward expert per domain (the base's plus that domain's delta), and a gate per layer that picks the best k.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, MixtralConfig

from capibara_assets.consensus.gates import class_statistics, gate_rows
from capibara_assets.consensus.merging import copy_tokenizer
from capibara_assets.consensus.recipe import ConsensusRecipe, MoeRecipe
from capibara_assets.consensus.sampling import subsample
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.losses import assistant_losses
from capibara_assets.storage.jsonfiles import write_bytes_atomic

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.tokenising import Encoded

_EXPERT_NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_BATCH_ROWS = 16
_DEAD = 0.01
Tokens = list[int]


def mixture_of_experts(
    base: Base,
    merged: Path,
    experts: Mapping[Domain, LoraAdapter],
    routes: "pl.DataFrame",
    out: Path,
    recipe: ConsensusRecipe,
    validation: Mapping[Domain, Sequence["Encoded"]] | None = None,
) -> dict[str, Any]:
    """Write the mixture to `out` and say how its gates route.

    Args:
        merged: directory of the merged model: attention, embeddings and norms come from it.
        routes: table of `Route`; prompts outside the test split, by their first domain, make the gates.
        validation: examples whose loss under the mixture is reported, per domain.

    Returns:
        "utilisation": expert -> share of all routed (token, expert) pairs on the routing prompts; "per_layer": the
        same per layer; "top1": prompts' domain -> expert -> share of its tokens that the expert is first for; "dead":
        experts under 1 %; "losses" where `validation` was given.

    Raises:
        InputError: no expert, an architecture that Mixtral cannot express, or a domain without routing prompts.
    """
    domains = [domain for domain in Domain if domain in experts]
    if not domains:
        raise InputError("no expert to mix: agree on at least one domain's consensus checkpoint first")
    trunk = load_base(merged)
    config = mixtral_config(trunk.model.config, len(domains), recipe.moe.top_k, domains)
    prompts = {domain: _prompts(domain, routes, trunk, recipe.moe) for domain in domains}
    gates = _gates(trunk.model, prompts, recipe.moe)
    tensors = _tensors(trunk.model, base.model, [experts[domain] for domain in domains], gates)
    out.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(out)
    names = sorted(tensors)
    write_bytes_atomic(out / "model.safetensors", save({n: tensors[n].contiguous() for n in names}, {"format": "pt"}))
    copy_tokenizer(base.path, out)

    model = AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, local_files_only=True, trust_remote_code=False
    ).eval()
    report = {
        "experts": [str(domain) for domain in domains],
        "top_k": config.num_experts_per_tok,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "prompts": {str(domain): len(prompts[domain]) for domain in domains},
        **_utilisation(model, prompts, config.num_experts_per_tok),
    }
    if validation:
        report["losses"] = {
            str(domain): assistant_losses(model, list(validation[domain]), batch_tokens=1024).mean
            for domain in domains
            if validation.get(domain)
        }
    return report


def mixtral_config(config: Any, experts: int, top_k: int, domains: Sequence[Domain] = ()) -> MixtralConfig:
    """The Mixtral configuration of a Llama-like base.

    Raises:
        InputError: biases, another activation or architecture, rotary scaling that Mixtral has no place for.
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


def _tensors(trunk: Any, base: nn.Module, experts: Sequence[LoraAdapter], gates: Sequence[Tensor]) -> dict[str, Tensor]:
    """The checkpoint under Mixtral's published names, float32."""
    tied = bool(trunk.config.tie_word_embeddings)
    tensors = {
        name: tensor.float()
        for name, tensor in trunk.state_dict().items()
        if ".mlp." not in name and not (tied and name == "lm_head.weight")
    }
    for layer, gate in enumerate(gates):
        target = f"model.layers.{layer}.block_sparse_moe"
        tensors[f"{target}.gate.weight"] = gate.float()
        for source, name in _EXPERT_NAMES.items():
            module = f"model.layers.{layer}.mlp.{source}"
            weight = base.get_submodule(module).weight.detach().float()
            for number, adapter in enumerate(experts):
                changed = weight + adapter.delta(module) if module in adapter.modules else weight.clone()
                tensors[f"{target}.experts.{number}.{name}.weight"] = changed
    return tensors


def _prompts(domain: Domain, routes: "pl.DataFrame", trunk: Base, recipe: MoeRecipe) -> list[Tokens]:
    rows = routes.sort("route_id").iter_rows(named=True)
    texts = [row["prompt"] for row in rows if row["split"] != "test" and row["domains"][:1] == [domain.value]]
    if not texts:
        raise InputError(f"no routing prompts for {domain}: the gates cannot know it")
    chosen = [texts[i] for i in subsample([1] * len(texts), recipe.prompts_per_domain, len(texts))]
    return [_tokens(text, trunk)[: recipe.tokens_per_prompt] for text in chosen]


def _tokens(prompt: str, trunk: Base) -> Tokens:
    tokenizer = trunk.tokenizer
    if tokenizer.chat_template:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
    return list(tokenizer(prompt, add_special_tokens=not tokenizer.chat_template)["input_ids"])


def _gates(trunk: Any, prompts: Mapping[Domain, Sequence[Tokens]], recipe: MoeRecipe) -> list[Tensor]:
    """One gate (experts, hidden) per layer, from what enters its feed-forward block on each domain's prompts."""
    blocks = [layer.mlp for layer in trunk.model.layers]
    statistics = [class_statistics(_entering(trunk, blocks, own)) for own in prompts.values()]
    return [
        torch.from_numpy(gate_rows([per_layer[i] for per_layer in statistics], recipe.shrinkage, recipe.spread)).float()
        for i in range(len(blocks))
    ]


def _entering(model: Any, blocks: Sequence[nn.Module], prompts: Sequence[Tokens]) -> list[Tensor]:
    """What enters each block on the prompts' tokens, padding left out: per block (tokens, hidden), float64."""
    found: list[list[Tensor]] = [[] for _ in blocks]
    current: list[Tensor] = []

    def keep(number: int, inputs: tuple[Tensor, ...]) -> None:
        found[number].append(inputs[0].reshape(-1, inputs[0].shape[-1])[current[0]].double())

    hooks = [
        block.register_forward_pre_hook(lambda _, inputs, number=number: keep(number, inputs))
        for number, block in enumerate(blocks)
    ]
    try:
        ordered = sorted(prompts, key=len)
        for start in range(0, len(ordered), _BATCH_ROWS):
            rows = ordered[start : start + _BATCH_ROWS]
            length = len(rows[-1])
            ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
            real = torch.tensor([[position < len(row) for position in range(length)] for row in rows])
            current[:] = [real.flatten()]
            with torch.no_grad():
                model.base_model(input_ids=ids, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return [torch.cat(parts) for parts in found]


def _utilisation(model: Any, prompts: Mapping[Domain, Sequence[Tokens]], top_k: int) -> dict[str, Any]:
    """Where the mixture's own gates send the prompts' tokens."""
    names = [str(domain) for domain in prompts]
    gates = [layer.mlp.gate for layer in model.model.layers]
    pairs = torch.zeros(len(gates), len(names), dtype=torch.float64)
    first = torch.zeros(len(names), len(names), dtype=torch.float64)
    for row, own in enumerate(prompts.values()):
        for layer, hidden in enumerate(_entering(model, gates, own)):
            logits = hidden @ gates[layer].weight.double().T
            chosen = logits.topk(top_k, dim=-1).indices
            # Every domain counts the same, however long its prompts are
            pairs[layer] += torch.bincount(chosen.flatten(), minlength=len(names)) / chosen.numel() / len(names)
            first[row] += torch.bincount(chosen[:, 0], minlength=len(names)) / len(chosen) / len(gates)
    overall = pairs.mean(dim=0)
    entropy = float(-(overall * overall.clamp_min(1e-12).log()).sum())
    return {
        "utilisation": _named(names, overall),
        "balance": entropy / math.log(len(names)) if len(names) > 1 else 1.0,
        "per_layer": [_named(names, row) for row in pairs],
        "top1": {name: _named(names, first[row]) for row, name in enumerate(names)},
        "dead": [name for name, share in zip(names, overall.tolist(), strict=True) if share < _DEAD],
    }


def _named(names: Sequence[str], values: Tensor) -> dict[str, float]:
    return dict(zip(names, map(float, values), strict=True))
