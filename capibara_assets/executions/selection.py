"""Selects executions: by domain, by the recipe's languages and time window, and by quality."""

from datetime import timedelta
from typing import Any

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.executions.formats.envelope_reader import UNDATED
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.schema import PATCH, SHELL


def of_domain(executions: pl.DataFrame, domain: Domain | str) -> pl.DataFrame:
    """The executions that carry `domain`, as primary or further label."""
    return executions.filter(pl.col("domains").list.contains(str(domain)))


def around_domain(executions: pl.DataFrame, domain: Domain | str) -> pl.DataFrame:
    """The other executions of the sandboxes of `domain`: what its sessions ran that belongs to other domains alone."""
    sandboxes = of_domain(executions, domain)["sandbox_id"].unique()
    elsewhere = pl.col("domains").list.contains(str(domain)).not_() & (pl.col("domains").list.len() > 0)
    return executions.filter(pl.col("sandbox_id").is_in(sandboxes.implode()), elsewhere)


def commands_of(executions: pl.DataFrame, domain: Domain | str) -> pl.DataFrame:
    """Commands and edits, of whatever domain, of the sandboxes of `domain` in which a file was edited."""
    edited = executions.filter(pl.col("language") == PATCH)["sandbox_id"].unique()
    commands = executions.filter(pl.col("sandbox_id").is_in(edited.implode()), pl.col("language").is_in([SHELL, PATCH]))
    sandboxes = of_domain(commands, domain)["sandbox_id"].unique()
    return commands.filter(pl.col("sandbox_id").is_in(sandboxes.implode()))


def tables_of(executions: pl.DataFrame, domain: Domain | str) -> dict[str, pl.DataFrame]:
    """The tables of `e2b_executions`: the domain's executions, those around them, and commands that go with edits."""
    return {
        "executions": of_domain(executions, domain),
        "around": around_domain(executions, domain),
        "commands": commands_of(executions, domain),
    }


def in_window(executions: pl.DataFrame, recipe: ExperienceRecipe) -> pl.DataFrame:
    """The executions in the recipe's languages from `time_range_days` before `as_of` (or the newest one) to it.

    Both ends belong to the window, and so does what has no date (a notebook that notes no times). Quality is not
    judged here (see `evidence`): a repair pair may well hold a poor failing execution.
    """
    return in_time(executions, recipe).filter(pl.col("language").is_in(list(recipe.languages)))


def in_time(executions: pl.DataFrame, recipe: ExperienceRecipe) -> pl.DataFrame:
    """The same, in whatever language."""
    if executions.is_empty():
        return executions
    newest: Any = executions["timestamp"].max()
    end = recipe.as_of or newest
    start = end - timedelta(days=recipe.time_range_days)
    inside = pl.col("timestamp").is_between(start, end) | pl.col("flags").list.contains(UNDATED)
    return executions.filter(inside)


def evidence(executions: pl.DataFrame, repairs: pl.DataFrame, recipe: ExperienceRecipe) -> pl.DataFrame:
    """The executions that later stages use: those of sufficient quality, and both sides of every repair pair."""
    paired = pl.concat([repairs["failing_execution_id"], repairs["fixed_execution_id"]]).unique()
    good = pl.col("quality") >= recipe.min_quality_score
    return executions.filter(good | pl.col("execution_id").is_in(paired.implode()))
