"""The TPU configuration for a model and a slice: mesh, batch, recomputation, predicted time and memory, files."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import (
    Breakdown,
    Layout,
    Method,
    Optimizer,
    Remat,
    Step,
    flops_per_token,
    size,
    training_memory,
)
from capibara_assets.planning.figures import DatasetFigures, read_statistics
from capibara_assets.planning.gin import T5xRun, render_gin
from capibara_assets.planning.hardware import HardwareTarget
from capibara_assets.planning.maxtext import MaxTextRun, render_maxtext
from capibara_assets.planning.mesh import Mesh, largest_tensor, meshes, ring_gb_per_s, submesh
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.presets import PRESETS
from capibara_assets.planning.recipe import PlanningRecipe, climb
from capibara_assets.planning.throughput import Reading, parse_throughput, readings

NOT_COMPILED: Final = "not compiled"
SMALLEST_PUBLISHED = 10**9  # parameters; the published TPU runs begin at 8 B
REMATS = (Remat.NONE, Remat.MINIMAL, Remat.FULL)  # least recomputation first


class StepTime(BaseModel):
    """Predicted seconds of one step; arithmetic, not a measurement.

    `low` overlaps everything at the best published efficiency, `high` adds everything up at the median one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float
    high: float
    compute: tuple[float, float] = Field(description="at best and at median efficiency")
    hbm: float = Field(description="weights, gradients and optimizer state through memory")
    ici: float = Field(description="weights gathered, gradients scattered, tensor-parallel sums")
    binds: str = Field(description="the largest term")


class TpuPlan(BaseModel):
    """One feasible configuration; `reasons` says why, `gin` and `maxtext` are files ready to use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    domain: str
    model: str
    shape: ModelShape
    target: str
    mesh: Mesh
    submesh: tuple[int, int, int, int] = Field(description="(x, y, z, core) of one tensor-parallel group")
    global_batch: int
    per_device_batch: float = Field(description="sequences per chip; below 1 under tensor parallelism")
    sequence: int
    remat: Remat
    optimizer: Optimizer
    logit_chunks: int
    steps: int
    step_time: StepTime
    tokens_per_second: tuple[float, float] = Field(description="low and high")
    tflops_per_chip: tuple[float, float] = Field(description="model FLOPs, attention in full; low and high")
    share_of_peak: tuple[float, float]
    memory: dict[str, int] = Field(description="bytes per chip")
    memory_budget: int
    feasible: bool
    throughput_target: tuple[Reading, ...] = Field(default=(), description="every reading of a given target")
    seconds: tuple[float, float]
    usd: tuple[float, float] | None
    usd_note: str
    gin: str
    t5_model: str = Field(description="the T5 preset or model that the gin file fine-tunes")
    maxtext: str | None = Field(description="None for encoder-decoders, which MaxText does not train")
    xla: dict[str, Any] = Field(description="what XLA said, or that it was not asked")
    reasons: dict[str, str]


@dataclass(frozen=True)
class _Candidate:
    mesh: Mesh
    remat: Remat
    step: Step
    memory: Breakdown
    time: StepTime


def plan_tpu(
    domain: str,
    statistics: Mapping[str, Any],
    base: ModelShape,
    target: HardwareTarget,
    recipe: PlanningRecipe,
    throughput: str | None = None,
) -> TpuPlan:
    """Choose mesh, batch and recomputation for full fine-tuning on a TPU slice.

    Every mesh that divides chips and model is tried with every recomputation policy; of those that fit in the memory
    that the compiler leaves, the fastest (by `StepTime.high`) wins; ties go to less recomputation and fewer tensor
    shards.

    Args:
        domain: the partition.
        statistics: the dataset's statistics document.
        base: shape of the model; a decoder gets a MaxText file and a gin file for the recipe's T5 on the same mesh.
        target: a TPU slice.
        recipe: the deployment's choices.
        throughput: a target such as "200TFLOPs/chip"; a bare number is answered under each reading.

    Raises:
        InputError: no TPU, nothing fits (with the sums), or a throughput above the peak.
    """
    if target.kind != "tpu" or target.topology is None or target.efficiency is None:
        raise InputError(f"{target.name} is no TPU slice: tpu_config needs one of resources/hardware/tpu-*.yaml")
    figures = read_statistics(domain, statistics, recipe.chars_per_token)
    reasons: dict[str, str] = {}
    sequence = _sequence(base, figures, recipe, reasons)
    wanted = climb(recipe.lora.global_batches, figures.training_examples)
    best = _search(base, target, recipe, sequence, wanted, reasons)
    per_token = flops_per_token(base, sequence)
    answers = () if throughput is None else readings(parse_throughput(throughput), target, per_token)
    global_batch = best.step.sequences * best.mesh.batch_shards
    reasons["step_time"] = _caution(base, target, best.time)
    reasons["global_batch"] = (
        f"{figures.training_examples} examples ask for {wanted} a step; {best.mesh.batch_shards} shards of the batch"
        f" get {best.step.sequences} each: {global_batch}"
    )
    epochs = climb(recipe.lora.epochs, figures.training_examples)
    steps = ceil(figures.training_examples * epochs / global_batch)
    reasons["steps"] = f"{figures.training_examples} examples x {epochs} epochs / {global_batch}"
    group = submesh(best.mesh.tensor, target.topology)
    assert group is not None  # the search only yields meshes whose tensor group tiles the slice
    t5 = base if base.family == "t5" else _companion(best.mesh.tensor, recipe, reasons)
    tokens = global_batch * sequence
    peak = target.peak("bf16") or 0.0
    rates = tuple(tokens * per_token / seconds / target.chips for seconds in (best.time.high, best.time.low))
    seconds = (steps * best.time.low, steps * best.time.high)
    hourly = target.price.usd_per_hour
    return TpuPlan(
        domain=domain,
        model=base.name,
        shape=base,
        target=target.name,
        mesh=best.mesh,
        submesh=group,
        global_batch=global_batch,
        per_device_batch=global_batch / target.chips,
        sequence=sequence,
        remat=best.remat,
        optimizer=best.step.optimizer,
        logit_chunks=best.step.logit_chunks,
        steps=steps,
        step_time=best.time,
        tokens_per_second=(tokens / best.time.high, tokens / best.time.low),
        tflops_per_chip=(rates[0] / 1e12, rates[1] / 1e12),
        share_of_peak=(rates[0] / peak, rates[1] / peak),
        memory=best.memory.document(),
        memory_budget=round(target.usable_bytes * recipe.headroom),
        feasible=True,
        throughput_target=answers,
        seconds=seconds,
        usd=None if hourly is None else (seconds[0] / 3600 * hourly, seconds[1] / 3600 * hourly),
        usd_note=target.price.note,
        gin=_gin(domain, t5, best, target, group, steps, recipe),
        t5_model=t5.name,
        maxtext=None if base.family == "t5" else _maxtext(domain, base, target, best, steps, recipe),
        xla={"status": NOT_COMPILED, "detail": "XLA was not asked; the figures above are arithmetic"},
        reasons=reasons,
    )


def _caution(base: ModelShape, target: HardwareTarget, time: StepTime) -> str:
    said = (
        f"low: the largest of compute, HBM and ICI ({time.binds}), all overlapped; high: their sum at median efficiency"
    )
    if base.parameters < SMALLEST_PUBLISHED:
        return said + (
            f". {base.name} is far smaller than any published run on {target.family}: fixed costs of a step (dispatch,"
            " latency of collectives), which the arithmetic leaves out, will dominate; both figures are lower bounds"
        )
    return said


def _sequence(base: ModelShape, figures: DatasetFigures, recipe: PlanningRecipe, reasons: dict[str, str]) -> int:
    step = recipe.tpu.length_step
    wanted = max(step, ceil(figures.p95_tokens / step) * step)
    limit = min(recipe.tpu.max_length, base.context or recipe.tpu.max_length)
    reasons["sequence"] = (
        f"95 % of the examples have at most {figures.p95_tokens} tokens ({figures.tokens_source}); in steps of {step}"
        + (f", held to {limit}" if wanted > limit else "")
    )
    return min(wanted, limit)


def _search(
    base: ModelShape,
    target: HardwareTarget,
    recipe: PlanningRecipe,
    sequence: int,
    wanted: int,
    reasons: dict[str, str],
) -> _Candidate:
    budget = target.usable_bytes * recipe.headroom
    fitting: list[_Candidate] = []
    closest: _Candidate | None = None
    for mesh in meshes(base, target, recipe.tpu.max_tensor):
        for remat in REMATS:
            candidate = _candidate(base, target, mesh, remat, sequence, wanted, recipe)
            if candidate.memory.total <= budget:
                fitting.append(candidate)
            elif closest is None or candidate.memory.total < closest.memory.total:
                closest = candidate
    if not fitting:
        assert closest is not None  # data = chips, fsdp = tensor = 1 divides every model, so there is a candidate
        raise InputError(
            f"{base.name} ({base.parameters / 1e9:.3g} B parameters) cannot be fine-tuned whole on {target.name}: a"
            f" chip has {target.memory.usable_gib:g} GiB usable, {size(budget)} at {recipe.headroom:.0%}; the smallest"
            f" of all settings ({closest.mesh}, remat {closest.remat}, {closest.step.sequences} x {sequence} tokens)"
            f" needs {closest.memory.arithmetic()}. Take a larger slice or a smaller model."
        )
    best = min(fitting, key=lambda one: (_cost(one), REMATS.index(one.remat), one.mesh.tensor, one.mesh.data))
    reasons["mesh"] = (
        f"{best.mesh}: fastest per token of {len(fitting)} settings that fit; {best.time.binds} binds; tensor has to"
        f" divide {largest_tensor(base)} (heads, key/value heads, MLP, vocabulary)"
    )
    reasons["remat"] = f"{best.memory.arithmetic()} of {size(budget)}: " + (
        "nothing needs recomputing" if best.remat is Remat.NONE else "less recomputation does not fit or is not faster"
    )
    return best


def _cost(candidate: _Candidate) -> float:
    """Seconds per sequence, rounded so that equal settings tie."""
    return float(f"{candidate.time.high / (candidate.step.sequences * candidate.mesh.batch_shards):.3g}")


def _candidate(
    base: ModelShape,
    target: HardwareTarget,
    mesh: Mesh,
    remat: Remat,
    sequence: int,
    wanted: int,
    recipe: PlanningRecipe,
) -> _Candidate:
    per_shard = max(1, ceil(wanted / mesh.batch_shards))
    step = Step(
        sequences=per_shard,
        sequence=sequence,
        weight_bytes=4,
        compute_bytes=2,
        method=Method.FULL,
        optimizer=Optimizer.ADAFACTOR if base.family == "t5" else Optimizer.ADAMW,
        remat=remat,
        # MaxText cuts the batch's tokens into equal tiles; T5X has no vocabulary tiling.
        logit_chunks=1 if base.family == "t5" else recipe.tpu.logit_chunks,
        layout=Layout(
            weights=mesh.fsdp * mesh.tensor,
            gradients=mesh.fsdp * mesh.tensor,
            optimizer=mesh.fsdp * mesh.tensor,
            tensor=mesh.tensor,
        ),
    )
    return _Candidate(mesh, remat, step, training_memory(base, step), step_time(base, target, mesh, step))


def step_time(base: ModelShape, target: HardwareTarget, mesh: Mesh, step: Step) -> StepTime:
    """Roofline of one full fine-tuning step on a slice.

    compute: model FLOPs over peak times the family's published efficiency (which already contains the recomputation of
    those runs). hbm: bf16 weights read in forward, backward and recomputation; float32 weights, gradients and two
    moments read and written. ici: bf16 weights gathered twice and gradients scattered once over fsdp, gradients summed
    over data, four activation sums a layer over tensor.
    """
    if target.efficiency is None or target.memory.bandwidth_gb_per_s is None:
        raise InputError(f"{target.name} declares no efficiency or memory bandwidth")
    peak = target.peak("bf16")
    if peak is None:
        raise InputError(f"{target.name} declares no bf16 peak")
    tokens = step.tokens * mesh.batch_shards
    flops = tokens * flops_per_token(base, step.sequence) / target.chips
    compute = (flops / (peak * target.efficiency.best), flops / (peak * target.efficiency.typical))
    local = base.parameters / mesh.tensor
    hbm = (3 * 2 * local + 28 * local / mesh.fsdp) / (target.memory.bandwidth_gb_per_s * 1e9)
    ici = 0.0
    if mesh.fsdp > 1:
        ici += 3 * 2 * local * (mesh.fsdp - 1) / mesh.fsdp / (ring_gb_per_s(target, mesh.fsdp) * 1e9)
    if mesh.data > 1:
        ici += 2 * 2 * local / mesh.fsdp * (mesh.data - 1) / mesh.data / (ring_gb_per_s(target, mesh.data) * 1e9)
    if mesh.tensor > 1:
        layers = base.layers + base.encoder_layers
        moved = 4 * layers * 2 * step.tokens * base.hidden * 2 * (mesh.tensor - 1) / mesh.tensor
        ici += moved / (ring_gb_per_s(target, mesh.tensor) * 1e9)
    terms = {"compute": compute[0], "hbm": hbm, "ici": ici}
    return StepTime(
        low=max(terms.values()),
        high=compute[1] + hbm + ici,
        compute=compute,
        hbm=hbm,
        ici=ici,
        binds=max(terms, key=lambda name: terms[name]),
    )


def _companion(tensor: int, recipe: PlanningRecipe, reasons: dict[str, str]) -> ModelShape:
    """The T5 of the gin file beside a decoder plan: the recipe's, or the next larger that the mesh divides."""
    names = [name for name in PRESETS if name.startswith("t5_1_1-")]
    if recipe.tpu.t5_default not in names:
        raise InputError(f"planning recipe: t5_default {recipe.tpu.t5_default!r} is none of {', '.join(names)}")
    for name in names[names.index(recipe.tpu.t5_default) :]:
        shape = read_shape(name)
        if largest_tensor(shape) % tensor == 0:
            reasons["gin"] = f"T5X trains encoder-decoders only: the gin file fine-tunes {name} on the same mesh"
            return shape
    raise InputError(f"no T5 preset from {recipe.tpu.t5_default} on can be cut into {tensor} tensor shards")


def _gin(
    domain: str,
    t5: ModelShape,
    best: _Candidate,
    target: HardwareTarget,
    group: tuple[int, int, int, int],
    steps: int,
    recipe: PlanningRecipe,
) -> str:
    """The gin file for `t5` on the plan's mesh, with the least recomputation that fits.

    Raises:
        InputError: the T5 does not fit on this mesh, with the sum.
    """
    budget = target.usable_bytes * recipe.headroom
    wanted = best.step.sequences * best.mesh.batch_shards
    for remat in REMATS:
        candidate = _candidate(t5, target, best.mesh, remat, best.step.sequence, wanted, recipe)
        if candidate.memory.total <= budget:
            break
    else:
        raise InputError(
            f"{t5.name} does not fit over {best.mesh} on {target.name}: {candidate.memory.arithmetic()} of"
            f" {size(budget)}; name a smaller tpu.t5_default in the planning recipe"
        )
    return render_gin(
        T5xRun(
            domain=domain,
            shape=t5,
            submesh=group,
            shard_parameters=best.mesh.fsdp > 1,
            input_length=best.step.sequence,
            target_length=best.step.sequence,
            steps=steps,
            global_batch=wanted,
            remat=remat,
            recipe=recipe.tpu,
        )
    )


def _maxtext(
    domain: str, base: ModelShape, target: HardwareTarget, best: _Candidate, steps: int, recipe: PlanningRecipe
) -> str:
    return render_maxtext(
        MaxTextRun(
            domain=domain,
            shape=base,
            mesh=best.mesh,
            per_device_batch=best.step.sequences * best.mesh.batch_shards / target.chips,
            sequence=best.step.sequence,
            remat=best.remat,
            steps=steps,
            logit_chunks=best.step.logit_chunks,
            recipe=recipe.tpu,
        )
    )
