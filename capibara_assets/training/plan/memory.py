"""Predicts the memory of a voter's process, with the arithmetic; includes activations if the model's shape is known."""

from dataclasses import dataclass
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import (
    DeviceStep,
    Method,
    Optimizer,
    Remat,
    Sharding,
    logits_at_once,
    training_memory,
)
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.models import ModelShape, from_config
from capibara_assets.planning.weights import WeightTable
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.settings import Settings

WEIGHT_BYTES = {"none": 4.0, "bf16": 2.0, "int8": 1.0, "nf4": 0.5}  # of a frozen weight in memory
_ZERO_STAGE = {"zero2": 2, "fsdp2": 3}


@dataclass(frozen=True)
class MemoryPlan:
    """Memory of one process on its device, without Python and the libraries themselves.

    Attributes:
        parts: bytes by purpose, with their `total`.
        arithmetic: the sum, for people.
        note: what is not counted, if anything.
        processes: number that share the device or machine at once.
    """

    parts: dict[str, int]
    arithmetic: str
    note: str | None
    processes: int

    @property
    def total(self) -> int:
        return self.parts["total"]

    @property
    def together(self) -> int:
        """Bytes of all processes that share the device or machine."""
        return self.total * self.processes


def shape_of(config: dict[str, Any], name: str) -> ModelShape | None:
    """The shape of a base; None where Transformers does not know it either: only its weights can be counted."""
    try:
        return from_config(config, name)
    except InputError:
        return None


@dataclass(frozen=True)
class TrainedModel:
    """The model that a voter trains, as far as memory and time depend on it.

    Attributes:
        weights: tensors of the base.
        shape: of the base; None for an unknown architecture.
        trainable: number of trained parameters.
        longest: tokens of the longest example.
    """

    weights: WeightTable
    shape: ModelShape | None
    trainable: int
    longest: int


def predict_memory(
    model: TrainedModel, settings: Settings, recipe: TrainingRecipe, *, device: str, together: int
) -> MemoryPlan:
    """Memory of one process during the step with the longest examples.

    Args:
        device: cpu or gpu.
        together: processes that share the device or machine.
    """
    weights, shape, trainable, longest = model.weights, model.shape, model.trainable, model.longest
    choice, world = recipe.training, recipe.hardware.processes
    stored = WEIGHT_BYTES[settings.quantization]
    state = 2 if choice.optimizer == "adamw_8bit" else 8
    if shape is None:
        parts = {
            "weights": round(weights.parameters * stored),
            "adapters": 4 * trainable,
            "gradients": 4 * trainable,
            "optimizer": state * trainable,
        }
        parts["total"] = sum(parts.values())
        sums = " + ".join(f"{value / 2**20:.1f} MiB {name}" for name, value in parts.items() if name != "total")
        note = "activations are not counted: the shape of this architecture is not known to the planner"
        return MemoryPlan(parts, f"{sums} = {parts['total'] / 2**20:.1f} MiB", note, together)
    rows = choice.micro_batch or max(1, choice.micro_batch_tokens // longest)
    compute = 4 if settings.precision == "fp32" else 2
    blocks = sum(module.parameters for module in shape.linear_modules)
    if settings.quantization == "int8":  # embeddings, head and norms stay in compute precision
        stored = (blocks + (shape.parameters - blocks) * compute) / shape.parameters
    step = DeviceStep(
        sequences=rows,
        sequence=longest,
        weight_bytes=stored,
        compute_bytes=compute,
        method=Method.LORA,
        optimizer=Optimizer.ADAMW_8BIT if choice.optimizer == "adamw_8bit" else Optimizer.ADAMW,
        remat=Remat.FULL if settings.gradient_checkpointing else Remat.NONE,
        lora_rank=settings.rank,
        lora_modules=tuple(name for name in settings.modules if name in {one.name for one in shape.linear_modules}),
        lora_dropout=settings.dropout > 0,
        nf4=settings.quantization == "nf4",
        logit_chunks=-(-rows * longest // max(1, logits_at_once(device) // shape.vocabulary)),
        eager=settings.attention == "eager",
        autocast=compute < 4,
        layout=Sharding.zero(_ZERO_STAGE.get(recipe.hardware.backend, 0), world),
    )
    memory = training_memory(shape, step)
    at_once = f"{rows} x {longest} tokens at once"
    every = settings.gradient_checkpointing
    notes = [f"with every layer checkpointed; every {every}th alone keeps more"] if every > 1 else []
    if shape.counted is not None:
        notes.append("activations are estimated from the sizes of the linear layers")
    said = "; ".join(notes) or None
    return MemoryPlan(memory.document(), f"{memory.arithmetic()} ({at_once}, {device})", said, together)


def target_budget(target: HardwareTarget) -> str:
    """A sentence on a target's memory."""
    each = "" if target.kind == "cpu" else " per device"
    return f"{target.name} has {target.memory.usable_gib:g} GiB usable{each}"
