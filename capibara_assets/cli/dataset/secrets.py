"""`capibara secrets`: searches all files of a deployment for secrets, redacted from logs or of a provider's shape."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from capibara_assets.cli.dataset.forget import remote_places, rewrite_history, searched, servers
from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.exits import FOUND
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.lineage.secret_scan import SecretPlace

_SHOWN = 5


@dataclass(frozen=True)
class SecretsLeft:
    """Places in a deployment that hold secrets."""

    places: "list[SecretPlace]"
    checkpoints: list[str]

    def lines(self) -> list[str]:
        """A line for each place; no secret."""
        return [f"{one.place} ({', '.join(one.kinds)})" for one in self.places] + [
            f"checkpoint {title}" for title in self.checkpoints
        ]


@with_example("capibara secrets --json")
@click.command()
@click.option("--clean", is_flag=True, help="Rewrite Dagster's history, captured output and reports without them.")
@AS_JSON
@shows_progress("searching")
def secrets(clean: bool, as_json: bool) -> None:
    """Search every table, cache, report and log for secrets: redacted in the logs, or of a provider's shape.

    Buckets and PostgreSQL are searched, too. Exit code 1: one is left. Places are named, secrets are not shown. A table
    or cache holds one where it was written before its reader knew it: run the graph again, then delete the older one.
    """
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets.lineage.history import Traces
    from capibara_assets.lineage.secret_scan import NOTE

    deployment = Deployment.from_environment()
    left, rewritten = search(deployment), list[str]()
    if clean and left.places:
        values = {value for one in left.places for value in one.values}
        with open_instance(deployment) as instance:
            history, logs = rewrite_history(
                deployment, instance, Traces(tuple(sorted(values)), frozenset(), NOTE), write=True
            )
        rewritten = sorted({*history, *logs})
        left = search(deployment)
    if as_json:
        click.echo(json.dumps({"left": left.lines(), "rewritten": rewritten}))
    else:
        for line in [*(f"rewritten: {path}" for path in rewritten), *left.lines()]:
            click.echo(line)
        click.echo(f"{len(left.lines()) or 'no'} place(s) hold a secret")
    if left.lines():
        raise SystemExit(FOUND)


def search(deployment: Deployment) -> SecretsLeft:
    """Search all that a deployment keeps for values that the readers of its logs redacted, and by providers' shapes."""
    from capibara_assets.cli.graph.instance import open_instance, open_store
    from capibara_assets.executions.ingest.ledger import seen_secrets
    from capibara_assets.lineage.secret_scan import scan, scan_checkpoints, scan_database, scan_objects

    folders, skip = searched(deployment)
    store = open_store(deployment)
    seen = seen_secrets(store.work)
    places = scan(folders, seen, skip)
    for location in remote_places(deployment):
        places += scan_objects(location, seen)
    with open_instance(deployment) as instance:
        for connect in servers(instance).values():  # which may share one database
            with connect() as connection:
                in_history = scan_database("Dagster's history", connection, seen)
                places += [one for one in in_history if one not in places]
    return SecretsLeft(places, scan_checkpoints(store, seen))


def require_clean(deployment: Deployment) -> None:
    """Raise InputError: something of the deployment holds a secret, so nothing is handed out."""
    if places := search(deployment).lines():
        raise InputError(
            f"{len(places)} place(s) hold a secret that was redacted in the logs or has a provider's shape, so nothing "
            f"was exported: {'; '.join(places[:_SHOWN])}. `capibara secrets` lists them, `--clean` rewrites Dagster's "
            "history"
        )
