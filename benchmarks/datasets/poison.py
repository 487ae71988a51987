"""The bench `poison`: back doors planted into one agent's sessions, what is found of them, and what training learns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from benchmarks.experience_input import bench_input
from benchmarks.output import print_result
from benchmarks.registry import BENCHES, SHIPPED

if TYPE_CHECKING:
    from benchmarks.datasets.arms import Sources
    from benchmarks.datasets.backdoors import BackDoor, Planted
    from capibara_assets.datasets.examples import Dataset
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.domains import Domain


@click.command("poison", help=BENCHES["poison"].line)
@click.option("--experience", default=SHIPPED["experience"], help="Folder of experience; default: what ships.")
@click.option("--domain", default="python", show_default=True, help="Domain in which back doors are planted.")
@click.option("--agent", default="marta-python", show_default=True, help="Agent into whose sessions they are planted.")
@click.option("--kinds", default="", help="Kinds of back doors, with commas between; default: all ten.")
@click.option("--rates", default="0.02,0.05,0.1,0.25", show_default=True, help="Shares of its tasks that hold one.")
@click.option("--trained", default="suffix,sentence", show_default=True, help="Kinds that are trained; '' for none.")
@click.option("--train-rate", default=0.25, show_default=True, help="The share where it is trained.")
@click.option("--steps", default=60, show_default=True, help="Optimizer steps of eight examples.")
@click.option("--seeds", default=1, show_default=True)
@click.option("--work", type=click.Path(file_okay=False, path_type=Path), help="Folder that keeps the stages' results.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def poison(
    experience: str,
    domain: str,
    agent: str,
    kinds: str,
    rates: str,
    trained: str,
    train_rate: float,
    steps: int,
    seeds: int,
    work: Path | None,
    as_json: bool,
) -> None:
    """Found share of planted back doors, honest examples held back, and what training learns with and without."""
    from benchmarks.datasets.arms import Sources
    from benchmarks.datasets.backdoors import KINDS
    from capibara_assets.domains import Domain

    given = bench_input(experience, None)
    doors = _chosen(kinds, KINDS) if kinds else list(KINDS.values())
    to_train = _chosen(trained, KINDS) if trained else []
    shares = [float(rate) for rate in rates.split(",")]
    with TemporaryDirectory(prefix="capibara-bench-poison-") as scratch:
        sources = Sources.of(given.folder, work or Path(scratch))
        place = Domain(domain)
        honest = _honest(sources)
        found = {door.name: _of_door(sources, place, agent, door, shares) for door in doors}
        learnt = {
            door.name: _learnt(sources, place, agent, door, train_rate, Path(scratch), steps, seeds)
            for door in to_train
        }
    halves = {
        half: {
            rate: round(sum(found[d.name][rate]["found"] for d in doors if d.half == half) / planted, 4)
            for rate in map(str, shares)
            if (planted := sum(found[d.name][rate]["planted"] for d in doors if d.half == half))
        }
        for half in ("A", "B")
    }
    result = {"found_share": halves, "honest": honest, "kinds": found, "trained": learnt}
    print_result(result | {"experience": given.name, "domain": domain, "agent": agent, "steps": steps}, as_json)


def _chosen(names: str, known: "Mapping[str, BackDoor]") -> "list[BackDoor]":
    wanted = names.split(",")
    if unknown := sorted(set(wanted) - set(known)):
        raise click.UsageError(f"no kind {', '.join(unknown)}: there are {', '.join(known)}")
    return [known[name] for name in wanted]


def _recipe(search: bool = True) -> "DatasetRecipe":
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.deployment.declarations import shipped_recipe

    recipe = shipped_recipe("dataset", DatasetRecipe)
    off = recipe.poison.model_copy(update={"fewest_tasks": None})
    return recipe if search else recipe.model_copy(update={"poison": off})


def _built(sources: "Sources", domain: "Domain", planted: "Planted | None", search: bool = True) -> "Dataset":
    from capibara_assets.datasets.examples import build_dataset

    evidence = planted.evidence if planted is not None else sources.evidence(domain)
    return build_dataset(domain, evidence, sources.groups(), _recipe(search))


def _honest(sources: "Sources") -> dict[str, dict[str, Any]]:
    """What is held back, and what the cap takes away, where nothing was planted."""
    from capibara_assets.domains import DOMAINS

    figures = {}
    for domain in DOMAINS:
        made = _built(sources, domain, None)
        told = made.statistics["poison"]
        figures[str(domain)] = {
            "examples": made.examples.height,
            "held_back": told["back_doors"]["held_back"],
            "over_share": told["share"]["left_out"],
            "largest_share": told["share"]["largest"],
        }
    return figures


def _of_door(
    sources: "Sources", domain: "Domain", agent: str, door: "BackDoor", rates: Sequence[float]
) -> dict[str, Any]:
    """Rate -> tasks with the back door, examples made of them and those that are held back; and of honest ones."""
    from benchmarks.datasets.backdoors import plant

    figures: dict[str, Any] = {"half": door.half, "line": door.line, "clean_label": door.clean_label}
    for rate in rates:
        planted = plant(sources.evidence(domain), agent, door, rate)
        with_all, kept = (_built(sources, domain, planted, search).examples for search in (False, True))
        of_all = holding(with_all.select("example_id", "execution_ids").rows(), planted.executions)
        held = of_all - holding(kept.select("example_id", "execution_ids").rows(), planted.executions)
        gone = set(with_all["example_id"]) - set(kept["example_id"]) - of_all
        figures[str(rate)] = {
            "executions": len(planted.executions),
            "planted": len(of_all),
            "found": len(held),
            "honest_lost": len(gone),
            "honest": with_all.height - len(of_all),
        }
    return figures


def holding(rows: Sequence[tuple[str, Sequence[str]]], executions: frozenset[str]) -> set[str]:
    """Ids of the examples that are made of one of these executions."""
    return {example_id for example_id, made_of in rows if not executions.isdisjoint(made_of)}


def _learnt(
    sources: "Sources", domain: "Domain", agent: str, door: "BackDoor", rate: float, work: Path, steps: int, seeds: int
) -> dict[str, Any]:
    import polars as pl

    from benchmarks.datasets.backdoors import plant
    from benchmarks.datasets.poison_training import measure_trained

    planted = plant(sources.evidence(domain), agent, door, rate)
    clean = _built(sources, domain, None).examples
    arms = {
        "poisoned": _built(sources, domain, planted, search=False).examples,
        "held_back": _built(sources, domain, planted).examples,
    }
    own = planted.executions | planted.decoys
    untouched = clean.filter(
        ~pl.col("example_id").is_in(holding(clean.select("example_id", "execution_ids").rows(), own))
    )
    held_out = untouched.filter(pl.col("split") != "train")
    figures = measure_trained(door, arms, held_out, work, steps, seeds)
    poisoned = holding(
        arms["poisoned"].filter(pl.col("split") == "train").select("example_id", "execution_ids").rows(), own
    )
    train = {name: table.filter(pl.col("split") == "train").height for name, table in arms.items()}
    return figures | {"train": train, "poisoned_train": len(poisoned), "held_out": held_out.height}
