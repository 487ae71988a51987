"""Epoch checkpoints: a voter's adapter after validations, in the checkpoint store, with its lineage.

They are written in the background. A checkpoint's identity holds no time, run or host, so a voter that resumes and
reaches the same step again publishes the same checkpoint, not a second one.
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
    """Writes the epoch checkpoints of one voter; a context that waits for the last one. Inactive without a store.

    `Progress.checkpoints` lists only what is published and durable, so a resume point may be saved only when `busy` is
    false: otherwise it would lack the checkpoint being written.
    """

    def __init__(self, run: VoterRun, progress: Progress, log: EventLog):
        """Open the store and read its list, so that a broken store fails before the training and not at its end.

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
        """Whether a checkpoint is being written."""
        return self._writing is not None

    def save(self, total: int, adapter: LoraAdapter, optimizer: Mapping[str, Tensor]) -> None:
        """Start to write a checkpoint of the step just validated, if one is due; waits for the one before.

        Args:
            total: steps of the whole training; after the last there is always a checkpoint.
            adapter, optimizer: of this step; free to change when this returns. The optimizer's state is ignored
                unless `with_optimizer`.

        Raises:
            Exception: the failure of the checkpoint before.
        """
        request, progress = self._request, self._progress
        validations = progress.step // request.recipe.training.evaluate_every
        if self._saver is None or (validations % self._choice.every and progress.step < total):
            return
        self.wait_published()
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
        """Record a checkpoint that has been published since; never waits. Raises Exception: its failure."""
        if self._writing is not None and self._writing[1].done():
            self.wait_published()

    def wait_published(self, timeout: float | None = None) -> bool:
        """Wait until the last checkpoint is published, and record it.

        Args:
            timeout: seconds to wait at most; None: without limit.

        Returns:
            Whether it is published.

        Raises:
            Exception: its failure.
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
        """Wait for the last checkpoint and retire those that the recipe does not keep; returns those kept, by step.

        Other trainings' checkpoints of the same model stay: losses on other data do not compare.
        """
        if self._store is None:
            return []
        self.wait_published()
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
    """A checkpoint whose version, for retention, is its step.

    A repeated training publishes again what was not kept, under version numbers above that of its last step.
    """

    id: str
    manifest: CheckpointManifest

    @property
    def version(self) -> int:
        return self.manifest.about.step


@dataclass(frozen=True)
class _Adapters:
    """Saves adapters as content of kind `adapter`, so that the store can export them in PEFT's format."""

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
    """Losses of the step just validated, and of the base."""
    known = {METRIC: progress.curve[-1][METRIC], "base_validation_loss": progress.base_loss}
    last = progress.curve[-2] if len(progress.curve) > 1 else {}
    if last.get("step") == progress.step and "loss" in last:
        known["loss"] = last["loss"]
    return {name: value for name, value in known.items() if value is not None}
