"""Which of a domain's targets its voters train on: the first whose plan fits and keeps the budget."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import size
from capibara_assets.planning.adapters import plan_adapters
from capibara_assets.planning.cost import CostContext
from capibara_assets.planning.hardware.declaration import HardwareTarget
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.options import HardwareOptions
from capibara_assets.planning.plan_cost import lora_cost
from capibara_assets.planning.recipe import PlanningRecipe


@dataclass(frozen=True)
class ChosenPlan:
    """A domain's plan and the targets that can train by it.

    Attributes:
        target: hardware that the plan is for.
        usable: names of the targets that a training by this plan may use, in order; the plan's own first.
        refused: target -> why it is passed over, with the figures.
        options: what was chosen from.
    """

    plan: LoraPlan
    target: HardwareTarget
    shape: ModelShape
    usable: tuple[str, ...]
    refused: dict[str, str]
    options: HardwareOptions

    def documents(self) -> dict[str, Any]:
        """Name -> JSON document, to publish; the choice where there was one."""
        cost = lora_cost(self.plan, self.shape, self.target)
        documents = {"plan": self.plan.model_dump(mode="json"), "cost": cost.model_dump(mode="json")}
        return documents | ({"hardware": self.document()} if self.options.chosen else {})

    def document(self) -> dict[str, Any]:
        """The choice as JSON."""
        budget = {"max_usd": self.options.max_usd, "max_hours": self.options.max_hours}
        return {"usable": list(self.usable), "refused": self.refused, **budget}


def choose_plan(
    domain: str,
    statistics: Mapping[str, Any],
    base: ModelShape,
    options: HardwareOptions,
    recipe: PlanningRecipe,
    voters: int = 1,
) -> ChosenPlan:
    """The plan for the first target that it fits and whose predicted cost the budget allows.

    Later targets are for going on after a preemption, from the same resume points and so by the same plan: those that
    cannot train by it are refused, too. Only predictions made before any run decide, so that a training does not change
    the plan that it was made by.

    Raises:
        InputError: no target will do; says why for each, with the figures.
    """
    refused: dict[str, str] = {}
    chosen: LoraPlan | None = None
    usable: list[HardwareTarget] = []
    for target in options.targets:
        try:
            plan = chosen or plan_adapters(domain, statistics, base, target, recipe, voters)
        except InputError as error:
            if not options.chosen:
                raise
            refused[target.name] = str(error)
            continue
        problem = _unable(plan, target, recipe) if chosen else None
        problem = problem or options.too_dear(lora_cost(plan, base, target, CostContext(voters)).domain, target)
        if problem is None:
            usable.append(target)
            chosen = plan
        else:
            refused[target.name] = problem
    if chosen is None:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise InputError(
            f"{domain}: no hardware of the deployment will do: {reasons}. Raise the budget, or name other targets,"
            f" under hardware.domains.{domain} or hardware.default of the deployment's file"
        )
    names = tuple(target.name for target in usable)
    return ChosenPlan(chosen, usable[0], base, names, refused, options)


def _unable(plan: LoraPlan, target: HardwareTarget, recipe: PlanningRecipe) -> str | None:
    """Why a target cannot go on with what another one began by this plan; None if it can."""
    needed, budget = plan.estimates["memory_bytes_per_device"]["total"], target.usable_bytes * recipe.headroom
    if target.kind == "tpu":
        return None  # slices stand alone: it is the plan's own
    if target.chips < plan.devices:
        return f"has {target.chips} devices, and a voter planned for {plan.target} trains on {plan.devices}"
    if needed > budget:
        return f"a device holds {size(budget)}, and a step planned for {plan.target} takes {size(needed)}"
    if plan.precision == "bf16" and target.bf16 != "native":
        return f"does not multiply bf16 natively, as planned for {plan.target}"
    if plan.quantization not in target.quantization:
        return f"cannot train {plan.quantization}, as planned for {plan.target}"
    return None
