"""Batched LoRA: all voters of a request in one process, a forward pass for all of them over one base, in lock step.

Each voter keeps its own examples and order, its own normalisation by its own supervised tokens, its own clipping and
AdamW state, its own log and resume points; only the base and the passes are shared. At micro-batch 1, where a row is
too little for the processor, this is a multiple of training one after the other; with large micro-batches it gains
little. The price: voters share a process, so they no longer fail alone (a killed process stops all of them, and all
go on from their own resume points), and a step lasts as long as the longest row of any voter.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.training.batched_layers import StackedLora, stacked_subject
from capibara_assets.checkpoints.store.saving import AsyncSaver
from capibara_assets.datasets.tokens.packing import length_buckets
from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.errors import InputError
from capibara_assets.modeling.losses import IGNORED, collate, token_nll
from capibara_assets.modeling.precision import autocast
from capibara_assets.training.data.batches import Curriculum, StepData, plain_level
from capibara_assets.training.data.examples import chosen, read_examples, tokens_of, validation_examples
from capibara_assets.training.data.order import training_part
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.environment import compute_settings, fingerprint, pick_device, settings_on
from capibara_assets.training.loop.guards import TrainingDiverged, diagnosis
from capibara_assets.training.loop.result import VoterResult, write_result
from capibara_assets.training.monitoring.events import EVENTS, EventLog, Report
from capibara_assets.training.monitoring.usage import memory_mib
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.resume.points import Progress, ResumePoints, drop_points, load_point, state_of
from capibara_assets.training.step.settings import Settings, total_steps
from capibara_assets.training.step.stepper import PlainStepper
from capibara_assets.training.step.subject import Subject

_FILLER = Encoded(input_ids=[0, 0], labels=[IGNORED, IGNORED], supervised=0)


@dataclass
class _Voter:
    """One voter's own part of the lock step."""

    number: int
    spec: VoterSpec
    folder: Path
    curriculum: Curriculum
    validation: list[Encoded]
    examples: int
    progress: Progress
    best: dict[str, Tensor]
    parameters: dict[str, nn.Parameter]
    stepper: PlainStepper
    log: EventLog
    seconds_before: float
    left_out: int


def train_batched(
    request: TrainingRequest, folders: Mapping[str, Path], report: Report, poll: Callable[[], None]
) -> dict[str, Path]:
    """Train all voters of a request together, or go on where an earlier attempt stopped.

    In float32 each voter has the losses of `train_voter` within rounding, whatever the others do.

    Args:
        folders: voter's name -> its folder of work.
        report: gets every event, with the voter's name in `voter`.
        poll: called at every step; raises `Interrupted` when the process has to stop.

    Returns:
        Voter's name -> folder with its finished adapter.

    Raises:
        InputError: what can only be trained voter by voter: dropout, DoRA, other strategies, moving averages,
            roll-backs, several processes.
        Interrupted: resume points were written.
        TrainingDiverged: a voter gave NaN or infinity more often than the recipe allows.
    """
    started = time.monotonic()
    recipe = request.recipe
    device = pick_device()
    settings = settings_on(request, device)
    _require_batchable(request, settings)
    compute_settings(recipe.hardware, device)
    environment = fingerprint(device, settings, recipe.hardware) | {"batched_voters": len(recipe.voters)}

    subject, layers = stacked_subject(request, settings, device)
    voters = _make_voters(request, settings, subject, layers, folders, report, environment)
    for voter in voters:
        voter.log.write(
            "started",
            voter.progress.step,
            steps=voter.curriculum.total,
            pid=os.getpid(),
            examples=voter.examples,
            validation=len(voter.validation),
            parameters=sum(value.numel() for value in voter.parameters.values()),
            base_parameters=subject.base_parameters,
            new_layers=list(subject.base.new_layers),
            unread_layers=list(subject.base.unread),
            left_out=voter.left_out,
            truncated=0,
            modules=list(settings.modules),
            precision=settings.precision,
            backend="batched",
            processes=1,
            strategy=voter.spec.strategy.kind,
            load_seconds=round(time.monotonic() - started, 3),
        )

    def save(voter: _Voter, points: AsyncSaver) -> None:
        voter.progress.seconds = voter.seconds_before + time.monotonic() - started
        state = state_of(
            voter.progress,
            subject.adapter(voter.parameters),
            optimizer=voter.stepper.state(),
            best=voter.best,
            ema={},
            snapshot_weights={},
            snapshot_optimizer={},
            tactic={},
        )
        points.save(state, voter.progress.step, voter.spec.name)
        voter.log.write("checkpoint", voter.progress.step, waited_s=0.0)

    with ExitStack() as stack:
        points = {
            voter.spec.name: stack.enter_context(
                AsyncSaver(
                    ResumePoints(
                        voter.folder,
                        request.inputs(voter.spec),
                        environment,
                        [voter.curriculum.total],
                        recipe.checkpoint.keep,
                    )
                )
            )
            for voter in voters
        }
        try:
            while True:
                poll()
                for voter in voters:
                    _validate_where_due(voter, subject, layers, recipe.training.evaluate_every, request, settings)
                running = [voter for voter in voters if voter.progress.step < voter.curriculum.total]
                if not running:
                    break

                # One optimizer step of every voter that still trains.
                begun = time.monotonic()
                data = [voter.curriculum.step(voter.progress.step) for voter in running]
                losses = _passes(subject, layers, running, data, settings)
                computed = time.monotonic() - begun
                for voter, own, loss in zip(running, data, losses, strict=True):
                    _finish_step(voter, layers, own, loss, computed, request, settings, device)
                    points[voter.spec.name].check()
                    if voter.progress.step % recipe.checkpoint.every == 0:
                        save(voter, points[voter.spec.name])
        except Interrupted:
            for voter in voters:
                save(voter, points[voter.spec.name])
                points[voter.spec.name].wait()
                voter.log.write("interrupted", voter.progress.step)
            raise

    done = {}
    for voter in voters:
        voter.progress.seconds = voter.seconds_before + time.monotonic() - started
        counts = {
            "validation_loss": voter.progress.best_loss,
            "examples": voter.examples,
            "validation_examples": len(voter.validation),
            "steps": voter.progress.step,
            "steps_planned": voter.curriculum.total,
            "trainable_parameters": sum(value.numel() for value in voter.parameters.values()),
        }
        run = VoterRun(request, voter.spec, voter.folder, report, poll)
        result = VoterResult(subject.adapter(voter.best), voter.progress, settings, counts)
        done[voter.spec.name] = write_result(run, result, voter.log)
        drop_points(voter.folder)
    return done


def _require_batchable(request: TrainingRequest, settings: Settings) -> None:
    recipe = request.recipe
    reasons = {
        "dropout draws other numbers for a stack than for one voter": settings.dropout > 0,
        "DoRA is no sum of products": settings.use_dora,
        "a voter has a strategy of its own": any(voter.strategy.kind != "plain" for voter in recipe.voters),
        "there is no moving average of a stack": recipe.ema is not None,
        "a roll-back would stop the other voters": recipe.guards.spike is not None,
        "early stopping is each voter's own": recipe.training.early_stopping is not None,
        "it is one process": recipe.hardware.backend != "single",
        "gradient checkpointing is not built for it": settings.gradient_checkpointing > 0,
        "the base is quantised": settings.quantization in ("int8", "nf4"),
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise InputError(f"these voters cannot be trained batched: {'; '.join(found)}: train them one by one")


def _make_voters(
    request: TrainingRequest,
    settings: Settings,
    subject: Subject,
    layers: Mapping[str, StackedLora],
    folders: Mapping[str, Path],
    report: Report,
    environment: Mapping[str, Any],
) -> list[_Voter]:
    """Each voter with its data and its place in the stack, as far as an earlier attempt had come."""
    recipe, n = request.recipe, len(request.recipe.voters)
    examples = read_examples(request.dataset)
    tokenizer = subject.base.tokenizer
    encoded = tokens_of(request, examples, tokenizer, settings)
    voters = []
    for number, spec in enumerate(recipe.voters):
        folder = folders[spec.name]
        ids, train = chosen("train", training_part(examples, spec.shard, n), encoded, settings)
        validation = validation_examples(request, spec, examples, encoded, settings, tokenizer)
        steps = total_steps([len(example.input_ids) for example in train], settings, recipe)
        level = plain_level(ids, train, steps, f"{request.seed}/{spec.seed}", settings, recipe)
        parameters = {}
        for name in subject.trainable:
            module, _, half = name.partition(".lora_")
            stack = layers[module].a if half.startswith("A") else layers[module].b
            parameters[name] = nn.Parameter(stack.detach()[number])  # a view: the stack changes with it
        log = EventLog(folder / EVENTS, run=request.run_id(spec), listener=_named(report, spec.name))
        voter = _Voter(
            number, spec, folder, Curriculum([level], recipe), validation, len(train), Progress(), {}, parameters,
            PlainStepper(parameters, recipe), log, 0.0, len(encoded.left_out),
        )  # fmt: skip
        point, damaged = load_point(folder, inputs=request.inputs(spec))
        if point:
            voter.progress, voter.best = point.progress, point.tensors["best"]
            voter.stepper.restore(point.weights(subject.peft_names), point.tensors["optimizer"])
            voter.seconds_before = voter.progress.seconds
            exact = "exact" if point.fingerprint == dict(environment) else "statistical"
            log.write("resumed", voter.progress.step, continuation=exact, damaged=damaged)
        voters.append(voter)
    return voters


def _named(report: Report, voter: str) -> Report:
    return lambda event: report({**event, "voter": voter})


@contextmanager
def _rows_of(layers: Mapping[str, StackedLora], voters: Sequence[_Voter]) -> Iterator[None]:
    """The next passes hold rows of these voters, equally many of each."""
    for layer in layers.values():
        layer.active = [voter.number for voter in voters]
    yield


def _passes(
    subject: Subject,
    layers: Mapping[str, StackedLora],
    running: Sequence[_Voter],
    data: Sequence[StepData],
    settings: Settings,
) -> list[float]:
    """Forward and backward passes of one step; the voters' losses, each the mean over its own supervised tokens.

    A voter's gradient comes from its own rows alone, so one backward pass of the sum serves all of them.
    """
    subject.loss.train()
    count = len(running)
    share = torch.tensor([1.0 / max(1, own.supervised) for own in data], device=subject.device)
    sums = torch.zeros(count, dtype=torch.float64, device=subject.device)
    with _rows_of(layers, running):
        for number in range(max(len(own.parts) for own in data)):
            parts = [own.parts[number] if number < len(own.parts) else [] for own in data]
            rows = max(map(len, parts))
            batch = collate([one for part in parts for one in [*part, *[_FILLER] * (rows - len(part))]], subject.device)
            with autocast(subject.device, settings.precision):
                nll = token_nll(subject.loss.model, batch)
            of_voter = torch.div(batch.owners, rows, rounding_mode="floor")
            (nll * share[of_voter]).sum().backward()
            sums += functional.one_hot(of_voter, count).double().T @ nll.detach().double()
    return [float(total) / own.supervised for total, own in zip(sums, data, strict=True)]


def _finish_step(
    voter: _Voter,
    layers: Mapping[str, StackedLora],
    data: StepData,
    loss: float,
    computed: float,
    request: TrainingRequest,
    settings: Settings,
    device: torch.device,
) -> None:
    """Clip and update one voter by its slice of the gradients, or skip what was not finite."""
    for name, parameter in voter.parameters.items():
        module, _, half = name.partition(".lora_")
        stack = layers[module].a if half.startswith("A") else layers[module].b
        assert stack.grad is not None
        parameter.grad = stack.grad[voter.number].clone()
        stack.grad[voter.number].zero_()
    norm = voter.stepper.step(data.rate) if math.isfinite(loss) else None
    progress = voter.progress
    progress.step += 1
    if norm is None:
        voter.stepper.clear()
        progress.skipped.append({"step": progress.step, "examples": data.ids})
        voter.log.write("skipped", progress.step, of=voter.curriculum.total, loss=loss, examples=data.ids)
        if len(progress.skipped) > request.recipe.guards.max_skipped_steps:
            raise TrainingDiverged(f"{voter.spec.name}: {diagnosis(progress, settings, data.rate)}")
        return
    progress.tokens += data.supervised
    figures = {"loss": loss, "learning_rate": data.rate, "gradient_norm": norm}
    progress.curve.append({"step": progress.step, **figures})
    voter.log.write(
        "step",
        progress.step,
        of=voter.curriculum.total,
        **figures,
        level=data.level,
        tokens_per_s=round(data.tokens / computed, 1),
        samples_per_s=round(len(data.ids) / computed, 2),
        micro_steps=len(data.parts),
        compute_s=round(computed, 4),
        memory_mib=memory_mib(device),
    )


def _validate_where_due(
    voter: _Voter,
    subject: Subject,
    layers: Mapping[str, StackedLora],
    every: int,
    request: TrainingRequest,
    settings: Settings,
) -> None:
    """Loss on the voter's own shard, nats per supervised token, at the steps at which a single training has it."""
    progress, total = voter.progress, voter.curriculum.total
    if not (progress.step % every == 0 or progress.step == total) or progress.validated >= progress.step:
        return
    lengths = [len(example.input_ids) for example in voter.validation]
    nll, tokens = 0.0, 0
    subject.loss.eval()
    with _rows_of(layers, [voter]), torch.no_grad():
        for indices in length_buckets(lengths, request.recipe.training.micro_batch_tokens):
            batch = collate([voter.validation[index] for index in indices], subject.device)
            with autocast(subject.device, settings.precision):
                found = token_nll(subject.loss.model, batch)
            nll, tokens = nll + float(found.double().sum()), tokens + len(found)
    loss = nll / tokens
    if progress.judged(loss):
        voter.best = {name: value.detach().clone() for name, value in voter.parameters.items()}
    elif progress.step == total and not voter.best:
        raise TrainingDiverged(f"{voter.spec.name}: no validation loss was finite")
    voter.log.write("validation", progress.step, of=total, validation_loss=loss)
