"""The bench `planned`: a domain's voters trained as before, by the plan, and with several processes for each voter."""

import os
import shutil
import statistics
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import polars as pl

from benchmarks.experience_input import bench_input
from benchmarks.output import print_result
from benchmarks.training.inputs import NANO, make_request, write_examples
from benchmarks.training.runs import Trained, run_request
from capibara_assets.deployment.declarations import declared, read_mapping, shipped_recipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.lora.recipe import LoraPlan, plan_lora
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.training.decided import decide
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.request import TrainingRequest

# What the recipe `full` said before its plan decided, whatever the target.
BEFORE: Mapping[str, Mapping[str, Any]] = {
    "hardware": {"backend": "single", "processes": 1, "precision": "auto"},
    "training": {"micro_batch_tokens": 2048},
}
# As a plan would for voters that two devices hold and one does not.
SEVERAL: Mapping[str, Mapping[str, Any]] = {"hardware": {"backend": "ddp", "processes": 2}}
ARMS: dict[str, Mapping[str, Mapping[str, Any]]] = {"before": BEFORE, "plan": {}, "two_processes_each": SEVERAL}


@click.command("planned")
@click.option("--experience", help="Folder of experience; default: the shared collection, else what ships.")
@click.option(
    "--target", default="cpu-laptop", show_default=True, help="Hardware target that is planned for: this one."
)
@click.option("--examples", default=160, show_default=True, help="Examples of the domain.")
@click.option("--steps", default=12, show_default=True, help="Optimizer steps of a voter.")
@click.option("--repeats", default=3, show_default=True, help="Interleaved runs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def planned(experience: str | None, target: str, examples: int, steps: int, repeats: int, as_json: bool) -> None:
    """Seconds of a domain's voters by who decides how they train: the recipe alone, or the domain's plan.

    The recipe is `full`, the base the shipped one. `two_processes_each` has the voters one after the other, each on two
    processes: what side by side saves where a voter fits on one device.
    """
    with TemporaryDirectory() as name:
        home, given = Path(name), bench_input(experience, None)
        data = write_examples(given, home, examples)
        voters = len(shipped_recipe("training-full", TrainingRecipe).voters)
        where = find_target(target)
        statistics_of = figures_of(data)
        planning = shipped_recipe("planning", PlanningRecipe)
        plan = plan_lora("python", statistics_of, read_shape(NANO), where, planning, voters)
        requests = {arm: request_of(home / "work", data, plan, changes, steps) for arm, changes in ARMS.items()}
        runs: dict[str, list[Trained]] = {arm: [] for arm in ARMS}
        for turn in range(repeats):
            for arm in list(ARMS) if turn % 2 == 0 else reversed(ARMS):
                shutil.rmtree(home / "work", ignore_errors=True)
                runs[arm].append(run_request(requests[arm]))
    seconds = {arm: statistics.median(run.summary["seconds"] for run in found) for arm, found in runs.items()}
    decided = requests["plan"].planned
    assert decided is not None
    result = {
        "seconds": {arm: round(value, 1) for arm, value in seconds.items()},
        "plan_over_before": round(seconds["plan"] / seconds["before"], 3),
        "two_processes_each_over_plan": round(seconds["two_processes_each"] / seconds["plan"], 3),
        "validation_loss": {arm: losses(found[0]) for arm, found in runs.items()},
        "tokens_per_s": {arm: found[0].figures()["tokens_per_s"] for arm, found in runs.items()},
        "placement": {arm: found[0].summary["placement"] for arm, found in runs.items()},
        "decided": {one.name: [one.value, one.by] for one in decided.decisions},
        "target": target, "voters": voters, "examples": examples, "steps": steps, "repeats": repeats,
        "experience": given.name, "cores": os.cpu_count(), "load_average": os.getloadavg()[0],
    }  # fmt: skip
    print_result(result, as_json)


def figures_of(data: Path) -> dict[str, Any]:
    """The statistics of a dataset, as far as a plan needs them."""
    table = pl.read_parquet(data, columns=["split", "messages"])
    return {
        "examples": len(table),
        "by_split": dict(table["split"].value_counts().iter_rows()),
        "chars": {"p95": table["messages"].str.len_chars().quantile(0.95)},
    }


def request_of(
    work: Path, data: Path, plan: LoraPlan, changes: Mapping[str, Mapping[str, Any]], steps: int
) -> TrainingRequest:
    """The request of the recipe `full` with these choices of its own, and the plan's where it has none."""
    file = resources_root() / "recipes" / "training-full.yaml"
    values = read_mapping(file)
    values["training"] |= {"max_steps": steps, "evaluate_every": steps}
    for section, own in changes.items():
        values[section] |= own
    document = plan.model_dump(mode="json")
    recipe, decided = decide(declared(TrainingRecipe, values, file), document, find_target(plan.target))
    about = {"recipe": recipe, "planned": decided, "lora": document}
    return make_request(NANO, data, work, {}).model_copy(update=about)


def losses(run: Trained) -> list[float]:
    """Validation losses of the voters."""
    return [round(row["validation_loss"], 4) for _, row in sorted(run.summary["voters"].items())]
