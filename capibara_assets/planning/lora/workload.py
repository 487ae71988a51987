"""A LoRA step as a workload: every device holds all frozen weights and its share of the rows; its predicted time."""

from dataclasses import replace

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import DeviceStep, Method
from capibara_assets.planning.hardware.machine import machine_of
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.prediction.step_time import StepPrediction, predict
from capibara_assets.planning.workload import Workload, policy

TRAINER = "transformers"  # our PyTorch trainer runs Transformers' layers, uncompiled; no published run has our own name


def lora_workload(shape: ModelShape, step: DeviceStep, *, devices: int, global_batch: int) -> Workload:
    """The training step of `devices` devices that each do `step` until the global batch is done."""
    return Workload(
        shape=shape,
        sequence=step.sequence,
        global_batch=global_batch,
        mesh=Mesh(data=devices, fsdp=1, tensor=1),
        micro_steps=global_batch // (step.sequences * devices),
        recompute=policy(step.remat, TRAINER),
        weight_bytes=2,
        method=Method.LORA,
        lora_rank=step.lora_rank,
        lora_modules=step.lora_modules,
        software=TRAINER,
        eager=True,
    )


def predict_lora(load: Workload, target: HardwareTarget) -> StepPrediction | None:
    """The predicted step time on the workload's share of a target; None where no peak or bandwidth is declared."""
    try:
        machine = machine_of(target)
    except InputError:
        return None
    island, each = min(machine.island, load.chips), min(machine.chips_per_host, load.chips)
    return predict(load, replace(machine, chips=load.chips, island=island, chips_per_host=each))
