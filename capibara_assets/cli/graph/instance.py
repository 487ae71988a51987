"""The Dagster instance of a deployment, shared by `run` and `ui` so that the UI shows the command's runs."""

import os
import shutil
from pathlib import Path

import dagster as dg

from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError


def settings_file(name: str) -> Path:
    """`dagster.yaml` or `workspace.yaml`: beside the package in a checkout, inside it in a wheel.

    Raises:
        InputError: the installation lacks it.
    """
    for candidate in (resources_root() / name, resources_root().parent / name):
        if candidate.is_file():
            return candidate
    raise InputError(f"{name} is missing from this installation: reinstall capibara-assets")


def dagster_home(deployment: Deployment) -> Path:
    """DAGSTER_HOME of the environment, else `<home>/dagster`; created with the shipped dagster.yaml if it has none."""
    home = Path(os.environ.get("DAGSTER_HOME") or deployment.home / "dagster").expanduser().resolve()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(settings_file("dagster.yaml"), home / "dagster.yaml")
    return home


def open_instance(deployment: Deployment) -> dg.DagsterInstance:
    """The persistent Dagster instance of the deployment."""
    return dg.DagsterInstance.from_config(str(dagster_home(deployment)))
