"""Predicts a training's time and cost: from published efficiency, or from speed measured on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from capibara_assets.planning.accounting import Attention, Method, flops_per_token
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.weights import WeightTable
from capibara_assets.training.plan.schema import MeasuredSpeed, TimePlan, VoterPlan

_FORWARD = 0.5  # a forward pass costs half of LoRA's training step: 2N of 4N


def training_flops(shape: ModelShape | None, weights: WeightTable, trainable: int, length: int) -> float:
    """FLOPs per token of a LoRA step; for an unknown shape 4 x all matrices + 6 x adapter, without attention scores.

    Args:
        length: tokens of an example, on average.
    """
    if shape is None:
        return 4.0 * weights.matrix_parameters + 6.0 * trainable
    return flops_per_token(shape, length, method=Method.LORA, attention=Attention.CAUSAL, lora_parameters=trainable)


@dataclass(frozen=True)
class ComputeSetup:
    """How voters compute.

    Attributes:
        precision: of matrix products; its peak counts.
        processes: of one voter.
        parallel: voters at a time; more than the devices hold share them, which does not change the time.
    """

    precision: str
    processes: int
    parallel: int


def predict_time(
    voters: Sequence[VoterPlan],
    flops: float,
    target: HardwareTarget | None,
    speed: MeasuredSpeed | None,
    compute: ComputeSetup,
) -> TimePlan:
    """Predict seconds and cost of all voters together.

    Args:
        flops: of a training token.
        target: None for this machine.
        speed: measured on this machine; takes precedence over anything computed.
    """
    price = target.price if target else None
    hourly, note = (price.usd_per_hour, price.note) if price else (None, "this machine has no declared price")
    if speed is not None:
        each = [
            speed.start_s
            + voter.tokens / speed.tokens_per_s
            + voter.validations * voter.validation_tokens / speed.validation_tokens_per_s
            for voter in voters
        ]
        total = _side_by_side(each, compute.parallel)
        source = f"measured on this machine: {speed.tokens_per_s:,.0f} tokens/s over {speed.steps} steps of this run"
        return TimePlan((total, total), _cost((total, total), hourly), source, note, speed.tokens_per_s, tuple(each))
    peak = target.peak(compute.precision) or target.peak("bf16") if target else None
    if target is None or peak is None or target.efficiency is None:
        why = (target.peaks_note or "no published efficiency") if target else "no hardware target was named"
        source = f"until the first steps are measured: {why}; a probe (--probe) measures some before the run"
        free = (0.0, 0.0) if hourly == 0 else None
        return TimePlan(None, free, source, note, None)
    works = [flops * (voter.tokens + _FORWARD * voter.validations * voter.validation_tokens) for voter in voters]
    work = sum(works)
    used = min(compute.processes, target.chips)
    best, typical = target.efficiency.best, target.efficiency.typical
    at_once = min(compute.parallel, target.chips // used)
    longest = _side_by_side(works, at_once)
    seconds = (longest / (used * peak * best), longest / (used * peak * typical))
    beside = f", {at_once} voters side by side" if at_once > 1 else ""
    source = (
        f"computed: {work:.3g} FLOPs / ({used} x {peak / 1e12:g} TFLOP/s x {best:.0%} to {typical:.0%}){beside}, "
        f"the best to the median of published runs; a lower bound for small models; {target.efficiency.source}"
    )
    rate = used * peak * typical
    return TimePlan(seconds, _cost(seconds, hourly), source, note, rate / flops, tuple(one / rate for one in works))


def _cost(seconds: tuple[float, float], hourly: float | None) -> tuple[float, float] | None:
    return None if hourly is None else (seconds[0] / 3600 * hourly, seconds[1] / 3600 * hourly)


def _side_by_side(each: Sequence[float], parallel: int) -> float:
    """When the last voter has finished, `parallel` at a time: each starts as soon as another one ends."""
    ends = [0.0] * max(1, parallel)
    for seconds in each:
        at = ends.index(min(ends))
        ends[at] += seconds
    return max(ends)
