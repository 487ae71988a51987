"""The files a training will write, and their sizes: resume points, results, tokens, epoch checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass

from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.strategy import SoupStrategy

_NAME_BYTES = 90  # of a tensor's entry in a safetensors header, besides the module's name
_EVENT_BYTES, _POINT_BYTES = 420, 130  # of a step in the event log and in the curve
_TOKEN_BYTES = 8  # id and label, 32 bits each
_DOCUMENTS = 8192  # adapter_config.json, manifest.json, timings.json


@dataclass(frozen=True)
class SavedSizes:
    """Bytes of a voter's saved state.

    Attributes:
        adapter: adapter_model.safetensors.
        optimizer: AdamW's state of the trainable weights.
        resume_point: one `checkpoint-<step>/`, with the best weights so far and what the recipe adds.
    """

    adapter: int
    optimizer: int
    resume_point: int


@dataclass(frozen=True)
class PlannedFiles:
    """Files of one kind that a training writes.

    Attributes:
        where: name, relative to the run's folder of work, or below `<output>` or `<store>`.
        count: the most at one time.
        bytes_each: approximate size of one.
    """

    where: str
    count: int
    bytes_each: int

    @property
    def bytes(self) -> int:
        return self.count * self.bytes_each


def sizes(recipe: TrainingRecipe, trainable: int, modules: Sequence[str], kept_weights: int = 0) -> SavedSizes:
    """Sizes of a voter's adapter, optimizer state and resume point.

    Args:
        trainable: number of trained parameters; saved in float32.
        modules: full names of the adapted modules, two tensors each.
        kept_weights: further copies of the weights that a tactic keeps.
    """
    header = 2 * sum(len(module) + _NAME_BYTES for module in modules)
    adapter = 4 * trainable + header
    state = 2 * trainable if recipe.training.optimizer == "adamw_8bit" else 8 * trainable
    optimizer = state + 3 * header
    copies = 2 + kept_weights + (recipe.ema is not None)  # the current and the best weights, and further ones
    spike = adapter + optimizer if recipe.guards.spike else 0
    return SavedSizes(adapter, optimizer, copies * adapter + optimizer + spike + _DOCUMENTS)


def kept_weights(recipe: TrainingRecipe) -> int:
    """The largest number of copies of the weights that a tactic keeps between validations."""
    return max(
        (voter.strategy.ingredients for voter in recipe.voters if isinstance(voter.strategy, SoupStrategy)), default=0
    )


def planned_files(
    recipe: TrainingRecipe, size: SavedSizes, steps_of_voters: Sequence[int], tokens: int, *, store: bool
) -> tuple[PlannedFiles, ...]:
    """The files that a run writes, by kind.

    Args:
        size: of what one voter saves.
        steps_of_voters: optimizer steps of each voter.
        tokens: of the whole dataset.
        store: whether epoch checkpoints go to a checkpoint store.
    """
    steps = max(steps_of_voters)
    result = size.adapter + _DOCUMENTS + steps * (_EVENT_BYTES + _POINT_BYTES)
    number, keep = len(steps_of_voters), recipe.checkpoint.keep
    files = [
        # A new one is complete before the oldest is removed.
        PlannedFiles("<voter>/checkpoint-<step>/", number * (keep + 1), size.resume_point),
        PlannedFiles("<voter>/result/", number, result),
        PlannedFiles("<voter>/events.jsonl", number, steps * _EVENT_BYTES),
        PlannedFiles("tokens/<digest>.arrow", 1, tokens * _TOKEN_BYTES),
        PlannedFiles("<output>/voters/<voter>/", number, result),
    ]
    if store:
        epochs = recipe.checkpoint.epochs
        # All of them are kept until training has finished; then keep_last and keep_best of them.
        saved = sum(-(-each // (recipe.training.evaluate_every * epochs.every)) for each in steps_of_voters)
        files.append(PlannedFiles("<store> epoch checkpoints", saved, size.adapter + epochs.optimizer * size.optimizer))
    return tuple(files)
