"""`capibara dashboard`: TensorBoard on training logs, updated while trainings run."""

import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from capibara_assets.checkpoints.artifacts import open_artifacts
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.numbers import PORT
from capibara_assets.consensus.series import result_logs
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.processes.serving import require_free, serve
from capibara_assets.storage.mirror import is_remote
from capibara_assets.training.exporters import ExportTarget, make_exporter, require
from capibara_assets.training.exporters.live import Copier
from capibara_assets.training.monitoring.events import EVENTS
from capibara_assets.training.monitoring.logs import Log, find_logs, logs_of

REFRESH_S = 10.0
_NEWEST = 64  # logs shown without FOLDER: two to three runs of six domains with four voters each


@with_example("capibara dashboard out --port 8081")
@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--port", default=8080, type=PORT, show_default=True, help="Port on the host.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind.")
@click.option(
    "--refresh",
    default=REFRESH_S,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds between two updates.",
)
def dashboard(folder: Path | None, port: int, host: str, refresh: float) -> None:
    """Open TensorBoard on the training logs in FOLDER, or on the deployment's newest logs.

    It opens with one page: loss, perplexity, gradient norm, learning rate, speed and memory with a curve for each
    voter, and the consensus score. New logs and steps appear while trainings run, in the page every half a minute; a
    step repeated after an interruption is shown once. The deployment's votes (consensus_score) and its mixture's
    experts (expert_utilization) are shown, too.
    """
    require("tensorboard")
    require_free(host, port)
    with tempfile.TemporaryDirectory(prefix="capibara-dashboard-") as exports:

        def find() -> list[Log]:
            deployment = Deployment.from_environment()
            return find_logs(folder) if folder else deployment_logs(deployment, Path(exports) / "results")

        serve_logs(find, Path(exports), Address(host, port), refresh)


@dataclass(frozen=True)
class Address:
    """Host and port where TensorBoard listens."""

    host: str
    port: int


def serve_logs(find: Callable[[], list[Log]], exports: Path, address: Address, refresh_s: float) -> None:
    """Run TensorBoard until it ends or a signal arrives; refresh its data meanwhile.

    Args:
        refresh_s: seconds between two updates of TensorBoard's copy of the logs.
    """
    from capibara_assets.training.exporters.overview import write_overview  # TensorBoard is an extra

    host, port = address.host, address.port
    copier = Copier("tensorboard", make_exporter("tensorboard", ExportTarget(exports), {}))

    def refresh() -> int:
        logs = find()
        error = copier.copy_new([log.path for log in logs], {log.path: log.info.name for log in logs})
        if error is not None:
            click.echo(f"a log could not be shown and will be retried: {type(error).__name__}: {error}", err=True)
        return len(logs)

    shown = refresh()
    write_overview(exports / "tensorboard")
    command = [
        *(sys.executable, "-m", "capibara_assets.training.exporters.board", "--logdir", str(exports / "tensorboard")),
        *("--host", host, "--port", str(port), "--reload_multifile", "true"),
        *("--reload_interval", str(math.ceil(refresh_s))),
    ]

    def say() -> None:
        click.echo(f"TensorBoard on http://{host}:{port} with {shown} logs; stop it with Ctrl-C")

    try:
        serve("TensorBoard", command, say, refresh=(refresh, refresh_s))
    finally:
        copier.close()


def deployment_logs(deployment: Deployment, results: Path) -> list[Log]:
    """The deployment's newest training logs, and series of its votes and mixture, which are written to `results`.

    Raises:
        InputError: there is no training log.
    """
    logs = newest_logs(deployment)
    if not is_remote(deployment.store):
        logs += result_logs(open_artifacts(deployment.store, deployment.work), results)
    return logs


def newest_logs(deployment: Deployment) -> list[Log]:
    """The newest logs of running trainings (work folder) and published ones (store).

    Raises:
        InputError: there is no log.
    """
    places = [deployment.work]
    if not is_remote(deployment.store):
        places.append(Path(deployment.store) / "artifacts")
    files = [file for place in places for file in place.glob(f"trained_adapters/**/{EVENTS}")]
    logs = logs_of(sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)[:_NEWEST])
    if not logs:
        raise InputError(
            f"no training log below {' or '.join(map(str, places))}: train first, or name a FOLDER with logs"
        )
    return logs
