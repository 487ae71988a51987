"""`capibara exposure`: whether a model remembers canaries that were planted in its data."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.model.choice import ModelChoice, on_model
from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import say

if TYPE_CHECKING:
    from capibara_assets.evaluation.measuring.exposure import Canary, Exposure


@with_example("capibara exposure --model checkpoint:sql/consensus --canaries canaries.yaml --at-most 4")
@click.command("exposure")
@on_model
@click.option(
    "--canaries", "file", required=True, type=click.Path(path_type=Path), help="YAML: id, prompt, answer, secret."
)
@click.option(
    "--alternatives",
    "count",
    default=1023,
    show_default=True,
    type=click.IntRange(min=15),
    help="Secrets to rank among.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the alternatives.")
@click.option("--at-most", type=click.FloatRange(min=0), help="Bits: exit code 1 where a canary is exposed by more.")
@AS_JSON
@shows_progress("measuring")
def exposure(choice: ModelChoice, file: Path, count: int, seed: int, at_most: float | None, as_json: bool) -> None:
    """Measure how exposed canaries are in a model: the rank of a secret's loss among random alternatives, in bits.

    Of an adapter its base is measured, too, which never saw them. Secrets are not shown. A model that did not see a
    canary exposes e bits or more with probability 2^-e.
    """
    from capibara_assets.evaluation.measuring.exposure import read_canaries

    canaries = read_canaries(file)
    rows = _measured(choice, canaries, count, seed)
    over = [row["canary"] for row in rows if at_most is not None and row["bits"] > at_most]
    if as_json:
        click.echo(json.dumps({"model": choice.reference, "seed": seed, "canaries": rows, "over": over}))
    else:
        for row in rows:
            say(_line(row))
        if over:
            say(f"exposed by more than {at_most:g} bits: {', '.join(over)}")
    if over:
        raise SystemExit(1)


def _measured(choice: ModelChoice, canaries: "tuple[Canary, ...]", count: int, seed: int) -> list[dict[str, Any]]:
    from capibara_assets.evaluation.contenders.model_folder import opened, require_its_base
    from capibara_assets.evaluation.measuring.exposure import measure_exposure

    with choice.open() as model:
        require_its_base(model)
        with opened(model) as base:
            exposures = measure_exposure(base, canaries, count=count, seed=seed)
        without: list[Exposure | None] = [None] * len(exposures)
        if model.is_adapter:
            with opened(replace(model, folder=model.whole, is_adapter=False)) as base:
                without = [*measure_exposure(base, canaries, count=count, seed=seed)]
    return [
        {
            **asdict(one),
            "bits": round(one.bits, 4),
            "probability": round(one.probability, 6),
            "base_bits": None if other is None else round(other.bits, 4),
        }
        for one, other in zip(exposures, without, strict=True)
    ]


def _line(row: dict[str, Any]) -> str:
    beside = "" if row["base_bits"] is None else f", {row['base_bits']:.1f} in its base"
    return (
        f"{row['canary']}: {row['bits']:.1f} bits (rank {row['rank']:g} of {row['candidates']}, "
        f"p = {row['probability']:.4f}){beside}"
    )
