"""The bench `privacy`, the arms without clients: DP-SGD on the same examples, a whole training for each draw.

Unlike the clients' arms nothing is shared between epsilons: noise enters at every step. The weights judged are those
after the last step, so that no epsilon profits from choosing an early one. The clip is the median length of the
examples' gradients at the start, which flatters as the clients' does. Without privacy (infinite epsilon) the same
numbers are trained on the same batches' size, neither clipped nor noised.
"""

import json
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.consensus.privacy.inputs import at_rank, go_on, measured, say, with_strategy

if TYPE_CHECKING:
    from capibara_assets.training.request import TrainingRequest
    from capibara_assets.training.strategy import TrainedNumbers

EXAMPLE_ARMS: "dict[str, tuple[TrainedNumbers, int, float]]" = {  # what is trained, rank, learning rate
    "scales, rank 1, DP-SGD": ("scales", 1, 2e-2),
    "b_only, DP-SGD": ("b_only", 8, 3e-3),
}
EPOCHS, SHARE = 4.0, 4  # a step's expected batch is a quarter of the examples


def measure_example_arm(
    arm: str, request: "TrainingRequest", home: Path, epsilons: Sequence[float], draws: int
) -> dict[str, Any]:
    """All epsilons of one set of trained numbers; what `home` has already is not measured again."""
    trained, rank, rate = EXAMPLE_ARMS[arm]
    request = in_large_batches(at_rank(request, rank, rate))
    place = home / f"private-{trained}-{rank}-{request.dataset_digest[:8]}"
    place.mkdir(parents=True, exist_ok=True)
    lengths = gradient_lengths(request, trained)
    clip = statistics.median(lengths)

    def made(privacy: dict[str, Any] | None) -> dict[str, Any]:
        choice = {"kind": "private", "privacy": privacy} if privacy else {"kind": "client"}
        return trained_voter(request, choice | {"trained": trained}, place / "training")

    points, manifest, numbers = measured(place, epsilons, draws, clip, made)
    return {
        "trained": trained,
        "rank": rank,
        "unit": "example",
        "steps": manifest["steps"],
        "dimensions": numbers,
        "clip": round(clip, 4),
        "lengths": [round(min(lengths), 4), round(max(lengths), 4)],
        "base_loss": round(manifest["base_validation_loss"], 4),
        "points": points,
    }


def in_large_batches(request: "TrainingRequest") -> "TrainingRequest":
    """The same, a quarter of the train examples a step, judged at the end alone."""
    import polars as pl

    train = pl.read_parquet(request.dataset, columns=["split"]).filter(pl.col("split") == "train").height
    changes = {"global_batch": max(1, train // SHARE), "epochs": EPOCHS, "evaluate_every": 100_000}
    training = request.recipe.training.model_copy(update=changes)
    return request.model_copy(update={"recipe": request.recipe.model_copy(update={"training": training})})


def gradient_lengths(request: "TrainingRequest", trained: "TrainedNumbers") -> list[float]:
    """Lengths of the train examples' gradients at the shared start."""
    import polars as pl

    from capibara_assets.training.data.examples import chosen, read_examples, tokens_of
    from capibara_assets.training.environment import compute_settings, pick_device, settings_on
    from capibara_assets.training.step.subject import load_subject
    from capibara_assets.training.strategies.changes import length
    from capibara_assets.training.strategies.private_sgd import GradientSpace

    device = pick_device()
    settings = settings_on(request, device)
    compute_settings(request.recipe.hardware, device)
    subject = load_subject(request, settings, device)
    table = read_examples(request.dataset)
    encoded = tokens_of(request, table, subject.base.tokenizer, settings)
    _, examples = chosen("train", table.filter(pl.col("split") == "train"), encoded, settings)
    gradients = GradientSpace.of(trained, subject)
    return [length(gradients.of_example(example)) for example in examples]


def trained_voter(request: "TrainingRequest", choice: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train the voter of that strategy by the product's own code: its manifest."""
    from capibara_assets.training.data.voter_run import VoterRun
    from capibara_assets.training.supervisor.worker import train_by_strategy

    request, voter, _ = with_strategy(request, choice)
    shutil.rmtree(folder, ignore_errors=True)
    found = train_by_strategy(VoterRun(request, voter, folder, say, go_on))
    manifest: dict[str, Any] = json.loads((found / "manifest.json").read_text("utf-8"))
    shutil.rmtree(folder)
    return manifest
