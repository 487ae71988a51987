"""A TPU plan's files for other trainers than ours: T5X fine-tunes a T5 on the plan's mesh, MaxText every weight."""

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Method, Optimizer, size
from capibara_assets.planning.footprint import footprint
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.mesh import largest_tensor
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.presets import PRESETS
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.search import FeasibleLayout
from capibara_assets.planning.workload import Workload, policy
from capibara_assets.planning.writers.gin import T5xRun, render_gin
from capibara_assets.planning.writers.maxtext import MaxTextRun, render_maxtext


class PlannedJob(NamedTuple):
    """What the files have in common: the domain, the slice, the chosen layout, and optimizer steps."""

    domain: str
    target: HardwareTarget
    recipe: PlanningRecipe
    layout: FeasibleLayout
    steps: int

    @property
    def budget(self) -> float:
        """Bytes that a chip may fill."""
        return self.target.usable_bytes * self.recipe.headroom


def companion(tensor: int, recipe: PlanningRecipe, reasons: dict[str, str]) -> ModelShape:
    """The T5 model for a decoder plan's gin file: the recipe's, or the next larger one that the mesh divides."""
    names = [name for name in PRESETS if name.startswith("t5_1_1-")]
    if recipe.tpu.t5_default not in names:
        raise InputError(f"planning recipe: t5_default {recipe.tpu.t5_default!r} is none of {', '.join(names)}")
    for name in names[names.index(recipe.tpu.t5_default) :]:
        shape = read_shape(name)
        if largest_tensor(shape) % tensor == 0:
            reasons["gin"] = f"T5X trains encoder-decoders only: the gin file fine-tunes {name} on the same mesh"
            return shape
    raise InputError(f"no T5 preset from {recipe.tpu.t5_default} on can be cut into {tensor} tensor shards")


def gin_file(job: PlannedJob, t5: ModelShape, group: tuple[int, int, int, int]) -> str:
    """The gin file for `t5` on the plan's mesh, with the least recomputation that fits.

    Args:
        group: (x, y, z, core) of one tensor-parallel group.

    Raises:
        InputError: the T5 does not fit on this mesh; the message has the sum.
    """
    recipe, layout = job.recipe, job.layout
    for remat in recipe.limits.remat:
        load = Workload(
            shape=t5,
            sequence=layout.lengths.sequence,
            inputs=layout.lengths.sequence,
            global_batch=layout.global_batch,
            mesh=layout.mesh,
            recompute=policy(remat, "t5x"),
            optimizer=Optimizer.ADAFACTOR,
            software="t5x",
        )
        memory = footprint(load)
        if memory.total <= job.budget:
            break
    else:
        raise InputError(
            f"{t5.name} does not fit over {layout.mesh} on {job.target.name}: {memory.arithmetic()} of"
            f" {size(job.budget)}; name a smaller tpu.t5_default in the planning recipe"
        )
    return render_gin(
        T5xRun(
            domain=job.domain,
            shape=t5,
            submesh=group,
            shard_parameters=layout.mesh.fsdp > 1,
            input_length=layout.lengths.sequence,
            target_length=layout.lengths.sequence,
            steps=job.steps,
            global_batch=layout.global_batch,
            remat=remat,
            recipe=recipe.tpu,
        )
    )


def maxtext_file(
    job: PlannedJob, base: ModelShape, rate: float, reasons: dict[str, str], whole: Callable[[], FeasibleLayout]
) -> str | None:
    """The MaxText configuration, which trains every weight; None, with the reason, where that fits nowhere.

    Args:
        rate: learning rate of full fine-tuning.
        whole: the best layout for full fine-tuning, where the plan's own is for an adapter; raises InputError.
    """
    layout, steps = job.layout, job.steps
    if layout.load.method is Method.LORA:
        try:
            layout = whole()
        except InputError as refused:
            reasons["maxtext"] = f"no file: MaxText trains every weight; {refused}"
            return None
        steps = ceil(steps * job.layout.examples(1) / layout.examples(1))  # the same number of tokens
        reasons["maxtext"] = f"MaxText trains every weight, for which the best layout is {layout}"
    return render_maxtext(
        MaxTextRun(
            domain=job.domain,
            shape=base,
            mesh=layout.mesh,
            per_device_batch=layout.global_batch / job.target.chips,
            sequence=layout.lengths.sequence,
            remat=layout.remat,
            steps=steps,
            logit_chunks=layout.load.logit_chunks,
            recipe=job.recipe.tpu.model_copy(update={"learning_rate": rate}),
        )
    )
