"""The bench `evaluate`: generation beside Transformers', what the statistics promise, and hostile programs."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from benchmarks.output import print_result
from capibara_assets.errors import InputError

PARTS = {
    "generation": "batched_ratio",
    "statistics": "false_positive_rate",
    "hostile": "hostile_passed",
}
"""Part of the bench -> the figure of it that stands at the top."""


@click.command("evaluate")
@click.option("--only", default=",".join(PARTS), show_default=True, help="Some of the parts.")
@click.option("--prompts", default=64, show_default=True, help="Of the generation.")
@click.option("--new-tokens", default=64, show_default=True, help="Budget of an answer.")
@click.option("--rounds", default=5, show_default=True, help="Interleaved runs of the generation.")
@click.option("--draws", default=2_000, show_default=True, help="Of the statistics; a tenth of them for power.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def evaluate(only: str, prompts: int, new_tokens: int, rounds: int, draws: int, as_json: bool) -> None:
    """Tokens per second of batched answers, false alarms and power of the tests, hostile programs that pass."""
    generation = {"prompts": prompts, "new_tokens": new_tokens, "rounds": rounds}
    statistics = {"power_seeds": draws // 10, "null_seeds": draws, "clustered_seeds": draws}
    chosen = [name.strip() for name in only.split(",") if name.strip()]
    print_result(measure(chosen, {"generation": generation, "statistics": statistics}), as_json)


def measure(only: Sequence[str] = tuple(PARTS), sizes: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The parts, one after another: their figures at the top, everything each found below its name.

    Args:
        only: the parts.
        sizes: part -> keyword arguments of its measurement, where they differ from its own defaults.

    Raises:
        InputError: no part, or one that does not exist.
    """
    if not only or (unknown := sorted(set(only) - set(PARTS))):
        raise InputError(f"--only: {', '.join(unknown) if only else 'nothing'}: choose of {', '.join(PARTS)}")
    return summary({name: _run(name, (sizes or {}).get(name, {})) for name in PARTS if name in only})


def summary(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The figures promised, then each part's details."""
    return {PARTS[name]: details[PARTS[name]] for name, details in found.items()} | dict(found)


def _run(name: str, sizes: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any]
    match name:
        case "generation":
            from benchmarks.evaluation.generate import run_generation

            found = run_generation(**sizes)
        case "statistics":
            from benchmarks.evaluation.statistical_tests import run_statistics

            found = run_statistics(**sizes)
        case _:
            from capibara_assets_tests.evaluation.drills.hostile import run_hostile

            found = run_hostile()
    return found
