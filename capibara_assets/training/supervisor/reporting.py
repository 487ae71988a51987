"""Routes a training's events: progress lines, exporters, and a table of the voters for Dagster."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capibara_assets.deployment.environment import Deployment
from capibara_assets.training.exporters import ExportTarget, make_exporter
from capibara_assets.training.exporters.live import LiveExport
from capibara_assets.training.monitoring.events import EVENTS
from capibara_assets.training.monitoring.progress import EVERY_S, VoterTable, progress_lines
from capibara_assets.training.request import TrainingRequest

Say = Callable[[str], None]
Publish = Callable[[dict[str, Any]], None]

_PATIENT_S, _HURRIED_S = 15.0, 2.0

PROGRESS = "capibara/training-progress"
"""`kind` of the messages with the table of the voters."""


class Reporting:
    """Receives every event of a training, and passes it on."""

    def __init__(self, request: TrainingRequest, say: Say, publish: Publish | None, live: LiveExport | None):
        self._domain, self._say, self._publish, self._live = request.domain, say, publish, live
        self._line = progress_lines(request.recipe.report.every)
        self._table, self._published = VoterTable(), time.monotonic()

    def __call__(self, event: dict[str, Any]) -> None:
        """Log a line if the event is worth one, notify the exporters, and publish the table when it is due."""
        if line := self._line(event):
            self._say(line)
        if self._live:
            self._live.notice(event)
        if self._publish:
            self._table.notice(event)
            if time.monotonic() - self._published >= EVERY_S:
                self.publish()

    def publish(self) -> None:
        """Publish the table of the voters now."""
        if self._publish and (rows := self._table.rows()):
            self._published = time.monotonic()
            self._publish({"kind": PROGRESS, "domain": self._domain, "voters": rows})

    def close(self, wait_s: float) -> None:
        """Publish the last table, and wait at most `wait_s` seconds for the exporters to finish."""
        self.publish()
        if self._live:
            self._live.close(wait_s)


@contextmanager
def reporting(
    request: TrainingRequest,
    say: Say,
    publish: Publish | None = None,
    *,
    exports: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Reporting]:
    """Context manager whose value is the `report` for `train_domain`; it closes the exporters at the end.

    Args:
        say: logs a line.
        publish: gets a table of the voters, at most every ten seconds.
        exports: folder the exporters write to; None: that of the deployment.

    Raises:
        InputError: the recipe names an exporter whose library is not installed.
    """
    choice = request.recipe.report
    live = None
    if choice.exporters:
        place = ExportTarget(exports or exports_folder(Deployment.from_environment(environment)), choice.online)
        makers = {str(kind): make_exporter(kind, place, environment) for kind in choice.exporters}
        if choice.online and "wandb" in makers and not environment.get("WANDB_API_KEY"):
            say("report.online is set, WANDB_API_KEY is not: W&B writes offline runs")
        logs = {voter.name: request.folder(voter) / EVENTS for voter in request.recipe.voters}
        live = LiveExport(logs, makers, say)
    report = Reporting(request, say, publish, live)
    try:
        yield report
    except BaseException:
        report.close(_HURRIED_S)  # the sender of the signal waits; the log can be exported later
        raise
    report.close(_PATIENT_S)


def exports_folder(deployment: Deployment) -> Path:
    """The folder that the exporters of a deployment write to."""
    return deployment.home / "metrics"
