"""Plan a shipped training recipe as it stands (`capibara plan --preset`): the memory and time that it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from capibara_assets.deployment.declarations import read_mapping
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import (
    LOGIT_ELEMENTS,
    DeviceStep,
    Method,
    Remat,
    Sharding,
    size,
    training_memory,
)
from capibara_assets.planning.hardware.targets import HardwareTarget, find_target
from capibara_assets.planning.lora.estimates import TrainingLength, estimates_of
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe, lookup

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
    """The plan of a shipped training recipe, checked against the hardware's memory.

    Args:
        name: one of `presets` of the planning recipe.
        recipe: the deployment's planning recipe; its level limits the share of memory to fill.
        examples: training examples, for epochs and time.
        quantization: format of the frozen base, in place of the recipe's (`bf16`: unquantised).
        base: model in place of the preset's.
        target: hardware in place of the preset's.

    Raises:
        InputError: no such preset, or it does not fit in the target's memory; the message has the sum.
    """
    if name not in recipe.presets:
        raise InputError(f"no preset {name!r}; there are {', '.join(recipe.presets)}")
    run = recipe.presets[name]
    base = base or read_shape(run.model)
    target = target or find_target(run.target)
    stated = _RecipeFile(name, read_mapping(resources_root() / "recipes" / f"{name}.yaml"))
    held = quantization or stated.model["quantization"]
    if held not in _BYTES:
        raise InputError(f"preset {name}: the base cannot be held as {held!r}; there are {', '.join(_BYTES)}")
    step = stated.step(base, held)
    memory = training_memory(base, step)
    budget = target.usable_bytes * recipe.headroom
    if memory.total > budget:
        raise InputError(
            f"preset {name} with its base held as {held} does not fit on {target.name}: {base.name}"
            f" ({base.parameters / 1e9:.4g} B parameters) takes {memory.arithmetic()} on each device, which has"
            f" {target.memory.usable_gib:g} GiB usable, {size(budget)} at {recipe.headroom:.0%}."
            f" ZeRO-2 cuts gradients and optimizer, not weights: all {size(memory.weights)} of them lie on each of"
            f" {stated.devices} devices."
        )
    by_number = stated.training["epochs"] == "auto"
    epochs = lookup(recipe.lora.epochs, examples) if by_number else int(stated.training["epochs"])
    length = TrainingLength(examples, stated.global_batch, epochs)
    return LoraPlan(
        domain="preset",
        model=base.name,
        target=target.name,
        level=recipe.level,
        **stated.settings(),
        rank=step.lora_rank,
        modules=step.lora_modules,
        quantization="nf4" if held == "nf4" else "none",
        epochs=epochs,
        estimates=estimates_of(base, step, memory, length, target, recipe.headroom),
        reasons=_reasons(stated, memory.arithmetic(), size(budget), target, recipe),
    )


@dataclass(frozen=True)
class _RecipeFile:
    """The values of a training recipe's file that a plan needs."""

    name: str
    values: Mapping[str, Any]

    @property
    def model(self) -> Mapping[str, Any]:
        return self.values["model"]  # type: ignore[no-any-return]

    @property
    def training(self) -> Mapping[str, Any]:
        return self.values["training"]  # type: ignore[no-any-return]

    @property
    def hardware(self) -> Mapping[str, Any]:
        return self.values["hardware"]  # type: ignore[no-any-return]

    @property
    def length(self) -> int:
        return int(self.values["data"]["max_length"])

    @property
    def devices(self) -> int:
        return int(self.hardware["processes"])

    @property
    def stage(self) -> int:
        """ZeRO stage of the backend."""
        return _STAGES[self.hardware["backend"]]

    @property
    def global_batch(self) -> int:
        return int(self.training["global_batch"])

    def step(self, base: ModelShape, held: str) -> DeviceStep:
        """One device's share of a training step.

        Args:
            base: shape of the base model.
            held: format of the frozen base: a key of `_BYTES`.
        """
        micro, lora = int(self.training["micro_batch"]), self.model["lora"]
        return DeviceStep(
            sequences=micro,
            sequence=self.length,
            weight_bytes=_BYTES[held],
            compute_bytes=2,
            method=Method.LORA,
            lora_rank=int(lora["rank"]),
            lora_modules=tuple(lora["modules"] or (one.name for one in base.linear_modules)),
            lora_dropout=lora["dropout"] > 0,
            nf4=held == "nf4",
            remat=Remat.FULL if self.hardware["gradient_checkpointing"] else Remat.NONE,
            logit_chunks=ceil(micro * self.length * base.vocabulary / LOGIT_ELEMENTS),
            layout=Sharding.zero(self.stage, self.devices),
        )

    def settings(self) -> dict[str, Any]:
        """The plan's settings that are copied from the file unchanged."""
        data, lora, training, hardware = self.values["data"], self.model["lora"], self.training, self.hardware
        return {
            "alpha": lora["alpha"],
            "dropout": lora["dropout"],
            "use_rslora": bool(lora.get("use_rslora")),
            "precision": hardware["precision"],
            "micro_batch": int(training["micro_batch"]),
            "accumulation": int(training["accumulation"]),
            "global_batch": self.global_batch,
            "max_length": self.length,
            "packing": bool(data.get("packing", False)),
            "packing_length": self.length if data.get("packing") else None,
            "learning_rate": training["learning_rate"],
            "zero_stage": self.stage,
            "gradient_checkpointing": bool(hardware["gradient_checkpointing"]),
        }


def _reasons(of: _RecipeFile, sums: str, budget: str, target: HardwareTarget, recipe: PlanningRecipe) -> dict[str, str]:
    stated = f"as the recipe {of.name} states it"
    training, hardware = of.training, of.hardware
    product = f"{training['micro_batch']} x {hardware['processes']} x {training['accumulation']}"
    fields = set(LoraPlan.model_fields) - {"domain", "model", "target", "estimates", "reasons"}
    return dict.fromkeys(sorted(fields), stated) | {
        "level": f"{recipe.level}: at most {recipe.headroom:.0%} of the memory",
        "modules": stated if of.model["lora"]["modules"] else "every linear layer of the blocks",
        "global_batch": f"{product} = {training['global_batch']}, {stated}",
        "quantization": f"{stated}; with it {sums}, of {budget} on {target.name}",
        "epochs": "by the number of examples" if training["epochs"] == "auto" else stated,
    }
