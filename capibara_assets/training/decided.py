"""Precedence of training settings: the recipe decides what it states, the domain's plan the rest.

The trainer gets a recipe in which everything is decided, and beside it a record of who decided what, and why.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.deployment.declarations import declared
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.training.recipe import Backend, TrainingRecipe
from capibara_assets.training.strategy import incompatibility

Who = Literal["recipe", "plan"]

# Settings that `step.settings.resolve` takes from the recipe or else from the plan: the recipe's section, their name.
_RESOLVED = (
    *(("model.lora", name) for name in ("rank", "alpha", "dropout", "modules", "use_rslora")),
    ("data", "max_length"),
    *(("training", name) for name in ("epochs", "global_batch", "learning_rate")),
    ("hardware", "gradient_checkpointing"),
)


class Decision(BaseModel):
    """One value that a training uses.

    Attributes:
        name: the recipe's key.
        by: who decided it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    value: Any
    by: Who
    reason: str


class PlannedRun(BaseModel):
    """The planned hardware and the origin of each setting; informational only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    kind: Literal["cpu", "gpu", "tpu"] = Field(description="of the target's devices")
    decisions: tuple[Decision, ...] = ()


def decide(
    recipe: TrainingRecipe, plan: Mapping[str, Any], target: HardwareTarget
) -> tuple[TrainingRecipe, PlannedRun]:
    """Fill the recipe's missing backend, processes, precision, quantisation and micro-batch from the plan.

    A key that the recipe's file writes is its own choice, also where it writes the default. What the plan decides is
    adapted to the recipe's other choices where both cannot be had, and the reason says so.

    Args:
        plan: a `LoraPlan` document.
        target: hardware to train on.

    Raises:
        InputError: the plan is for another target or of an older version, or the recipe's choices contradict it.
    """
    planned = declared(LoraPlan, plan, "lora_config (of another version? materialize it again)")
    if planned.target != target.name:
        raise InputError(
            f"lora_config of {planned.domain} was planned for {planned.target}, and the training is for {target.name}: "
            f"materialize lora_config for {target.name} first"
        )
    backend = _backend(recipe, planned)
    processes = _processes(recipe, planned, backend)
    precision = _precision(recipe, planned)
    quantization = _quantization(recipe, planned, precision, target)
    rows = _micro_batch(recipe, planned, processes)
    decisions = (backend, processes, precision, quantization, rows, *_others(recipe, planned))
    hardware = {"backend": backend.value, "processes": processes.value, "precision": precision.value}
    values = recipe.model_dump()
    values["hardware"] |= hardware
    if quantization.by == "plan" and quantization.value == "bf16":  # others reach the trainer with the plan itself
        values["model"]["quantization"] = "bf16"
    if rows.by == "plan":
        values["training"]["micro_batch"] = rows.value
    run = PlannedRun(target=target.name, kind=target.kind, decisions=decisions)
    both = f"recipe {recipe.name} with the plan of {planned.domain} for {target.name}"
    return declared(TrainingRecipe, values, both), run


def planned_backend(plan: LoraPlan) -> Backend:
    """The backend that trains a plan's voter on its devices."""
    return "zero2" if plan.zero_stage else "ddp" if plan.devices > 1 else "single"


def planned_quantization(plan: LoraPlan) -> Literal["none", "bf16", "nf4"]:
    """How a plan's frozen base is held; a plan that computes in bf16 counts two bytes for a weight."""
    return "nf4" if plan.quantization == "nf4" else "bf16" if plan.precision == "bf16" else "none"


def _backend(recipe: TrainingRecipe, plan: LoraPlan) -> Decision:
    own = recipe.hardware
    if own.model_fields_set & {"backend", "processes"}:
        return _by_recipe("hardware.backend", own.backend)
    wanted, reason = planned_backend(plan), plan.reasons["zero_stage"]
    backends: tuple[Backend, ...] = ("zero2", "ddp", "single")
    for backend in backends[backends.index(wanted) :]:
        problem = _refusal(recipe, backend)
        if problem is None:
            return Decision(name="hardware.backend", value=backend, by="plan", reason=reason)
        reason = f"the plan says {wanted}, but {problem}"
    raise AssertionError("every recipe can be trained by one process")


def _refusal(recipe: TrainingRecipe, backend: Backend) -> str | None:
    """Why this recipe cannot be trained by a backend; None if it can."""
    if backend == "single":
        return None
    tried = recipe.model_copy(update={"hardware": recipe.hardware.model_copy(update={"backend": backend})})
    for voter in recipe.voters:
        if problem := incompatibility(voter.strategy, tried):
            return f"strategy {voter.strategy.kind}: {problem}"
    if backend == "zero2" and recipe.training.optimizer != "adamw":
        return f"zero2 shares out adamw, and the recipe says {recipe.training.optimizer}"
    if backend == "zero2" and recipe.hardware.precision == "fp16":
        return "zero2 does not scale losses, and the recipe's precision is fp16"
    return None


def _processes(recipe: TrainingRecipe, plan: LoraPlan, backend: Decision) -> Decision:
    name, own = "hardware.processes", recipe.hardware
    if "processes" in own.model_fields_set:
        return _by_recipe(name, own.processes)
    if backend.value == "single":
        return Decision(name=name, value=1, by=backend.by, reason="backend single")
    reason = f"{plan.devices} devices train one voter: {plan.reasons['zero_stage']}"
    return Decision(name=name, value=plan.devices, by="plan", reason=reason)


def _precision(recipe: TrainingRecipe, plan: LoraPlan) -> Decision:
    if "precision" in recipe.hardware.model_fields_set:
        return _by_recipe("hardware.precision", recipe.hardware.precision)
    return Decision(name="hardware.precision", value=plan.precision, by="plan", reason=plan.reasons["precision"])


def _quantization(recipe: TrainingRecipe, plan: LoraPlan, precision: Decision, target: HardwareTarget) -> Decision:
    name = "model.quantization"
    if recipe.model.quantization is not None:
        return _by_recipe(name, recipe.model.quantization)
    value, reason = planned_quantization(plan), plan.reasons["quantization"]
    if value == "bf16" and precision.value != "bf16":
        value, reason = "none", f"{reason}; float32, for precision {precision.value}"
    elif value == "bf16" and target.kind == "cpu" and _fits_in_float32(plan):
        value, reason = "none", f"{reason}; float32 fits as well, which fused layers on a processor want"
    elif value == "bf16":
        reason += "; in bf16, as its memory is counted"
    return Decision(name=name, value=value, by="plan", reason=reason)


def _fits_in_float32(plan: LoraPlan) -> bool:
    held = plan.estimates
    whole = held["memory_bytes_per_device"]["total"] + 2 * held["parameters"]
    return bool(whole <= held["memory_budget_bytes"])


def _micro_batch(recipe: TrainingRecipe, plan: LoraPlan, processes: Decision) -> Decision:
    """The plan's rows of a pass, as far as they divide the recipe's batch and hold the plan's tokens."""
    name, own = "training.micro_batch", recipe.training
    if own.micro_batch is not None:
        return _by_recipe(name, own.micro_batch)
    by_tokens = f"at most {own.micro_batch_tokens} tokens at once"
    if own.accumulation is not None or "micro_batch_tokens" in own.model_fields_set:
        return _by_recipe(name, by_tokens)
    whole, reason = own.global_batch or plan.global_batch, plan.reasons["micro_batch"]
    share, left = divmod(whole, int(processes.value))
    if left:
        reason = f"{whole} examples a step cannot be shared evenly by {processes.value} processes: by their tokens"
        return Decision(name=name, value=by_tokens, by="recipe", reason=reason)
    length = recipe.data.max_length or plan.max_length
    most = max(1, plan.micro_batch * plan.max_length // max(length, plan.max_length))
    rows = next(count for count in range(min(most, share), 0, -1) if share % count == 0)
    if rows != plan.micro_batch:
        reason = f"{plan.micro_batch} in the plan, {rows} with the recipe's batch and lengths; {reason}"
    return Decision(name=name, value=rows, by="plan", reason=reason)


def _others(recipe: TrainingRecipe, plan: LoraPlan) -> list[Decision]:
    """Who decides what the settings take from the recipe or else from the plan."""
    decisions = []
    for section, name in _RESOLVED:
        own: Any = recipe
        for part in (*section.split("."), name):
            own = getattr(own, part)
        path = f"{section}.{name}"
        if own is None:
            chosen = getattr(plan, name)
            decisions.append(Decision(name=path, value=chosen, by="plan", reason=plan.reasons[name]))
        else:
            decisions.append(_by_recipe(path, own))
    return decisions


def _by_recipe(name: str, value: Any) -> Decision:
    return Decision(name=name, value=value, by="recipe", reason="the recipe says so")
