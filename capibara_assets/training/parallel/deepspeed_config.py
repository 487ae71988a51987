"""DeepSpeed's JSON, generated from the recipe; a user's own file may only agree, or say `auto`. Imports no torch."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.settings import Settings

_AUTO = "auto"


def engine_config(recipe: TrainingRecipe) -> dict[str, Any]:
    """The configuration that DeepSpeed's engine is started with; every number in it comes from the recipe.

    Losses are already divided by the step's supervised tokens, and micro-batches are counted by the loop, so DeepSpeed
    neither averages nor accumulates on its own (accumulation 1, boundaries set by hand).
    """
    return _shared(recipe) | {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": False},  # weights stay float32; the loop's autocast computes in bf16
        "fp16": {"enabled": False},
    }


def recipe_config(recipe: TrainingRecipe, settings: Settings, world: int) -> dict[str, Any]:
    """The recipe as a DeepSpeed configuration file as users write it, with batches and precision.

    Args:
        settings: of the run.
        world: processes over all hosts.
    """
    choice, micro = recipe.training, recipe.training.micro_batch
    batches: dict[str, Any] = {"train_batch_size": settings.global_batch}
    if micro:  # else micro-batches differ in size, and there is no such number
        batches["train_micro_batch_size_per_gpu"] = micro
        batches["gradient_accumulation_steps"] = math.ceil(settings.global_batch / (micro * world))
    params = {
        "lr": settings.learning_rate,
        "betas": list(choice.betas),
        "eps": choice.epsilon,
        "weight_decay": choice.weight_decay,
        "torch_adam": True,
    }
    return (
        _shared(recipe)
        | batches
        | {
            "optimizer": {"type": "AdamW", "params": params},
            "bf16": {"enabled": settings.precision == "bf16"},
            "fp16": {"enabled": settings.precision == "fp16"},
        }
    )


def _shared(recipe: TrainingRecipe) -> dict[str, Any]:
    return {
        "gradient_clipping": recipe.training.max_gradient_norm,
        "zero_optimization": {
            "stage": 2,
            "allgather_partitions": True,
            "reduce_scatter": True,
            "overlap_comm": False,
            "contiguous_gradients": True,
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
        "wall_clock_breakdown": False,
    }


def require_same(own: Mapping[str, Any], generated: Mapping[str, Any]) -> None:
    """Check that a user's configuration says `auto` or agrees with the recipe in every key ("8" is 8, 1 is true).

    Args:
        own: the user's configuration.
        generated: by `recipe_config`.

    Raises:
        InputError: names every key that differs, with both values.
    """
    expected = dict(_leaves(generated))
    differ = [
        f"{key} is {json.dumps(value)}, the recipe "
        + (f"says {json.dumps(expected[key])}" if key in expected else "has no such setting")
        for key, value in _leaves(own)
        if value != _AUTO and (key not in expected or not _equal(value, expected[key]))
    ]
    if differ:
        raise InputError(
            f'hardware.deepspeed differs from the recipe: {"; ".join(differ)}: write "auto" there, or change the recipe'
        )


def _leaves(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _equal(one: Any, other: Any) -> bool:
    """Whether two JSON values mean the same, even if one is a string."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return _meaning(one) == _meaning(other)


def _meaning(value: Any) -> float | str:
    """A number or boolean as a number, also from a string; anything else as text."""
    if isinstance(value, bool | int | float):
        return float(value)
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        return float(text)
    except ValueError:
        return text
