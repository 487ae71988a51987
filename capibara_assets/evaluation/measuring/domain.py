"""Measure the contenders of a domain on its held-out items: losses of all of them, answers of some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.contenders import (
    PLAYBOOK_ARM,
    Contender,
    Framing,
    ModelContender,
    RoutedContender,
    last_user_message,
)
from capibara_assets.evaluation.contenders.losses import contender_losses, routed_losses
from capibara_assets.evaluation.items.dataset_files import examples_of_items
from capibara_assets.evaluation.items.items import Item
from capibara_assets.evaluation.measuring.measured import Measurements, answers_of, items_to_score, with_room
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.evaluation.routing.router import Router
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base

BASE, PLAYBOOK, CONSENSUS, MERGED, ROUTED, PROMOTED = "base", "playbook", "consensus", "merged", "routed", "promoted"
EXPERT = "expert:"


@dataclass(frozen=True)
class DomainModels:
    """The models of a domain, from which its contenders are made.

    Attributes:
        playbook: the system message of the playbook arms; empty: there are none (contract 3).
        experts: the other domains' consensus adapters, by domain.
        merged: folder of the merged model.
        promoted: the adapter that is served for the domain now, where it is not `consensus`.
    """

    domain: str
    base: Base
    playbook: str
    consensus: LoraAdapter
    voters: Mapping[str, LoraAdapter] = field(default_factory=dict)
    experts: Mapping[str, LoraAdapter] = field(default_factory=dict)
    merged: Path | None = None
    router: Router | None = None
    promoted: LoraAdapter | None = None

    def names(self, arm: str) -> list[str]:
        """The names of the existing contenders of an arm of the recipe."""
        return {
            BASE: [BASE],
            PLAYBOOK: [PLAYBOOK] if self.playbook else [],
            CONSENSUS: [CONSENSUS],
            CONSENSUS + PLAYBOOK_ARM: [CONSENSUS + PLAYBOOK_ARM] if self.playbook else [],
            "voters": list(self.voters),
            "experts": [EXPERT + name for name in self.experts],
            MERGED: [MERGED] if self.merged is not None else [],
            ROUTED: [ROUTED] if self.router is not None else [],
            PROMOTED: [PROMOTED] if self.promoted is not None else [],
        }[arm]

    def contender(self, name: str) -> Contender:
        """The contender of that name."""
        if name == ROUTED and self.router is not None:
            adapters = {**self.experts, self.domain: self.consensus}
            return RoutedContender(name, self.base, adapters, self.router.route)
        return self.model(name)

    def model(self, name: str) -> ModelContender:
        """The contender of that name, which is not the routed one."""
        framed = Framing(self.playbook if name == PLAYBOOK or name.endswith(PLAYBOOK_ARM) else "")
        if name in (BASE, PLAYBOOK):
            return ModelContender(name, self.base, framing=framed)
        if name == MERGED and self.merged is not None:
            return ModelContender(name, self.merged)
        return ModelContender(name, self.base, self.adapters()[name.removesuffix(PLAYBOOK_ARM)], framed)

    def adapters(self) -> dict[str, LoraAdapter]:
        """Contender → its adapter on the base."""
        adapters = {CONSENSUS: self.consensus, **self.voters}
        adapters |= {EXPERT + name: adapter for name, adapter in self.experts.items()}
        return adapters | ({PROMOTED: self.promoted} if self.promoted is not None else {})


def measure(
    models: DomainModels, items: Sequence[Item], recipe: EvaluationRecipe, work: Path | None = None
) -> Measurements:
    """Compute losses of every contender of the recipe on a sample of the items, and answers of those that generate.

    Args:
        work: folder for the journal of answers, from which an interrupted evaluation resumes; None: no journal.
    """
    names = [name for arm in recipe.contenders for name in models.names(arm)]
    scored = items_to_score(items, recipe.max_test_examples)
    losses = domain_losses(models, scored, recipe, names)
    fit = set(losses["example_id"])
    left_out = {item.item_id: f"longer than {recipe.max_length} tokens" for item in scored if item.item_id not in fit}
    answering = [models.contender(name) for arm in recipe.generation.contenders for name in models.names(arm)]
    roomy, without_room = with_room(answering, items, recipe.decoding)
    answers, usage = answers_of(answering, roomy, recipe, work)
    return Measurements(names, losses, answers, usage=usage, left_out=left_out | without_room)


def domain_losses(
    models: DomainModels, items: Sequence[Item], recipe: EvaluationRecipe, names: Sequence[str]
) -> pl.DataFrame:
    """Rows of `ExampleLoss` of the named contenders; `routed` reuses the losses of the experts."""
    # Whether an example fits is decided with the playbook, also where no contender of the recipe has it
    wanted = dict.fromkeys((BASE, *models.names(PLAYBOOK), *names))
    if routed := wanted.keys() & {ROUTED}:
        wanted |= dict.fromkeys((CONSENSUS, *models.names("experts")))
    contenders = [models.model(name) for name in wanted if name not in routed]
    losses = contender_losses(models.base, examples_of_items(items), contenders, recipe)
    if routed and models.router is not None:
        losses = pl.concat([losses, routed_losses(losses, _picks(models, models.router, items))])
    return losses.filter(pl.col("contender").is_in(list(names))).sort("contender", "example_id")


def _picks(models: DomainModels, router: Router, items: Sequence[Item]) -> dict[str, str]:
    """Item → the contender that the router sends its prompt to."""
    routed = router.route([last_user_message(item.prompt) for item in items])
    named: dict[str | None, str] = {None: BASE, models.domain: CONSENSUS}
    named |= {name: EXPERT + name for name in models.experts}
    if unknown := sorted({name for name in routed if name is not None} - named.keys()):
        raise InputError(
            f"the router sends prompts to {', '.join(unknown)}, whose consensus adapter is not there: materialize "
            "consensus_checkpoint of these domains, or expert_router again"
        )
    return {item.item_id: named[name] for item, name in zip(items, routed, strict=True)}
