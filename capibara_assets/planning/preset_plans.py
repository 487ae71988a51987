"""Plans of the training recipes that ship: their values as they stand, with the memory and time that they imply."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from capibara_assets.declarations import read_mapping
from capibara_assets.errors import InputError
from capibara_assets.locations import resources_root
from capibara_assets.planning.accounting import (
    LOGIT_ELEMENTS,
    Layout,
    Method,
    Remat,
    Step,
    flops_per_token,
    size,
    training_memory,
)
from capibara_assets.planning.hardware import HardwareTarget, find_target
from capibara_assets.planning.lora import LoraPlan, time_and_cost
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe, climb

_STAGES = {"single": 0, "ddp": 0, "accelerate": 0, "zero2": 2, "fsdp2": 3}
_BYTES = {"none": 4, "bf16": 2, "int8": 1, "nf4": 2}  # of a frozen weight; NF4 is counted by its own bits


def plan_preset(
    name: str,
    recipe: PlanningRecipe,
    *,
    examples: int,
    quantization: str | None = None,
    base: ModelShape | None = None,
    target: HardwareTarget | None = None,
) -> LoraPlan:
    """The plan that a shipped training recipe is: every value is its own, and is held against the hardware.

    Args:
        name: one of `presets` of the planning recipe.
        recipe: the deployment's choices; its level says how much of the memory may be filled.
        examples: training examples, for epochs and time.
        quantization: how the base is held, in place of the recipe's (`bf16`: the unquantised form).
        base: another model than the preset's.
        target: other hardware than the preset's.

    Raises:
        InputError: no such preset, or it does not fit in the target's memory; with the sum.
    """
    if name not in recipe.presets:
        raise InputError(f"no preset {name!r}; there are {', '.join(recipe.presets)}")
    run = recipe.presets[name]
    base = base or read_shape(run.model)
    target = target or find_target(run.target)
    values = read_mapping(resources_root() / "recipes" / f"{name}.yaml")
    model, training, hardware = values["model"], values["training"], values["hardware"]
    lora = model["lora"]
    held = quantization or model["quantization"]
    if held not in _BYTES:
        raise InputError(f"preset {name}: the base cannot be held as {held!r}; there are {', '.join(_BYTES)}")
    modules = tuple(lora["modules"] or (one.name for one in base.linear_modules))
    length, micro = int(values["data"]["max_length"]), int(training["micro_batch"])
    devices, stage = int(hardware["processes"]), _STAGES[hardware["backend"]]
    step = Step(
        sequences=micro,
        sequence=length,
        weight_bytes=_BYTES[held],
        compute_bytes=2,
        method=Method.LORA,
        lora_rank=int(lora["rank"]),
        lora_modules=modules,
        lora_dropout=lora["dropout"] > 0,
        nf4=held == "nf4",
        remat=Remat.FULL if hardware["gradient_checkpointing"] else Remat.NONE,
        logit_chunks=ceil(micro * length * base.vocabulary / LOGIT_ELEMENTS),
        layout=Layout.zero(stage, devices),
    )
    memory = training_memory(base, step)
    budget = target.usable_bytes * recipe.headroom
    if memory.total > budget:
        frozen = size(memory.weights)
        raise InputError(
            f"preset {name} with its base held as {held} does not fit on {target.name}: {base.name}"
            f" ({base.parameters / 1e9:.4g} B parameters) takes {memory.arithmetic()} on each device, which has"
            f" {target.memory.usable_gib:g} GiB usable, {size(budget)} at {recipe.headroom:.0%}."
            f" ZeRO-2 cuts gradients and optimizer, not weights: all {frozen} of them lie on each of {devices} devices."
        )
    epochs = climb(recipe.lora.epochs, examples) if training["epochs"] == "auto" else int(training["epochs"])
    whole = int(training["global_batch"])
    adapter = base.lora_parameters(step.lora_rank, modules)
    per_token = flops_per_token(base, length, method=Method.LORA, lora_parameters=adapter)
    steps = ceil(examples / whole)
    tokens = steps * epochs * whole * length
    return LoraPlan(
        domain="preset",
        model=base.name,
        target=target.name,
        level=recipe.level,
        rank=step.lora_rank,
        alpha=lora["alpha"],
        dropout=lora["dropout"],
        modules=modules,
        use_rslora=bool(lora.get("use_rslora")),
        quantization="nf4" if held == "nf4" else "none",
        precision=hardware["precision"],
        micro_batch=micro,
        accumulation=int(training["accumulation"]),
        global_batch=whole,
        max_length=length,
        packing=bool(values["data"].get("packing", False)),
        packing_length=length if values["data"].get("packing") else None,
        learning_rate=training["learning_rate"],
        epochs=epochs,
        zero_stage=stage,
        gradient_checkpointing=bool(hardware["gradient_checkpointing"]),
        estimates={
            "parameters": base.parameters,
            "trainable_parameters": adapter,
            "adapter_bytes": 4 * adapter,
            "memory_bytes_per_device": memory.document(),
            "memory_budget_bytes": round(budget),
            "steps_per_epoch": steps,
            "optimizer_steps": steps * epochs,
            "tokens_at_most": tokens,
            "flops_convention": "4 x weights in matrix products + 6 x adapter, attention in full, no recomputation",
            "flops_per_token": per_token,
            **time_and_cost(per_token * tokens, target),
        },
        reasons=_reasons(name, values, memory.arithmetic(), size(budget), target, recipe),
    )


def _reasons(
    name: str, values: Mapping[str, Any], sums: str, budget: str, target: HardwareTarget, recipe: PlanningRecipe
) -> dict[str, str]:
    stated = f"as the recipe {name} states it"
    training, hardware = values["training"], values["hardware"]
    product = f"{training['micro_batch']} x {hardware['processes']} x {training['accumulation']}"
    fields = set(LoraPlan.model_fields) - {"domain", "model", "target", "estimates", "reasons"}
    return dict.fromkeys(sorted(fields), stated) | {
        "level": f"{recipe.level}: at most {recipe.headroom:.0%} of the memory",
        "modules": stated if values["model"]["lora"]["modules"] else "every linear layer of the blocks",
        "global_batch": f"{product} = {training['global_batch']}, {stated}",
        "quantization": f"{stated}; with it {sums}, of {budget} on {target.name}",
        "epochs": "by the number of examples" if training["epochs"] == "auto" else stated,
    }
