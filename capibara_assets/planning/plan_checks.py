"""Whether a plan can be carried out as it stands: its sums, its target, its base model and its trainers' files."""

import math
from collections.abc import Mapping
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import size
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.writers.jax_config import read_jax_config
from capibara_assets.planning.writers.launch import CONFIGURATIONS


def lora_problems(plan: LoraPlan, shape: ModelShape, target: HardwareTarget) -> list[str]:
    """Problems of a LoRA plan, in words: batch, memory, modules, length, target.

    Args:
        shape: of the base model that will be trained.
        target: the hardware that it will be trained on.
    """
    problems = [] if plan.target == target.name else [f"it is for {plan.target}, training runs on {target.name}"]
    if target.kind != "tpu":  # on a slice a row holds several examples, and its own plan has the mesh: tpu_problems
        problems += _division_problems(plan, target)
    needed = plan.estimates["memory_bytes_per_device"]["total"]
    if needed > target.usable_bytes:
        problems.append(f"it needs {size(needed)} of memory on a device that has {size(target.usable_bytes)}")
    known = {module.name for module in shape.linear_modules}
    if unknown := sorted(set(plan.modules) - known):
        problems.append(f"the base model has no layers {', '.join(unknown)}")
    if shape.context is not None and plan.max_length > shape.context:
        problems.append(f"examples of {plan.max_length} tokens are longer than the base model's {shape.context}")
    if not math.isfinite(plan.learning_rate):
        problems.append(f"the learning rate is {plan.learning_rate}")
    return problems


def _division_problems(plan: LoraPlan, target: HardwareTarget) -> list[str]:
    """Problems of how a batch is divided among a voter's devices, and the target among voters."""
    problems = []
    if plan.global_batch != plan.micro_batch * plan.accumulation * plan.devices:
        problems.append(
            f"{plan.micro_batch} x {plan.accumulation} sequences a device do not make up a batch of {plan.global_batch}"
        )
    if plan.target == target.name and target.chips % plan.devices:
        problems.append(f"a voter's {plan.devices} devices do not divide the {target.chips} of {target.name}")
    return problems


def tpu_problems(plan: TpuPlan, target: HardwareTarget, files: Path) -> list[str]:
    """Problems of a TPU plan, in words: chips, batch, memory, XLA's verdict, and files that no trainer reads.

    Args:
        target: the slice that it will run on.
        files: the folder of the trainers' files.
    """
    problems = [] if plan.target == target.name else [f"it is for {plan.target}, the slice is {target.name}"]
    if plan.mesh.slice_chips != target.chips:
        problems.append(f"the mesh {plan.mesh} has {plan.mesh.slice_chips} chips a slice, {target.name} {target.chips}")
    if plan.global_batch % plan.mesh.batch_shards:
        problems.append(f"a batch of {plan.global_batch} does not split into {plan.mesh.batch_shards} shards")
    needed = sum(bytes_ for part, bytes_ in plan.memory.items() if part != "total")
    if not plan.feasible or needed > plan.memory_budget:
        problems.append(f"it needs {size(needed)} a chip, and may fill {size(plan.memory_budget)}")
    if plan.xla.get("status") in ("does not fit", "does not lower"):
        problems.append(f"XLA: {plan.xla['status']}: {plan.xla.get('detail', '')}")
    spans = {
        "step time": plan.step_time.middle,
        "tokens a second": plan.tokens_per_second[1],
        "rate": plan.learning_rate,
    }
    problems += [f"{name} is {value}" for name, value in spans.items() if not (math.isfinite(value) and value > 0)]
    return problems + _file_problems(files, {"jax": True, "t5x": True, "maxtext": plan.maxtext is not None})


def _file_problems(files: Path, wanted: Mapping[str, bool]) -> list[str]:
    names = {trainer: name for trainer, name in CONFIGURATIONS.items() if wanted[trainer]}
    problems = [f"{name} is missing or empty" for name in names.values() if not _has_text(files / name)]
    try:
        read_jax_config(files / CONFIGURATIONS["jax"])
    except InputError as error:
        problems.append(f"our JAX trainer refuses its file: {error}")
    return problems


def _has_text(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0
