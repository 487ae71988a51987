"""Resuming a training from its newest resume point, and writing resume points while it runs."""

import time
from concurrent.futures import Future

from capibara_assets.checkpoints.store.saving import AsyncSaver
from capibara_assets.training.callbacks import SAVED
from capibara_assets.training.environment import differences
from capibara_assets.training.loop.trainer import Trainer
from capibara_assets.training.resume.epoch_folders import begin_at
from capibara_assets.training.resume.epochs import EpochCheckpoints
from capibara_assets.training.resume.points import ResumePoint, find_point, require_readable, require_shared, state_of

_STOP_GRACE_S = 8.0  # for an epoch checkpoint still being written when stopped; the supervisor kills after 15


def resume(trainer: Trainer) -> None:
    """Restore the newest resume point, or the weights of the epoch that the request starts from; else do nothing.

    Raises:
        InputError: the point cannot be used, or the training has become shorter.
    """
    setup, state = trainer.setup, trainer.state
    run, log = setup.run, setup.log
    point, damaged = find_point(
        run.folder, inputs=run.request.inputs(run.voter), wanted=run.request.resume_from, ranks=run.ranks
    )
    require_shared(run.folder, point, run.ranks)
    if damaged:
        log.write("damaged", point.progress.step if point else 0, points=damaged)
    if point:
        restore(trainer, point)
        progress = state.progress
        if differs := differences(point.fingerprint, setup.environment):
            progress.watched = {"step": progress.step, "differs": differs}
        continuation = "statistical" if differs else "exact"
        log.write("resumed", progress.step, continuation=continuation, differs=differs, damaged=damaged)
        if longer := trainer.source.extension(point):
            progress.extensions.append(longer)
            log.write("extended", **longer)
    elif (start := run.request.start) is not None:
        subject, ends = setup.subject, trainer.epoch_folders.ends
        state.progress.step, weights = begin_at(start, ends, subject.peft_names, subject.trainable)
        setup.stepper.restore(weights, {})
        if trainer.ema:
            trainer.ema.restore(weights)
        log.write("started_anew", state.progress.step, epoch=start.epoch, adapter=str(start.adapter))


def restore(trainer: Trainer, point: ResumePoint) -> None:
    """Restore weights, optimizer, tactic, average and progress from a resume point."""
    state, setup = trainer.state, trainer.setup
    state.resumed, state.progress, state.seconds_before = True, point.progress, point.progress.seconds
    state.best, state.snapshot = point.tensors["best"], point.snapshot
    setup.stepper.restore(point.weights(setup.subject.peft_names), point.tensors["optimizer"])
    trainer.tactic.restore(point.tensors["tactic"])
    if trainer.ema:
        trainer.ema.restore(point.tensors["ema"])


class PointWriter:
    """Writes a training's resume points in the background: on schedule, at the end, and when it is stopped."""

    def __init__(self, trainer: Trainer, epochs: EpochCheckpoints, saver: AsyncSaver):
        self._trainer, self._epochs, self._saver = trainer, epochs, saver
        self._step = trainer.state.progress.step  # of the newest point
        self._due = False
        self._saved: tuple[Future[str], int] | None = None  # the newest point, until it is whole and was told

    def save(self) -> None:
        """Start to write a resume point of the current step."""
        trainer, begun = self._trainer, time.monotonic()
        setup, state, progress = trainer.setup, trainer.state, trainer.state.progress
        progress.seconds = trainer.seconds()
        point = state_of(
            progress,
            setup.subject.adapter(trainer.weights()),
            optimizer=setup.stepper.state(),
            best=state.best,
            ema=trainer.ema.shadow if trainer.ema else {},
            snapshot_weights=state.snapshot.get("weights", {}),
            snapshot_optimizer=state.snapshot.get("optimizer", {}),
            tactic=trainer.tactic.state(),
        )
        if setup.run.ranks.main:
            self.tell_saved(wait=True)
            self._saved = self._saver.save(point, progress.step, setup.run.voter.name), progress.step
        setup.log.write("checkpoint", progress.step, waited_s=round(time.monotonic() - begun, 4))
        self._step = progress.step

    def tell_saved(self, *, wait: bool = False) -> None:
        """Report the newest point, once it lies whole on disk."""
        if self._saved is None or not (wait or self._saved[0].done()):
            return
        (name, step), self._saved = (self._saved[0].result(), self._saved[1]), None
        run = self._trainer.setup.run
        run.report({"event": SAVED, "step": step, "what": "resume point", "path": str(run.folder / name)})

    def save_if_due(self) -> None:
        """Save on the recipe's schedule, as soon as no epoch checkpoint is being written: the point would lack it.

        The point of a new training's first step is read back, so that a full or damaged disk fails early.
        """
        trainer, run = self._trainer, self._trainer.setup.run
        step = trainer.state.progress.step
        self._due |= step % run.request.recipe.checkpoint.every == 0 and step < trainer.source.total
        first = trainer.verifies_first_point and not trainer.state.resumed and step == 1
        if not (self._due or first) or run.ranks.any(self._epochs.busy):
            return
        self.save()
        self._due = False
        if first and run.ranks.main:
            self._saver.wait()
            require_readable(run.folder, run.request.inputs(run.voter))

    def save_and_stop(self) -> None:
        """Write a last point, unless an epoch checkpoint takes too long: then the run resumes from an older one."""
        setup = self._trainer.setup
        setup.stepper.clear()
        if not setup.run.ranks.any(not self._epochs.wait_published(_STOP_GRACE_S)):
            self.save()
        self._saver.wait()
        self.tell_saved()
        setup.log.write("interrupted", self._step)
