"""`capibara plan --submit`: run a TPU plan on its slice of the deployment's cluster, and bring back what it trained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from capibara_assets.errors import InputError


def submit_plan(domain: str, target: str, files: Mapping[str, str], out: Path) -> dict[str, Any]:
    """Submit a plan's files and follow them to the end; interrupted and asked again, it goes on.

    Args:
        target: name of the slice.
        files: the plan's, by name.
        out: folder of this plan on the deployment's shared volume.

    Raises:
        InputError: the deployment names no cluster, the folder is not on its volume, or the run did not succeed.
    """
    from capibara_assets.deployment.environment import Deployment
    from capibara_assets.launching.cluster import Ending
    from capibara_assets.launching.launchers import Launcher
    from capibara_assets.launching.slices import SliceTraining
    from capibara_assets.planning.hardware.targets import find_target
    from capibara_assets.planning.options import Option
    from capibara_assets.planning.writers.jax_config import jax_config
    from capibara_assets.planning.writers.launch import CONFIGURATIONS

    launcher = Launcher.of(Deployment.from_environment())
    output = jax_config(yaml.safe_load(files[CONFIGURATIONS["jax"]]), CONFIGURATIONS["jax"]).output
    option = Option(find_target(target))
    training = SliceTraining(domain, files, output, out.resolve(), option, max_hours=launcher.max_hours)
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
    return {"state": state.model_dump(mode="json"), "result": done.result, "folder": str(done.folder)}
