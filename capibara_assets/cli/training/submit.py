"""`capibara plan --submit`: runs a TPU plan on its slice, where the deployment says, and fetches the results."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from capibara_assets.errors import InputError

if TYPE_CHECKING:
    import dagster as dg

    from capibara_assets.launching.slices import SliceResult
    from capibara_assets.planning.writers.jax_config import JaxConfig
    from capibara_assets.resources import BaseModel
    from capibara_assets.storage.store import ArtifactStore


def submit_plan(
    domain: str, target: str, files: Mapping[str, str], out: Path, *, adopting: bool = False
) -> dict[str, Any]:
    """Submit a plan's files and follow them to the end; interrupted and asked again, it goes on.

    Args:
        target: name of the slice.
        files: the plan's, by name.
        out: folder of this plan; on a cluster, on the deployment's shared volume.
        adopting: what it trained becomes `trained_adapters` of the domain; that it may is known before it is submitted.

    Raises:
        InputError: the deployment names no place, its hosts cannot see the folder, or the run did not succeed; it
            would train on another dataset or base model than the graph's latest.
    """
    from capibara_assets.deployment.environment import Deployment
    from capibara_assets.launching.endings import Ending
    from capibara_assets.launching.launchers import Launcher
    from capibara_assets.launching.slices import SliceTraining
    from capibara_assets.planning.hardware.targets import find_target
    from capibara_assets.planning.options import HardwareOptions, Option
    from capibara_assets.planning.writers.jax_config import jax_config
    from capibara_assets.planning.writers.launch import CONFIGURATIONS
    from capibara_assets.training.standalone.from_slice import exported_dataset

    deployment = Deployment.from_environment()
    launcher = Launcher.of(deployment)
    config = jax_config(yaml.safe_load(files[CONFIGURATIONS["jax"]]), CONFIGURATIONS["jax"])
    if adopting:
        _require_adoptable(config)
    declared = HardwareOptions.of(deployment.hardware_of.get(domain, deployment.hardware)).options
    # spot or not, and your price, where the file has the slice among the domain's targets
    option = next((one for one in declared if one.target.name == target), Option(find_target(target)))
    hours, dataset = launcher.max_hours, exported_dataset(config)
    training = SliceTraining(domain, files, config.output, out.resolve(), option, max_hours=hours, dataset=dataset)
    done = launcher.run_plan(training, lambda line: click.echo(line, err=True))
    state = done.state
    cost = "" if state.usd is None else f", {state.usd:.2f} USD"
    if state.ending is not Ending.SUCCEEDED:
        how = "" if state.ending is None else state.ending.value
        raise InputError(
            f"{training.name} on {target}: {how} after {state.hours:.3g} h{cost}: {state.reason}. The logs are in"
            f" {out / 'logs'}; the same command goes on from its checkpoints"
        )
    click.echo(f"{training.name} on {target}: {state.hours:.3g} h{cost}; what it trained is in {done.folder}", err=True)
    document = {"state": state.model_dump(mode="json"), "result": done.result, "folder": str(done.folder)}
    return document | ({"trained_adapters": _adopted(config, done, out)} if adopting else {})


def _require_adoptable(config: "JaxConfig") -> None:
    from capibara_assets.assets.adopted_slices import require_adoptable
    from capibara_assets.assets.inputs import Inputs

    with _graph() as (instance, store, base_model):
        require_adoptable(Inputs(instance, store, code_version="1"), base_model, config)


def _adopted(config: "JaxConfig", done: "SliceResult", out: Path) -> str:
    """The digest of the artifact that a run's adapter was published as."""
    from capibara_assets.assets.adopted_slices import adopt_slice
    from capibara_assets.launching.slices import PLAN
    from capibara_assets.training.standalone.from_slice import SliceRun

    assert done.result is not None and done.folder is not None  # it has succeeded
    run = SliceRun(config, done.result, done.folder, done.state.hours * 3600, done.state.dataset)
    with _graph() as (instance, store, base_model):
        artifact, changed = adopt_slice(instance, store, base_model, run, out / PLAN)
    what = "is now" if changed else "was already"
    click.echo(f"it {what} {artifact.name}[{artifact.partition}] {artifact.digest[:12]}", err=True)
    return artifact.digest


@contextmanager
def _graph() -> "Iterator[tuple[dg.DagsterInstance, ArtifactStore, BaseModel]]":
    from capibara_assets.cli.graph.instance import open_instance, open_store
    from capibara_assets.deployment.environment import Deployment
    from capibara_assets.resources import BaseModel

    deployment = Deployment.from_environment()
    base_model = BaseModel(location=deployment.base_model, fetch_gib=deployment.fetch_gib)
    with open_instance(deployment) as instance:
        yield instance, open_store(deployment), base_model
