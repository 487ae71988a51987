"""The bench `weights`: what training by the weight of clusters, or by a balance of difficulties, would change."""

import hashlib
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.experience_input import bench_input
from benchmarks.output import print_result
from capibara_assets.domains import Domain

BANDS = ("easy", "medium", "hard")
LARGEST = 4.0  # factor by which a band is raised or lowered


@click.command("weights")
@click.option("--experience", help="Folder of experience; default: the shared collection, else what ships.")
@click.option("--domain", default="api", show_default=True, help="Domain whose examples are trained on.")
@click.option("--steps", default=48, show_default=True, help="Optimizer steps of eight examples.")
@click.option("--seeds", default=2, show_default=True)
@click.option("--work", type=click.Path(file_okay=False, path_type=Path), help="Folder that keeps the stages' results.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def weights(experience: str | None, domain: str, steps: int, seeds: int, work: Path | None, as_json: bool) -> None:
    """Loss after training on examples as they come, drawn by 1 + ln(cluster), and drawn by balanced difficulty."""
    given = bench_input(experience, None)
    with TemporaryDirectory(prefix="capibara-bench-weights-") as scratch:
        result = measure(given.folder, Domain(domain), steps, seeds, work or Path(scratch), Path(scratch))
    print_result(result | {"experience": given.name, "domain": domain, "steps": steps, "seeds": seeds}, as_json)


def measure(experience: Path, domain: Domain, steps: int, seeds: int, kept: Path, scratch: Path) -> dict[str, Any]:
    """The figures: losses on the validation and test examples, all of them and by difficulty; and how many weigh more.

    Every arm has as many examples as there are: drawing by weight repeats some and leaves others out, so that the
    examples of a step are weighted on average.
    """
    import polars as pl

    from benchmarks.datasets.arms import Sources, difference, figures_of, losses_of_arms, renamed
    from capibara_assets.datasets.examples import build_dataset
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.deployment.declarations import shipped_recipe

    recipe = shipped_recipe("dataset", DatasetRecipe)
    sources = Sources.of(experience, kept)
    made = build_dataset(domain, sources.evidence(domain), sources.groups(), recipe)
    count = dict(made.clusters["representative_id"].value_counts().iter_rows())
    examples = made.examples
    train, later = examples.filter(pl.col("split") == "train"), examples.filter(pl.col("split") != "train")
    rest = examples.filter(pl.col("split") == "validation")
    by_cluster = [1 + math.log(count.get(name, 1)) for name in train["example_id"]]
    by_band = balanced([band(value) for value in train["difficulty"]])
    arms = {
        "as_they_come": examples,
        "clusters": pl.concat([renamed(train, drawn(train["example_id"].to_list(), by_cluster)), rest]),
        "balanced": pl.concat([renamed(train, drawn(train["example_id"].to_list(), by_band)), rest]),
    }
    held_out = {"all": later} | {
        name: later.filter(pl.Series([band(value) == number for value in later["difficulty"]], dtype=pl.Boolean))
        for number, name in enumerate(BANDS)
    }
    held_out = {name: table for name, table in held_out.items() if table.height}
    found = losses_of_arms(arms, held_out, scratch, steps, seeds, lambda text: print(text, file=sys.stderr))
    return {
        "train": train.height,
        "of_several": sum(count.get(name, 1) > 1 for name in train["example_id"]),
        "held_out": {name: table.height for name, table in held_out.items()},
        "losses": figures_of(found),
        "change": {
            arm: {name: difference(found, arm, "as_they_come", name) for name in held_out}
            for arm in ("clusters", "balanced")
        },
    }


def band(difficulty: float) -> int:
    """0 easy (below 1/3), 1 medium (below 2/3), 2 hard."""
    return min(2, int(difficulty * 3))


def balanced(bands: Sequence[int]) -> list[float]:
    """A weight for each example that gives the bands there are equal shares, as far as `LARGEST` allows."""
    present = sorted(set(bands))
    share = len(bands) / len(present)
    factor = {one: min(LARGEST, max(1 / LARGEST, share / bands.count(one))) for one in present}
    return [factor[one] for one in bands]


def drawn(names: Sequence[str], weight: Sequence[float]) -> list[int]:
    """How often each example is drawn: as many draws as examples, each close to its share (systematic resampling)."""
    order = sorted(range(len(names)), key=lambda place: hashlib.sha256(names[place].encode()).hexdigest())
    step, at, copies = math.fsum(weight) / len(names), 0.0, [0] * len(names)
    following = step / 2
    for place in order:
        at += weight[place]
        while following <= at:
            copies[place] += 1
            following += step
    return copies
