"""Cost of a LoRA plan or a TPU plan: their FLOPs and predicted step times, priced by `planning.cost`."""

from collections.abc import Sequence
from dataclasses import replace

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Method, Remat
from capibara_assets.planning.cost import CostContext, CostPlan, PlannedTraining, Span, plan_cost
from capibara_assets.planning.hardware.declaration import HardwareTarget
from capibara_assets.planning.hardware.machine import machine_of
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.prediction.step_time import StepPrediction, predict
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.workload import Workload, policy

TRAINER = "transformers"  # our PyTorch trainer runs Transformers' layers, uncompiled; no published run has our own name


def lora_workload(plan: LoraPlan, shape: ModelShape) -> Workload:
    """The plan's training step as a workload: every device holds all frozen weights and its share of the rows."""
    return Workload(
        shape=shape,
        sequence=plan.max_length,
        global_batch=plan.global_batch,
        mesh=Mesh(data=plan.devices, fsdp=1, tensor=1),
        micro_steps=plan.accumulation,
        recompute=policy(Remat.FULL if plan.gradient_checkpointing else Remat.NONE, TRAINER),
        weight_bytes=2,
        method=Method.LORA,
        lora_rank=plan.rank,
        lora_modules=plan.modules,
        software=TRAINER,
        eager=True,
    )


def lora_prediction(plan: LoraPlan, shape: ModelShape, target: HardwareTarget) -> StepPrediction | None:
    """The predicted step time; None for a target that declares no peak or bandwidth."""
    try:
        machine = machine_of(target)
    except InputError:
        return None
    if plan.devices != machine.chips:  # its voter has a part of the target
        island, each = min(machine.island, plan.devices), min(machine.chips_per_host, plan.devices)
        machine = replace(machine, chips=plan.devices, island=island, chips_per_host=each)
    return predict(lora_workload(plan, shape), machine)


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
