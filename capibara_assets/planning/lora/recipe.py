"""The LoRA training recipe computed from a dataset, a base model and hardware, with a reason for each value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import (
    Breakdown,
    DeviceStep,
    Method,
    Remat,
    size,
    training_memory,
)
from capibara_assets.planning.figures import DatasetFigures, read_statistics
from capibara_assets.planning.hardware.targets import HardwareTarget, Quantization
from capibara_assets.planning.lora.estimates import TrainingLength, estimates_of
from capibara_assets.planning.lora.spread import devices_of_a_voter, layout, why_so_many, zero_stage
from capibara_assets.planning.lora.targets import targets_reason
from capibara_assets.planning.lora.throughput import AskedRate, leanest
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.prediction.throughput import ThroughputReading
from capibara_assets.planning.recipe import DomainChoice, LevelName, LoraRecipe, PlanningRecipe, lookup

REFERENCE_HIDDEN = 4096  # the width at which the recipe states its learning rate
SMALLEST_RANK = 8


class LoraPlan(BaseModel):
    """Training recipe for one domain's adapters: `reasons` explains each field, `estimates` holds the arithmetic."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    domain: str
    model: str
    target: str
    level: LevelName = Field(description="whose limits on recomputation, headroom and batch hold")
    rank: int = Field(gt=0)
    alpha: float = Field(gt=0)
    dropout: float = Field(ge=0, lt=1)
    modules: tuple[str, ...] = Field(description="linear layers that get an adapter, by their name in Transformers")
    use_rslora: bool
    quantization: Quantization
    precision: Literal["fp32", "bf16", "auto"] = Field(
        description="auto: the training process chooses by the processor"
    )
    micro_batch: int = Field(gt=0, description="sequences per device and pass")
    accumulation: int = Field(gt=0, description="passes per optimizer step")
    global_batch: int = Field(gt=0, description="sequences per optimizer step over all devices")
    max_length: int = Field(gt=0, description="tokens; longer examples are cut")
    packing: bool = Field(description="several examples in one row, without attention across them")
    packing_length: int | None = Field(description="tokens of a packed row; None where rows are not packed")
    learning_rate: float = Field(gt=0)
    epochs: int = Field(gt=0)
    zero_stage: int = Field(ge=0, le=3)
    gradient_checkpointing: bool
    throughput_target: tuple[ThroughputReading, ...] = Field(
        default=(), exclude_if=lambda answers: not answers, description="every reading of a given target"
    )
    estimates: dict[str, Any]
    reasons: dict[str, str]

    @property
    def devices(self) -> int:
        """Devices that train one voter together; the target's others train other voters."""
        return self.global_batch // (self.micro_batch * self.accumulation)


@dataclass(frozen=True)
class _Fit:
    """The first variant of the step that fits a voter's devices, its memory, and the variants that did not fit."""

    step: DeviceStep
    memory: Breakdown
    refused: tuple[str, ...]

    @property
    def quantization(self) -> Quantization:
        return "nf4" if self.step.nf4 else "none"

    @property
    def checkpointing(self) -> bool:
        return self.step.remat is Remat.FULL


def plan_lora(
    domain: str,
    statistics: Mapping[str, Any],
    base: ModelShape,
    target: HardwareTarget,
    recipe: PlanningRecipe,
    voters: int = 1,
    throughput: str | None = None,
) -> LoraPlan:
    """Compute the LoRA recipe for one domain.

    Args:
        domain: the partition, for names and messages.
        statistics: the dataset's statistics document (examples, by_split, chars or tokens, difficulty).
        base: shape of the base model.
        target: CPU or GPU hardware; `plan_tpu` plans for TPUs.
        recipe: the deployment's choices.
        voters: adapters to train. One has all devices; of several each has as few as it fits on, side by side.
        throughput: a target such as "24800 tokens/s": the plan is then the leanest that is predicted to reach it.

    Raises:
        InputError: a TPU target, statistics without training examples, a model that does not fit, or an impossible
            throughput (with the sums).
    """
    if target.kind == "tpu":
        raise InputError(
            f"{target.name} is a TPU slice, which the PyTorch trainer cannot use: name a CPU or GPU target"
        )
    choices, own = recipe.lora, recipe.for_domain(domain) or DomainChoice(reason="none")
    figures = read_statistics(domain, statistics, recipe.chars_per_token)
    reasons: dict[str, str] = {"level": _level(recipe)}
    modules, reasons["modules"] = base.lora_targets, targets_reason(base)
    rank = _rank(base, figures, choices, own, reasons)
    length = _length(base, figures, choices, own, reasons)
    packing = _packing(figures, length, target, choices, own, reasons)
    dropout = choices.dropout if own.dropout is None else own.dropout
    reasons["dropout"] = (
        "the recipe's; adapters on little data overfit without it" if own.dropout is None else f"{domain}: {own.reason}"
    )
    precision, width = _precision(target, reasons)
    bare = DeviceStep(
        sequences=1,
        sequence=length,
        weight_bytes=width,
        compute_bytes=width,
        method=Method.LORA,
        lora_rank=rank,
        lora_modules=modules,
        lora_dropout=dropout > 0,
        layout=layout(target.chips),
    )
    fit = _fit(base, bare, target, recipe)
    devices, memory = devices_of_a_voter(base, fit.step, target, recipe.headroom, voters)
    reasons["zero_stage"] = why_so_many(devices, memory, target, voters)
    fit = replace(fit, step=replace(fit.step, layout=layout(devices)), memory=memory)
    global_batch = _global_batch(figures, devices, choices, reasons)
    fit = _widen(base, fit, target, recipe, global_batch // devices)
    _explain_memory(fit, target, recipe, reasons)
    rate = AskedRate.of(throughput, base, fit.step, target, devices) if throughput is not None else None
    if rate is not None:
        fit = _at_rate(rate, fit, recipe, global_batch, reasons)
    micro = fit.step.sequences
    epochs = lookup(choices.epochs, figures.training_examples)
    reasons["epochs"] = f"{figures.training_examples} training examples: fewer examples are read more often"
    training = TrainingLength(figures.training_examples, global_batch, epochs)
    reasons["accumulation"] = f"{global_batch} per step / ({micro} x {devices} devices)"
    return LoraPlan(
        domain=domain,
        model=base.name,
        target=target.name,
        level=recipe.level,
        rank=rank,
        alpha=_alpha(rank, choices, reasons),
        dropout=dropout,
        modules=modules,
        use_rslora=rank >= choices.rslora_from_rank,
        quantization=fit.quantization,
        precision=precision,
        micro_batch=micro,
        accumulation=global_batch // (micro * devices),
        global_batch=global_batch,
        max_length=length,
        packing=packing,
        packing_length=length if packing else None,
        learning_rate=_learning_rate(base, choices, own, reasons),
        epochs=epochs,
        zero_stage=zero_stage(devices),
        gradient_checkpointing=fit.checkpointing,
        throughput_target=rate.beside(fit.step, global_batch) if rate is not None else (),
        estimates=estimates_of(base, fit.step, fit.memory, training, target, recipe.headroom, devices),
        reasons=reasons,
    )


class Adapter(NamedTuple):
    """What LoRA adds to a base, whatever it is trained on, and its learning rate."""

    rank: int
    alpha: float
    use_rslora: bool
    modules: tuple[str, ...]
    learning_rate: float


def plan_adapter(base: ModelShape, figures: DatasetFigures, recipe: PlanningRecipe, reasons: dict[str, str]) -> Adapter:
    """The adapter that a dataset asks for; the reasons are added to `reasons`."""
    choices, own = recipe.lora, recipe.for_domain(figures.domain) or DomainChoice(reason="none")
    modules, reasons["modules"] = base.lora_targets, targets_reason(base)
    rank = _rank(base, figures, choices, own, reasons)
    rate = _learning_rate(base, choices, own, reasons)
    return Adapter(rank, _alpha(rank, choices, reasons), rank >= choices.rslora_from_rank, modules, rate)


def _level(recipe: PlanningRecipe) -> str:
    limits = recipe.limits
    return (
        f"{recipe.level}: at most {recipe.headroom:.0%} of the memory, recomputation {'/'.join(limits.remat)},"
        f" {limits.micro_batch} sequences a GPU (a CPU: {limits.cpu_micro_batch}) and pass"
    )


def _at_rate(rate: AskedRate, fit: _Fit, recipe: PlanningRecipe, global_batch: int, reasons: dict[str, str]) -> _Fit:
    """The leanest fit that reaches a throughput, or the one that comes nearest."""
    step, why = leanest(rate, fit.step, recipe, global_batch)
    reasons |= dict.fromkeys(("micro_batch", "gradient_checkpointing"), why)
    return replace(fit, step=step, memory=training_memory(rate.base, step))


def _rank(
    base: ModelShape, figures: DatasetFigures, choices: LoraRecipe, own: DomainChoice, reasons: dict[str, str]
) -> int:
    rank = lookup(choices.ranks, figures.training_examples)
    steps = [f"{figures.training_examples} training examples: rank {rank}"]
    if figures.difficulty is not None and figures.difficulty >= choices.hard_difficulty:
        rank *= 2
        steps.append(f"mean difficulty {figures.difficulty:.2f} reaches {choices.hard_difficulty:g}: doubled to {rank}")
    if own.rank_factor != 1:
        rank = max(1, round(rank * own.rank_factor))
        steps.append(f"x {own.rank_factor:g} = {rank} for {figures.domain}: {own.reason}")
    widest = max(SMALLEST_RANK, _power_of_two(base.hidden // choices.rank_per_hidden))
    limit = min(widest, choices.max_rank)
    if rank > limit:
        rank = limit
        steps.append(f"held to {limit} (width {base.hidden} / {choices.rank_per_hidden}, at most {choices.max_rank})")
    reasons["rank"] = "; ".join(steps)
    return rank


def _alpha(rank: int, choices: LoraRecipe, reasons: dict[str, str]) -> float:
    rslora = rank >= choices.rslora_from_rank
    reasons["alpha"] = f"{choices.alpha_per_rank:g} x rank, so that the update's scale does not change with the rank"
    reasons["use_rslora"] = (
        f"rank {rank} {'reaches' if rslora else 'is under'} {choices.rslora_from_rank}, where alpha/r gets too small"
    )
    return choices.alpha_per_rank * rank


def _length(
    base: ModelShape, figures: DatasetFigures, choices: LoraRecipe, own: DomainChoice, reasons: dict[str, str]
) -> int:
    step = choices.length_step
    wanted = max(2 * step, ceil(figures.p95_tokens / step) * step)
    most = max(own.max_length or 0, choices.max_length)  # a deployment that allows more is not held to less
    limit = min(most, base.context or most)
    length = min(wanted, limit)
    reasons["max_length"] = (
        f"95 % of the examples have at most {figures.p95_tokens} tokens ({figures.tokens_source}):"
        f" {wanted} in steps of {step}"
        + (f", held to {limit}" if wanted > limit else "")
        + (f"; up to {own.max_length} for {figures.domain}: {own.reason}" if own.max_length else "")
    )
    return length


def _packing(
    figures: DatasetFigures,
    length: int,
    target: HardwareTarget,
    choices: LoraRecipe,
    own: DomainChoice,
    reasons: dict[str, str],
) -> bool:
    """Whether to pack several examples into a row; decided by how many of median length fit."""
    gain = length / max(1, figures.p50_tokens)
    fits = f"a row of {length} tokens holds {gain:.1f} examples of median length ({figures.p50_tokens})"
    if own.packing is not None:
        packing, why = own.packing, f"{figures.domain}: {own.reason}"
    elif target.kind == "cpu":
        packing = False
        why = f"{fits}, but on a CPU batches sorted by length are faster than attention over longer rows"
    else:
        packing = gain >= choices.packing_gain
        why = f"{fits}: {'packed' if packing else 'not packed'} (from {choices.packing_gain:g} on)"
    reasons["packing"] = why
    reasons["packing_length"] = f"rows of max_length, {length} tokens" if packing else "rows are not packed"
    return packing


def _global_batch(figures: DatasetFigures, devices: int, choices: LoraRecipe, reasons: dict[str, str]) -> int:
    wanted = lookup(choices.global_batches, figures.training_examples)
    batch = ceil(wanted / devices) * devices
    steps = ceil(figures.training_examples / batch)
    reasons["global_batch"] = f"{figures.training_examples} examples: {batch} a step leaves {steps} steps an epoch" + (
        f" (a multiple of {devices} devices)" if batch != wanted else ""
    )
    return batch


def _precision(target: HardwareTarget, reasons: dict[str, str]) -> tuple[Literal["bf16", "auto"], int]:
    """Training precision, and the bytes per weight used to compute memory."""
    if target.bf16 == "native":
        reasons["precision"] = f"{target.name} multiplies bf16 natively"
        return "bf16", 2
    reasons["precision"] = (
        "a CPU without AVX512-BF16 or AMX emulates bf16, up to hundreds of times slower than fp32: the training process"
        " chooses by the processor; memory is computed for fp32"
    )
    return "auto", 4


def _variants(bare: DeviceStep, target: HardwareTarget, recipe: PlanningRecipe) -> Iterator[DeviceStep]:
    """Variants of quantization and recomputation for the step, from the least costly in quality and time.

    PyTorch recomputes whole layers or nothing: there is no `minimal` between them.
    """
    remats = [Remat.NONE] if Remat.NONE in recipe.limits.remat else []
    remats += [Remat.FULL] if {Remat.MINIMAL, Remat.FULL} & set(recipe.limits.remat) else []
    for quantization in target.quantization:
        for remat in remats:
            yield replace(bare, nf4=quantization == "nf4", remat=remat)


def _fit(base: ModelShape, bare: DeviceStep, target: HardwareTarget, recipe: PlanningRecipe) -> _Fit:
    headroom = recipe.headroom
    budget = target.usable_bytes * headroom
    refused: list[str] = []
    for step in _variants(bare, target, recipe):
        memory = training_memory(base, step)
        if memory.total <= budget:
            return _Fit(step, memory, tuple(refused))
        refused.append(f"{_describe(step)}: {memory.arithmetic()}")
    raise InputError(
        f"{base.name} ({base.parameters / 1e9:.3g} B parameters) does not fit on {target.name}: one device has"
        f" {target.memory.usable_gib:g} GiB usable, {size(budget)} at {headroom:.0%}; 1 x {bare.sequence} tokens"
        f" at once need {'; '.join(refused)}. Every device holds all frozen weights (ZeRO-2 does not cut them)."
        " Take a smaller model or a target with more memory."
    )


def _describe(step: DeviceStep) -> str:
    weights = "4-bit weights (NF4)" if step.nf4 else f"{8 * step.weight_bytes:g}-bit weights"
    return weights + (" with gradient checkpointing" if step.remat is Remat.FULL else "")


def _widen(base: ModelShape, fit: _Fit, target: HardwareTarget, recipe: PlanningRecipe, most: int) -> _Fit:
    """Double the micro-batch while memory, recipe and global batch allow it."""
    cap = recipe.limits.cpu_micro_batch if target.kind == "cpu" else recipe.limits.micro_batch
    budget = target.usable_bytes * recipe.headroom
    while 2 * fit.step.sequences <= cap and most % (2 * fit.step.sequences) == 0:
        step = replace(fit.step, sequences=2 * fit.step.sequences)
        memory = training_memory(base, step)
        if memory.total > budget:
            break
        fit = replace(fit, step=step, memory=memory)
    return fit


def _explain_memory(fit: _Fit, target: HardwareTarget, recipe: PlanningRecipe, reasons: dict[str, str]) -> None:
    budget = size(target.usable_bytes * recipe.headroom)
    held = f"{fit.memory.arithmetic()}, of {budget} ({recipe.headroom:.0%} of {target.memory.usable_gib:g} GiB usable)"
    tried = f"; refused before: {'; '.join(fit.refused)}" if fit.refused else ""
    reasons["micro_batch"] = (
        f"largest power of two (at most the recipe's) that divides the global batch and fits: {held}"
    )
    reasons["quantization"] = (
        f"unquantised weights do not fit{tried}"
        if fit.step.nf4
        else f"the weights fit unquantised: {size(fit.memory.weights)} of {budget}"
    )
    reasons["gradient_checkpointing"] = (
        f"the level {recipe.level} recomputes every layer, whether or not activations would fit"
        if fit.checkpointing and Remat.NONE not in recipe.limits.remat
        else f"activations do not fit otherwise{tried}"
        if fit.checkpointing
        else f"activations fit ({size(fit.memory.activations)}); recomputing them would cost a second forward pass"
    )


def _learning_rate(base: ModelShape, choices: LoraRecipe, own: DomainChoice, reasons: dict[str, str]) -> float:
    raw = choices.learning_rate * (REFERENCE_HIDDEN / base.hidden) ** choices.learning_rate_exponent
    raw *= own.learning_rate_factor
    rate = float(f"{min(raw, choices.max_learning_rate):.2e}")
    reasons["learning_rate"] = (
        f"{choices.learning_rate:g} at width {REFERENCE_HIDDEN}, x ({REFERENCE_HIDDEN}/{base.hidden})"
        f"^{choices.learning_rate_exponent:g}: narrower layers take larger steps, at most {choices.max_learning_rate:g}"
        + (f"; x {own.learning_rate_factor:g}: {own.reason}" if own.learning_rate_factor != 1 else "")
    )
    return rate


def _power_of_two(count: int) -> int:
    """The largest power of two not above `count`; 0 for 0."""
    return 1 << (count.bit_length() - 1) if count > 0 else 0
