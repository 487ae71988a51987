"""Dagster's local run launcher, which also notices a run worker that was killed.

Dagster's own one does not look: a run whose worker died with its code server stays "started" for a day, holds one of
the places for concurrent runs, and everything behind it waits. Run monitoring asks this one instead.
"""

import dagster as dg
import psutil
from dagster._core.launcher import DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus

_CLOCKS_APART = 5.0  # seconds between a process's start by the kernel and by the event log


class WatchedRunLauncher(DefaultRunLauncher):
    """Runs as processes of the code server on this machine; a run without its process has failed."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """RUNNING unless the process that the run itself named is gone; a run that names none is not ours to judge."""
        started = self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
        named = [(pid, entry.timestamp) for entry in started if (pid := _pid(entry)) is not None]
        if not named or not _is_here(run):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        pid, timestamp = named[-1]
        if _lives(pid, timestamp):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"run worker {pid} is gone: it was killed or crashed")


def _pid(entry: dg.EventLogEntry) -> int | None:
    """The process that an event says the run was started in."""
    event = entry.dagster_event
    if event is None or not (event.message or "").startswith("Started process for run"):
        return None
    value = event.engine_event_data.metadata.get("pid")
    return int(str(value.value)) if value is not None else None


def _is_here(run: dg.DagsterRun) -> bool:
    """Whether the code server speaks over a socket, so is on this machine; process ids of another one say nothing."""
    return '"socket"' in run.tags.get(".dagster/grpc_info", "")


def _lives(pid: int, timestamp: float) -> bool:
    """Whether this process is there, and no later one with its number."""
    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= timestamp + _CLOCKS_APART)
    except psutil.NoSuchProcess:
        return False
