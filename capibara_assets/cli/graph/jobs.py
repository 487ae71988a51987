"""`capibara jobs`: trainings in the background, whoever started them: this command line, Dagster, or a cluster."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import click

from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.processes.background import STOP_GRACE_S, Jobs, pod_log, state_of
from capibara_assets.processes.background import stop as stop_job

_FOLLOW_S = 0.2


@click.group()
def jobs() -> None:
    """Background runs: local ones, those of Dagster, and pods. JOB is an id, its beginning, or `latest`."""


@jobs.command("ls")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
@click.option("--all", "everything", is_flag=True, help="Also those that ended.")
def list_jobs(as_json: bool, everything: bool) -> None:
    """One line each, the oldest first. `lost`: its process is gone and nobody noted how it ended."""
    known = [(job, state_of(job)) for job in open_jobs().all()]
    shown = [(job, state) for job, state in known if everything or state in ("running", "unknown", "lost")]
    for job, state in shown:
        if as_json:
            click.echo(json.dumps(asdict(job) | {"state": state}))
        else:
            where = (
                f"{job.pod.namespace}/{job.pod.name}" if job.pod else f"pid {job.process.pid if job.process else '-'}"
            )
            click.echo(
                f"{job.id}  {state:8}  {job.kind:6}  {job.started}  {where}  {job.output or ' '.join(job.command)}"
            )
    if not as_json:
        hidden = len(known) - len(shown)
        click.echo(f"{len(shown)} jobs" + (f"; {hidden} that ended: --all" if hidden else ""))


@jobs.command("status")
@click.argument("name", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(name: str, as_json: bool) -> None:
    """All that is known of JOB."""
    job = open_jobs().find(name)
    known = {key: value for key, value in (asdict(job) | {"state": state_of(job)}).items() if value is not None}
    if as_json:
        click.echo(json.dumps(known))
        return
    for key, value in known.items():
        text = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
        click.echo(f"{key}: {json.dumps(text) if isinstance(text, dict) else text}")


@jobs.command("logs")
@click.argument("name", metavar="JOB")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends; Ctrl-C leaves the job alone.")
def logs(name: str, follow: bool) -> None:
    """The output of JOB."""
    registry = open_jobs()
    job = registry.find(name)
    if job.pod is not None:
        for chunk in pod_log(job.pod, follow):
            _write(chunk)
        return
    if job.log is None:
        hint = f": `capibara ui` shows run {job.run}" if job.run else ""
        raise InputError(f"job {job.id} has no log file{hint}")
    if not Path(job.log).is_file() and not follow:
        raise InputError(f"the log of job {job.id} is gone: {job.log}")
    follow_file(Path(job.log), lambda: follow and state_of(registry.find(job.id)) == "running")


@jobs.command("stop")
@click.argument("name", metavar="JOB")
@click.option("--grace", default=STOP_GRACE_S, show_default=True, help="Seconds to save before it is killed.")
def stop(name: str, grace: float) -> None:
    """End JOB and all its processes: SIGTERM, time to write resume points, SIGKILL."""
    registry = open_jobs()
    job = stop_job(registry, registry.find(name), grace)
    click.echo(f"{job.id} {state_of(job)}")


def follow_file(path: Path, goes_on: Callable[[], bool]) -> None:
    """Write a file to standard output, and what is added while `goes_on`."""
    file: BinaryIO | None = None
    while True:
        last = not goes_on()  # asked before reading: what was written before the end is then there
        if file is None and path.is_file():
            file = path.open("rb")
        if file is not None and (data := file.read()):
            _write(data)
        if last:
            if file is not None:
                file.close()
            return
        time.sleep(_FOLLOW_S)


def open_jobs() -> Jobs:
    """The jobs of the deployment."""
    return Jobs(Deployment.from_environment().home)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
