"""MLflow exporter: one run per attempt, because MLflow cannot delete values; older ones are tagged as superseded."""

from collections.abc import Sequence
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric

from capibara_assets.training.monitoring.logs import RunInfo
from capibara_assets.training.monitoring.views import MetricPoint

_EXPERIMENT = "capibara"
_BATCH = 500  # metrics of one call; MLflow takes 1,000


class MlflowExporter:
    """Writes through the MLflow client alone: no active run, no global state."""

    def __init__(self, uri: str):
        if uri.startswith("sqlite:///"):
            Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(tracking_uri=uri)
        self._run: str | None = None

    def begin(self, info: RunInfo) -> None:
        """Create a run for this attempt; removes an older export of the same attempt."""
        self.close(finished=False)
        experiment = self._experiment()
        for other in self._client.search_runs([experiment], filter_string=f"tags.`capibara.run` = '{info.run}'"):
            if other.data.tags.get("capibara.attempt") == str(info.attempt):
                self._client.delete_run(other.info.run_id)
            elif int(other.data.tags.get("capibara.attempt", "0")) < info.attempt:
                self._client.set_tag(other.info.run_id, "capibara.superseded_by", str(info.attempt))
        tags = {"capibara.run": info.run, "capibara.attempt": str(info.attempt), "mlflow.runName": info.name}
        self._run = self._client.create_run(experiment, tags=tags).info.run_id

    def write(self, points: Sequence[MetricPoint]) -> None:
        """Log points with the time they were measured, in milliseconds."""
        assert self._run is not None, "begin() comes first"
        metrics = [
            Metric(name, value, int(point.time * 1000), point.step)
            for point in points
            for name, value in point.values.items()
        ]
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._run, metrics[start : start + _BATCH])

    def close(self, finished: bool) -> None:
        """End the run: FINISHED, or KILLED where another attempt may follow."""
        run, self._run = self._run, None
        if run is not None:
            self._client.set_terminated(run, "FINISHED" if finished else "KILLED")

    def _experiment(self) -> str:
        existing = self._client.get_experiment_by_name(_EXPERIMENT)
        return str(existing.experiment_id if existing else self._client.create_experiment(_EXPERIMENT))
