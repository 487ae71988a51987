"""Where settings stand under a chip's roofline: model FLOPs per byte of memory traffic (Williams et al. 2009)."""

from typing import NamedTuple

from capibara_assets.planning.hardware.machine import Machine
from capibara_assets.planning.prediction.roofline import work
from capibara_assets.planning.prediction.step_time import RESOURCES
from capibara_assets.planning.workload import Workload


class Roof(NamedTuple):
    """A chip's roof: its peak for matrix products, and its memory's bandwidth."""

    tflops: float
    gb_per_s: float


def roof_of(machine: Machine) -> Roof:
    """The roof that a plan in 16 bits stands under."""
    return Roof(machine.peak("bf16") / 1e12, machine.hbm / 1e9)


def intensity(load: Workload, machine: Machine) -> float:
    """Model FLOPs (attention in full, no recomputation) over the bytes that a chip's memory moves in a step."""
    done = work(load, machine)
    seconds = done.named()
    moved = sum(seconds[term] for term in RESOURCES["HBM"]) * machine.hbm
    return done.flops_full / moved
