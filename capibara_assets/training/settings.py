"""The numbers one voter trains with: the recipe's, else the domain's LoRA plan's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.precision import Precision
from capibara_assets.training.recipe import TrainingRecipe

SHORT = 512  # tokens up to which attention written out is faster in bf16 on a CPU than the fused kernel (measured)


@dataclass(frozen=True)
class Settings:
    """Recipe and plan, resolved."""

    rank: int
    alpha: float
    dropout: float
    modules: tuple[str, ...]
    use_rslora: bool
    global_batch: int
    max_length: int
    learning_rate: float
    epochs: float
    gradient_checkpointing: bool
    precision: Precision
    attention: str


def resolve(recipe: TrainingRecipe, plan: Mapping[str, Any], *, fastest: Precision, cuda: bool = False) -> Settings:
    """Settings of a run.

    Args:
        recipe: wins wherever it gives a value.
        plan: a `LoraPlan` document.
        fastest: what this hardware computes in (`fast_precision`).
        cuda: whether the model lies on a GPU.

    Raises:
        InputError: neither of them gives a value, or the plan wants a quantized base.
    """
    quantization = plan.get("quantization")
    if quantization not in (None, "none"):
        raise InputError(
            f"the LoRA plan wants a base quantized to {quantization}, this trainer loads it as it is: "
            "choose a hardware target with more memory or a smaller base"
        )

    def chosen(name: str, given: Any) -> Any:
        value = plan.get(name) if given is None else given
        if value is None:
            raise InputError(f"neither the training recipe nor the LoRA plan gives {name}: set it in the recipe")
        return value

    max_length = int(chosen("max_length", recipe.max_length))
    precision = fastest if recipe.precision == "auto" else recipe.precision
    eager = precision == "bf16" and not cuda and max_length <= SHORT
    return Settings(
        rank=int(chosen("rank", recipe.lora.rank)),
        alpha=float(chosen("alpha", recipe.lora.alpha)),
        dropout=float(chosen("dropout", recipe.lora.dropout)),
        modules=tuple(sorted(chosen("modules", recipe.lora.modules))),
        use_rslora=bool(chosen("use_rslora", recipe.lora.use_rslora)),
        global_batch=int(chosen("global_batch", recipe.global_batch)),
        max_length=max_length,
        learning_rate=float(chosen("learning_rate", recipe.learning_rate)),
        epochs=float(chosen("epochs", recipe.epochs)),
        gradient_checkpointing=bool(plan.get("gradient_checkpointing", False)),
        precision=precision,
        attention=("eager" if eager else "sdpa") if recipe.attention == "auto" else recipe.attention,
    )


def total_steps(lengths: Sequence[int], settings: Settings, recipe: TrainingRecipe) -> int:
    """Optimizer steps of a run over examples of these lengths in tokens.

    Whole epochs in steps of the global batch, cut at `max_steps` and at the step whose running total of tokens, at
    the examples' mean length, is nearest to `max_tokens`; at least one.
    """
    steps = math.ceil(steps_per_epoch(len(lengths), settings.global_batch) * settings.epochs)
    limits = [steps]
    if recipe.max_steps:
        limits.append(recipe.max_steps)
    if recipe.max_tokens:
        limits.append(round(recipe.max_tokens * len(lengths) / (settings.global_batch * sum(lengths))))
    return max(1, min(limits))


def steps_per_epoch(examples: int, global_batch: int) -> int:
    """Optimizer steps in a pass over the examples; the last may be smaller."""
    return math.ceil(examples / global_batch)


def learning_rate(step: int, total: int, settings: Settings, recipe: TrainingRecipe) -> float:
    """Rate of optimizer step `step` (0-based) of `total`: linear warm-up, then half a cosine; a pure function.

    Step 0 is already above zero, and the last step ends at `final_learning_rate` of the peak.
    """
    warm = max(1, round(recipe.warmup * total))
    if step < warm:
        return settings.learning_rate * (step + 1) / warm
    progress = (step - warm + 1) / max(1, total - warm)
    low = recipe.final_learning_rate
    return settings.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
