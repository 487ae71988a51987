"""The `huggingface` strategy: k trainings that differ by their seed alone, and the average of their changes."""

import time
from pathlib import Path

from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.loop.products import shares_of
from capibara_assets.training.strategies.judging import evaluate_average
from capibara_assets.training.strategies.parts import (
    CombinedVoter,
    TrainingPart,
    part_adapter,
    part_seed,
    train_part,
    write_combined,
)
from capibara_assets.training.strategy import PlainStrategy, SeedsStrategy


def train_seeds(run: VoterRun, strategy: SeedsStrategy) -> Path:
    """Train `seed-0` ... `seed-<k-1>` one after the other, and publish the average, cut to the recipe's rank.

    All start from the same LoRA weights; order of examples and dropout are drawn anew. The weights of the average are
    equal or in proportion to 1 / perplexity. None of them keeps epoch checkpoints.

    Raises:
        As `train_voter`: one seed that fails fails the voter.
    """
    began = time.monotonic()
    request, voter, folder = run.request, run.voter, run.folder
    training = request.recipe.training.model_copy(update={"epochs": strategy.epochs})
    recipe = request.recipe.model_copy(update={"training": training})
    each = request.model_copy(update={"recipe": recipe, "checkpoints": None})
    log, parts = run.log(), {}
    for number in range(strategy.k):
        seed = part_seed(voter, number)
        one = voter.model_copy(update={"seed": seed, "strategy": PlainStrategy()})
        parts[f"seed-{number}"] = train_part(run, TrainingPart(f"seed-{number}", each, one), log)
    losses = {name: manifest["validation_loss"] for name, manifest in parts.items()}
    shares = shares_of(list(losses.values()), weighted=strategy.average == "weighted")
    judged = evaluate_average(run, [part_adapter(folder, name) for name in parts], shares)
    if not run.ranks.main:
        return folder
    curve, steps = [], 0
    for manifest in parts.values():
        steps += manifest["steps"]
        curve.append({"step": steps, "validation_loss": manifest["validation_loss"]})
    rows = {
        name: {"seed": manifest["voter_seed"], "share": share, "validation_loss": manifest["validation_loss"]}
        for (name, manifest), share in zip(parts.items(), shares, strict=True)
    }
    figures = {
        "k": strategy.k,
        "average": strategy.average,
        "seeds": rows,
        "validation_loss": judged.loss,
        "relative_error": judged.relative_error,
    }
    curve.append({"step": steps, "validation_loss": judged.loss})
    return write_combined(run, CombinedVoter(judged.adapter, parts, curve, steps, figures, began), log)
