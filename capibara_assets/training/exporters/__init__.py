"""Exporters of a training's metrics: TensorBoard, W&B, MLflow, each behind one small interface.

The event log is the source and an export a copy: it can be made again at any time (`capibara metrics export`), also
while the training runs, and its failure does not affect the training. Imports `monitoring`.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from capibara_assets.errors import InputError
from capibara_assets.training.monitoring.logs import RunInfo
from capibara_assets.training.monitoring.views import MetricPoint

KINDS = ("tensorboard", "wandb", "mlflow")


class Exporter(Protocol):
    """Writes the figures of one run to a destination. `begin` is called first, and again for each new attempt."""

    def begin(self, info: RunInfo) -> None:
        """Discard earlier output; all current points follow."""

    def write(self, points: Sequence[MetricPoint]) -> None:
        """Add points; their steps never go backwards after a `begin`."""

    def close(self, finished: bool) -> None:
        """End the export; `finished`: whether the training is done."""


@dataclass(frozen=True)
class ExportTarget:
    """Destination of exporters, and whether they may go online.

    Attributes:
        folder: each writes to a folder of its own in it.
        online: W&B sends at once, where WANDB_API_KEY is set; else it writes files for `wandb sync`.
    """

    folder: Path
    online: bool = False


def make_exporter(kind: str, place: ExportTarget, environment: Mapping[str, str]) -> Callable[[], Exporter]:
    """A factory of exporters of one kind, called once per run; imports the library at its first call.

    Raises:
        InputError: its library is not installed, or the kind is unknown.
    """
    if kind not in KINDS:
        raise InputError(f"no exporter {kind!r}: choose from {', '.join(KINDS)}")
    require(kind)

    def make() -> Exporter:
        match kind:
            case "tensorboard":
                from capibara_assets.training.exporters.tensorboard import TensorBoardExporter

                return TensorBoardExporter(place.folder / "tensorboard")
            case "wandb":
                from capibara_assets.training.exporters.wandb import WandbExporter

                return WandbExporter(place.folder, place.online and bool(environment.get("WANDB_API_KEY")))
            case _:
                from capibara_assets.training.exporters.mlflow import MlflowExporter

                return MlflowExporter(
                    environment.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place.folder.resolve() / 'mlflow.db'}"
                )

    return make


def require(library: str) -> None:
    """Check that a library is installed.

    Raises:
        InputError: the library is absent.
    """
    if importlib.util.find_spec(library) is None:
        raise InputError(f"{library} is not installed: install it with `pip install 'capibara-assets[metrics]'`")
