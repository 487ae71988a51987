"""The bench `colluders`: what f voters who act as one reach with the shipped vote."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks.consensus.colluders.figures import markdown, short, summary
from benchmarks.consensus.vote.bench import chosen_recipe, open_table
from benchmarks.consensus.vote.figures import write_between
from benchmarks.output import print_result

if TYPE_CHECKING:
    from capibara_assets.modeling.precision import Precision

COMMAND = "python -m benchmarks colluders"
SIZES = (4, 7, 10, 13, 16)
GOALS = ("loss", "trigger", "slice")
FAMILIES: dict[str, Any] = {"honest": 4, "noise": 1, "backdoor": 1, "slice": 1}


@click.command("colluders")
@click.option("--pool", "pool_folder", help="Folder of trained adapters; default: bench-vote in the deployment's home.")
@click.option("--pool-steps", default=60, show_default=True, help="Optimizer steps of each adapter of the pool.")
@click.option("--seeds", default=2, show_default=True, help="Draws of honest voters for each number of voters.")
@click.option("--n", "sizes", type=click.Choice([str(n) for n in SIZES]), multiple=True, help="Only these.")
@click.option("--goal", "goals", type=click.Choice(GOALS), multiple=True, help="Only these.")
@click.option(
    "--precision", type=click.Choice(["fp32", "bf16"]), default="bf16", show_default=True, help="As of `vote`."
)
@click.option("--compiled", is_flag=True, help="As of `vote`.")
@click.option("--write", "document", help="Markdown file whose marked part is replaced by the tables.")
@click.option("--write-short", "summarised", help="Markdown file whose marked part is replaced by the table of most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def colluders(
    pool_folder: str | None,
    pool_steps: int,
    seeds: int,
    sizes: tuple[str, ...],
    goals: tuple[str, ...],
    precision: "Precision",
    compiled: bool,
    document: str | None,
    summarised: str | None,
    as_json: bool,
) -> None:
    """What f colluding voters reach against the loss, with a trigger, and against a slice, at n = 4 to 16.

    They know every honest adapter and play every strength; what counts is the one that pays most. The pool is that of
    `vote` (minutes where it is not there), and losses are kept beside it.
    """
    import torch

    from benchmarks.consensus.colluders.game import POISON, STRENGTHS, collude
    from benchmarks.consensus.vote.pool import PoolRecipe

    torch.set_num_threads(1)
    chosen = [n for n in SIZES if not sizes or str(n) in sizes]
    wanted = [goal for goal in GOALS if not goals or goal in goals]
    table, described = open_table(
        pool_folder, chosen_recipe(None, None), chosen, {"honest", *(POISON[goal] for goal in wanted)},
        choose=True, precision=precision, compiled=compiled, trained=PoolRecipe(steps=pool_steps, **FAMILIES),
    )  # fmt: skip
    begun, draws = time.monotonic(), []
    for n in chosen:
        for goal in wanted:
            for seed in range(seeds):
                draws.append(collude(table, goal, n, seed))
                sys.stderr.write(f"n={n}, {goal}, seed {seed}, {time.monotonic() - begun:.0f} s\n")
    found: dict[str, Any] = {
        **described,
        **summary(draws),
        "strengths": list(STRENGTHS),
        "seconds": round(time.monotonic() - begun, 1),
    }
    if document:
        write_between(Path(document), COMMAND, markdown(found))
    if summarised:
        write_between(Path(summarised), COMMAND, short(found))
    print_result(found, as_json)
