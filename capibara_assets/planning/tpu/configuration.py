"""The TPU plan for a model and a slice: the best layout found, its time and memory, and the trainers' configuration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.jax.sizes import check_supported
from capibara_assets.planning.accounting import Method, Optimizer, flops_per_token, size
from capibara_assets.planning.figures import DatasetFigures, read_statistics
from capibara_assets.planning.footprint import footprint
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.lora.recipe import Adapter, plan_adapter
from capibara_assets.planning.mesh import submesh
from capibara_assets.planning.models import DECODERS, ENCODER_DECODERS, ModelShape
from capibara_assets.planning.prediction.throughput import (
    ThroughputReading,
    compared,
    goal_of,
    parse_throughput,
    readings,
)
from capibara_assets.planning.recipe import PlanningRecipe, lookup
from capibara_assets.planning.tpu.alternatives import PlannedJob, companion, gin_file, maxtext_file
from capibara_assets.planning.tpu.layouts import RowFilling, SearchProblem
from capibara_assets.planning.tpu.memory import weigh_tpu
from capibara_assets.planning.tpu.plan import NOT_COMPILED, FrontEntry, RefusedSetting, StepTime, TpuPlan
from capibara_assets.planning.tpu.search import FeasibleLayout, Front, ShareOf, Weigh, rate_factor, search
from capibara_assets.planning.writers.jax_config import Lora

SMALLEST_PUBLISHED = 10**9  # parameters; the published TPU runs begin at 2 B
# Mesh axes that all our file formats and our JAX step support; only MaxText has pipelines and experts.
AXES = frozenset({"data", "fsdp", "tensor"})
SOFTWARE = "maxtext"  # whose published runs our JAX step is most like: scanned layers, fused attention, one program


def plan_tpu(
    domain: str,
    statistics: Mapping[str, Any],
    base: ModelShape,
    target: HardwareTarget,
    recipe: PlanningRecipe,
    throughput: str | None = None,
) -> TpuPlan:
    """The best plan for a TPU slice (`tpu_plans` yields the rest of the Pareto front).

    Decoders get an adapter, unless the recipe's `tpu.method` is full; encoder-decoders are trained whole.

    Args:
        domain: the partition.
        statistics: the dataset's statistics document.
        base: shape of the model; a decoder gets a MaxText file and a gin file for the recipe's T5 on the same mesh.
        target: a TPU slice.
        recipe: the deployment's planning recipe; its level limits memory, recomputation and batch.
        throughput: a target such as "200TFLOPs/chip": the plan is then the leanest that is predicted to reach it. A
            bare number is evaluated under each reading; the possible one that asks for most counts.

    Raises:
        InputError: not a TPU target, nothing fits (the message has the sums), or a throughput above the peak.
    """
    return next(tpu_plans(domain, statistics, base, target, recipe, throughput))


def tpu_plans(
    domain: str,
    statistics: Mapping[str, Any],
    base: ModelShape,
    target: HardwareTarget,
    recipe: PlanningRecipe,
    throughput: str | None = None,
) -> Iterator[TpuPlan]:
    """Plans for every layout on the Pareto front, best first, so that the next can replace one that does not compile.

    Arguments and errors are those of `plan_tpu`.
    """
    if target.kind != "tpu" or target.topology is None or target.efficiency is None:
        raise InputError(f"{target.name} is no TPU slice: tpu_config needs one of resources/hardware/tpu-*.yaml")
    if base.counted is not None:
        raise InputError(
            f"{base.name}: no trainer of TPU plans has the architecture {base.architecture}; they have"
            f" {', '.join(sorted(DECODERS | ENCODER_DECODERS))}. A CPU or GPU target trains it"
        )
    figures = read_statistics(domain, statistics, recipe.chars_per_token)
    reasons: dict[str, str] = {}
    lengths, per_example = _lengths(base, figures, statistics, recipe, reasons)
    batches = lookup(recipe.lora.global_batches, figures.training_examples)
    adapter = plan_adapter(base, figures, recipe, reasons) if _trains_adapter(base, recipe) else None
    problem = SearchProblem(
        shape=base,
        target=target,
        lengths=lengths,
        wanted=batches,
        limits=recipe.limits,
        axes=AXES,
        max_tensor=recipe.tpu.max_tensor,
        optimizer=Optimizer.ADAFACTOR if base.family == "t5" else Optimizer.ADAMW,
        **_method(adapter),
        software=SOFTWARE,
        # MaxText cuts the batch's tokens into equal tiles; T5X has no vocabulary tiling.
        logit_chunks=1 if base.family == "t5" else recipe.tpu.logit_chunks,
    )
    goal: ShareOf | None = None
    if throughput is not None:
        per_token = _per_token(base, adapter, lengths[0].sequence)
        answer = goal_of(readings(parse_throughput(throughput), target, per_token))

        def goal(one: FeasibleLayout) -> float:
            rate = one.prediction.tokens_per_second[1]
            return answer.share(rate, _per_token(base, adapter, one.lengths.sequence), target.chips)

    front = search(problem, weigh=_weigh(base), goal=goal)
    request = _PlanRequest(domain, base, target, recipe, figures, problem, per_example, throughput, adapter)
    for choice in front.plans:
        yield _plan(request, front, choice, dict(reasons))


def _per_token(base: ModelShape, adapter: Adapter | None, length: int) -> float:
    """FLOPs of a training token in rows of a length."""
    if adapter is None:
        return flops_per_token(base, length)
    trained = base.lora_parameters(adapter.rank, adapter.modules)
    return flops_per_token(base, length, method=Method.LORA, lora_parameters=trained)


def _compared(request: "_PlanRequest", choice: FeasibleLayout) -> tuple[ThroughputReading, ...]:
    """The readings of the requested throughput beside this layout's prediction."""
    if request.throughput is None:
        return ()
    target, per_token = request.target, _per_token(request.base, request.adapter, choice.lengths.sequence)
    answers = readings(parse_throughput(request.throughput), target, per_token)
    return compared(answers, choice.prediction.tokens_per_second, per_token, target.chips)


def _weigh(base: ModelShape) -> Weigh:
    """The memory of our JAX step, known to a few per cent, where it supports the model; else the generic estimate."""
    try:
        check_supported(base)
    except InputError:
        return footprint
    return weigh_tpu


@dataclass(frozen=True)
class _PlanRequest:
    """The inputs that all plans of one front share.

    Attributes:
        problem: the search problem.
        per_example: tokens of a typical example.
        throughput: as it was asked for.
        adapter: what is trained; None: every weight.
    """

    domain: str
    base: ModelShape
    target: HardwareTarget
    recipe: PlanningRecipe
    figures: DatasetFigures
    problem: SearchProblem
    per_example: float
    throughput: str | None
    adapter: Adapter | None

    def best_whole(self) -> FeasibleLayout:
        """The best layout for training every weight. Raises InputError: none fits."""
        whole = replace(self.problem, method=Method.FULL, weight_bytes=4, lora_rank=0, lora_modules=())
        return search(whole, weigh=_weigh(self.base)).best


def _plan(request: _PlanRequest, front: Front, choice: FeasibleLayout, reasons: dict[str, str]) -> TpuPlan:
    base, target, recipe = request.base, request.target, request.recipe
    figures, problem = request.figures, request.problem
    reasons |= front.reasons
    if choice is not front.best:
        reasons["mesh"] = f"{choice}: place {front.plans.index(choice) + 1} on the front; before it: {front.best}"
        reasons["remat"] = f"{choice.memory.arithmetic()} of {size(front.budget)}"
    reasons["step_time"] = _caution(base, choice)
    epochs = lookup(recipe.lora.epochs, figures.training_examples)
    row = choice.lengths
    held = max(1.0, row.sequence * row.filled / request.per_example) if row.packed else 1.0
    batch = choice.global_batch
    steps = ceil(figures.training_examples * epochs / (batch * held))
    each = f" x {held:.3g} examples a row" if row.packed else ""
    reasons["steps"] = f"{figures.training_examples} examples x {epochs} epochs / ({batch} rows{each})"
    assert target.topology is not None
    group = submesh(choice.mesh.tensor, target.topology)
    assert group is not None  # the search only yields meshes whose tensor group tiles the slice
    job = PlannedJob(request.domain, target, recipe, choice, steps)
    t5 = base if base.family == "t5" else companion(choice.mesh.tensor, recipe, reasons)
    adapter = request.adapter
    rate = _learning_rate(request, batch * held, reasons)
    whole = rate if adapter is None else recipe.tpu.learning_rate * rate_factor(batch * held, problem.wanted)
    maxtext = None if base.family == "t5" else maxtext_file(job, base, whole, reasons, request.best_whole)
    predicted = choice.prediction
    low, middle, high = predicted.step_seconds
    tflops = predicted.tflops_per_chip["full"]
    peak = (target.peak("bf16") or 0.0) / 1e12
    rates = (tflops * middle / high, tflops, tflops * middle / low)
    seconds = (steps * low, steps * middle, steps * high)
    price = None if target.price.usd_per_hour is None else target.price.usd_per_hour / 3600
    return TpuPlan(
        domain=request.domain,
        model=base.name,
        shape=base,
        target=target.name,
        level=recipe.level,
        mesh=choice.mesh,
        submesh=group,
        global_batch=batch,
        per_device_batch=batch / target.chips,
        sequence=choice.lengths.sequence,
        packed=choice.lengths.packed,
        examples_per_row=held,
        remat=choice.remat,
        method=problem.method,
        lora=_lora(adapter),
        optimizer=problem.optimizer,
        learning_rate=rate,
        logit_chunks=problem.logit_chunks,
        steps=steps,
        epochs=epochs,
        step_time=StepTime(
            low=low,
            middle=middle,
            high=high,
            coverage=predicted.coverage,
            terms=predicted.terms,
            resources=predicted.resources,
            binds=front.binds if choice is front.best else predicted.binds,
        ),
        tokens_per_second=predicted.tokens_per_second,
        tflops_per_chip=rates,
        share_of_peak=(rates[0] / peak, rates[1] / peak, rates[2] / peak),
        memory=choice.memory.document(),
        memory_budget=front.budget,
        feasible=True,
        front=tuple(_entry(one, front.best) for one in front.plans),
        refused=tuple(RefusedSetting(setting=one.setting, reason=one.reason) for one in front.refused),
        throughput_target=_compared(request, choice),
        seconds=seconds,
        usd=None if price is None else (seconds[0] * price, seconds[1] * price, seconds[2] * price),
        usd_note=target.price.note,
        gin=gin_file(job, t5, group),
        t5_model=t5.name,
        maxtext=maxtext,
        xla={"status": NOT_COMPILED, "detail": "XLA was not asked; the figures above are arithmetic"},
        reasons=reasons,
    )


def _entry(choice: FeasibleLayout, best: FeasibleLayout) -> FrontEntry:
    predicted = choice.prediction
    return FrontEntry(
        setting=str(choice),
        mesh=choice.mesh,
        remat=choice.remat,
        global_batch=choice.global_batch,
        sequence=choice.lengths.sequence,
        packed=choice.lengths.packed,
        memory=choice.memory.total,
        step_seconds=predicted.step_seconds,
        tokens_per_second=predicted.tokens_per_second[1],
        tflops_per_chip=predicted.tflops_per_chip["full"],
        binds=predicted.binds,
        relative_time=choice.seconds / best.seconds,
    )


def _caution(base: ModelShape, choice: FeasibleLayout) -> str:
    reason = (
        f"the efficiencies of published runs ({choice.prediction.coverage:.0%} of those whose model was left out lie in"
        f" such an interval); {choice.prediction.binds} takes most"
    )
    if base.parameters < SMALLEST_PUBLISHED:
        return reason + (
            f". {base.name} is far smaller than any published run on a TPU: fixed costs of a step (dispatch,"
            " latency of collectives), which the arithmetic leaves out, will dominate; the figures are lower bounds"
        )
    return reason


def _lengths(
    base: ModelShape,
    figures: DatasetFigures,
    statistics: Mapping[str, Any],
    recipe: PlanningRecipe,
    reasons: dict[str, str],
) -> tuple[tuple[RowFilling, ...], float]:
    """Row lengths to try, padded and packed, and the tokens of a typical example.

    A padded row holds one example, at the 95th percentile of lengths. Packed rows are filled first-fit, which leaves
    about half an example empty; only decoders are packed (T5X's packing would need a second mask for its inputs).
    """
    step = recipe.tpu.length_step
    wanted = max(step, ceil(figures.p95_tokens / step) * step)
    limit = min(recipe.tpu.max_length, base.context or recipe.tpu.max_length) // step * step or step
    row = min(wanted, limit)
    reasons["sequence"] = (
        f"95 % of the examples have at most {figures.p95_tokens} tokens ({figures.tokens_source}); in steps of {step}"
        + (f", held to {limit}" if wanted > limit else "")
    )
    typical = min(_typical(statistics, figures), float(row))
    padded = RowFilling(sequence=row, filled=typical / row)
    if base.family == "t5":
        return (padded,), typical
    packed = tuple(
        RowFilling(sequence=length, filled=1 - typical / (2 * length), packed=True)
        for length in sorted({row, limit})
        if length >= 2 * typical
    )
    return (padded, *packed), typical


def _typical(statistics: Mapping[str, Any], figures: DatasetFigures) -> float:
    """Tokens of the median example, or of the 95th percentile where the statistics have no median."""
    for name in ("tokens", "chars"):
        table = statistics.get(name)
        if isinstance(table, Mapping) and "p50" in table and float(table.get("p95") or 0) > 0:
            return max(1.0, figures.p95_tokens * float(table["p50"]) / float(table["p95"]))
    return float(figures.p95_tokens)


def _trains_adapter(base: ModelShape, recipe: PlanningRecipe) -> bool:
    return recipe.tpu.method == "lora" and base.family == "decoder"


def _lora(adapter: Adapter | None) -> Lora | None:
    if adapter is None:
        return None
    return Lora(rank=adapter.rank, alpha=adapter.alpha, rslora=adapter.use_rslora, modules=adapter.modules)


def _method(adapter: Adapter | None) -> dict[str, Any]:
    """What an adapter means for the search: a frozen base in bf16 beside float32 factors."""
    if adapter is None:
        return {}
    return {
        "method": Method.LORA,
        "weight_bytes": 2,
        "lora_rank": adapter.rank,
        "lora_modules": adapter.modules,
    }


def _learning_rate(request: _PlanRequest, batch: float, reasons: dict[str, str]) -> float:
    base, recipe, wanted = request.base, request.recipe, request.problem.wanted
    if base.family == "t5":
        reasons["learning_rate"] = (
            f"{recipe.tpu.t5_learning_rate:g}, constant: Adafactor's rate is relative to the weights and is kept"
        )
        return recipe.tpu.t5_learning_rate
    factor = rate_factor(batch, wanted)
    own = request.adapter.learning_rate if request.adapter else recipe.tpu.learning_rate
    rule = "of the LoRA rules" if request.adapter else "of the recipe"
    reasons["learning_rate"] = (
        f"{own:g} {rule}, made for {wanted} examples, x {factor:.3g} for"
        f" {batch:.4g}: the square root of the ratio (Adam, Malladi et al. 2022), no further than the noise scale"
    )
    return own * factor
