"""The training loop of one voter, from its request to the finished adapter: set up, resume, fit, publish.

Guarantees: loss on the assistant's tokens only, summed over an optimizer step and divided by that step's supervised
tokens over all processes, so neither micro-batches nor padding nor the number of processes change it; the same inputs
on the same environment give the same bits, also when interrupted anywhere and started again. On another processor,
thread count, number of processes or library version a run resumes too, but the bits may differ; the log then says
`statistical`.

Where a step's gradient comes from is a `GradientSource`: batches here, noised sums under DP-SGD (`private_sgd`).
"""

import math
import os
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor

from capibara_assets.checkpoints.store.saving import AsyncSaver
from capibara_assets.training.callbacks import SAVED
from capibara_assets.training.data.batches import Curriculum, view_of
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.environment import has_no_order, one_order
from capibara_assets.training.loop.client import ClientTactic
from capibara_assets.training.loop.convexity import ConvexityTactic
from capibara_assets.training.loop.gradients import BatchGradients, StepGradient
from capibara_assets.training.loop.guards import (
    TrainingDiverged,
    diagnosis,
    discontinued,
    discontinuity,
    is_spike,
    should_stop,
    too_many_left_out,
)
from capibara_assets.training.loop.levels import voter_levels
from capibara_assets.training.loop.products import detached
from capibara_assets.training.loop.result import VoterResult, write_result
from capibara_assets.training.loop.resuming import PointWriter, resume
from capibara_assets.training.loop.setup import TrainingSetup, set_up
from capibara_assets.training.loop.soup import SoupTactic
from capibara_assets.training.loop.tactics import Tactic
from capibara_assets.training.loop.trainer import Ema, Trainer
from capibara_assets.training.monitoring.usage import ResourceUsage
from capibara_assets.training.recipe import TrainingChoice
from capibara_assets.training.resume.epoch_folders import EpochFolders
from capibara_assets.training.resume.epochs import EpochCheckpoints
from capibara_assets.training.resume.points import ResumePoints, drop_points
from capibara_assets.training.step.stepper import Stepper
from capibara_assets.training.step.subject import Subject
from capibara_assets.training.strategy import ClientStrategy, ConvexityStrategy, SoupStrategy, Strategy


def train_voter(run: VoterRun) -> Path:
    """Train one voter on batches of its examples, or resume an earlier attempt.

    Returns:
        Folder of the finished adapter, manifest, curve, log and timings; of several processes the first writes it.

    Raises:
        Interrupted: stopped; a resume point was written if any step was done.
        TrainingDiverged: more steps than the recipe allows gave NaN or infinity, or rolled back.
        InputError: the base, the dataset or the plan cannot be trained on.
    """
    setup = set_up(run)
    trainer = batch_trainer(setup)
    resume(trainer)
    log_start(
        trainer,
        head=setup.settings.head,
        quantization=setup.settings.quantization,
        memory_before_mib=setup.memory_before_mib,
    )
    epochs = EpochCheckpoints(run, trainer.state.progress, setup.log)
    fit(trainer, epochs)
    return publish(trainer, epochs)


def batch_trainer(setup: TrainingSetup) -> Trainer:
    """The trainer of a voter on batches of its examples, by its strategy."""
    run, settings, subject = setup.run, setup.settings, setup.subject
    recipe = run.request.recipe
    view = view_of(settings.head, setup.examples.tokenizer, run.order)
    row_tokens = settings.max_length if recipe.data.packing else None
    curriculum = Curriculum(voter_levels(setup.examples), recipe, run.ranks, view=view, row_tokens=row_tokens)
    return Trainer(
        setup,
        source=BatchGradients(run, subject, setup.stepper, curriculum, ResourceUsage(setup.device)),
        tactic=tactic_of(run.voter.strategy, subject, setup.stepper, recipe.training),
        ema=Ema(subject.trainable, recipe.ema) if recipe.ema else None,
        guards=recipe.guards,
        epoch_folders=EpochFolders.of(run.request, run.folder, curriculum.epoch_ends(), writes=run.ranks.main),
        verifies_first_point=True,
        keeps_points=run.request.keep_points,
    )


def tactic_of(strategy: Strategy, subject: Subject, stepper: Stepper, training: TrainingChoice) -> Tactic:
    """The tactic of a strategy."""
    match strategy:
        case ConvexityStrategy():
            return ConvexityTactic(strategy, subject, stepper, training)
        case SoupStrategy():
            return SoupTactic(strategy, subject)
        case ClientStrategy():
            return ClientTactic(strategy, subject)
    return Tactic(subject)


def log_start(trainer: Trainer, **further: Any) -> None:
    """Log the event `started`: what is trained, on which data, with which settings; and `further`."""
    setup, source = trainer.setup, trainer.source
    run, settings, base, encoded = setup.run, setup.settings, setup.subject.base, setup.examples.encoded
    setup.log.write(
        "started",
        trainer.state.progress.step,
        steps=source.total,
        domain=run.request.domain,
        voter=run.voter.name,
        pid=os.getpid(),
        examples=source.example_count,
        **source.about(),
        validation=len(setup.examples.validation),
        left_out=len(encoded.left_out),
        truncated=len(encoded.truncated),
        parameters=source.parameters,
        base_parameters=setup.subject.base_parameters,
        modules=list(settings.modules),
        new_layers=list(base.new_layers),
        unread_layers=list(base.unread),
        precision=settings.precision,
        backend=run.request.recipe.hardware.backend,
        processes=run.ranks.world,
        strategy=run.voter.strategy.kind,
        load_seconds=round(time.monotonic() - setup.began, 3),
        planned_tokens_per_s=run.request.planned_tokens_per_s,
        **further,
    )


def fit(trainer: Trainer, epochs: EpochCheckpoints) -> None:
    """Train to the last step or an early stop; both are validated.

    Raises:
        Interrupted: stopped; a resume point is on disk.
        TrainingDiverged: too many steps went wrong, or the loss jumped over a resume.
    """
    run, recipe = trainer.setup.run, trainer.setup.run.request.recipe
    destination = ResumePoints(
        run.folder, run.request.inputs(run.voter), trainer.setup.environment, trainer.source.lengths,
        recipe.checkpoint.keep,
    )  # fmt: skip
    with AsyncSaver(destination) as saver, epochs:
        points = PointWriter(trainer, epochs, saver)
        try:
            while True:
                run.poll_all()
                validate_if_due(trainer, epochs)
                if is_over(trainer):
                    break
                gradient = train_step(trainer)
                take_snapshot(trainer)
                write_epoch_folder(trainer, gradient.rate)
                # Failures of saves in the background are raised here, at the next step.
                saver.check()
                epochs.check()
                points.tell_saved()
                points.save_if_due()
            if trainer.keeps_points and epochs.wait_published():
                points.save()  # of the last step, so that the training can be extended
            saver.wait()
            points.tell_saved()
        except Interrupted:
            points.save_and_stop()
            raise


def validate_if_due(trainer: Trainer, epochs: EpochCheckpoints) -> None:
    """Validate if the recipe's schedule says so and no earlier attempt did; keep the weights if they are the best."""
    setup, state = trainer.setup, trainer.state
    progress, total = state.progress, trainer.source.total
    due = progress.step % setup.run.request.recipe.training.evaluate_every == 0 or progress.step == total
    if not due or progress.validated >= progress.step:
        return
    with trainer.averaged() if progress.step else nullcontext():
        loss = trainer.score()
        better = progress.judged(loss)
        if progress.step and math.isfinite(loss):
            weights = trainer.weights()
            if better:
                state.best = detached(weights)
            trainer.tactic.after_validation(progress.step, loss, weights)
            moments = setup.stepper.state() if epochs.with_optimizer else {}
            epochs.save(total, setup.subject.adapter(weights), moments)
    setup.log.write("validation", progress.step, of=total, validation_loss=loss)


def is_over(trainer: Trainer) -> bool:
    """Whether the last step is done, or early stopping applies."""
    progress, total = trainer.state.progress, trainer.source.total
    if progress.step == total:
        return True
    stopping = trainer.setup.run.request.recipe.training.early_stopping
    if progress.validated == progress.step and should_stop(progress.curve, stopping):
        trainer.setup.log.write("stopped_early", progress.step, of=total, best_step=progress.best_step)
        return True
    return False


def train_step(trainer: Trainer) -> StepGradient:
    """Take one optimizer step; with a gradient that is not finite or a loss spike it counts, but changes no weights.

    Raises:
        TrainingDiverged: too many steps went wrong, or the loss jumped over a resume.
    """
    begun = time.monotonic()
    progress, tactic = trainer.state.progress, trainer.tactic
    gradient = gather(trainer)
    tactic.before_step()
    spike = is_spike(gradient.loss, progress.curve, trainer.guards.spike)
    norm = trainer.setup.stepper.step(gradient.rate) if gradient.finite and not spike else None
    progress.step += 1
    if norm is None:
        skip_step(trainer, gradient, spike=spike)
    else:
        tactic.after_step(gradient.rate, norm)
        if trainer.ema:
            trainer.ema.update(progress.step)
        record_step(trainer, gradient, norm, begun)
    check_continuity(trainer)
    return gradient


def gather(trainer: Trainer) -> StepGradient:
    """The gradient of the next step, its sums added in one order if the model's operations have one.

    Several processes take what is fastest: half a backward pass of theirs could not be taken back.
    """
    setup, step = trainer.setup, trainer.state.progress.step
    if setup.run.ranks.world > 1 or not trainer.state.in_one_order:
        return trainer.source.gather(step)
    try:
        with one_order(setup.device):
            return trainer.source.gather(step)
    except RuntimeError as error:
        if not has_no_order(error):
            raise
        trainer.state.in_one_order = False
        setup.log.write("any_order", step, reason=str(error).splitlines()[0])
        setup.stepper.clear()
        return trainer.source.gather(step)


def record_step(trainer: Trainer, gradient: StepGradient, norm: float, begun: float) -> None:
    """Record a step that changed the weights, in the progress and in the log.

    Args:
        norm: of the gradient, before clipping.
        begun: `time.monotonic()` when the step began.
    """
    progress = trainer.state.progress
    figures = {"learning_rate": gradient.rate, "gradient_norm": norm}
    if gradient.loss is not None:
        figures = {"loss": gradient.loss, **figures}
        progress.tokens += gradient.supervised
        progress.epoch_tokens += gradient.supervised
        progress.epoch_loss += gradient.loss * gradient.supervised
    progress.curve.append({"step": progress.step, **figures})
    measured = gradient.figures(time.monotonic() - begun)
    trainer.setup.log.write("step", progress.step, of=trainer.source.total, **figures, **measured)


def skip_step(trainer: Trainer, gradient: StepGradient, *, spike: bool) -> None:
    """Record a step without an update and its examples; after a loss spike, restore the snapshot.

    Raises:
        TrainingDiverged: too many steps went wrong; or a step of a private training, which the privacy budget has
            counted and which cannot be skipped.
    """
    setup, state, total = trainer.setup, trainer.state, trainer.source.total
    progress, loss = state.progress, gradient.loss
    if loss is None or gradient.examples is None:
        raise TrainingDiverged(
            f"step {progress.step} of a private training would have left weights that are not finite: "
            f"lower learning_rate ({gradient.rate:.3g})"
        )
    setup.stepper.clear()
    left_out: dict[str, Any] = {"step": progress.step, "examples": gradient.examples}
    details = {"of": total, "loss": loss, "examples": gradient.examples}
    if spike:
        progress.rollbacks.append(left_out)
        setup.stepper.restore(state.snapshot["weights"], state.snapshot["optimizer"])
        setup.log.write("rolled_back", progress.step, **details)
    else:
        overflow = setup.settings.precision == "fp16" and math.isfinite(loss)  # the loss scale was too high
        progress.skipped.append(left_out | ({"loss_scale": True} if overflow else {}))
        setup.log.write("skipped", progress.step, **details, loss_scale=overflow)
    if too_many_left_out(progress.skipped, progress.rollbacks, trainer.guards):
        raise TrainingDiverged(diagnosis(progress, setup.settings, gradient.rate))


def check_continuity(trainer: Trainer) -> None:
    """Compare the loss with that before a resume in another environment. Raises TrainingDiverged: it jumped."""
    progress = trainer.state.progress
    watched = progress.watched or {}
    if jump := discontinuity(progress.curve, watched.get("step"), trainer.guards.continuity):
        differs = watched["differs"]
        trainer.setup.log.write("discontinuity", progress.step, of=trainer.source.total, **jump, differs=differs)
        raise TrainingDiverged(discontinued(jump, differs))


def take_snapshot(trainer: Trainer) -> None:
    """Copy weights and optimizer state, when due, so that a loss spike can be rolled back."""
    spike, state = trainer.guards.spike, trainer.state
    if spike and (not state.snapshot or state.progress.step % spike.snapshot_every == 0):
        state.snapshot = {"weights": detached(trainer.weights()), "optimizer": detached(trainer.setup.stepper.state())}


def write_epoch_folder(trainer: Trainer, rate: float) -> None:
    """At the end of an epoch, write its adapter into the epoch's folder."""
    progress = trainer.state.progress
    if trainer.epoch_folders.due(progress.step):
        with trainer.averaged():
            folder = trainer.epoch_folders.write(progress, trainer.setup.subject.adapter(trainer.weights()), rate)
        if folder is not None:
            saved = {"event": SAVED, "step": progress.step, "what": "epoch", "path": str(folder)}
            trainer.setup.run.report(saved)


def publish(trainer: Trainer, epochs: EpochCheckpoints, report: Mapping[str, Any] | None = None) -> Path:
    """Write the finished adapter, its manifest and its figures, once the training is over.

    Args:
        report: figures to add to the strategy's own.

    Returns:
        The result's folder; of several processes only the first makes one, the others get the folder of work.

    Raises:
        TrainingDiverged: no validation loss was finite.
    """
    setup, progress = trainer.setup, trainer.state.progress
    run, examples = setup.run, setup.examples
    if not trainer.state.best:
        raise TrainingDiverged(f"no validation loss was finite: {diagnosis(progress, setup.settings, rate=0.0)}")

    def score(weights: Mapping[str, Tensor]) -> float:
        setup.stepper.restore(weights, {})  # the optimizer is no longer needed
        return trainer.score()

    published = trainer.tactic.result(trainer.state.best, score)
    figures = published.report | dict(report or {})
    if figures:
        setup.log.write("published", progress.step, strategy=run.voter.strategy.kind, **figures)
    if not run.ranks.main:
        return run.folder
    kept = epochs.finish()
    progress.seconds = trainer.seconds()
    counts = {
        "validation_loss": progress.best_loss if published.loss is None else published.loss,
        **trainer.source.about(),
        "published": figures,
        "examples": len(examples.train),
        "validation_examples": len(examples.validation),
        "steps": progress.step,
        "steps_planned": sum(trainer.source.lengths),
        "examples_left_out": len(examples.encoded.left_out),
        "trainable_parameters": trainer.source.parameters,
    }
    result = write_result(run, VoterResult(published.adapter, progress, setup.settings, counts, kept), setup.log)
    run.report({"event": SAVED, "step": progress.step, "what": "result", "path": str(result)})
    if not trainer.keeps_points:
        drop_points(run.folder)
    return result
