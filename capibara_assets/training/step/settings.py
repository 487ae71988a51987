"""The settings of a voter's training, from the recipe or else the LoRA plan; and its schedule, as pure functions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from capibara_assets.errors import InputError
from capibara_assets.modeling.attention import AttentionPlace, chosen_attention
from capibara_assets.modeling.heads import Head
from capibara_assets.modeling.precision import Precision, Quantization
from capibara_assets.training.recipe import TrainingRecipe

# Epochs where the recipe says `auto`: below so many examples, so many passes; one pass from the last bound on.
AUTO_EPOCHS = ((1_000, 5), (10_000, 4), (50_000, 3), (100_000, 2))


@dataclass(frozen=True)
class Settings:
    """Recipe and LoRA plan, resolved for one machine."""

    rank: int
    alpha: float
    dropout: float
    modules: tuple[str, ...]
    use_rslora: bool
    use_dora: bool
    quantization: Quantization
    global_batch: int
    max_length: int
    learning_rate: float
    epochs: float | Literal["auto"]
    gradient_checkpointing: int
    precision: Precision
    attention: str
    head: Head = "causal"
    attention_reason: str = ""

    @property
    def quantised(self) -> bool:
        """Whether bitsandbytes holds the base's matrices in 8 or 4 bits."""
        return self.quantization in ("int8", "nf4")


def resolve(
    recipe: TrainingRecipe,
    plan: Mapping[str, Any],
    *,
    fastest: Precision,
    cuda: bool = False,
    here: bool = True,
    head: Head = "causal",
    config: Mapping[str, Any] | None = None,
) -> Settings:
    """Resolve the settings of a run.

    Args:
        recipe: wins wherever it gives a value.
        plan: a `LoraPlan` document.
        fastest: what this hardware computes in (`fast_precision`).
        cuda: whether the model lies on a GPU.
        here: whether on this machine, whose packages are known.
        head: of the base (`chosen_head`).
        config: of the base; None: no other attention than PyTorch's own is chosen for it.

    Raises:
        InputError: neither recipe nor plan gives a value.
    """
    model, data, training, hardware = recipe.model, recipe.data, recipe.training, recipe.hardware

    def chosen(name: str, given: Any) -> Any:
        value = plan.get(name) if given is None else given
        if value is None:
            raise InputError(f"neither the training recipe nor the LoRA plan gives {name}: set it in the recipe")
        return value

    max_length = int(chosen("max_length", data.max_length))
    precision = fastest if hardware.precision == "auto" else hardware.precision
    place = AttentionPlace(cuda, precision, here)
    attention = chosen_attention(model.attention, config or {}, place, max_length)
    every = hardware.gradient_checkpointing
    epochs = chosen("epochs", training.epochs)
    return Settings(
        rank=int(chosen("rank", model.lora.rank)),
        alpha=float(chosen("alpha", model.lora.alpha)),
        dropout=float(chosen("dropout", model.lora.dropout)),
        modules=tuple(sorted(chosen("modules", model.lora.modules))),
        use_rslora=bool(chosen("use_rslora", model.lora.use_rslora)),
        use_dora=model.lora.use_dora,
        quantization=model.quantization or plan.get("quantization") or "none",
        global_batch=int(chosen("global_batch", training.global_batch)),
        max_length=max_length,
        learning_rate=float(chosen("learning_rate", training.learning_rate)),
        epochs="auto" if epochs == "auto" else float(epochs),
        gradient_checkpointing=int(bool(plan.get("gradient_checkpointing", False))) if every is None else every,
        precision=precision,
        attention=attention.name,
        head=head,
        attention_reason=attention.reason,
    )


def auto_epochs(examples: int) -> int:
    """Epochs for `epochs: auto`, by the number of examples: fewer examples are repeated more often."""
    return next((epochs for below, epochs in AUTO_EPOCHS if examples < below), 1)


def total_steps(
    lengths: Sequence[int], settings: Settings, recipe: TrainingRecipe, *, epochs: float | None = None
) -> int:
    """Optimizer steps of a run over examples of these lengths in tokens.

    Whole epochs in steps of the global batch, cut at `max_steps` and at the step whose running total of tokens, at
    the examples' mean length, is nearest to `max_tokens`; at least one.

    Args:
        epochs: in place of the settings'.
    """
    passes = settings.epochs if epochs is None else epochs
    passes = auto_epochs(len(lengths)) if passes == "auto" else passes
    steps = math.ceil(steps_per_epoch(len(lengths), settings.global_batch) * passes)
    limits = [steps]
    if recipe.training.max_steps:
        limits.append(recipe.training.max_steps)
    if recipe.training.max_tokens:
        limits.append(round(recipe.training.max_tokens * len(lengths) / (settings.global_batch * sum(lengths))))
    return max(1, min(limits))


def shared_steps(planned: Sequence[int], tokens: Sequence[float], recipe: TrainingRecipe) -> list[int]:
    """Optimizer steps of each of several levels, whose sum `max_steps` and `max_tokens` bound.

    All levels are shortened in the same proportion (largest remainders, at least one step each).

    Args:
        planned: steps of each without bounds.
        tokens: of one step of each, on average.

    Raises:
        InputError: fewer steps than levels.
    """
    most, whole = recipe.training.max_steps, sum(planned)
    if most is not None and most < len(planned):
        raise InputError(f"max_steps {most} is less than one step for each of {len(planned)} levels: raise it")
    share = min(1.0, (most or whole) / whole)
    if recipe.training.max_tokens:
        spent = sum(steps * each for steps, each in zip(planned, tokens, strict=True))
        share = min(share, recipe.training.max_tokens / spent)
    total = max(len(planned), round(share * whole))
    exact = [steps * share for steps in planned]
    steps = [max(1, math.floor(each)) for each in exact]
    while sum(steps) > total:
        steps[max(range(len(steps)), key=lambda at: (steps[at] > 1, steps[at] - exact[at]))] -= 1
    while sum(steps) < total:
        steps[max(range(len(steps)), key=lambda at: exact[at] - steps[at])] += 1
    return steps


def steps_per_epoch(examples: int, global_batch: int) -> int:
    """Optimizer steps of one pass over the examples; the last one may have fewer examples."""
    return math.ceil(examples / global_batch)


def learning_rate(step: int, total: int, peak: float, recipe: TrainingRecipe) -> float:
    """Rate of optimizer step `step` (0-based) of `total`: linear warm-up, then half a cosine; a pure function.

    Step 0 is already above zero, and the last step ends at `final_learning_rate` of the peak. A training that is made
    longer takes the new total from its next step on: the rate rises from where the shorter schedule had come to, to
    where the longer one is at this step.
    """
    return scheduled(step, total, warm_up_steps(total, recipe), peak, recipe.training.final_learning_rate)


def warm_up_steps(total: int, recipe: TrainingRecipe) -> int:
    """Steps of the linear warm-up, at least one."""
    return max(1, round(recipe.training.warmup * total))


def scheduled(step: int, total: int, warm: int, peak: float, low: float) -> float:
    """`learning_rate` by its numbers: `warm` steps up to `peak`, then half a cosine down to its share `low`."""
    if step < warm:
        return peak * (step + 1) / warm
    progress = (step - warm + 1) / max(1, total - warm)
    return peak * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
