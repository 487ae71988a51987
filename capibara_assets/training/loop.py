"""Training of one voter, from the request to the finished adapter, in one function that reads top to bottom.

Guarantees: loss on the assistant's tokens only, summed over an optimizer step and divided by that step's supervised
tokens, so neither micro-batches nor padding change it; the same inputs on the same environment give the same bits,
also when interrupted anywhere and started again. On another processor, thread count or library version a run
resumes too, but the bits may differ; the log then says `statistical`.
"""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from capibara_assets.checkpoints.saving import AsyncSaver
from capibara_assets.datasets.tokenising import Encoded, EncodedSet, encode_examples
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.losses import assistant_losses, collate, length_sorted, token_nll
from capibara_assets.modeling.precision import fast_precision
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.training.data import Plan, rank, training_part, validation_shard
from capibara_assets.training.environment import fingerprint, pick_device
from capibara_assets.training.epochs import EpochCheckpoints
from capibara_assets.training.events import EventLog, Report
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.result import ADAPTER, EVENTS, adapter_of, current_adapter, write_result
from capibara_assets.training.resume import Progress, ResumePoints, drop_points, load_point, state_of
from capibara_assets.training.settings import Settings, learning_rate, resolve, total_steps
from capibara_assets.training.stepper import PlainStepper, Stepper
from capibara_assets.training.zero import Zero2Stepper

_LEAVE_S = 8.0  # for a checkpoint still on its way when asked to stop; the supervisor kills after 15


class Interrupted(Exception):
    """The process was asked to stop; a resume point is on disk."""


class TrainingDiverged(Exception):
    """NaN or infinity came back again and again; started again it would do the same."""


def train_voter(
    request: TrainingRequest, voter: VoterSpec, folder: Path, report: Report, poll: Callable[[], None]
) -> Path:
    """Train one voter, or go on where an earlier attempt stopped.

    Args:
        folder: the voter's folder of work; resume points, log and result lie there.
        report: gets every event of the log.
        poll: called often; raises `Interrupted` when the process has to stop.

    Returns:
        Folder with the finished adapter, manifest, curve, log and timings.

    Raises:
        Interrupted: a resume point was written, if there was anything to write.
        TrainingDiverged: more than `max_skipped_steps` steps gave NaN or infinity.
        InputError: the base, the dataset or the plan cannot be trained on.
    """
    started = time.monotonic()
    recipe, inputs = request.recipe, sha256_bytes(f"{request.input_digest()}/{voter.name}".encode())
    device = pick_device()
    settings = resolve(recipe, request.lora, fastest=fast_precision(device), cuda=device.type == "cuda")
    torch.set_num_threads(recipe.threads)
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")
    torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads memory before writing it
    environment = fingerprint(device, settings.precision, settings.attention)
    log = EventLog(folder / EVENTS, run=inputs[:16], listener=report)

    # Model: the frozen base, and LoRA weights that start the same for every voter.
    base = load_base(request.base_model, attention=settings.attention)
    if base.digest != request.base_digest:
        raise InputError(f"base model {request.base_model} is not the one requested: its files have changed")
    poll()
    base.model.to(device)
    adapted = with_lora(base, settings, request.seed)
    model: nn.Module = adapted.get_base_model()
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    trainable = {name: value for name, value in adapted.named_parameters() if value.requires_grad}
    stepper: Stepper = (
        Zero2Stepper(adapted, trainable, recipe) if recipe.strategy == "zero2" else PlainStepper(trainable, recipe)
    )

    # Data: this voter's bag, in this voter's order, and the shard it judges by.
    examples, n = read_examples(request), len(recipe.voters)
    tokens_of = encode_examples(
        examples,
        base.tokenizer,
        settings.max_length,
        cache=request.work / "tokens",
        dataset_digest=request.dataset_digest,
    )
    poll()
    train_ids, train = chosen("train", training_part(examples, voter.shard, n), tokens_of, settings)
    judged = validation_shard(examples, voter.shard, n)
    _, validation = chosen("validation", judged, tokens_of, settings, recipe.max_validation_examples)
    lengths = [len(example.input_ids) for example in train]
    order = f"{request.seed}/{voter.seed}"
    plan = Plan(train_ids, lengths, seed=order, global_batch=settings.global_batch, window=recipe.length_window)
    total = total_steps(lengths, settings, recipe)

    # Where an earlier attempt stopped.
    progress, best = Progress(), dict[str, Tensor]()
    point, damaged = load_point(folder, inputs=inputs)
    if point:
        progress, best = point.progress, point.tensors["best"]
        stepper.restore(point.tensors["weights"], point.tensors["optimizer"])
        exact = "exact" if point.fingerprint == environment else "statistical"
        log.write("resumed", progress.step, continuation=exact, damaged=damaged)
    log.write(
        "started",
        progress.step,
        steps=total,
        pid=os.getpid(),
        examples=len(train),
        validation=len(validation),
        parameters=sum(value.numel() for value in trainable.values()),
        precision=settings.precision,
        strategy=recipe.strategy,
        load_seconds=round(time.monotonic() - started, 3),
    )
    seconds_before, point_step, point_due = progress.seconds, progress.step, False

    def save_point() -> None:
        nonlocal point_step
        begun = time.monotonic()
        progress.seconds = seconds_before + begun - started
        points.save(state_of(progress, trainable, stepper.state(), best), progress.step, voter.name)
        log.write("checkpoint", progress.step, waited_s=round(time.monotonic() - begun, 4))
        point_step = progress.step

    with (
        AsyncSaver(ResumePoints(folder, inputs, environment, recipe.keep_checkpoints)) as points,
        EpochCheckpoints(request, voter, inputs, progress, log) as epochs,
    ):
        try:
            while True:
                due = progress.step % recipe.evaluate_every == 0 or progress.step == total
                if due and progress.validated < progress.step:
                    loss = assistant_losses(
                        model,
                        validation,
                        batch_tokens=recipe.micro_batch_tokens,
                        precision=settings.precision,
                        poll=poll,
                    ).mean
                    progress.validated = progress.step
                    if math.isfinite(loss):
                        progress.curve.append({"step": progress.step, "validation_loss": loss})
                    if progress.step == 0:
                        progress.base_loss = loss if math.isfinite(loss) else None
                    elif math.isfinite(loss) and (progress.best_loss is None or loss < progress.best_loss):
                        progress.best_step, progress.best_loss = progress.step, loss
                        best = {name: value.detach().clone() for name, value in trainable.items()}
                    log.write("validation", progress.step, of=total, validation_loss=loss)
                    if progress.step and math.isfinite(loss):
                        epochs.save(total, lambda: current_adapter(adapted, request), stepper.state)
                if progress.step == total:
                    break

                # One optimizer step. Dropout draws from (seed, step), so a step taken again draws the same.
                begun = time.monotonic()
                indices = plan.step(progress.step)
                supervised = sum(train[index].supervised for index in indices)
                rate = learning_rate(progress.step, total, settings, recipe)
                torch.manual_seed(int(rank(order, "dropout", progress.step)[:15], 16))
                model.train()
                summed, tokens = 0.0, 0
                parts = list(length_sorted([lengths[index] for index in indices], recipe.micro_batch_tokens))
                for number, part in enumerate(parts, start=1):
                    poll()
                    batch = collate([train[indices[position]] for position in part], device)
                    with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
                        nll = token_nll(model, batch).sum()
                    stepper.backward(nll / supervised, last=number == len(parts))
                    summed += nll.item()
                    tokens += batch.tokens
                norm = stepper.step(rate) if math.isfinite(summed) else None
                progress.step += 1

                if norm is None:
                    stepper.clear()
                    progress.skipped.append(
                        {"step": progress.step, "examples": [train_ids[index] for index in indices]}
                    )
                    log.write(
                        "skipped",
                        progress.step,
                        of=total,
                        loss=summed / supervised,
                        examples=progress.skipped[-1]["examples"],
                    )
                    if len(progress.skipped) > recipe.max_skipped_steps:
                        raise TrainingDiverged(diagnosis(progress, settings, rate))
                else:
                    progress.tokens += supervised
                    progress.curve.append(
                        {
                            "step": progress.step,
                            "loss": summed / supervised,
                            "learning_rate": rate,
                            "gradient_norm": norm,
                        }
                    )
                    log.write(
                        "step",
                        progress.step,
                        of=total,
                        loss=summed / supervised,
                        learning_rate=rate,
                        gradient_norm=norm,
                        tokens_per_s=round(tokens / (time.monotonic() - begun), 1),
                    )
                # What was saved in the background: failures are raised here, at the next step.
                points.check()
                epochs.check()
                point_due |= progress.step % recipe.checkpoint_every == 0 and progress.step < total
                if point_due and not epochs.busy:
                    save_point()
                    point_due = False
        except Interrupted:
            stepper.clear()
            if epochs.settle(_LEAVE_S):  # else the point would lack it: an older one has to do
                save_point()
            points.wait()
            log.write("interrupted", point_step)
            raise

    kept = epochs.finish()
    if not best:
        raise TrainingDiverged(f"no validation loss was finite: {diagnosis(progress, settings, rate=0.0)}")
    progress.seconds = seconds_before + time.monotonic() - started
    result = write_result(
        request,
        voter,
        folder,
        progress,
        adapter_of(adapted, best, request),
        settings,
        {
            "examples": len(train),
            "validation_examples": len(validation),
            "steps": total,
            "examples_left_out": len(tokens_of.left_out),
            "trainable_parameters": sum(value.numel() for value in trainable.values()),
        },
        kept,
        log,
    )
    drop_points(folder)
    return result


def with_lora(base: Base, settings: Settings, seed: int) -> Any:
    """The base under PEFT, its LoRA weights drawn from the seed (A uniform, B zero): the adapter starts as nothing."""
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha if settings.alpha % 1 else int(settings.alpha),
        lora_dropout=settings.dropout,
        target_modules=list(settings.modules),
        use_rslora=settings.use_rslora,
        bias="none",
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    try:
        return get_peft_model(base.model, config, adapter_name=ADAPTER)
    except ValueError as error:
        raise InputError(f"LoRA modules {', '.join(settings.modules)} do not fit base {base.path}: {error}") from error


def read_examples(request: TrainingRequest) -> pl.DataFrame:
    """The dataset's columns that training needs.

    Raises:
        InputError: the file is missing or not a table of examples.
    """
    try:
        return pl.read_parquet(request.dataset, columns=["example_id", "group_id", "split", "messages"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"dataset {request.dataset} is not a table of examples: {error}") from error


def chosen(
    split: str, part: pl.DataFrame, tokens_of: EncodedSet, settings: Settings, most: int | None = None
) -> tuple[list[str], list[Encoded]]:
    """Ids and tokens of a part's examples, in the order of their ids; those that could not be encoded are left out.

    Args:
        most: keep so many, lowest digests of the ids first, so that a growing dataset changes few of them.

    Raises:
        InputError: none is left.
    """
    usable = [name for name in part["example_id"] if name not in tokens_of.left_out]
    ids = sorted(sorted(usable, key=lambda name: rank(split, name))[:most])
    if not ids:
        reasons = sorted({tokens_of.left_out[name] for name in part["example_id"]})
        raise InputError(
            f"none of the {len(part)} {split} examples can be used with max_length {settings.max_length}: "
            f"{'; '.join(reasons) or 'the split is empty'}"
        )
    return ids, tokens_of.select(ids)


def diagnosis(progress: Progress, settings: Settings, rate: float) -> str:
    """What a person needs to know of a run that gave NaN or infinity."""
    steps = ", ".join(str(skipped["step"]) for skipped in progress.skipped)
    examples = ", ".join(progress.skipped[-1]["examples"][:8]) if progress.skipped else ""
    return (
        f"{len(progress.skipped)} steps gave NaN or infinity (steps {steps}); learning rate {rate:.3g} of peak "
        f"{settings.learning_rate:.3g}, precision {settings.precision}: lower learning_rate, or set precision: "
        f"fp32; examples of the last one: {examples or 'none'}"
    )
