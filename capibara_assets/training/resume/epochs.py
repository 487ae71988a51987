"""Epoch checkpoints: a voter's adapter at its validations, in the checkpoint store, with what it came from.

They are written beside the training. A checkpoint's identity holds no time, run or host, so a voter that goes on from a
resume point and comes by the same step again publishes the same one, not a second one.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from capibara_assets import __version__
from capibara_assets.checkpoints.content import Content, of_bytes, of_torch
from capibara_assets.checkpoints.retention import RetentionPolicy, plan
from capibara_assets.checkpoints.store.manifest import About, CheckpointManifest
from capibara_assets.checkpoints.store.opening import open_store
from capibara_assets.checkpoints.store.saving import AsyncSaver
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.files import ADAPTER_CONFIG
from capibara_assets.storage.jsonfiles import readable_json
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.monitoring.events import EventLog
from capibara_assets.training.resume.points import Progress

METRIC = "validation_loss"


class EpochCheckpoints:
    """Those of one voter; used as a context, which waits for the last. Without a store in the request it does nothing.

    `Progress.checkpoints` lists what is published and durable, nothing else: so a resume point is to be saved only
    when `busy` is false, or what is being written would be missing in it.
    """

    def __init__(self, run: VoterRun, progress: Progress, log: EventLog):
        """Looks the store over, so that what is wrong with it is said before the training and not at its end.

        Raises:
            InputError: the store cannot be opened.
            IntegrityError: one of this voter's checkpoints in it is damaged.
        """
        request, voter = run.request, run.voter
        self._request, self._voter, self._progress, self._log = request, voter, progress, log
        self._choice = request.recipe.checkpoint.epochs
        self._inputs = f"inputs-{request.run_id(voter)}"
        stores = request.checkpoints and run.ranks.main  # of several processes that train one voter, one writes
        self._store = open_store(request.checkpoints, work=request.work) if stores else None
        self._saver: AsyncSaver | None = None
        if self._store is not None:
            self._store.list(self.model)
            self._saver = AsyncSaver(self._store if self._choice.optimizer else _Adapters(self._store))
        self._writing: tuple[dict[str, Any], Future[str]] | None = None

    @property
    def model(self) -> str:
        """The name under which the store counts this voter's versions."""
        return f"{self._request.domain}/{self._voter.name}"

    @property
    def with_optimizer(self) -> bool:
        """Whether `save` needs the optimizer's state; the same on all processes."""
        return bool(self._request.checkpoints) and self._choice.optimizer

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._writing is not None

    def save(self, total: int, adapter: LoraAdapter, optimizer: Mapping[str, Tensor]) -> None:
        """Begin to write a checkpoint of the step just validated, if one is due; waits for the one before.

        Args:
            total: steps of the whole training; after the last there is always a checkpoint.
            adapter, optimizer: of this step; free to change when this returns. The optimizer's state goes unread
                unless `with_optimizer`.

        Raises:
            Exception: whatever the checkpoint before failed with.
        """
        request, progress = self._request, self._progress
        validations = progress.step // request.recipe.training.evaluate_every
        if self._saver is None or (validations % self._choice.every and progress.step < total):
            return
        self.settle()
        metrics = _metrics(progress)
        future = self._saver.save(
            {"adapter": adapter.tensors, "optimizer": optimizer} if self._choice.optimizer else adapter.tensors,
            progress.step,
            self.model,
            files={ADAPTER_CONFIG: readable_json(adapter.config)},
            parent=progress.checkpoints[-1]["id"] if progress.checkpoints else None,
            base_digest=request.base_digest,
            dataset_digest=request.dataset_digest,
            recipe=request.deciding_recipe() | {"seed": request.seed},
            code_version=__version__,
            metrics=metrics,
            tags=(self._voter.name, self._inputs, *(["best"] if progress.best_step == progress.step else [])),
            run=request.run,
        )
        self._writing = {"step": progress.step, METRIC: metrics[METRIC]}, future

    def check(self) -> None:
        """Note what has been published since; never waits. Raises Exception: whatever the last one failed with."""
        if self._writing is not None and self._writing[1].done():
            self.settle()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait, so many seconds at most, until the last one is published, and note it; whether it is.

        Raises:
            Exception: whatever it failed with.
        """
        if self._saver is None or self._writing is None:
            return True
        if not self._saver.wait(timeout):
            return False
        (row, future), self._writing = self._writing, None
        self._progress.checkpoints.append(row | {"id": future.result()})
        self._log.write("epoch_checkpoint", **self._progress.checkpoints[-1])
        return True

    def finish(self) -> list[dict[str, Any]]:
        """Wait for the last one and retire those that the recipe does not keep; what is left, by step.

        Other trainings' checkpoints of the same model are not touched: a loss on other data compares with none.
        """
        if self._store is None:
            return []
        self.settle()
        policy = RetentionPolicy(
            keep_last=self._choice.keep_last,
            keep_best=self._choice.keep_best,
            metric=METRIC if self._choice.keep_best else None,
        )
        published = {row["id"] for row in self._progress.checkpoints}
        mine = [one for one in self._store.list(self.model) if self._inputs in one.manifest.about.tags]
        decisions = plan([_ByStep(one.id, one.manifest) for one in mine if one.id in published], policy)
        kept = {one.checkpoint.id for one in decisions if one.keep}
        versions = {one.id: one.version for one in mine if one.id in kept}
        self._store.retire({one.id for one in mine} - versions.keys())
        return [row | {"version": versions[row["id"]]} for row in self._progress.checkpoints if row["id"] in versions]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._saver is not None:
            self._saver.__exit__(kind, error, trace)


@dataclass(frozen=True)
class _ByStep:
    """A checkpoint to plan on whose newest is that of the last step.

    A training that is done again publishes anew what was not kept, under numbers above that of its last step's.
    """

    id: str
    manifest: CheckpointManifest

    @property
    def version(self) -> int:
        return self.manifest.about.step


@dataclass(frozen=True)
class _Adapters:
    """Saves flat adapters as such, so that the store can give them out in PEFT's format."""

    store: CheckpointStore

    def save(
        self, state: Mapping[str, Tensor], step: int, model_name: str, *, files: Mapping[str, bytes], **about: Any
    ) -> str:
        content = Content(
            {name: of_torch(state[name], name) for name in sorted(state)},
            kind="adapter",
            files={name: of_bytes(data) for name, data in files.items()},
        )
        return self.store.write(content, About(model=model_name, step=step, **about)).id


def _metrics(progress: Progress) -> dict[str, float]:
    """What is known of the step just validated, and of the base."""
    known = {METRIC: progress.curve[-1][METRIC], "base_validation_loss": progress.base_loss}
    last = progress.curve[-2] if len(progress.curve) > 1 else {}
    if last.get("step") == progress.step and "loss" in last:
        known["loss"] = last["loss"]
    return {name: value for name, value in known.items() if value is not None}
