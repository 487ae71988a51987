"""`capibara lineage openlineage`: reports results and their inputs to an OpenLineage backend."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
import dagster as dg

from capibara_assets.assets.inputs import DIGEST
from capibara_assets.cli.graph.backfill import parse_since
from capibara_assets.cli.terminal.documents import AS_JSON, echo_result
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.lineage.openlineage import Made, run_events
from capibara_assets.storage.store import ArtifactStore

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

_PAGE = 500


@with_example("capibara lineage openlineage --since 2026-11-01")
@click.command("openlineage")
@click.option("--since", default="1d", show_default=True, help="Only what was made since a time or for an age (7d).")
@click.option("--run", "run_id", help="Only what this Dagster run made.")
@click.option("--namespace", help="Namespace of jobs and datasets.  [default: capibara-DEPLOYMENT]")
@AS_JSON
@shows_progress("sending")
def openlineage(since: str, run_id: str | None, namespace: str | None, as_json: bool) -> None:
    """Send an OpenLineage event for each result that was made; sent again, it is the same event.

    Where to is the client's own configuration: OPENLINEAGE_URL, or a file that OPENLINEAGE_CONFIG names.
    """
    from capibara_assets.cli.graph.instance import open_instance, open_store

    client = configured_client()
    deployment, after = Deployment.from_environment(), parse_since(since, time.time())
    store = open_store(deployment)
    count = 0
    with open_instance(deployment) as instance:
        results = [*made_since(instance, store, store.names(), after)]
    made = [one for one in results if one is not None and run_id in (None, one.run_id)]
    for event in run_events(sorted(made, key=lambda one: one.at), namespace or f"capibara-{deployment.name}"):
        try:
            client.emit(event)
        except OSError as error:  # what requests and files raise
            raise InputError(
                f"{count} of {len(made)} events were sent, and the OpenLineage backend does not take the next one"
                f" ({type(error).__name__}): see that it runs, then send them again, which doubles none"
            ) from error
        count += 1
    told = [f"{count} events sent to OpenLineage ({client.transport.kind})"]
    if gone := results.count(None):
        told.append(f"{gone} results are no longer in the store, and their events were not sent")
    echo_result({"sent": count, "transport": client.transport.kind, "gone": gone}, told, as_json)


def configured_client() -> "OpenLineageClient":
    """The client, by its own configuration. Raises InputError: it is not installed, or not configured."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError as error:
        raise InputError("OpenLineage's client is not installed: pip install 'capibara-assets[openlineage]'") from error
    client = OpenLineageClient()
    if client.transport.kind in ("console", "noop"):
        raise InputError(
            "OpenLineage is not configured: set OPENLINEAGE_URL, or OPENLINEAGE_CONFIG to a file that names a transport"
        )
    return client


def made_since(
    instance: dg.DagsterInstance, store: ArtifactStore, names: Sequence[str], after: float
) -> Iterator[Made | None]:
    """The materializations of these assets after a time (Unix) ; None for one whose result is gone from the store."""
    for name in names:
        cursor, more = None, True
        wanted = dg.AssetRecordsFilter(dg.AssetKey(name), after_timestamp=after)
        while more:
            page = instance.fetch_materializations(wanted, limit=_PAGE, cursor=cursor)
            cursor, more = page.cursor, page.has_more
            for record in page.records:
                digest = (record.asset_materialization.metadata if record.asset_materialization else {}).get(DIGEST)
                if digest is None:
                    continue
                artifact = store.find(name, record.partition_key, str(digest.value))
                yield None if artifact is None else Made(artifact, record.timestamp, record.run_id)
