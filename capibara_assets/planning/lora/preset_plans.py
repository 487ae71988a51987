"""Plan a shipped training recipe as it stands (`capibara plan --preset`): the memory and time that it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from capibara_assets.deployment.declarations import read_mapping
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.modeling.lora.targets import EVERY_LINEAR
from capibara_assets.planning.accounting import (
    DeviceStep,
    Method,
    Remat,
    Sharding,
    logits_at_once,
    size,
    training_memory,
)
from capibara_assets.planning.hardware.targets import HardwareTarget, find_target
from capibara_assets.planning.lora.estimates import TrainingLength, estimates_of
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.planning.lora.throughput import AskedRate
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe, lookup

_STAGES = {"single": 0, "ddp": 0, "accelerate": 0, "zero2": 2, "fsdp2": 3}
_BYTES = {"none": 4, "bf16": 2, "int8": 1, "nf4": 2}  # of a frozen weight; NF4 is counted by its own bits
_FORMATS = ", ".join(_BYTES)


def plan_preset(name: str, recipe: PlanningRecipe, *, examples: int) -> LoraPlan:
    """The plan of a shipped training recipe, checked against the hardware's memory.

    Args:
        name: one of `presets` of the planning recipe.
        recipe: the deployment's planning recipe; its level limits the share of memory to fill.
        examples: training examples, for epochs and time.

    Raises:
        InputError: as `preset_recipe` and `plan_stated`.
    """
    stated = preset_recipe(name, recipe)
    run = recipe.presets[name]
    return plan_stated(stated, recipe, examples, read_shape(run.model), find_target(run.target))


def preset_recipe(
    name: str,
    recipe: PlanningRecipe,
    *,
    quantization: str | None = None,
    max_length: int | None = None,
    domain: str | None = None,
) -> "PresetRecipe":
    """The values of a preset's training recipe.

    Args:
        name: one of `presets` of the planning recipe.
        recipe: the deployment's planning recipe.
        quantization: format of the frozen base, in place of the recipe's.
        max_length: tokens of a sequence, in place of the recipe's.
        domain: of the adapter, which it is named after.

    Raises:
        InputError: no such preset, or a base that cannot be held so.
    """
    if name not in recipe.presets:
        raise InputError(f"no preset {name!r}; there are {', '.join(recipe.presets)}")
    values = dict(read_mapping(resources_root() / "recipes" / f"{name}.yaml"))
    changed: list[str] = []
    if quantization is not None:
        if quantization not in _BYTES:
            raise InputError(f"preset {name}: the base cannot be held as {quantization!r}; there are {_FORMATS}")
        values["model"] = {**values["model"], "quantization": quantization}
        changed.append("quantization")
    if max_length is not None:
        values["data"] = {**values["data"], "max_length": max_length}
        changed.append("max_length")
    if domain is not None:
        values["name"] = f"{domain}-{name}"
    return PresetRecipe(name, values, tuple(changed), domain or "preset")


def plan_stated(
    stated: "PresetRecipe",
    recipe: PlanningRecipe,
    examples: int,
    base: ModelShape,
    target: HardwareTarget,
    throughput: str | None = None,
) -> LoraPlan:
    """The plan of a training recipe as its values state it, checked against the hardware's memory.

    Args:
        stated: the recipe's values.
        recipe: the deployment's planning recipe.
        examples: training examples, for epochs and time.
        base: the model.
        target: the hardware.
        throughput: a target such as "24800 tokens/s", which the prediction is compared with: nothing is left to choose.

    Raises:
        InputError: a TPU target, more processes than devices, sequences beyond the model's positions, it does not fit
            in the target's memory, or an impossible throughput; the message has the sum.
    """
    _require_possible(stated, base, target)
    step = stated.step(base, target)
    memory = training_memory(base, step)
    budget = target.usable_bytes * recipe.headroom
    if memory.total > budget:
        raise InputError(
            f"preset {stated.name} with its base held as {stated.held} does not fit on {target.name}: {base.name}"
            f" ({base.parameters / 1e9:.4g} B parameters) takes {memory.arithmetic()} on each device, which has"
            f" {target.memory.usable_gib:g} GiB usable, {size(budget)} at {recipe.headroom:.0%}."
            f" ZeRO-2 cuts gradients and optimizer, not weights: all {size(memory.weights)} of them lie on each of"
            f" {stated.devices} devices."
        )
    by_number = stated.training["epochs"] == "auto"
    epochs = lookup(recipe.lora.epochs, examples) if by_number else int(stated.training["epochs"])
    length = TrainingLength(examples, stated.global_batch, epochs)
    return LoraPlan(
        domain=stated.domain,
        model=base.name,
        target=target.name,
        level=recipe.level,
        **stated.settings(),
        rank=step.lora_rank,
        modules=step.lora_modules,
        quantization="nf4" if stated.held == "nf4" else "none",
        epochs=epochs,
        throughput_target=AskedRate.of(throughput, base, step, target, stated.devices).beside(step, stated.global_batch)
        if throughput is not None
        else (),
        estimates=estimates_of(base, step, memory, length, target, recipe.headroom),
        reasons=_reasons(stated, memory.arithmetic(), size(budget), target, recipe),
    )


def _require_possible(stated: "PresetRecipe", base: ModelShape, target: HardwareTarget) -> None:
    if target.kind == "tpu":
        raise InputError(
            f"preset {stated.name}: {target.name} is a TPU slice, which the PyTorch trainer cannot use: name a CPU or"
            " GPU target, or plan the slice with --model"
        )
    if target.kind == "gpu" and stated.devices > target.chips:
        raise InputError(
            f"preset {stated.name} runs {stated.devices} processes, a device each, but {target.name} has"
            f" {target.chips}: name a target with as many"
        )
    if base.context is not None and stated.length > base.context:
        raise InputError(
            f"preset {stated.name}: sequences of {stated.length} tokens are longer than the {base.context} positions of"
            f" {base.name}: give --sequence at most that"
        )


@dataclass(frozen=True)
class PresetRecipe:
    """The values of a training recipe's file, with those that the command line changed.

    Attributes:
        name: of the preset.
        values: as in the file.
        changed: keys of the plan whose value is not the file's.
        domain: of the adapter.
    """

    name: str
    values: Mapping[str, Any]
    changed: tuple[str, ...] = ()
    domain: str = "preset"

    @property
    def held(self) -> str:
        """Format of the frozen base: a key of `_BYTES`."""
        return str(self.model["quantization"])

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

    def step(self, base: ModelShape, target: HardwareTarget) -> DeviceStep:
        """One device's share of a training step of this base on a target."""
        micro, lora = int(self.training["micro_batch"]), self.model["lora"]
        return DeviceStep(
            sequences=micro,
            sequence=self.length,
            weight_bytes=_BYTES[self.held],
            compute_bytes=2,
            method=Method.LORA,
            lora_rank=int(lora["rank"]),
            lora_modules=tuple(lora["modules"] or base.lora_targets),
            lora_dropout=lora["dropout"] > 0,
            nf4=self.held == "nf4",
            remat=Remat.FULL if self.hardware["gradient_checkpointing"] else Remat.NONE,
            logit_chunks=ceil(micro * self.length * base.vocabulary / logits_at_once(target.kind)),
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


def _reasons(
    of: PresetRecipe, sums: str, budget: str, target: HardwareTarget, recipe: PlanningRecipe
) -> dict[str, str]:
    stated = f"as the recipe {of.name} states it"
    training, hardware = of.training, of.hardware
    product = f"{training['micro_batch']} x {hardware['processes']} x {training['accumulation']}"
    fields = set(LoraPlan.model_fields) - {"domain", "model", "target", "throughput_target", "estimates", "reasons"}
    return dict.fromkeys(sorted(fields), stated) | {
        "level": f"{recipe.level}: at most {recipe.headroom:.0%} of the memory",
        "modules": stated if of.model["lora"]["modules"] else EVERY_LINEAR,
        "global_batch": f"{product} = {training['global_batch']}, {stated}",
        "quantization": f"{'as asked for' if 'quantization' in of.changed else stated}; with it {sums}, of {budget} on"
        f" {target.name}",
        "epochs": "by the number of examples" if training["epochs"] == "auto" else stated,
        **{name: f"as asked for, in place of the recipe {of.name}'s" for name in of.changed if name != "quantization"},
    }
