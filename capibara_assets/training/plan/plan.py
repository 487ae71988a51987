"""Plans a training without loading a model: parameters, bytes, steps, memory, time and cost.

Reads the base's config and the headers of its weight files, the dataset's table, and the tokens of an earlier run if
there are any. Imports no torch, unless the planner has no formula for the base's architecture. Raises errors, with the
arithmetic, for what the run could not do.
"""

import os
from collections.abc import Sequence
from typing import Any

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.modeling.attention import FLASH, FLASH_PACKAGE, AttentionPlace, require_attention
from capibara_assets.modeling.files import read_config
from capibara_assets.modeling.lora.targets import EVERY_LINEAR
from capibara_assets.modeling.precision import Precision, processor_precision
from capibara_assets.planning.accounting import size
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.lora.targets import targets_reason
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.weights import read_weights
from capibara_assets.training.data.order import ExampleOrder, micro_batches, training_part, validation_shard
from capibara_assets.training.data.token_counts import TokenCounts, count_tokens, percentile
from capibara_assets.training.devices import gpus_here, voters_at_once
from capibara_assets.training.plan.files import kept_weights, planned_files, sizes
from capibara_assets.training.plan.memory import MemoryPlan, TrainedModel, predict_memory, shape_of, target_budget
from capibara_assets.training.plan.packages import missing_packages
from capibara_assets.training.plan.schema import MeasuredSpeed, TrainingPlan, VoterPlan
from capibara_assets.training.plan.smaller import smaller_setting
from capibara_assets.training.plan.time import ComputeSetup, predict_time, training_flops
from capibara_assets.training.recipe import TrainingRecipe, VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step.settings import Settings, auto_epochs, resolve, total_steps
from capibara_assets.training.strategies.privacy_plan import (
    budget_of,
    budget_of_steps,
    dimensions,
    trained_numbers,
    warnings_of,
)
from capibara_assets.training.strategy import (
    FederatedStrategy,
    HierarchicalStrategy,
    Privacy,
    PrivateStrategy,
    SeedsStrategy,
)

_COUNTED_STEPS = 5000  # whose micro-batches are counted one by one; longer trainings are extrapolated
_HOST = "this machine"


def plan_training(
    request: TrainingRequest, target: HardwareTarget | None = None, *, speed: MeasuredSpeed | None = None
) -> TrainingPlan:
    """Plan a training.

    Args:
        target: hardware to plan for; None for this machine, whose time is not known without `speed`.
        speed: measured by a probe on this machine.

    Raises:
        InputError: the training could not run: files missing or damaged, no such linear layer, no examples, or a target
            or processor that lacks what the recipe asks for.
    """
    recipe = request.recipe
    config, weights = read_config(request.base_model), read_weights(request.base_model)
    shape = shape_of(config, request.base_model.name)
    on_gpu = on_a_gpu(target)
    device = "gpu" if on_gpu else "cpu"
    settings = settings_of(request, target)
    _require_possible(recipe, settings, config, target)
    adapted = weights.adapted(settings.modules)
    trainable = weights.lora_parameters(settings.rank, settings.modules, dora=settings.use_dora)
    examples = read_examples(request)
    counts = count_tokens(examples, request.base_model, settings.max_length, request.work)
    voters, without = _voters(request, settings, examples, counts)
    lengths = list(counts.lengths.values())
    longest = max(lengths)
    parallel = _parallel(recipe, target)
    model = TrainedModel(weights, shape, trainable, longest)
    memory = predict_memory(model, settings, recipe, device=device, together=1 if on_gpu else parallel)
    saved = sizes(recipe, trainable, list(adapted), kept_weights(recipe))
    flops = training_flops(shape, weights, trainable, round(sum(lengths) / len(lengths)))
    compute = ComputeSetup(settings.precision, recipe.hardware.processes, parallel)
    smaller = smaller_setting(recipe, settings, longest)
    time = predict_time(voters, flops, target, speed, compute)
    return TrainingPlan(
        domain=request.domain,
        base=request.base_model.name,
        recipe=recipe.name,
        target=target.name if target else _HOST,
        parameters=weights.parameters,
        trainable=trainable,
        adapted=len(adapted),
        modules=settings.modules,
        modules_reason=_modules_reason(request, shape),
        rank=settings.rank,
        quantization=settings.quantization,
        precision=settings.precision,
        attention=settings.attention,
        attention_reason=settings.attention_reason,
        gradient_checkpointing=settings.gradient_checkpointing,
        backend=recipe.hardware.backend,
        processes=recipe.hardware.processes,
        parallel=parallel,
        global_batch=settings.global_batch,
        accumulation=_accumulation(recipe, settings, voters),
        examples=len(examples),
        examples_left_out=counts.left_out,
        supervised_share=counts.supervised_share,
        longest=longest,
        tokens_exact=counts.exact,
        tokens_source=counts.source,
        size=saved,
        files=planned_files(
            recipe, saved, [voter.steps for voter in voters], sum(lengths), store=request.checkpoints is not None
        ),
        voters=voters,
        memory=memory,
        budget_bytes=target.usable_bytes if target else None,
        time=time,
        smaller=smaller.said if smaller else "",
        warnings=(
            *(f"voter {name} will be missing: {reason}" for name, reason in without.items()),
            *_warnings(settings, recipe, memory, target, lengths),
            *_privacy_warnings(recipe, settings, list(adapted.values()), voters),
        ),
    )


def settings_of(request: TrainingRequest, target: HardwareTarget | None) -> Settings:
    """The settings of a request on a target; None: this machine.

    Raises:
        InputError: neither recipe nor LoRA plan gives a value, or there is no such attention.
    """
    config, cuda, here = read_config(request.base_model), on_a_gpu(target), target is None
    settings = resolve(request.recipe, request.lora, fastest=_fastest(target), cuda=cuda, here=here, config=config)
    require_attention(settings.attention, config, AttentionPlace(cuda, settings.precision, here))
    return settings


def on_a_gpu(target: HardwareTarget | None) -> bool:
    """Whether a target computes on GPUs; None: whether this machine does."""
    return target.kind == "gpu" if target else bool(gpus_here())


def read_examples(request: TrainingRequest) -> pl.DataFrame:
    """Read the columns of the dataset that a plan needs.

    Raises:
        InputError: the file is missing or not a table of examples.
    """
    if not request.dataset.is_file():
        raise InputError(f"dataset {request.dataset} does not exist: materialize the domain's examples first")
    try:
        return pl.read_parquet(request.dataset, columns=["example_id", "group_id", "split", "messages"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"dataset {request.dataset} is not a table of examples: {error}") from error


def _fastest(target: HardwareTarget | None) -> Precision:
    if on_a_gpu(target) or (target is not None and target.bf16 == "native"):
        return "bf16"
    return processor_precision()


def _parallel(recipe: TrainingRecipe, target: HardwareTarget | None) -> int:
    """Voters at a time, by the supervisor's rule."""
    here = len(os.sched_getaffinity(0))
    cores = target.cores or here if target and target.kind == "cpu" else here
    gpus = len(gpus_here()) if target is None else target.chips if target.kind == "gpu" else 0
    return min(len(recipe.voters), voters_at_once(recipe.hardware, gpus, cores))


def _require_possible(
    recipe: TrainingRecipe, settings: Settings, config: dict[str, Any], target: HardwareTarget | None
) -> None:
    context = config.get("max_position_embeddings")
    if isinstance(context, int) and settings.max_length > context:
        raise InputError(
            f"max_length {settings.max_length} is above the base's {context} positions: set it to at most that "
            "(`data.max_length` of the recipe; of `capibara train` also --max-length)"
        )
    if target is None:
        return
    if target.kind == "tpu":
        raise InputError(
            f"{target.name} is a TPU slice, which the PyTorch trainer cannot use: name a CPU or GPU target"
        )
    if target.kind == "cpu" and recipe.training.optimizer == "adamw_8bit":
        raise InputError(f"optimizer adamw_8bit needs CUDA, and {target.name} has none: use adamw")
    if target.kind == "gpu" and recipe.hardware.processes > target.chips:
        raise InputError(
            f"{recipe.hardware.processes} processes, but {target.name} has {target.chips} devices: "
            "each process needs one"
        )


def _voters(
    request: TrainingRequest, settings: Settings, examples: pl.DataFrame, counts: TokenCounts
) -> tuple[tuple[VoterPlan, ...], dict[str, str]]:
    """The plans of all voters with examples, and the names of those without, with the reason: they will be missing.

    Raises:
        InputError: fewer than the quorum have examples.
    """
    recipe = request.recipe
    planned = [_voter(request, voter, settings, examples, counts) for voter in recipe.voters]
    voters = tuple(plan for plan in planned if isinstance(plan, VoterPlan))
    without = {voter.name: plan for voter, plan in zip(recipe.voters, planned, strict=True) if isinstance(plan, str)}
    if len(voters) < recipe.quorum:
        raise InputError(
            f"{len(voters)} of {len(recipe.voters)} voters have examples, {recipe.quorum} needed: "
            + "; ".join(f"voter {name}: {reason}" for name, reason in without.items())
        )
    return voters, without


def _voter(
    request: TrainingRequest, voter: VoterSpec, settings: Settings, examples: pl.DataFrame, counts: TokenCounts
) -> VoterPlan | str:
    """The plan of a voter, or why it has nothing to train or validate on."""
    recipe, n = request.recipe, len(request.recipe.voters)
    ids, lengths = counts.of(training_part(examples, voter.shard, n))
    _, validation_lengths = counts.of(validation_shard(examples, voter.shard, n))
    if not ids or not validation_lengths:
        part = "train" if not ids else "validation"
        return (
            f"none of the {part} examples can be used with max_length {settings.max_length} "
            f"({counts.left_out} of {len(examples)} left out): raise max_length, or mend the dataset"
        )
    validation = validation_lengths[: recipe.data.max_validation_examples]
    steps = micro_steps = tokens = validations = 0
    passes = 0.0
    trainings = list(_trainings(voter, ids, lengths))
    for own_ids, own_lengths, epochs, times in trainings:
        count = total_steps(own_lengths, settings, recipe, epochs=epochs)
        if isinstance(voter.strategy, PrivateStrategy):  # drawn for each step, and passed through the model one by one
            micro = count * min(settings.global_batch, len(own_ids))
            trained = round(micro * sum(own_lengths) / len(own_lengths))
        else:
            micro, trained = _micro_steps(own_ids, own_lengths, count, f"{request.seed}/{voter.seed}", settings, recipe)
        steps, micro_steps, tokens = steps + times * count, micro_steps + times * micro, tokens + times * trained
        validations += times * (1 + -(-count // recipe.training.evaluate_every))
        chosen = settings.epochs if epochs is None else epochs
        passes += times * (auto_epochs(len(own_ids)) if chosen == "auto" else chosen) * len(own_ids) / len(ids)
    return VoterPlan(
        name=voter.name,
        strategy=voter.strategy.kind,
        trainings=sum(times for *_, times in trainings),
        examples=len(ids),
        epochs=passes,
        steps=steps,
        micro_steps=micro_steps,
        tokens=tokens,
        validations=validations,
        validation_examples=len(validation),
        validation_tokens=sum(validation),
    )


def _trainings(
    voter: VoterSpec, ids: list[str], lengths: list[int]
) -> list[tuple[list[str], list[int], float | None, int]]:
    """(ids, lengths, epochs, repetitions) of the trainings that a strategy consists of.

    Levels on all domains or on hard examples are counted on the voter's own examples: the plan does not read others.
    """
    match voter.strategy:
        case SeedsStrategy(k=k, epochs=epochs):
            return [(ids, lengths, epochs, k)]
        case FederatedStrategy(clients=clients, rounds=rounds, local_epochs=epochs):
            parts = [(ids[at::clients], lengths[at::clients]) for at in range(clients)]
            return [(part, sizes, epochs, rounds) for part, sizes in parts if part]
        case HierarchicalStrategy(levels=levels):
            return [(ids, lengths, level.epochs, 1) for level in levels]
    return [(ids, lengths, None, 1)]


def _micro_steps(
    ids: Sequence[str], lengths: Sequence[int], steps: int, seed: str, settings: Settings, recipe: TrainingRecipe
) -> tuple[int, int]:
    """(micro-batches of one process, tokens of all) in `steps` optimizer steps, by the loop's own functions."""
    order = ExampleOrder(ids, lengths, seed=seed, global_batch=settings.global_batch, window=recipe.data.length_window)
    world = recipe.hardware.processes
    counted = min(steps, _COUNTED_STEPS)
    micro = tokens = 0
    for number in range(counted):
        sizes_of_step = [lengths[index] for index in order.step(number)]
        micro += len(micro_batches(sizes_of_step, recipe.training, world)) // world
        tokens += sum(sizes_of_step)
    return round(micro * steps / counted), round(tokens * steps / counted)


def _modules_reason(request: TrainingRequest, shape: ModelShape | None) -> str:
    if request.recipe.model.lora.modules is not None:
        return "the recipe names them"
    reason = targets_reason(shape) if shape is not None else EVERY_LINEAR
    return str(request.lora.get("reasons", {}).get("modules", reason))


def _accumulation(recipe: TrainingRecipe, settings: Settings, voters: Sequence[VoterPlan]) -> str:
    whole, world, choice = settings.global_batch, recipe.hardware.processes, recipe.training
    if choice.micro_batch:
        times = whole / (choice.micro_batch * world)
        return f"{whole} examples a step = {choice.micro_batch} x {world} processes x {times:g} micro-steps"
    average = sum(voter.micro_steps for voter in voters) / sum(voter.steps for voter in voters)
    return (
        f"{whole} examples a step, in micro-batches of at most {choice.micro_batch_tokens} tokens: {average:.2f} "
        f"micro-steps a step on average, on each of {world} processes"
    )


def _warnings(
    settings: Settings, recipe: TrainingRecipe, memory: MemoryPlan, target: HardwareTarget | None, lengths: list[int]
) -> list[str]:
    warnings = list[str]()
    if target is None:
        warnings += missing_packages(recipe, settings)
    elif settings.attention == FLASH:
        warnings.append(f"{FLASH_PACKAGE} has to be installed on {target.name}: without it the start is refused")
    if problem := memory_problem(memory, target):
        warnings.append(problem)
    if target and settings.quantised and "nf4" not in target.quantization:
        warnings.append(f"{target.name} is not declared to hold quantised weights: doctor tries bitsandbytes there")
    micro, world = recipe.training.micro_batch, recipe.hardware.processes
    if micro and settings.global_batch % (micro * world):
        warnings.append(
            f"global_batch {settings.global_batch} is no multiple of micro_batch {micro} x processes {world} = "
            f"{micro * world}: some micro-batches of each step are smaller"
        )
    if percentile(lengths, 50) * 4 < max(lengths) and recipe.training.micro_batch:
        warnings.append(
            f"half of the examples have at most {percentile(lengths, 50)} tokens, the longest {max(lengths)}: "
            "micro_batch_tokens in place of micro_batch wastes less on padding"
        )
    return warnings


def _privacy_warnings(
    recipe: TrainingRecipe, settings: Settings, sizes: Sequence[tuple[int, int]], plans: Sequence[VoterPlan]
) -> list[str]:
    """Warnings on the noise that privacy requires, compared with the signal of clients or examples."""
    warnings = []
    of_name = {voter.name: voter for voter in recipe.voters}
    for voter, plan in ((of_name[plan.name], plan) for plan in plans):
        match voter.strategy:
            case FederatedStrategy(privacy=Privacy() as privacy, trained=trained, rounds=asked) as strategy:
                budget, numbers = budget_of(strategy), dimensions(trained, sizes, settings.rank)
            case PrivateStrategy(privacy=privacy, trained=trained):
                asked, numbers = plan.steps, trained_numbers(trained, sizes, settings.rank)
                budget = budget_of_steps(privacy, settings.global_batch, plan.examples, asked)
            case _:
                continue
        warnings += [f"{voter.name}: {line}" for line in warnings_of(privacy, budget, asked, numbers)]
    return warnings


def memory_problem(memory: MemoryPlan, target: HardwareTarget | None) -> str | None:
    """Why a run does not fit into a target's memory, with the sum; None where it fits."""
    if target is None or memory.together <= target.usable_bytes:
        return None
    several = f" x {memory.processes} processes = {size(memory.together)}" if memory.processes > 1 else ""
    return (
        f"needs {memory.arithmetic}{several}, but {target_budget(target)}: hold the base quantised, lower micro_batch "
        "or max_length, set gradient_checkpointing, run fewer voters at a time, or take a larger target"
    )
