"""Mix the LoRA deltas of experts by a router's weights: one adapter per prompt, or weights per token."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from capibara_assets.errors import InputError
from capibara_assets.evaluation.routing.router import Router
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.gates import class_statistics, gate_rows
from capibara_assets.modeling.lora_mixture import PromptWeights, TokenGates
from capibara_assets.modeling.low_rank import MergedAdapter, merge_adapters


def mixed_adapter(
    router: Router, experts: Mapping[str, LoraAdapter], prompt: str, *, top: int = 2, rank: int | None = None
) -> MergedAdapter | None:
    """Merge the deltas of the router's `top` experts for a prompt into one adapter; None: the base answers.

    Exact on the deltas (ranks add up) unless a smaller `rank` is asked for.

    Raises:
        InputError: an expert that the router picks is not given.
    """
    [shares] = router.shares([prompt], top)
    if not shares:
        return None
    return merge_adapters([_known(experts, name) for name in shares], list(shares.values()), rank)


def prompt_weights(
    router: Router, experts: Mapping[str, LoraAdapter], prompts: Sequence[str], *, top: int = 2
) -> PromptWeights:
    """Weights of experts for a batch of prompts, (prompts, experts), for `modeling.lora_mixture.mixed`.

    A prompt that the router leaves to the base has weights of 0. Raises InputError as `mixed_adapter`.
    """
    values = torch.zeros(len(prompts), len(experts))
    place = {name: column for column, name in enumerate(experts)}
    for row, shares in enumerate(router.shares(prompts, top)):
        for name, share in shares.items():
            _known(experts, name)
            values[row, place[name]] = share
    return PromptWeights(values)


def token_gates(
    base: Base,
    prompts: Mapping[str, Sequence[str]],
    *,
    tokens: int = 64,
    shrinkage: float = 0.1,
    spread: float = 2.0,
    top: int | None = None,
) -> TokenGates:
    """Fit gates per token: linear discriminants of the decoder layers' inputs on each expert's training prompts.

    Args:
        prompts: expert -> prompts, in the order of the adapters that the gates weigh.
        tokens: number of first tokens of each prompt that are used.
        shrinkage, spread: see `modeling.gates.gate_rows`.

    Raises:
        InputError: an expert without a prompt.
    """
    if empty := [name for name, own in prompts.items() if not own]:
        raise InputError(f"no prompts for {', '.join(empty)}: the gates cannot know them")
    layers: list[Any] = list(base.model.model.layers)
    statistics = [class_statistics(_entering(base, layers, own, tokens)) for own in prompts.values()]
    rows = [
        torch.from_numpy(gate_rows([per_layer[number] for per_layer in statistics], shrinkage, spread)).float()
        for number in range(len(layers))
    ]
    return TokenGates(rows, top=top)


def _entering(base: Base, layers: Sequence[Any], prompts: Sequence[str], tokens: int) -> list[Tensor]:
    """Inputs of each layer on the prompts' tokens: per layer (tokens, hidden), float64."""
    by_layer: list[list[Tensor]] = [[] for _ in layers]

    def keep(number: int, inputs: tuple[Tensor, ...]) -> None:
        by_layer[number].append(inputs[0][0].double().cpu())

    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, number=number: keep(number, inputs))
        for number, layer in enumerate(layers)
    ]
    try:
        with torch.no_grad():
            for prompt in prompts:
                ids = base.tokenizer(prompt)["input_ids"][:tokens]
                if ids:
                    base.model.base_model(input_ids=torch.tensor([ids], device=base.model.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return [torch.cat(parts) for parts in by_layer]


def _known(experts: Mapping[str, LoraAdapter], name: str) -> LoraAdapter:
    if name not in experts:
        raise InputError(
            f"the router picks {name}, which is not among the experts given: {', '.join(experts) or 'none'}"
        )
    return experts[name]
