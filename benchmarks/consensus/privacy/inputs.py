"""What the arms of the bench `privacy` share: base, short examples, requests of one voter, figures of a point."""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from capibara_assets.training.recipe import VoterSpec
    from capibara_assets.training.request import TrainingRequest

DELTA = 1e-5
_LONGEST = 192  # tokens of an example: short ones, so that a client takes seconds
_JUDGED = 16


def base_request(given: Any, home: Path, examples: int) -> "TrainingRequest":
    """The request that all arms share: the shipped base, one core, the experience's own examples."""
    from benchmarks.training.inputs import NANO, make_request, write_examples

    data = home / f"data-{examples}"
    if not (data / "examples.parquet").is_file():
        import polars as pl

        data.mkdir(exist_ok=True)
        everything = write_examples(given, home, 8 * examples)
        lengths = pl.read_parquet(home / "tokens.parquet").select(pl.col("input_ids").list.len()).to_series()
        short = pl.read_parquet(everything).filter(lengths <= _LONGEST)
        kept = [
            short.filter(pl.col("split") == split).head(most)
            for split, most in (("train", examples), ("validation", _JUDGED))
        ]
        pl.concat(kept).write_parquet(data / "examples.parquet")
    changes = {
        "hardware": {"threads": 1, "parallel": 1, "precision": "auto"},
        "data": {"max_validation_examples": _JUDGED},
        "training": {"global_batch": 4, "final_learning_rate": 0.1},
    }
    return make_request(NANO, data / "examples.parquet", home / "work", changes)


def at_rank(request: "TrainingRequest", rank: int, rate: float) -> "TrainingRequest":
    """The same with another rank and learning rate."""
    lora = request.recipe.model.lora.model_copy(update={"rank": rank, "alpha": 2 * rank})
    model = request.recipe.model.model_copy(update={"lora": lora})
    training = request.recipe.training.model_copy(update={"learning_rate": rate})
    recipe = request.recipe.model_copy(update={"model": model, "training": training})
    return request.model_copy(update={"recipe": recipe})


def measured(
    place: Path, epsilons: Sequence[float], draws: int, clip: float, made: Callable[[dict[str, Any] | None], Any]
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """(figures by epsilon, the last manifest, trained numbers); what `place` has already is not measured again.

    Args:
        clip: of all epsilons.
        made: privacy's settings (None for an infinite epsilon) -> manifest of a voter with them.
    """
    points, manifest, numbers = {}, dict[str, Any](), 0
    for epsilon in epsilons:
        losses, document = [], None
        for draw in range(draws if math.isfinite(epsilon) else 1):
            file = place / f"epsilon-{epsilon}-{draw}.json"
            if not file.is_file():
                privacy = {"epsilon": epsilon, "delta": DELTA, "clip": clip, "seed": draw}
                file.write_text(json.dumps(made(privacy if math.isfinite(epsilon) else None)), "utf-8")
            manifest = json.loads(file.read_text("utf-8"))
            losses.append(manifest["validation_loss"])
            document = (manifest["published"] or {}).get("privacy")
        numbers = document["dimensions"] if document else numbers
        points[str(epsilon)] = point_of(losses, document)
    return points, manifest, numbers


def point_of(losses: Sequence[float], document: dict[str, Any] | None) -> dict[str, Any]:
    """The figures of one epsilon; the signal-to-noise ratio over all sums, where there are several."""
    snr = document["predicted_snr"] * math.sqrt(document["steps"]) if document else None
    return {
        "loss": round(statistics.median(losses), 4),
        "losses": [round(loss, 4) for loss in losses],
        "predicted_snr": None if snr is None else round(snr, 4),
        "noise_multiplier": round(document["noise_multiplier"], 4) if document else 0.0,
    }


def with_strategy(request: "TrainingRequest", choice: dict[str, Any]) -> tuple["TrainingRequest", "VoterSpec", Any]:
    """The request of one voter with that strategy, the voter, the strategy."""
    spec = request.recipe.voters[0]
    voter = type(spec).model_validate(spec.model_dump() | {"strategy": choice})
    recipe = request.recipe.model_copy(update={"voters": (voter,)})
    return request.model_copy(update={"recipe": recipe}), voter, voter.strategy


def say(event: dict[str, Any]) -> None:
    """Finished clients, warnings and rounds, on stderr."""
    if event["event"] in ("part_finished", "warning", "round"):
        said = event.get("text") or f"{event.get('part', 'round')}: loss {event['validation_loss']:.4f}"
        click.echo(said, err=True)


def go_on() -> None:
    """Nothing asks a bench to stop."""
