"""Whole runs with several seeds: is the gain real specialisation? Beside them one adapter trained on all domains."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import polars as pl

from benchmarks.graph.faults import measure_drills
from benchmarks.graph.run import run_command
from benchmarks.graph.solved import domains_that_learn, solved
from benchmarks.output import print_result
from capibara_assets.assets.inputs import Inputs
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.resources import Recipes, Store
from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.recipe import TrainingRecipe, VoterSpec
from capibara_assets.training.request import TrainingRequest


@click.command("graph")
@click.option("--seeds", default=1, show_default=True, help="Runs, with training seeds 1, 2, …")
@click.option("--experience", help="Folder of experience; default: what ships.")
@click.option("--domains", default=",".join(DOMAINS), show_default=True)
@click.option("--profile", default="demo", show_default=True)
@click.option("--drills", is_flag=True, help="Also the faults of the bench `faults`, on the first seed's voters.")
@click.option(
    "--homes",
    type=click.Path(path_type=Path),
    help="Keep the homes there, seed-1, seed-2, …: a run that was interrupted goes on, one that ended is measured.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def graph(
    seeds: int, experience: str | None, domains: str, profile: str, drills: bool, homes: Path | None, as_json: bool
) -> None:
    """Whole runs in fresh homes: seconds, memory, losses, and one adapter trained on all domains beside."""
    print_result(measure_seeds(seeds, experience, domains, profile, drills, homes), as_json)


def measure_seeds(
    seeds: int, experience: str | None, domains: str, profile: str, drills: bool = False, homes: Path | None = None
) -> dict[str, Any]:
    """One entry per seed, the smallest gains over seeds and domains (relative: 1 − loss / base loss), and pass@1.

    Args:
        homes: kept; `seconds` and `peak_memory_gib` of a run that went on there are those of its last part.
    """
    found: list[dict[str, Any]] = []
    faults: dict[str, Any] = {}
    scores: dict[str, list[pl.DataFrame]] = {}
    for seed in range(1, seeds + 1):
        click.echo(f"--- seed {seed}", err=True)
        with _home(homes, seed) as home:
            deployment = run_command(home, seed, experience, domains, profile)
            found.append({"seed": seed, **measure(deployment)})
            for name, rows in scores_of(deployment).items():
                scores.setdefault(name, []).append(rows)
            if drills and seed == 1:
                faults = {"faults": measure_drills(deployment)}
    rule = shipped_recipe("decision", DecisionRule)
    learned = {name: solved(runs, rule) for name, runs in scores.items()}
    gains = [(d["base_loss"], d["consensus_loss"], d["merged_loss"]) for s in found for d in s["domains"].values()]
    return {
        "experience": experience or "shipped",
        "profile": profile,
        "smallest_consensus_gain": round(min(1 - consensus / base for base, consensus, _ in gains), 4),
        "smallest_merged_gain": round(min(1 - merged / base for base, _, merged in gains), 4),
        "domains_that_learn": domains_that_learn(learned),
        "solved": learned,
        **faults,
        "seeds": found,
    }


@contextmanager
def _home(homes: Path | None, seed: int) -> Iterator[str]:
    """A fresh home for the run, or the kept one of its seed."""
    if homes is None:
        with TemporaryDirectory() as fresh:
            yield fresh
    else:
        kept = homes.resolve() / f"seed-{seed}"
        kept.mkdir(parents=True, exist_ok=True)
        yield str(kept)


def measure(deployment: Deployment) -> dict[str, Any]:
    """The figures of a finished run, and the joint adapter's losses on the same test examples."""
    os.environ["DAGSTER_HOME"] = ""
    from capibara_assets.cli.graph.report import build_report
    from capibara_assets.cli.graph.run_record import latest_record

    with open_instance(deployment) as instance:
        store = Store(root=deployment.store, work=str(deployment.work)).open()
        report = build_report(instance, store, latest_record(deployment))
        joint = joint_losses(deployment, Inputs(instance, store))
    matrix = report["loss_matrix"]
    best = {domain: min(matrix, key=lambda expert: matrix[expert][domain]) for domain in matrix}
    domains = {
        name: {
            key: domain[key]
            for key in ("executions", "examples", "base_loss", "playbook_loss", "consensus_loss", "merged_loss")
        }
        | {"joint_loss": joint[name], "best_expert": best[name], "seconds": domain["seconds"]}
        for name, domain in report["domains"].items()
    }
    return {
        "seconds": report["seconds"],
        "peak_memory_gib": report["peak_memory_gib"],
        "diagonal_best": sum(expert == domain for domain, expert in best.items()),
        "domains_under_joint": sum(d["consensus_loss"] < d["joint_loss"] for d in domains.values()),
        "domains": domains,
        "loss_matrix": matrix,
    }


def scores_of(deployment: Deployment) -> dict[str, pl.DataFrame]:
    """A finished run's rows of `Score`, by domain."""
    with open_instance(deployment) as instance:
        inputs = Inputs(instance, Store(root=deployment.store, work=str(deployment.work)).open())
        return {domain.value: artifact.frame("scores") for domain, artifact in inputs.every("evaluation").items()}


def joint_losses(deployment: Deployment, inputs: Inputs) -> dict[str, float]:
    """Test loss per domain of one adapter trained on every domain's examples for as many steps as a domain's voter."""
    from capibara_assets.evaluation.contenders.contenders import ModelContender
    from capibara_assets.evaluation.contenders.losses import contender_losses, held_out, mean_losses
    from capibara_assets.modeling.adapters import read_adapter
    from capibara_assets.modeling.base import load_base
    from capibara_assets.modeling.hub import resolve_base

    recipes = Recipes(profile=deployment.profile, folder=deployment.recipes)
    datasets = {domain: artifact.frame("examples") for domain, artifact in inputs.every("moe_dataset").items()}
    base = load_base(resolve_base(deployment.base_model))
    with TemporaryDirectory() as folder:
        adapter = read_adapter(train_joint(deployment, inputs, recipes, datasets, base.digest, base.path, Path(folder)))
    rule = recipes.load("evaluation", EvaluationRecipe)
    losses = {
        d: mean_losses(contender_losses(base, held_out(e, rule), [ModelContender("joint", base, adapter)], rule))
        for d, e in datasets.items()
    }
    return {domain.value: means["joint"] for domain, means in losses.items()}


def train_joint(
    deployment: Deployment,
    inputs: Inputs,
    recipes: Recipes,
    datasets: dict[Domain, pl.DataFrame],
    base_digest: str,
    base_path: Path,
    folder: Path,
) -> Path:
    """Train the one adapter with the domains' own recipe, plan and number of steps; its folder."""
    summaries = [a.document("summary") for a in inputs.every("trained_adapters").values()]
    steps = max(voter["steps"] for summary in summaries for voter in summary["voters"].values())
    plans = [a.document("plan") for a in inputs.every("lora_config").values()]
    recipe = recipes.load("training", TrainingRecipe)
    seed = deployment.seed if deployment.seed is not None else recipe.seed
    joint = VoterSpec(name="joint", seed=seed, shard=0)
    length = recipe.training.model_copy(update={"max_steps": steps, "max_tokens": None, "epochs": 1000.0})
    recipe = recipe.model_copy(update={"voters": (joint,), "training": length})
    examples = pl.concat(list(datasets.values())).unique("example_id", maintain_order=True).sort("example_id")
    examples.write_parquet(folder / "examples.parquet")
    request = TrainingRequest(
        domain=next(iter(datasets)),
        base_model=base_path,
        base_digest=base_digest,
        dataset=folder / "examples.parquet",
        dataset_digest=sha256_file(folder / "examples.parquet"),
        lora=max(plans, key=lambda plan: plan["max_length"]),
        recipe=recipe,
        seed=seed,
        work=folder / "work",
        out=folder / "out",
    )
    (folder / "request.json").write_text(request.model_dump_json())
    command = [sys.executable, "-m", "capibara_assets.training", "--request", str(folder / "request.json")]
    subprocess.run(command, stdout=sys.stderr, check=True)
    return folder / "out" / "voters" / "joint"
