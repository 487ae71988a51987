"""Dagster's local run launcher, extended to detect run workers that were killed.

Dagster's own launcher does not check them: a run whose worker died with its code server stays "started" for a day and
occupies a slot for concurrent runs, so that queued runs wait. Dagster's run monitoring asks this launcher instead.
"""

import dagster as dg
import psutil
from dagster._core.launcher import DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus

_CLOCKS_APART = 5.0  # seconds between a process's start by the kernel and by the event log


class WatchedRunLauncher(DefaultRunLauncher):
    """Launches runs as processes of the code server on this machine; a run whose process is gone has failed."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """RUNNING unless the process recorded for the run is gone; a run without a recorded process is left alone."""
        started = self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
        named = [(pid, entry.timestamp) for entry in started if (pid := _pid(entry)) is not None]
        if not named or not _is_here(run):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        pid, timestamp = named[-1]
        if _lives(pid, timestamp):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"run worker {pid} is gone: it was killed or crashed")


def _pid(entry: dg.EventLogEntry) -> int | None:
    """Process id in the event of a run's start; None for other events."""
    event = entry.dagster_event
    if event is None or not (event.message or "").startswith("Started process for run"):
        return None
    value = event.engine_event_data.metadata.get("pid")
    return int(str(value.value)) if value is not None else None


def _is_here(run: dg.DagsterRun) -> bool:
    """Whether the run's code server uses a local socket, so that its process ids are of this machine."""
    return '"socket"' in run.tags.get(".dagster/grpc_info", "")


def _lives(pid: int, timestamp: float) -> bool:
    """Whether this process is alive, and not a later one with the same id."""
    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= timestamp + _CLOCKS_APART)
    except psutil.NoSuchProcess:
        return False
