"""Training of one voter, from the request to the finished adapter, in one function that reads top to bottom.

Guarantees: loss on the assistant's tokens only, summed over an optimizer step and divided by that step's supervised
tokens over all processes, so neither micro-batches nor padding nor the number of processes change it; the same inputs
on the same environment give the same bits, also when interrupted anywhere and started again. On another processor,
thread count, number of processes or library version a run resumes too, but the bits may differ; the log then says
`statistical`.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from capibara_assets.checkpoints.saving import AsyncSaver
from capibara_assets.training.backends import make_stepper
from capibara_assets.training.data import Curriculum, view_of
from capibara_assets.training.ema import Ema
from capibara_assets.training.environment import (
    compute_settings,
    differences,
    fingerprint,
    held_mib,
    pick_device,
    seed_all,
    settings_on,
)
from capibara_assets.training.epoch_folders import EpochFolders, begin_at
from capibara_assets.training.epochs import EpochCheckpoints
from capibara_assets.training.evaluator import evaluate
from capibara_assets.training.events import EVENTS, EventLog, Report
from capibara_assets.training.examples import chosen, read_examples, tokens_of, validation_examples
from capibara_assets.training.guards import discontinuity, is_spike, should_stop, too_many_left_out
from capibara_assets.training.levels import voter_levels
from capibara_assets.training.order import rank, training_part
from capibara_assets.training.ranks import ALONE, Ranks
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.result import write_result
from capibara_assets.training.resume import (
    Progress,
    ResumePoints,
    drop_points,
    extension,
    find_point,
    require_readable,
    require_shared,
    state_of,
)
from capibara_assets.training.settings import Settings
from capibara_assets.training.subject import load_subject
from capibara_assets.training.tactics import tactic_of
from capibara_assets.training.usage import Usage

_LEAVE_S = 8.0  # for a checkpoint still on its way when asked to stop; the supervisor kills after 15


class Interrupted(Exception):
    """The process was asked to stop; a resume point is on disk."""


class TrainingDiverged(Exception):
    """NaN, infinity or spikes came back again and again; started again it would do the same."""


def train_voter(
    request: TrainingRequest,
    voter: VoterSpec,
    folder: Path,
    report: Report,
    poll: Callable[[], None],
    *,
    ranks: Ranks = ALONE,
    initial: Mapping[str, Tensor] | None = None,
) -> Path:
    """Train one voter, or go on where an earlier attempt stopped.

    Args:
        folder: the voter's folder of work; resume points, log and result lie there.
        report: gets every event of the log.
        poll: called often; raises `Interrupted` when the process has to stop.
        ranks: the processes that train this voter; each calls this function, the first one writes.
        initial: weights to start from (by the names of trained parameters), instead of LoRA's own start.

    Returns:
        Folder with the finished adapter, manifest, curve, log and timings.

    Raises:
        Interrupted: a resume point was written, if there was anything to write.
        TrainingDiverged: more steps than the recipe allows gave NaN or infinity, or rolled back.
        InputError: the base, the dataset or the plan cannot be trained on.
    """
    started = time.monotonic()
    recipe, guards = request.recipe, request.recipe.guards
    device = pick_device(ranks)
    settings = settings_on(request, device)
    compute_settings(recipe.hardware, device)
    memory_before = held_mib(device)
    environment = fingerprint(device, settings, recipe.hardware, ranks)
    inputs = request.inputs(voter)
    log = EventLog(folder / EVENTS, run=request.run_id(voter), listener=report, writes=ranks.main)

    def poll_all() -> None:
        """Between micro-batches, of which every process has equally many: all stop there, or none."""
        asked = None
        try:
            poll()
        except Interrupted as interrupted:
            asked = interrupted
        if ranks.any(asked is not None):
            raise asked or Interrupted()

    # Model: the frozen base, and LoRA weights that start the same for every voter.
    subject = load_subject(request, settings, device)
    stepper = make_stepper(recipe, subject, settings, ranks)
    if initial is not None:
        stepper.restore(initial, {})
    tactic = tactic_of(voter.strategy, subject, stepper, recipe.training)
    ema = Ema(subject.trainable, recipe.ema) if recipe.ema else None
    poll_all()

    # Data: this voter's bag, in this voter's order, and the shard it judges by.
    examples, n = read_examples(request.dataset), len(recipe.voters)
    alone = poll if ranks.world == 1 else lambda: None  # of several processes some read what another one made
    tokenizer = subject.base.tokenizer
    encoded = tokens_of(request, examples, tokenizer, settings, poll=alone)
    poll_all()
    train_ids, train = chosen("train", training_part(examples, voter.shard, n), encoded, settings)
    validation = validation_examples(request, voter, examples, encoded, settings, tokenizer)
    order = f"{request.seed}/{voter.seed}"
    view = view_of(settings.head, tokenizer, order)
    levels = voter_levels(request, voter, settings, tokenizer, examples, train_ids, train, order)
    row_tokens = settings.max_length if recipe.data.packing else None
    curriculum = Curriculum(levels, recipe, ranks, view=view, row_tokens=row_tokens)
    total, length = curriculum.total, [level.steps for level in curriculum.levels]
    passes = EpochFolders.of(request, folder, curriculum.epoch_ends(), writes=ranks.main)

    # Where an earlier attempt stopped.
    progress, best, snapshot = Progress(), dict[str, Tensor](), dict[str, dict[str, Tensor]]()
    point, damaged = find_point(folder, inputs=inputs, wanted=request.resume_from, ranks=ranks)
    require_shared(folder, point, ranks)
    if damaged:
        log.write("damaged", point.progress.step if point else 0, points=damaged)
    if point:
        progress, best = point.progress, point.tensors["best"]
        stepper.restore(point.weights(subject.peft_names), point.tensors["optimizer"])
        tactic.restore(point.tensors["tactic"])
        if ema:
            ema.restore(point.tensors["ema"])
        snapshot = point.snapshot
        if differs := differences(point.fingerprint, environment):
            progress.watched = {"step": progress.step, "differs": differs}
        continuation = "statistical" if differs else "exact"
        log.write("resumed", progress.step, continuation=continuation, differs=differs, damaged=damaged)
        if longer := extension(point, length):
            progress.extensions.append(longer)
            log.write("extended", **longer)
    elif request.start is not None:
        progress.step, weights = begin_at(request.start, passes.ends, subject.peft_names, subject.trainable)
        stepper.restore(weights, {})
        if ema:
            ema.restore(weights)
        log.write("started_anew", progress.step, epoch=request.start.epoch, adapter=str(request.start.adapter))
    log.write(
        "started",
        progress.step,
        steps=total,
        domain=request.domain,
        voter=voter.name,
        pid=os.getpid(),
        examples=sum(len(level.ids) for level in levels),
        levels=curriculum.about(),
        validation=len(validation),
        left_out=len(encoded.left_out),
        truncated=len(encoded.truncated),
        head=settings.head,
        parameters=sum(value.numel() for value in subject.trainable.values()),
        base_parameters=subject.base_parameters,
        modules=list(settings.modules),
        new_layers=list(subject.base.new_layers),
        unread_layers=list(subject.base.unread),
        quantization=settings.quantization,
        precision=settings.precision,
        backend=recipe.hardware.backend,
        processes=ranks.world,
        strategy=voter.strategy.kind,
        load_seconds=round(time.monotonic() - started, 3),
        memory_before_mib=memory_before,
    )
    seconds_before, point_step, point_due, usage = progress.seconds, progress.step, False, Usage(device)

    def save_point() -> None:
        nonlocal point_step
        begun = time.monotonic()
        progress.seconds = seconds_before + begun - started
        state = state_of(
            progress,
            subject.adapter(stepper.full(subject.trainable)),
            optimizer=stepper.state(),
            best=best,
            ema=ema.shadow if ema else {},
            snapshot_weights=snapshot.get("weights", {}),
            snapshot_optimizer=snapshot.get("optimizer", {}),
            tactic=tactic.state(),
        )
        if ranks.main:
            points.save(state, progress.step, voter.name)
        log.write("checkpoint", progress.step, waited_s=round(time.monotonic() - begun, 4))
        point_step = progress.step

    with (
        AsyncSaver(ResumePoints(folder, inputs, environment, length, recipe.checkpoint.keep)) as points,
        EpochCheckpoints(request, voter, progress, log, writes=ranks.main) as epochs,
    ):
        try:
            while True:
                poll_all()
                due = progress.step % recipe.training.evaluate_every == 0 or progress.step == total
                if due and progress.validated < progress.step:
                    with ema.applied() if ema and progress.step else nullcontext():
                        loss = evaluate(
                            subject, stepper, validation, recipe.training.micro_batch_tokens, ranks, poll_all
                        )
                        better = progress.judged(loss)
                        if progress.step and math.isfinite(loss):
                            weights = stepper.full(subject.trainable)
                            if better:
                                best = {name: value.detach().clone() for name, value in weights.items()}
                            tactic.after_validation(progress.step, loss, weights)
                            moments = stepper.state() if epochs.with_optimizer else {}
                            epochs.save(total, subject.adapter(weights), moments)
                    log.write("validation", progress.step, of=total, validation_loss=loss)
                if progress.step == total:
                    break
                if progress.validated == progress.step and should_stop(progress.curve, recipe.training.early_stopping):
                    log.write("stopped_early", progress.step, of=total, best_step=progress.best_step)
                    break

                # One optimizer step. Dropout draws from (seed, step), so a step taken again draws the same.
                begun = time.monotonic()
                data = curriculum.step(progress.step)
                seed_all(int(rank(order, "dropout", progress.step, ranks.rank)[:15], 16))
                subject.loss.train()
                local = torch.zeros((), dtype=torch.float64, device=device)
                for number, part in enumerate(data.parts, start=1):
                    poll_all()
                    batch = subject.collate(part)
                    with stepper.micro_step(last=number == len(data.parts)):
                        nll = stepper.loss(batch).sum()
                        stepper.backward(nll / data.supervised)
                    local += nll.detach()  # read once a step: each read waits for the device
                loss = ranks.sum([float(local)])[0] / data.supervised
                computed = time.monotonic() - begun

                tactic.before_step()
                spike = is_spike(loss, progress.curve, guards.spike)
                norm = stepper.step(data.rate) if math.isfinite(loss) and not spike else None
                progress.step += 1
                if norm is not None:
                    tactic.after_step(data.rate, norm)
                    if ema:
                        ema.update(progress.step)
                    progress.tokens += data.supervised
                    progress.epoch_tokens += data.supervised
                    progress.epoch_loss += loss * data.supervised
                    figures = {"loss": loss, "learning_rate": data.rate, "gradient_norm": norm}
                    progress.curve.append({"step": progress.step, **figures})
                    seconds = time.monotonic() - begun
                    log.write(
                        "step",
                        progress.step,
                        of=total,
                        **figures,
                        level=data.level,
                        tokens_per_s=round(data.tokens / seconds, 1),
                        samples_per_s=round(len(data.ids) / seconds, 2),
                        tokens=data.tokens,
                        supervised=data.supervised,
                        samples=len(data.ids),
                        micro_steps=len(data.parts),
                        compute_s=round(computed, 4),
                        **usage.figures(),
                    )
                else:
                    stepper.clear()
                    left_out: dict[str, Any] = {"step": progress.step, "examples": data.ids}
                    if spike:
                        progress.rollbacks.append(left_out)
                        stepper.restore(snapshot["weights"], snapshot["optimizer"])
                        log.write("rolled_back", progress.step, of=total, loss=loss, examples=data.ids)
                    else:
                        overflow = settings.precision == "fp16" and math.isfinite(loss)  # the loss scale was too high
                        progress.skipped.append(left_out | ({"loss_scale": True} if overflow else {}))
                        log.write("skipped", progress.step, of=total, loss=loss, examples=data.ids, loss_scale=overflow)
                    if too_many_left_out(progress.skipped, progress.rollbacks, guards):
                        raise TrainingDiverged(diagnosis(progress, settings, data.rate))
                watched = progress.watched or {}
                if jump := discontinuity(progress.curve, watched.get("step"), guards.continuity):
                    log.write("discontinuity", progress.step, of=total, **jump, differs=watched["differs"])
                    raise TrainingDiverged(discontinued(jump, watched["differs"]))
                if guards.spike and (not snapshot or progress.step % guards.spike.snapshot_every == 0):
                    weights = stepper.full(subject.trainable)
                    snapshot = {
                        part: {name: value.detach().clone() for name, value in tensors.items()}
                        for part, tensors in (("weights", weights), ("optimizer", stepper.state()))
                    }

                if passes.due(progress.step):
                    with ema.applied() if ema else nullcontext():
                        passes.write(progress, subject.adapter(stepper.full(subject.trainable)), data.rate)

                # What was saved in the background: failures are raised here, at the next step.
                points.check()
                epochs.check()
                point_due |= progress.step % recipe.checkpoint.every == 0 and progress.step < total
                rehearsal = (
                    point is None and progress.step == 1
                )  # what cannot be saved or read is said now, not at the end
                if (point_due or rehearsal) and not ranks.any(epochs.busy):
                    save_point()
                    point_due = False
                    if rehearsal and ranks.main:
                        points.wait()
                        require_readable(folder, inputs)
            if request.keep_points and epochs.settle():
                save_point()  # of the very end, to be extended from
                points.wait()
        except Interrupted:
            stepper.clear()
            if not ranks.any(not epochs.settle(_LEAVE_S)):  # else the point would lack it: an older one has to do
                save_point()
            points.wait()
            log.write("interrupted", point_step)
            raise

    if not best:
        raise TrainingDiverged(f"no validation loss was finite: {diagnosis(progress, settings, rate=0.0)}")

    def score(weights: Mapping[str, Tensor]) -> float:
        stepper.restore(weights, {})  # the training is over
        return evaluate(subject, stepper, validation, recipe.training.micro_batch_tokens, ranks, poll_all)

    published = tactic.result(best, score)
    if published.report:
        log.write("published", progress.step, strategy=voter.strategy.kind, **published.report)
    if not ranks.main:
        return folder
    kept = epochs.finish()
    progress.seconds = seconds_before + time.monotonic() - started
    result = write_result(
        request,
        voter,
        folder,
        progress,
        published.adapter,
        settings,
        {
            "validation_loss": progress.best_loss if published.loss is None else published.loss,
            "levels": curriculum.about(),
            "published": published.report,
            "examples": len(train),
            "validation_examples": len(validation),
            "steps": progress.step,
            "steps_planned": total,
            "examples_left_out": len(encoded.left_out),
            "trainable_parameters": sum(value.numel() for value in subject.trainable.values()),
        },
        kept,
        log,
    )
    if not request.keep_points:
        drop_points(folder)
    return result


def diagnosis(progress: Progress, settings: Settings, rate: float) -> str:
    """What a person needs to know of a run whose numbers went wrong."""
    said = []
    if progress.skipped:
        steps = ", ".join(str(skipped["step"]) for skipped in progress.skipped)
        said.append(f"{len(progress.skipped)} steps gave NaN or infinity (steps {steps})")
    if progress.rollbacks:
        steps = ", ".join(str(rolled["step"]) for rolled in progress.rollbacks)
        said.append(
            f"{len(progress.rollbacks)} steps had a loss far above the ones before and were rolled back ({steps})"
        )
    last = max([*progress.skipped, *progress.rollbacks], key=lambda left_out: left_out["step"], default=None)
    examples = ", ".join(last["examples"][:8]) if last else ""
    return (
        f"{'; '.join(said) or 'no step went wrong'}; learning rate {rate:.3g} of peak "
        f"{settings.learning_rate:.3g}, precision {settings.precision}: lower learning_rate, or set precision: "
        f"fp32; examples of the last one: {examples or 'none'}"
    )


def discontinued(jump: Mapping[str, float], differs: list[str]) -> str:
    """What a person needs to know of a resume after which the loss was another."""
    return (
        f"the loss jumped when training was resumed at step {jump['resumed_at']} in another environment "
        f"({', '.join(differs)}): {jump['before']:.4g} before, {jump['since']:.4g} over {jump['steps']} steps since. "
        "Resume where the points were made, remove them to start anew, or set guards.continuity: null to go on"
    )
