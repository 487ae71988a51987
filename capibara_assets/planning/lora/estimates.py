"""Estimates of a LoRA plan: parameters, memory, optimizer steps, FLOPs, hours and dollars."""

from dataclasses import dataclass
from math import ceil
from typing import Any

from capibara_assets.planning.accounting import Breakdown, DeviceStep, Method, flops_per_token
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.models import ModelShape


@dataclass(frozen=True)
class TrainingLength:
    """Length of a training: its examples, batch and epochs, and the optimizer steps that follow."""

    examples: int
    global_batch: int
    epochs: int

    @property
    def steps_per_epoch(self) -> int:
        return ceil(self.examples / self.global_batch)

    @property
    def steps(self) -> int:
        return self.steps_per_epoch * self.epochs


def estimates_of(
    base: ModelShape,
    step: DeviceStep,
    memory: Breakdown,
    length: TrainingLength,
    target: HardwareTarget,
    headroom: float,
    devices: int | None = None,
) -> dict[str, Any]:
    """The `estimates` of a LoRA plan's document.

    Args:
        base: shape of the base model.
        step: one device's share of a training step.
        memory: bytes of that step on one device.
        length: examples, batch and epochs of the training.
        target: hardware, for the memory budget, time and cost.
        headroom: share of the usable memory that the plan may fill.
        devices: those that train together; None: all of the target's.
    """
    trainable = base.lora_parameters(step.lora_rank, step.lora_modules)
    per_token = flops_per_token(base, step.sequence, method=Method.LORA, lora_parameters=trainable)
    tokens = length.steps * length.global_batch * step.sequence
    return {
        "parameters": base.parameters,
        "trainable_parameters": trainable,
        "adapter_bytes": 4 * trainable,
        "memory_bytes_per_device": memory.document(),
        "memory_budget_bytes": round(target.usable_bytes * headroom),
        "steps_per_epoch": length.steps_per_epoch,
        "optimizer_steps": length.steps,
        "tokens_at_most": tokens,
        "flops_convention": "4 x weights in matrix products + 6 x adapter, attention in full, no recomputation",
        "flops_per_token": per_token,
        **time_and_cost(per_token * tokens, target, devices or target.chips),
    }


def time_and_cost(flops: float, target: HardwareTarget, devices: int) -> dict[str, Any]:
    """Seconds and dollars for `flops` on `devices` of a target, from the family's best to its median efficiency.

    The target is paid for as a whole.
    Without a declared peak or price the value is None, and its note gives the reason.
    """
    peak = target.peak("bf16")
    if peak is None or target.efficiency is None:
        return {
            "seconds": None,
            "seconds_note": target.peaks_note or "no published efficiency",
            "usd": 0.0 if target.price.usd_per_hour == 0 else None,
            "usd_note": target.price.note,
        }
    seconds = [flops / (devices * peak * share) for share in (target.efficiency.best, target.efficiency.typical)]
    hourly = target.price.usd_per_hour
    return {
        "seconds": seconds,
        "seconds_note": f"compute only, from best to median published efficiency; {target.efficiency.source}."
        " Models far smaller than those spend their time elsewhere: a lower bound",
        "usd": None if hourly is None else [second / 3600 * hourly for second in seconds],
        "usd_note": target.price.note,
    }
