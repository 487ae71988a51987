"""`capibara bench`: the figures behind the promises, measured in one run on the same input, one JSON line each."""

import subprocess
import sys

import click

from capibara_assets.cli.bench_aggregate import aggregate_command
from capibara_assets.cli.bench_checkpoint import checkpoint
from capibara_assets.cli.bench_consolidate import consolidate_command
from capibara_assets.cli.bench_dataset import dataset
from capibara_assets.cli.bench_dedup import dedup
from capibara_assets.cli.bench_evaluate import evaluate
from capibara_assets.cli.bench_ingest import ingest
from capibara_assets.cli.bench_knowledge import classify, repair
from capibara_assets.cli.bench_merge import merge
from capibara_assets.cli.bench_output import print_result
from capibara_assets.cli.bench_plan import plan
from capibara_assets.cli.bench_plan_xla import plan_xla
from capibara_assets.cli.bench_privacy import privacy
from capibara_assets.cli.bench_recorder import recorder
from capibara_assets.cli.bench_redact import redact
from capibara_assets.cli.bench_replay import replay_command
from capibara_assets.cli.bench_sensor import sensor_command
from capibara_assets.cli.bench_split import split
from capibara_assets.cli.bench_tokenize import tokenize
from capibara_assets.cli.bench_train import train
from capibara_assets.cli.bench_vote import vote
from capibara_assets.cli.bench_vote_table import vote_table
from capibara_assets.domains import DOMAINS

HEAVY = ("torch", "jax", "transformers", "peft", "deepspeed")


@click.group()
def bench() -> None:
    """Measure what the project promises."""


@bench.command("graph")
@click.option("--seeds", default=1, show_default=True, help="Runs, with training seeds 1, 2, …")
@click.option("--experience", help="Folder of experience; default: what ships.")
@click.option("--domains", default=",".join(DOMAINS), show_default=True)
@click.option("--profile", default="demo", show_default=True)
@click.option("--drills", is_flag=True, help="Also the faults of `bench faults`, on the first seed's voters.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def graph(seeds: int, experience: str | None, domains: str, profile: str, drills: bool, as_json: bool) -> None:
    """Whole runs in fresh homes: seconds, memory, losses, and one adapter trained on all domains beside."""
    from capibara_assets.cli.bench_graph import measure_seeds

    print_result(measure_seeds(seeds, experience, domains, profile, drills), as_json)


@bench.command("faults")
@click.option("--experience", help="Folder of experience; default: what ships.")
@click.option("--domains", default=",".join(DOMAINS), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def faults(experience: str | None, domains: str, as_json: bool) -> None:
    """One voter of each domain sign-flipped, NaN or 100 times as large: is it named, does the loss move?"""
    from capibara_assets.cli.bench_faults import measure_faults

    print_result(measure_faults(experience, domains), as_json)


@bench.command("load")
@click.option("--repeats", default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def load(repeats: int, as_json: bool) -> None:
    """Loading the definitions beside `import dagster`, in interleaved fresh processes."""
    code = (
        "import sys, time; t = time.perf_counter(); import {}; "
        "print(time.perf_counter() - t, *[m for m in {!r} if m in sys.modules])"
    )
    dagster_seconds: list[float] = []
    our_seconds: list[float] = []
    heavy: list[str] = []
    for _ in range(repeats):
        for module, seconds in (("dagster", dagster_seconds), ("capibara_assets.definitions", our_seconds)):
            command = [sys.executable, "-c", code.format(module, HEAVY)]
            first, *found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            seconds.append(float(first))
            heavy += found
    result = {
        "dagster_s": round(min(dagster_seconds), 3),
        "definitions_s": round(min(our_seconds), 3),
        "ratio": round(min(our_seconds) / min(dagster_seconds), 3),
        "heavy": sorted(set(heavy)),
    }
    print_result(result, as_json)


of_experience = (ingest, recorder, redact, classify, repair, consolidate_command, sensor_command)
of_models = (checkpoint, train, aggregate_command, merge, vote, vote_table, privacy, evaluate, plan, plan_xla)
for command in (*of_experience, dataset, dedup, split, replay_command, tokenize, *of_models):
    bench.add_command(command)
