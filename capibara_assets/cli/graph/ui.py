"""`capibara ui`: start `dagster dev` on this deployment, bound to 127.0.0.1."""

import os
import sys

import click

from capibara_assets.automation.chosen import choose_domains, chosen_domains
from capibara_assets.cli.graph.instance import dagster_home, open_instance, settings_file
from capibara_assets.cli.graph.run import parse_domains
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.notes import note
from capibara_assets.cli.terminal.numbers import PORT
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS
from capibara_assets.processes.serving import require_free, serve

_GRACE_S = 30.0  # Dagster's servers and daemon end one after the other, and runs under way note their interruption


@with_example("capibara ui --port 3001")
@click.command()
@click.option("--port", default=3000, type=PORT, show_default=True, help="Port on 127.0.0.1.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind.")
@click.option(
    "--domains",
    "domain_list",
    help="Comma-separated domains that the automation materializes from now on. [default: those that `capibara run` was"
    " asked for; all in a new deployment]",
)
def ui(port: int, host: str, domain_list: str | None) -> None:
    """Open Dagster's UI on this deployment.

    Shows what `capibara run` made, and runs the sensor and the automation, for the domains that were asked for.
    """
    require_free(host, port)
    deployment = Deployment.from_environment()
    home = dagster_home(deployment)
    with open_instance(deployment) as instance:
        if domain_list is not None:
            choose_domains(instance, parse_domains(domain_list))
        chosen = chosen_domains(instance)
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ["CAPIBARA_HOME"] = str(deployment.home)  # the code servers start elsewhere and must find the same store
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # Dagster's notes on its own beta parts
    others = len(DOMAINS) - len(chosen)
    hint = f" ({others} others start when you ask for them: --domains)" if others else ""
    note(f"automation: {', '.join(chosen)}{hint}")
    command = [
        *(sys.executable, "-m", "dagster", "dev", "-w", str(settings_file("workspace.yaml"))),
        *("-h", host, "-p", str(port)),
    ]

    def say() -> None:
        click.echo(f"Dagster on http://{host}:{port}, history in {home}; stop it with Ctrl-C")

    serve("Dagster", command, say, grace_s=_GRACE_S)
