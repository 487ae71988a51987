"""Predicted step time, throughput and bottleneck of a workload on a machine, with an interval; and its roofline."""

from dataclasses import dataclass
from math import exp, sqrt
from typing import NamedTuple

from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.machine import Machine, machine_of
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.prediction.calibration import EfficiencyCalibration, Rates, rates, shipped, with_bubble
from capibara_assets.planning.prediction.roofline import TERMS, work
from capibara_assets.planning.workload import Workload

# Resource that bounds each term. Waiting for other hosts and dispatch use no resource of the chip.
RESOURCES: dict[str, tuple[str, ...]] = {
    "compute": ("matmul", "matmul8", "experts", "attention", "softmax"),
    "HBM": ("operands", "casts", "reread", "elementwise", "routing", "logits", "optimizer"),
    "links": ("gather", "reduce", "tensor", "exchange"),
    "network": ("network",),
    "host": ("offload", "jitter", "launch"),
}


@dataclass(frozen=True)
class StepPrediction:
    """Predicted time, throughput and bottleneck of one training step.

    Attributes:
        step_seconds: low, middle and high; the interval is calibrated to cover `coverage` of runs.
        terms: seconds by term of the middle figure, overlap subtracted; they sum to it.
        resources: the same by resource: compute, HBM, ICI (or NVLink), DCN (or network), host, pipeline.
        binds: the largest of `resources`, which limits the step.
        tflops_per_chip: model TFLOP/s at the middle, causal attention counted in full and by half.
        tokens_per_second: over all chips (low, middle, high).
        coverage: share of runs that the interval is calibrated to cover.
    """

    step_seconds: tuple[float, float, float]
    terms: dict[str, float]
    resources: dict[str, float]
    binds: str
    tflops_per_chip: dict[str, float]
    tokens_per_second: tuple[float, float, float]
    coverage: float


def predict(
    load: Workload,
    target: HardwareTarget | Machine,
    calibration: EfficiencyCalibration | None = None,
    *,
    known: Rates | None = None,
) -> StepPrediction:
    """Predict the step time of a workload on a hardware target.

    Args:
        load: the workload.
        target: a declared target, or a machine as in tables of published runs.
        calibration: fitted efficiencies; default: the shipped ones.
        known: precomputed factors, for many predictions of workloads with the same chip, framework and format.

    Raises:
        InputError: the mesh does not use the target's chips, or the target declares no peak or bandwidth.
    """
    machine = target if isinstance(target, Machine) else machine_of(target)
    if load.chips != machine.chips:
        raise InputError(f"mesh {load.mesh} has {load.chips} chips, the target {machine.chips}")
    fitted = shipped() if calibration is None else calibration
    done = work(load, machine)
    known = rates(load, machine, fitted) if known is None else known
    nominal = with_bubble(done)
    seconds = [float(cost) * exp(log) for cost, log in zip(nominal, known.logs, strict=True)]
    total = sum(seconds)
    variance = sum((1.0 if term is None else seconds[term] / total) ** 2 * spread for term, spread in known.shared)
    half = exp(fitted.width * sqrt(variance + fitted.noise**2))
    terms = dict(zip(TERMS, seconds, strict=True))
    resources = by_resource(terms, machine)
    if done.bubble:
        # The bubble is spread over the terms; as a resource it is shown by itself.
        resources = {name: value / (1 + done.bubble) for name, value in resources.items()}
        resources["pipeline"] = total * done.bubble / (1 + done.bubble)
    rate = {"full": done.flops_full / total, "causal": done.flops_causal / total}
    return StepPrediction(
        step_seconds=(total / half, total, total * half),
        terms=terms,
        resources=resources,
        binds=max(resources, key=lambda name: resources[name]),
        tflops_per_chip={name: value / 1e12 for name, value in rate.items()},
        tokens_per_second=(load.tokens / total / half, load.tokens / total, load.tokens / total * half),
        coverage=fitted.coverage,
    )


def by_resource(terms: dict[str, float], machine: Machine) -> dict[str, float]:
    """Seconds by resource, with the machine's own names for its links."""
    names = {"links": "ICI", "network": "DCN"} if machine.kind == "tpu" else {"links": "NVLink", "network": "network"}
    return {names.get(kind, kind): sum(terms[term] for term in members) for kind, members in RESOURCES.items()}


class Roof(NamedTuple):
    """A chip's roofline: its peak for matrix products, and its memory bandwidth."""

    tflops: float
    gb_per_s: float


def roof_of(machine: Machine) -> Roof:
    """The roofline of one chip for bf16 matrix products."""
    return Roof(machine.peak("bf16") / 1e12, machine.hbm / 1e9)


def intensity(load: Workload, machine: Machine) -> float:
    """Arithmetic intensity: model FLOPs per byte of HBM traffic of a step (Williams et al. 2009).

    FLOPs count attention in full and no recomputation; bytes are those of the terms bound by `HBM`.
    """
    done = work(load, machine)
    seconds = done.named()
    moved = sum(seconds[term] for term in RESOURCES["HBM"]) * machine.hbm
    return done.flops_full / moved
