"""Cost of a LoRA plan or a TPU plan: their FLOPs and predicted step times, priced by `planning.cost`."""

from collections.abc import Sequence
from dataclasses import replace

from capibara_assets.planning.accounting import DeviceStep, Method, Remat
from capibara_assets.planning.cost import CostContext, CostPlan, PlannedTraining, Span, plan_cost
from capibara_assets.planning.hardware.declaration import HardwareTarget
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.planning.lora.workload import lora_workload, predict_lora
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.prediction.step_time import StepPrediction
from capibara_assets.planning.tpu.plan import TpuPlan


def lora_prediction(plan: LoraPlan, shape: ModelShape, target: HardwareTarget) -> StepPrediction | None:
    """The predicted step time; None for a target that declares no peak or bandwidth."""
    step = DeviceStep(
        sequences=plan.micro_batch,
        sequence=plan.max_length,
        weight_bytes=2,
        compute_bytes=2,
        method=Method.LORA,
        remat=Remat.FULL if plan.gradient_checkpointing else Remat.NONE,
        lora_rank=plan.rank,
        lora_modules=plan.modules,
    )
    devices = plan.global_batch // (plan.micro_batch * plan.accumulation)
    return predict_lora(lora_workload(shape, step, devices=devices, global_batch=plan.global_batch), target)


def lora_cost(
    plan: LoraPlan, shape: ModelShape, target: HardwareTarget, context: CostContext | None = None
) -> CostPlan:
    """Cost of one adapter of a LoRA plan, of its domain's voters, and of all domains."""
    estimates = plan.estimates
    together = 1 if target.kind == "tpu" else target.chips // plan.devices  # a slice trains one voter at a time
    context = replace(context or CostContext(), together=together)
    predicted = None if target.kind == "tpu" else lora_prediction(plan, shape, target)
    steps = int(estimates["optimizer_steps"])
    if target.kind == "tpu":
        seconds, note = _span(estimates["seconds"]), str(estimates["seconds_note"])
    elif predicted is None:
        seconds, note = None, str(estimates["seconds_note"])
    else:
        low, middle, high = predicted.step_seconds
        seconds = (steps * low, steps * middle, steps * high)
        note = f"{steps} steps of {middle:.3g} s, every row taken as full; start and validation are not in it"
        if plan.quantization == "nf4":
            note += "; 4-bit weights are unpacked in each pass, which no published run shows: more than this"
    training = PlannedTraining(
        target=target.name,
        model=plan.model,
        flops=float(estimates["flops_per_token"]) * float(estimates["tokens_at_most"]),
        predicted=seconds,
        note=note,
        price=target.price,
        domain=plan.domain,
    )
    return plan_cost(training, context)


def tpu_cost(plan: TpuPlan, target: HardwareTarget, context: CostContext | None = None) -> CostPlan:
    """Cost of one training on the slice; a TPU plan trains one model per domain."""
    tokens = plan.global_batch * plan.sequence * plan.steps
    training = PlannedTraining(
        target=target.name,
        model=plan.model,
        flops=tokens * plan.flops_per_token,
        predicted=_span(plan.seconds),
        note="predicted step time x steps; start and compilation are not in it",
        price=target.price,
        domain=plan.domain,
    )
    return plan_cost(training, context or CostContext())


def _span(seconds: Sequence[float]) -> Span:
    """Low, middle and high; where only two ends are given, the middle is their geometric mean."""
    low, *middle, high = map(float, seconds)
    return (low, middle[0] if middle else (low * high) ** 0.5, high)
