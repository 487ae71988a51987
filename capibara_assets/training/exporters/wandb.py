"""Weights & Biases exporter: one run per attempt, because W&B drops steps that go backwards. Offline by default."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb

from capibara_assets.training.monitoring.logs import RunInfo
from capibara_assets.training.monitoring.views import MetricPoint

_PROJECT, _STEP = "capibara", "optimizer_step"
_START_S = 30.0  # for a server to answer, before the attempt counts as failed


class WandbExporter:
    """Writes to W&B, or offline runs in `<folder>/wandb/offline-run-*` for `wandb sync`."""

    def __init__(self, folder: Path, online: bool):
        self._folder, self._online = folder, online
        self._run: Any = None

    def begin(self, info: RunInfo) -> None:
        """Start a run for this attempt; replaces an older export of the same attempt."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else it reports errors to its vendor, also offline
        self.close(finished=False)
        self._folder.mkdir(parents=True, exist_ok=True)
        identifier = f"{info.run}-{info.attempt}"
        if not self._online:
            for older in (self._folder / "wandb").glob(f"offline-run-*-{identifier}"):
                shutil.rmtree(older)
        self._run = wandb.init(
            project=_PROJECT,
            dir=str(self._folder),
            id=identifier,
            name=info.name if info.attempt == 1 else f"{info.name} (attempt {info.attempt})",
            group=info.group or info.name,
            config={"run": info.run, "attempt": info.attempt},
            mode="online" if self._online else "offline",
            reinit="create_new",  # several runs at a time in one process
            settings=wandb.Settings(
                silent=True,
                console="off",
                init_timeout=_START_S,
                x_disable_stats=True,
                disable_git=True,
                disable_code=True,
                save_code=False,
                x_save_requirements=False,
            ),
        )

        self._run.define_metric("*", step_metric=_STEP)

    def write(self, points: Sequence[MetricPoint]) -> None:
        """Log a row per point. The step is a column of its own, because a voter's parts each count from zero."""
        for point in points:
            self._run.log({**point.values, _STEP: point.step})

    def close(self, finished: bool) -> None:
        """Flush and end the run; waits for the server if the run is online."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=0 if finished else 1)
