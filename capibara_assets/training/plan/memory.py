"""How much memory a voter's process will hold, with the sum: from the model's shape where it is known."""

from dataclasses import dataclass
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import (
    LOGIT_ELEMENTS,
    DeviceStep,
    Method,
    Optimizer,
    Remat,
    Sharding,
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
    """Bytes that one process holds on its device, besides Python and the libraries themselves.

    Attributes:
        parts: bytes by what they are for, with their `total`.
        arithmetic: the sum as a person reads it.
        note: what is not counted, if anything.
        processes: that share the device or machine at once.
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
    """The shape of a base; None for an architecture whose shape is not known (its weights are counted all the same)."""
    try:
        return from_config(config, name)
    except InputError:
        return None


def predict_memory(
    weights: WeightTable,
    shape: ModelShape | None,
    settings: Settings,
    recipe: TrainingRecipe,
    trainable: int,
    longest: int,
    *,
    device: str,
    together: int,
) -> MemoryPlan:
    """Memory of one process during the step with the longest examples.

    Args:
        shape: of the base, where it is known.
        trainable: parameters.
        longest: tokens of the longest example.
        device: cpu or gpu.
        together: processes that share the device or machine.
    """
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
        logit_chunks=-(-rows * longest // max(1, LOGIT_ELEMENTS // shape.vocabulary)),
        eager=settings.attention == "eager",
        autocast=compute < 4,
        layout=Sharding.zero(_ZERO_STAGE.get(recipe.hardware.backend, 0), world),
    )
    found = training_memory(shape, step)
    at_once = f"{rows} x {longest} tokens at once"
    every = settings.gradient_checkpointing
    sparse = f"with every layer checkpointed; every {every}th alone keeps more" if every > 1 else None
    return MemoryPlan(found.document(), f"{found.arithmetic()} ({at_once}, {device})", sparse, together)


def target_budget(target: HardwareTarget) -> str:
    """A target's memory as a person reads it."""
    each = "" if target.kind == "cpu" else " per device"
    return f"{target.name} has {target.memory.usable_gib:g} GiB usable{each}"
