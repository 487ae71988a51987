"""Opens the deployment's graph in the process of a lane."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from capibara_assets.automation.lanes import Materialize, Opened
from capibara_assets.cli.main import hush_dagster
from capibara_assets.deployment.environment import Deployment


def opener(deployment: Deployment, force: bool, since: float | None = None) -> Opened:
    """A function that opens the deployment's graph in another process."""
    return partial(_open, deployment, force, since)


@contextmanager
def _open(deployment: Deployment, force: bool, since: float | None) -> Iterator[Materialize]:
    hush_dagster()  # before the graph is imported: its definitions are made then, with a warning for each asset
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets.cli.graph.opened import graph_run

    with open_instance(deployment) as instance:
        yield graph_run(deployment, instance, force, since).materialize
