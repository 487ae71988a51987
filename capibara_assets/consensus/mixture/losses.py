"""Losses of a mixture and of the models it is compared with: base, dense merge, routed and per-domain adapters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capibara_assets.consensus.choose.experts import PromptedExample
from capibara_assets.consensus.choose.lanes import Lanes
from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.mixture.gate_training import routing
from capibara_assets.consensus.recipe import MoeRecipe
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.evaluation.routing.router import Router
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base

Held = Mapping[Domain, Sequence[PromptedExample]]
Row = dict[Domain, float]  # nats per token of each domain


def held(validation: Held, domains: Sequence[Domain], recipe: MoeRecipe) -> dict[Domain, list[PromptedExample]]:
    """Validation examples for the comparison.

    Raises:
        InputError: a domain has none with a supervised token.
    """
    chosen = {}
    for domain in domains:
        own = [one for one in validation.get(domain, ()) if one.encoded.supervised > 0]
        if not own:
            raise InputError(f"no validation examples for {domain}: the mixture cannot be judged there")
        lengths = [len(one.encoded.input_ids) for one in own]
        chosen[domain] = [own[i] for i in subsample(lengths, len(own), recipe.tokens_per_domain)]
    return chosen


def mixture_losses(model: Any, examples: Held, ks: Sequence[int], lanes: Lanes) -> dict[int, Row]:
    """Experts per token -> losses of a mixture; its gates are restored afterwards."""
    tokens = {domain: [one.encoded for one in own] for domain, own in examples.items()}
    by_k = {}
    for k in ks:
        with routing(model, k):
            by_k[k] = lanes.by_domain(model, tokens)
    return by_k


def contenders(
    base: Base,
    merged: Any,
    experts: Mapping[Domain, LoraAdapter],
    router: Router,
    examples: Held,
    lanes: Lanes,
) -> tuple[dict[str, Row], dict[Domain, float]]:
    """Losses of the contenders without a mixture, and the share of each domain's prompts routed to its own expert.

    "base"; "dense_merge"; "routed_adapters": each example under the adapter that the prompts' router picks, trained on
    the train split of the routing dataset as `expert_router` is; "oracle_adapters": each under its own domain's.

    Args:
        merged: the model of the dense merge.
        router: trained on prompts of the experts' domains.
    """
    tokens = {domain: [one.encoded for one in own] for domain, own in examples.items()}
    picked = {domain: np.array(router.pick([one.prompt for one in own])) for domain, own in examples.items()}
    nll = {arm: dict.fromkeys(examples, 0.0) for arm in ("routed_adapters", "oracle_adapters")}
    for expert, adapter in experts.items():
        wanted = {
            domain: np.flatnonzero((picked[domain] == str(expert)) | (domain == expert)).tolist() for domain in examples
        }
        asked = [(domain, i) for domain, chosen in wanted.items() for i in chosen]
        with applied(base.model, adapter):
            losses = lanes.losses(base.model, [tokens[domain][i] for domain, i in asked])
        for (domain, i), loss in zip(asked, losses.nll.tolist(), strict=True):
            nll["oracle_adapters"][domain] += loss if domain == expert else 0.0
            nll["routed_adapters"][domain] += loss if picked[domain][i] == str(expert) else 0.0
    supervised = {domain: sum(one.supervised for one in own) for domain, own in tokens.items()}
    rows = {
        "base": lanes.by_domain(base.model, tokens),
        "dense_merge": lanes.by_domain(merged, tokens),
        **{arm: {domain: total / supervised[domain] for domain, total in row.items()} for arm, row in nll.items()},
    }
    return rows, {domain: float((names == str(domain)).mean()) for domain, names in picked.items()}
