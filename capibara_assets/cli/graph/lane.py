"""How lanes open the deployment's graph, and what their fork server imports for them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from capibara_assets.automation.lanes import LaneSettings, Materialize, Opened
from capibara_assets.cli.main import hush_dagster
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import Domain

if TYPE_CHECKING:
    from capibara_assets.automation.pipeline import GraphRun

COMPUTING = ("consensus_checkpoint", "merged_checkpoint", "moe_checkpoint", "evaluation")
"""Assets that compute with models in the lane's own process."""
# Not what imports polars: its threads would be missing in a lane.
ALWAYS = ("dagster",)
FOR_MODELS = ("torch", "scipy.stats", "capibara_assets.evaluation.answering.generation")


def lane_settings(
    run: "GraphRun", deployment: Deployment, count: int, assets: Sequence[str], domains: Sequence[Domain]
) -> LaneSettings:
    """Lanes that make the run's assets; libraries that compute are imported at once if any of these needs them now."""
    wanted = [name for name in COMPUTING if name in assets]
    computes = any(
        run.force or not run.is_current(name, partition)
        for name in wanted
        for partition in (domains if run.graph.partitioned[name] else (None,))
    )
    opened = opener(deployment, run.force, run.since)
    return LaneSettings(count, opened, [*ALWAYS, *(_for_models(deployment) if computes else ())])


def _for_models(deployment: Deployment) -> list[str]:
    from capibara_assets.definitions import deployment_resources
    from capibara_assets.modeling.files import modeling_module

    folder = deployment_resources(deployment)["base_model"].path
    return [*FOR_MODELS, modeling_module(folder)]


def opener(deployment: Deployment, force: bool, since: float | None = None) -> Opened:
    """A function that opens the deployment's graph in another process; to unpickle it imports no Dagster."""
    return partial(_open, deployment, force, since)


@contextmanager
def _open(deployment: Deployment, force: bool, since: float | None) -> Iterator[Materialize]:
    hush_dagster()  # before the graph is imported: its definitions are made then, with a warning for each asset
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets.cli.graph.opened import graph_run

    with open_instance(deployment) as instance:
        yield graph_run(deployment, instance, force, since).materialize
