"""A deployment's graph, opened to be run, and how many domains to work on at a time."""

import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import psutil

from capibara_assets.assets.settings import deployment_settings
from capibara_assets.automation.pipeline import GraphRun
from capibara_assets.definitions import build, deployment_resources
from capibara_assets.deployment.environment import Deployment, LaunchMode
from capibara_assets.domains import Domain
from capibara_assets.processes.cores import cores_here
from capibara_assets.training.devices import gpus_here
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.strategy import needs_all_domains

_LANE_BYTES, _COPIES = 2 * 2**30, 6
"""Memory that work on a domain takes: so much, and so many copies of the base model (evaluation compares several)."""


def graph_run(
    deployment: Deployment, instance: dg.DagsterInstance, force: bool = False, since: float | None = None
) -> GraphRun:
    """The deployment's graph with today's settings.

    Raises:
        InputError: experience, base model, recipe or hardware target missing or damaged.
    """
    resources = deployment_resources(deployment)
    settings, store = deployment_settings(resources), resources["store"].open()
    voters = resources["recipes"].load("training", TrainingRecipe).voters
    apart = () if any(needs_all_domains(voter.strategy) for voter in voters) else ("trained_adapters",)
    return GraphRun(build(deployment), instance, settings, store, force, since, apart)


def require_environment() -> None:
    """Refuse variables that only a step reads: keys of checkpoints and voters, the sandbox. Raises InputError."""
    from capibara_assets.checkpoints.encryption.keys import given_key
    from capibara_assets.consensus.election.keys import VoterKeys
    from capibara_assets.executions.replay.e2b import asks_e2b

    given_key()
    VoterKeys.from_environment()
    asks_e2b()


def lanes(deployment: Deployment, domains: Sequence[Domain]) -> int:
    """Number of domains to work on at a time: the deployment's setting, else by cores and memory.

    One at a time where trainings share accelerators or leave this machine.
    """
    cores = cores_here() if hasattr(os, "sched_setaffinity") else 1
    if deployment.parallel is not None:
        return min(deployment.parallel, cores)
    target = deployment_resources(deployment)["target"]
    if (
        any(target.target_of(domain).kind != "cpu" for domain in domains)
        or gpus_here()
        or deployment.launcher is not LaunchMode.LOCAL
    ):
        return 1
    weights = sum(file.stat().st_size for file in Path(deployment.base_model).glob("*.safetensors"))
    fit = psutil.virtual_memory().available // (_LANE_BYTES + _COPIES * weights)
    return max(1, min(len(domains), cores, fit))
