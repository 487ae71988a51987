"""Builds the dataset of one domain with all executions: traces, changed code, hidden tests, recorded outputs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl

from capibara_assets.datasets.derived.trials import execute
from capibara_assets.datasets.examples import Dataset, build_dataset
from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.tracing import traced
from capibara_assets.datasets.verification import judge_answers, verify
from capibara_assets.domains import Domain
from capibara_assets.executions.replay.pool import sessions_on
from capibara_assets.executions.replay.workers import kept_workers
from capibara_assets.processes.ray_map import RayCluster
from capibara_assets.storage.kept import keeping

WorkFolder = Callable[[Domain | None, str], Path]
"""(domain, name) -> a folder that is kept between runs; of no domain: one that all share."""


def make_dataset(
    domain: Domain,
    evidence: Evidence,
    groups: pl.DataFrame,
    recipe: DatasetRecipe,
    folder: WorkFolder,
    imported: pl.DataFrame | None = None,
    cluster: RayCluster | None = None,
) -> Dataset:
    """Run `build_dataset` with sandboxed execution; results are cached in the work folders.

    Args:
        cluster: whose workers execute code, instead of this machine, where it is much.

    Raises:
        InputError: a work folder cannot be used.
        IsolationError: workers do not start.
    """
    cache = folder(None, "verdicts")  # for all: a repair is executed for its language and again for debug
    with keeping(folder(domain, "texts")), kept_workers(), sessions_on(cluster):
        return build_dataset(
            domain,
            # a notebook's cells are no calls to follow, and no explanation comes of them
            evidence if domain is Domain.ML else traced(evidence, recipe, cache=folder(domain, "traces")),
            groups,
            recipe,
            reexecute=partial(verify, recipe=recipe.verification, cache=cache),
            judge=partial(judge_answers, recipe=recipe.verification, cache=cache),
            execute=partial(execute, cache=folder(domain, "trials")),
            imported=imported,
        )
