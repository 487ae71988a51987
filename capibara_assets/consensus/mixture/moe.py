"""Mixture of experts from domain experts, as a Mixtral checkpoint that `AutoModelForCausalLM` loads.

Branch-Train-MiX (Sukhbaatar et al. 2024): embeddings, attention and norms of the merged model, per layer one
feed-forward expert per domain (the base's plus that domain's delta), and a gate per layer that picks the best k;
the gates are initialised and trained by `gate_training`.
"""

import math
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from capibara_assets.consensus.choose.experts import PromptedExample, prompted_examples
from capibara_assets.consensus.choose.lanes import Lanes, lanes
from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.merging.experts_merge import copy_tokenizer
from capibara_assets.consensus.mixture.gate_training import (
    class_statistics,
    gate_rows,
    mixture_gates,
    train_gates,
    training_k,
)
from capibara_assets.consensus.mixture.losses import Row, contenders, held, mixture_losses
from capibara_assets.consensus.mixture.mixtral import gate_name, mixtral_config, mixtral_tensors
from capibara_assets.consensus.recipe import ConsensusRecipe, MoeRecipe
from capibara_assets.datasets.tokens.templates import jinja_template
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.evaluation.routing.router import train_router
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.storage.jsonfiles import write_bytes_atomic

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.tokens.tokenising import Encoded
    from capibara_assets.storage.artifact import Artifact

_BATCH_ROWS = 16
_DEAD = 0.01
Tokens = list[int]


@dataclass(frozen=True)
class MixtureExamples:
    """Examples for initialising, training and evaluating the gates of a mixture.

    Attributes:
        routes: table of `Route`; prompts outside the test split, by their first domain, initialise the gates.
        training: examples that the gates train on; None: they stay as initialised.
        validation: examples whose losses are reported, per domain and contender.
    """

    routes: "pl.DataFrame"
    training: Mapping[Domain, Sequence["Encoded"]] | None = None
    validation: Mapping[Domain, Sequence[PromptedExample]] | None = None

    @classmethod
    def read(
        cls,
        base: Base,
        routing: "Artifact",
        datasets: Mapping[Domain, "Artifact"],
        experts: Collection[Domain],
        recipe: ConsensusRecipe,
    ) -> "MixtureExamples":
        """Read `routing_dataset` and the `moe_dataset` of every domain with an expert."""
        frames = {domain: one.frame("examples") for domain, one in datasets.items() if domain in experts}
        train = prompted_examples(base, frames, recipe, "train")
        encoded = {domain: [one.encoded for one in own] for domain, own in train.items()}
        return cls(routing.frame("routes"), encoded, prompted_examples(base, frames, recipe))


def left_out(routing: "Artifact", experts: Collection[Domain]) -> dict[str, Any] | None:
    """Report for a mixture that is skipped because `routing_dataset` has no prompts; None if it can be made."""
    why = routing.document("statistics")["left_out"]
    return {"made": False, "why": why, "experts": sorted(experts)} if why else None


def mixture_of_experts(
    base: Base,
    merged: Path,
    experts: Mapping[Domain, LoraAdapter],
    examples: MixtureExamples,
    out: Path,
    recipe: ConsensusRecipe,
) -> dict[str, Any]:
    """Write the mixture to `out`; returns a report of how its gates route and how it compares.

    With no training examples, no steps, or one expert only, the gates stay as initialised. Trained gates that are worse
    on the validation examples (mean over the domains, at the recipe's k) are not kept: the initial ones are written.

    Args:
        merged: directory of the merged model: attention, embeddings and norms come from it.

    Returns:
        "utilisation": expert -> share of all routed (token, expert) pairs on the routing prompts; "per_layer": the
        same per layer; "top1": prompts' domain -> expert -> share of its tokens whose first expert it is; "dead":
        experts under 1 %, "dead_in": layers (from 0) in which an expert is; "training": the log of `train_gates` and
        whether its gates were kept; with `validation` "losses": domain -> contender -> nats per token, where "moe_top1"
        and "moe_top2" are the written mixture under either k, "moe_top1_initial" and so on with the initial gates, and
        the others those of `contenders`; "mean_losses": contender -> mean over the domains; "router_accuracy":
        domain -> share of its prompts for which the router of "routed_adapters" picks its own expert.

    Raises:
        InputError: no expert, an architecture that Mixtral cannot express, a domain without routing prompts, or
            without training or validation examples where these are given.
    """
    domains = [domain for domain in Domain if domain in experts]
    if not domains:
        raise InputError("no expert to mix: agree on at least one domain's consensus checkpoint first")
    ordered = {domain: experts[domain] for domain in domains}
    judged = held(examples.validation, domains, recipe.moe) if examples.validation is not None else None
    trunk = load_base(merged)
    config = mixtral_config(trunk.model.config, len(domains), recipe.moe.top_k, domains)
    top_k = config.num_experts_per_tok
    with lanes() as at_once:
        prompts = {domain: _prompts(domain, examples.routes, trunk, recipe.moe) for domain in domains}
        gates = _gates(trunk.model, prompts, recipe.moe, at_once)
        tensors = mixtral_tensors(trunk.model, base.model, list(ordered.values()), gates)
        out.mkdir(parents=True, exist_ok=True)
        config.save_pretrained(out)
        write_mixture(tensors, out)
        copy_tokenizer(base.path, out)
        model = AutoModelForCausalLM.from_pretrained(
            out, dtype=torch.float32, local_files_only=True, trust_remote_code=False
        )
        model.eval().requires_grad_(False)

        def judge() -> dict[str, Row]:
            ks = sorted({1, min(2, len(domains)), top_k})
            return _of_mixture(mixture_losses(model, judged, ks, at_once)) if judged else {}

        losses, trained = judge(), None
        if examples.training is not None and recipe.moe.steps and len(domains) > 1:
            own = {domain: examples.training.get(domain, ()) for domain in domains}
            log = train_gates(model, own, recipe.moe, at_once)
            losses, verdict = _better(losses, judge(), f"moe_top{top_k}")
            about = {"steps": recipe.moe.steps, "top_k": training_k(top_k, len(domains)), "kept": verdict["kept"]}
            trained = {**about, "log": log, **verdict}
            if verdict["kept"]:
                for layer, gate in enumerate(mixture_gates(model)):
                    tensors[gate_name(layer)] = gate.weight.detach()
                write_mixture(tensors, out)
            else:
                _restore(model, gates)
        report: dict[str, Any] = {
            "experts": [str(domain) for domain in domains],
            "top_k": top_k,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "prompts": {str(domain): len(prompts[domain]) for domain in domains},
            "training": trained,
            **utilisation(model, prompts, top_k, at_once),
        }
        if judged:
            router = train_router(examples.routes, report["experts"], recipe.moe.seed)
            others, accuracy = contenders(base, trunk.model, ordered, router, judged, at_once)
            rows = {**others, **losses}
            report |= {
                "losses": {str(domain): {arm: row[domain] for arm, row in rows.items()} for domain in domains},
                "mean_losses": {arm: _mean(row) for arm, row in rows.items()},
                "router_accuracy": {str(domain): share for domain, share in accuracy.items()},
                "validation_examples": {str(domain): len(own) for domain, own in judged.items()},
            }
    return report


def mixture_problems(report: Mapping[str, Any], experts: Collection[str]) -> list[str]:
    """Problems in a mixture's report as text: other experts, losses that are NaN or above the base's.

    Args:
        experts: the domains that it was to be made from.
    """
    problems = []
    if set(report["experts"]) != set(experts):
        problems.append(f"it has experts for {', '.join(report['experts'])}, there are {', '.join(sorted(experts))}")
    losses = report.get("mean_losses", {})
    problems += [f"the mean loss of {arm} is {loss}" for arm, loss in sorted(losses.items()) if not math.isfinite(loss)]
    mixed = f"moe_top{report['top_k']}"
    if losses and losses[mixed] >= losses["base"]:
        problems.append(f"mean loss {losses[mixed]:.4f} over its domains, the base has {losses['base']:.4f}")
    return problems


def unused_experts(report: Mapping[str, Any]) -> list[str]:
    """Warnings against serving a mixture: experts without tokens, or a better merged model."""
    shown = [f"{name} receives under {_DEAD:.0%} of the tokens" for name in report["dead"]]
    losses, mixed = report.get("mean_losses", {}), f"moe_top{report['top_k']}"
    if losses and losses[mixed] > losses["dense_merge"]:
        shown.append(f"mean loss {losses[mixed]:.4f}, the merged model has {losses['dense_merge']:.4f}")
    return shown


def _better(
    before: Mapping[str, Row], after: Mapping[str, Row], decisive: str
) -> tuple[dict[str, Row], dict[str, Any]]:
    """Losses of the gates that are kept, beside those of the initial ones, and the verdict on the trained ones.

    Args:
        decisive: the contender whose mean loss decides; without losses the trained gates are kept.
    """
    kept = not after or _mean(after[decisive]) <= _mean(before[decisive])
    losses = {**(after if kept else before), **{f"{arm}_initial": row for arm, row in before.items()}}
    verdict: dict[str, Any] = {"kept": kept}
    if after:
        verdict["mean_loss"] = {"before": _mean(before[decisive]), "after": _mean(after[decisive])}
    return losses, verdict


def write_mixture(tensors: Mapping[str, Tensor], out: Path) -> None:
    """Write the weights, sorted by name: the same tensors give the same bytes."""
    ordered = {name: tensors[name].contiguous() for name in sorted(tensors)}
    write_bytes_atomic(out / "model.safetensors", save(ordered, {"format": "pt"}))


def _restore(model: Any, gates: Sequence[Tensor]) -> None:
    for gate, weight in zip(mixture_gates(model), gates, strict=True):
        gate.weight.data.copy_(weight)


def _of_mixture(by_k: Mapping[int, Row]) -> dict[str, Row]:
    return {f"moe_top{k}": row for k, row in by_k.items()}


def _mean(row: Row) -> float:
    return sum(row.values()) / len(row)


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
        prompt = jinja_template(tokenizer).text_of([{"role": "user", "content": prompt}], generation_prompt=True)
    return list(tokenizer(prompt, add_special_tokens=not tokenizer.chat_template)["input_ids"])


def _gates(trunk: Any, prompts: Mapping[Domain, Sequence[Tokens]], recipe: MoeRecipe, lanes: Lanes) -> list[Tensor]:
    """One gate (experts, hidden) per layer, from what enters its feed-forward block on each domain's prompts."""
    blocks = [layer.mlp for layer in trunk.model.layers]
    statistics = [class_statistics(_entering(trunk, blocks, own, lanes)) for own in prompts.values()]
    return [
        torch.from_numpy(gate_rows([per_layer[i] for per_layer in statistics], recipe.shrinkage, recipe.spread)).float()
        for i in range(len(blocks))
    ]


def _entering(model: Any, blocks: Sequence[nn.Module], prompts: Sequence[Tokens], lanes: Lanes) -> list[Tensor]:
    """What enters each block on the prompts' tokens, padding left out: per block (tokens, hidden), float64."""
    own = threading.local()

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        own.inputs.append(inputs[0].reshape(-1, inputs[0].shape[-1])[own.real].double())

    def read(rows: Sequence[Tokens]) -> list[Tensor]:
        length = len(rows[-1])
        ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
        own.real = torch.tensor([[position < len(row) for position in range(length)] for row in rows]).flatten()
        own.inputs = []
        with torch.no_grad():
            model.base_model(input_ids=ids, use_cache=False)
        return list(own.inputs)

    hooks = [block.register_forward_pre_hook(keep) for block in blocks]
    try:
        ordered = sorted(prompts, key=len)
        parts_of_batches = lanes.map(read, [ordered[i : i + _BATCH_ROWS] for i in range(0, len(ordered), _BATCH_ROWS)])
    finally:
        for hook in hooks:
            hook.remove()
    return [torch.cat(parts) for parts in zip(*parts_of_batches, strict=True)]


def utilisation(model: Any, prompts: Mapping[Domain, Sequence[Tokens]], top_k: int, lanes: Lanes) -> dict[str, Any]:
    """Distribution of the prompts' tokens over the experts; `mixture_of_experts` documents the result."""
    names = [str(domain) for domain in prompts]
    gates = mixture_gates(model)
    pairs = torch.zeros(len(gates), len(names), dtype=torch.float64)
    first = torch.zeros(len(names), len(names), dtype=torch.float64)
    for row, own in enumerate(prompts.values()):
        for layer, hidden in enumerate(_entering(model, gates, own, lanes)):
            logits = hidden @ gates[layer].weight.double().T
            chosen = logits.topk(top_k, dim=-1).indices
            # Every domain counts the same, however long its prompts are
            pairs[layer] += torch.bincount(chosen.flatten(), minlength=len(names)) / chosen.numel() / len(names)
            first[row] += torch.bincount(chosen[:, 0], minlength=len(names)) / len(chosen) / len(gates)
    overall = pairs.mean(dim=0)
    entropy = float(-(overall * overall.clamp_min(1e-12).log()).sum())
    dead_in = {name: torch.nonzero(pairs[:, i] < _DEAD).flatten().tolist() for i, name in enumerate(names)}
    return {
        "utilisation": _named(names, overall),
        "balance": entropy / math.log(len(names)) if len(names) > 1 else 1.0,
        "per_layer": [_named(names, row) for row in pairs],
        "top1": {name: _named(names, first[row]) for row, name in enumerate(names)},
        "dead": [name for name, share in zip(names, overall.tolist(), strict=True) if share < _DEAD],
        "dead_in": {name: layers for name, layers in dead_in.items() if layers},
    }


def _named(names: Sequence[str], values: Tensor) -> dict[str, float]:
    return dict(zip(names, map(float, values), strict=True))
