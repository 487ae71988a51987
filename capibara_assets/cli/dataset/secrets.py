"""`capibara secrets`: the last gate over files, searched for what the readers of logs redacted."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from capibara_assets.cli.dataset.forget import searched
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.lineage.secret_scan import SecretFile

_SHOWN = 5


@dataclass(frozen=True)
class SecretsLeft:
    """Where a deployment holds what its readers redacted."""

    files: "list[SecretFile]"
    checkpoints: list[str]

    def lines(self) -> list[str]:
        """A line for each place; no secret."""
        return [f"{one.path} ({', '.join(one.kinds)})" for one in self.files] + [
            f"checkpoint {title}" for title in self.checkpoints
        ]


@click.command()
@click.option("--clean", is_flag=True, help="Rewrite Dagster's databases and captured output without them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def secrets(clean: bool, as_json: bool) -> None:
    """Search every table, cache, report, event and log for secrets that were redacted in the logs.

    Exit code 1: one is left. Places are named, secrets are not shown. A table or cache holds one where it was written
    before its reader knew it: run the graph again, then delete the older one.
    """
    from capibara_assets.cli.graph.instance import dagster_home
    from capibara_assets.lineage.secret_scan import cleaned

    deployment = Deployment.from_environment()
    left = search(deployment)
    rewritten = sorted({str(path) for path in cleaned(dagster_home(deployment), left.files)}) if clean else []
    if rewritten:
        left = search(deployment)
    if as_json:
        click.echo(json.dumps({"left": left.lines(), "rewritten": rewritten}))
    else:
        for line in [*(f"rewritten: {path}" for path in rewritten), *left.lines()]:
            click.echo(line)
        click.echo(f"{len(left.lines()) or 'no'} place(s) hold a redacted secret")
    if left.lines():
        raise SystemExit(1)


def search(deployment: Deployment) -> SecretsLeft:
    """Search all that a deployment keeps for values that the readers of its logs redacted."""
    from capibara_assets.executions.ingest.ledger import seen_secrets
    from capibara_assets.lineage.secret_scan import scan, scan_checkpoints
    from capibara_assets.resources import Store

    folders, skip = searched(deployment)
    store = Store(root=deployment.store, work=str(deployment.work)).open()
    seen = seen_secrets(store.work)
    return SecretsLeft(scan(folders, seen, skip), scan_checkpoints(store, seen))


def require_clean(deployment: Deployment) -> None:
    """Raise InputError: something of the deployment holds a secret, so nothing is handed out."""
    if found := search(deployment).lines():
        raise InputError(
            f"{len(found)} place(s) hold a secret that was redacted in the logs, so nothing was exported: "
            f"{'; '.join(found[:_SHOWN])}. `capibara secrets` lists them, `--clean` rewrites Dagster's history"
        )
