"""Where a log's figures can be looked at: TensorBoard, W&B, MLflow, each behind one small interface.

The event log is the truth and an exporter a copy of it: it can be made again at any time (`capibara metrics export`),
also while the training runs, and what becomes of it is nothing to the training.
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
    """Writes the figures of one run somewhere. `begin` comes first, and again for each new attempt."""

    def begin(self, info: RunInfo) -> None:
        """What was written before no longer counts; all that counts is written next."""

    def write(self, points: Sequence[MetricPoint]) -> None:
        """Add points; their steps never go backwards after a `begin`."""

    def close(self, finished: bool) -> None:
        """Nothing more comes; `finished`: the training is done."""


@dataclass(frozen=True)
class ExportTarget:
    """Where exporters write.

    Attributes:
        folder: each writes to a folder of its own in it.
        online: W&B sends at once, where WANDB_API_KEY is set; else it writes files for `wandb sync`.
    """

    folder: Path
    online: bool = False


def make_exporter(kind: str, place: ExportTarget, environment: Mapping[str, str]) -> Callable[[], Exporter]:
    """A maker of exporters of one kind, one per run; the library is imported with the first of them.

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
    """Refuse what is not installed, before anything runs.

    Raises:
        InputError: the library is absent.
    """
    if importlib.util.find_spec(library) is None:
        raise InputError(f"{library} is not installed: install it with `pip install 'capibara-assets[metrics]'`")
