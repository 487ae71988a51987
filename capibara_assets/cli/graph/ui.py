"""`capibara ui`: start `dagster dev` on this deployment, bound to 127.0.0.1."""

import os
import sys

import click

from capibara_assets.cli.graph.instance import dagster_home, settings_file
from capibara_assets.deployment.environment import Deployment


@click.command()
@click.option("--port", default=3000, show_default=True, help="Port on 127.0.0.1.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind.")
def ui(port: int, host: str) -> None:
    """Open Dagster's UI on this deployment.

    Shows what `capibara run` made, and runs the sensor and the automation.
    """
    deployment = Deployment.from_environment()
    home = dagster_home(deployment)
    os.environ["CAPIBARA_HOME"] = str(deployment.home)  # the code servers start elsewhere and must find the same store
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # Dagster's notes on its own beta parts
    click.echo(f"Dagster on http://{host}:{port}, history in {home}; stop it with Ctrl-C")
    arguments = ["dev", "-w", str(settings_file("workspace.yaml")), "-h", host, "-p", str(port)]
    os.execv(sys.executable, [sys.executable, "-m", "dagster", *arguments])
