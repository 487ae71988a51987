"""What a run will write, and how large: resume points, results, copies, tokens, checkpoints of the store."""

from collections.abc import Sequence

from capibara_assets.training.plan.schema import PlannedFiles, SavedSizes, VoterPlan
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.strategy import SoupStrategy

_NAME_BYTES = 90  # of a tensor's entry in a safetensors header, besides the module's name
_EVENT_BYTES, _POINT_BYTES = 420, 130  # of a step in the event log and in the curve
_TOKEN_BYTES = 8  # id and label, 32 bits each
_DOCUMENTS = 8192  # adapter_config.json, manifest.json, timings.json


def sizes(recipe: TrainingRecipe, trainable: int, modules: Sequence[str], kept_weights: int = 0) -> SavedSizes:
    """Sizes of what is saved.

    Args:
        trainable: parameters; saved in float32.
        modules: adapted modules by their full name, two tensors each.
        kept_weights: further copies of the weights that a strategy keeps.
    """
    header = 2 * sum(len(module) + _NAME_BYTES for module in modules)
    adapter = 4 * trainable + header
    state = 2 * trainable if recipe.training.optimizer == "adamw_8bit" else 8 * trainable
    optimizer = state + 3 * header
    copies = 2 + kept_weights + (recipe.ema is not None)  # as they are, the best so far, ...
    spike = adapter + optimizer if recipe.guards.spike else 0
    return SavedSizes(adapter, optimizer, copies * adapter + optimizer + spike + _DOCUMENTS)


def kept_weights(recipe: TrainingRecipe) -> int:
    """Copies of the weights that the strategies keep from one validation to the next, at most."""
    return max(
        (voter.strategy.ingredients for voter in recipe.voters if isinstance(voter.strategy, SoupStrategy)), default=0
    )


def planned_files(
    recipe: TrainingRecipe, size: SavedSizes, voters: Sequence[VoterPlan], tokens: int, *, store: bool
) -> tuple[PlannedFiles, ...]:
    """Everything that a run writes.

    Args:
        voters: what each does.
        tokens: of the whole dataset.
        store: whether epoch checkpoints go to a checkpoint store.
    """
    steps = max(voter.steps for voter in voters)
    result = size.adapter + _DOCUMENTS + steps * (_EVENT_BYTES + _POINT_BYTES)
    number, keep = len(voters), recipe.checkpoint.keep
    files = [
        # A new one is whole before the oldest goes.
        PlannedFiles("<voter>/checkpoint-<step>/", number * (keep + 1), size.resume_point),
        PlannedFiles("<voter>/result/", number, result),
        PlannedFiles("<voter>/events.jsonl", number, steps * _EVENT_BYTES),
        PlannedFiles("tokens/<digest>.arrow", 1, tokens * _TOKEN_BYTES),
        PlannedFiles("<output>/voters/<voter>/", number, result),
    ]
    if store:
        epochs = recipe.checkpoint.epochs
        # All of them until training has finished; then keep_last and keep_best stay.
        saved = sum(-(-voter.steps // (recipe.training.evaluate_every * epochs.every)) for voter in voters)
        files.append(PlannedFiles("<store> epoch checkpoints", saved, size.adapter + epochs.optimizer * size.optimizer))
    return tuple(files)
