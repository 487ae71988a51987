"""Registration of a launched training in `capibara jobs`.

Imported at the launch only, so that loading the definitions needs no psutil.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil
from dagster._core.errors import DagsterExecutionInterruptedError

from capibara_assets.processes.background import JOB_LOG, Job, Jobs, Pod, new_id

if TYPE_CHECKING:
    import dagster as dg


class Registration:
    """The job entry of one launch; if the registry cannot be written, the training runs without one."""

    def __init__(self, context: Any, jobs: Jobs | None, command: list[str]):
        self._context, self._jobs, self._command = context, jobs, command
        self._id = new_id()
        self._job: Job | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Environment of the training process: the log file that it writes beside Dagster's event log."""
        return {JOB_LOG: str(self._jobs.log_file(self._id))} if self._jobs and self._writable() else {}

    def begin(self, pid: int | None = None, pod: Pod | None = None) -> None:
        """Record the start."""
        if self._jobs is None or not self._writable():
            return
        with suppress(psutil.NoSuchProcess):  # it ended at once
            self._job = self._jobs.register(
                "remote" if pod else "pipes",
                self._command,
                identifier=self._id,
                pid=pid,
                pod=pod,
                log=None if pod else self._jobs.log_file(self._id),
                run=self._context.run_id,
            )

    def end(self, code: int | None) -> None:
        """Record the end; later calls do nothing."""
        job, self._job = self._job, None
        if job is not None and self._jobs is not None:
            self._jobs.end(job, code)

    def _writable(self) -> bool:
        assert self._jobs is not None
        try:
            self._jobs.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._context.log.warning(f"`capibara jobs` cannot list this run: {self._jobs.folder}: {error.strerror}")
            self._jobs = None
            return False
        return os.access(self._jobs.folder, os.W_OK)


@contextmanager
def registered(
    context: "dg.AssetExecutionContext | dg.OpExecutionContext", jobs: Jobs | None, command: list[str]
) -> Iterator[Registration]:
    """Context that records a launch as a job; without a reported exit code it ends as failed or interrupted."""
    entry = Registration(context, jobs, command)
    try:
        yield entry
    except (DagsterExecutionInterruptedError, KeyboardInterrupt):
        entry.end(128 + signal.SIGINT)
        raise
    finally:
        entry.end(None)
