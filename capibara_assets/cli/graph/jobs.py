"""`capibara jobs`: background trainings started by this command line, by Dagster, or on a cluster."""

import codecs
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import click

from capibara_assets.cli.terminal.documents import AS_JSON, echo_json, echo_result
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.tables import TerminalTable, say, show
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.processes.background import STOP_GRACE_S, Job, Jobs, pod_log, state_of
from capibara_assets.processes.background import stop as stop_job

_FOLLOW_S = 0.2


@with_example("capibara jobs ls")
@click.group()
def jobs() -> None:
    """List, follow and stop background runs: local processes, Dagster runs and pods.

    JOB is an id, a prefix of one, or `latest`.
    """


@with_example("capibara jobs ls --all")
@jobs.command("ls")
@AS_JSON
@click.option("--all", "everything", is_flag=True, help="Include jobs that have ended.")
def list_jobs(as_json: bool, everything: bool) -> None:
    """List jobs, oldest first. State `lost`: the process is gone and its exit was not recorded.

    Exit code 1: a job's file is damaged; it is named, and the others are listed.
    """
    registry = open_jobs()
    known = [(job, state_of(job)) for job in registry.all()]
    shown = [(job, state) for job, state in known if everything or state in ("running", "unknown", "lost")]
    if as_json:
        echo_json([asdict(job) | {"state": state} for job, state in shown])
    elif shown:
        show(
            TerminalTable(
                ("job", "state", "kind", "started", "where", "what"), [_row(job, state) for job, state in shown]
            )
        )
    hidden = len(known) - len(shown)
    if not as_json:
        click.echo(f"{len(shown)} jobs" + (f"; {hidden} that ended: --all" if hidden else ""))
    if damaged := registry.damaged():
        raise IntegrityError("; ".join(damaged))


def _row(job: Job, state: str) -> tuple[str, ...]:
    where = f"{job.pod.namespace}/{job.pod.name}" if job.pod else f"pid {job.process.pid if job.process else '-'}"
    return job.id, state, job.kind, job.started, where, str(job.output or " ".join(job.command))


@with_example("capibara jobs status latest")
@jobs.command("status")
@click.argument("name", metavar="JOB")
@AS_JSON
def status(name: str, as_json: bool) -> None:
    """Show the details of JOB."""
    job = open_jobs().find(name)
    known = {key: value for key, value in (asdict(job) | {"state": state_of(job)}).items() if value is not None}
    if as_json:
        click.echo(json.dumps(known))
        return
    for key, value in known.items():
        text = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
        say(f"{key}: {json.dumps(text) if isinstance(text, dict) else text}")


@with_example("capibara jobs logs latest --follow")
@jobs.command("logs")
@click.argument("name", metavar="JOB")
@click.option("--follow", "-f", is_flag=True, help="Keep printing until the job ends; Ctrl-C does not stop it.")
def logs(name: str, follow: bool) -> None:
    """Print the output of JOB."""
    registry = open_jobs()
    job = registry.find(name)
    if job.pod is not None:
        characters = _characters()
        for chunk in pod_log(job.pod, follow):
            _write(characters.decode(chunk))
        return
    if job.log is None:
        hint = f": `capibara ui` shows run {job.run}" if job.run else ""
        raise InputError(f"job {job.id} has no log file{hint}")
    if not Path(job.log).is_file() and not follow:
        raise InputError(f"the log of job {job.id} is gone: {job.log}")
    follow_file(Path(job.log), lambda: follow and state_of(registry.find(job.id)) == "running")


@with_example("capibara jobs stop latest")
@jobs.command("stop")
@click.argument("name", metavar="JOB")
@click.option(
    "--grace",
    default=STOP_GRACE_S,
    type=click.FloatRange(min=0),
    show_default=True,
    help="Seconds to save resume points before SIGKILL.",
)
@AS_JSON
def stop(name: str, grace: float, as_json: bool) -> None:
    """Stop JOB and all its processes: SIGTERM, a grace period to write resume points, SIGKILL."""
    registry = open_jobs()
    job = stop_job(registry, registry.find(name), grace)
    state = state_of(job)
    echo_result({"id": job.id, "state": state}, f"{job.id} {state}", as_json)


def follow_file(path: Path, goes_on: Callable[[], bool]) -> None:
    """Copy a file to standard output, and keep copying what is appended while `goes_on()` is true."""
    file: BinaryIO | None = None
    characters = _characters()
    while True:
        last = not goes_on()  # asked before reading: what was written before the end is then there
        if file is None and path.is_file():
            file = path.open("rb")
        if file is not None and (data := file.read()):
            _write(characters.decode(data))
        if last:
            if file is not None:
                file.close()
            return
        time.sleep(_FOLLOW_S)


def open_jobs() -> Jobs:
    """The jobs of the deployment."""
    return Jobs(Deployment.from_environment().home)


def _characters() -> codecs.IncrementalDecoder:
    """A decoder of a log's bytes, which may break off within a character."""
    return codecs.getincrementaldecoder("utf-8")("backslashreplace")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
