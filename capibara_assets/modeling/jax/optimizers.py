"""AdamW and Adafactor as pure functions on named float32 arrays; each layer of a stack is updated by itself."""

from dataclasses import dataclass
from typing import Any

from capibara_assets.modeling.jax.sizes import StepSettings, Table, Weight

Tree = dict[str, Any]
BETAS = (0.9, 0.95)
EPSILON = 1e-8
SMALLEST_FACTORED = 128  # T5X and Shazeer & Stern (2018): a matrix with a side below this keeps its whole second moment
DECAY_EXPONENT = 0.8
SMALLEST_SCALE = 1e-3


@dataclass(frozen=True)
class Update:
    """One optimizer update: its settings, its learning rate, and its number from 1 (scalars, or traced by JAX)."""

    settings: StepSettings
    rate: Any
    count: Any


def state_table(trained: Table, settings: StepSettings) -> Table:
    """The table of the optimizer's state for the trained weights, sharded as they are."""
    if settings.optimizer == "adamw":
        return {f"{moment}.{name}": weight for name, weight in trained.items() for moment in ("first", "second")}
    state: Table = {}
    for name, weight in trained.items():
        if factored(weight):
            state[f"row.{name}"] = Weight(weight.size[:-1], weight.axes[:-1])
            state[f"column.{name}"] = Weight((*weight.size[:-2], weight.size[-1]), (*weight.axes[:-2], weight.axes[-1]))
        else:
            state[f"second.{name}"] = weight
    return state


def factored(weight: Weight) -> bool:
    """Whether Adafactor factors this array's second moment into a row and a column: matrices, stacked or single.

    A stack of vectors (layers, width) has no `fsdp` or `tensor` axis and is no matrix.
    """
    matrix = len(weight.size) == 3 or (len(weight.size) == 2 and weight.axes[0] is not None)
    return matrix and min(weight.size[-2:]) >= SMALLEST_FACTORED


def updated(now: Update, trained: Tree, gradients: Tree, state: Tree, table: Table) -> tuple[Tree, Tree]:
    """Weights and optimizer state after one update."""
    settings = now.settings
    if settings.clip_norm is not None:
        gradients = clipped(gradients, settings.clip_norm)
    weights: Tree = {}
    kept: Tree = {}
    for name, weight in trained.items():
        if settings.optimizer == "adamw":
            weights[name], moments = _adamw(now, name, weight, gradients[name], state)
        else:
            weights[name], moments = _adafactor(now, name, weight, gradients[name], state, table[name])
        kept |= moments
    return weights, kept


def clipped(gradients: Tree, norm: float) -> Tree:
    """The gradients scaled down to a global norm, as `torch.nn.utils.clip_grad_norm_` does."""
    import jax.numpy as jnp

    whole = jnp.sqrt(sum(jnp.sum(value**2) for value in gradients.values()))
    share = jnp.minimum(1.0, norm / (whole + 1e-6))
    return {name: value * share for name, value in gradients.items()}


def _adamw(now: Update, name: str, weight: Any, gradient: Any, state: Tree) -> tuple[Any, Tree]:
    """AdamW (Loshchilov and Hutter 2019), with bias correction."""
    import jax.numpy as jnp

    first = BETAS[0] * state[f"first.{name}"] + (1 - BETAS[0]) * gradient
    second = BETAS[1] * state[f"second.{name}"] + (1 - BETAS[1]) * gradient**2
    ahead = first / (1 - BETAS[0] ** now.count) / (jnp.sqrt(second / (1 - BETAS[1] ** now.count)) + EPSILON)
    weight = weight - now.rate * (ahead + now.settings.weight_decay * weight)
    return weight, {f"first.{name}": first, f"second.{name}": second}


def _adafactor(now: Update, name: str, weight: Any, gradient: Any, state: Tree, entry: Weight) -> tuple[Any, Tree]:
    """Adafactor (Shazeer and Stern 2018): no first moment, updates clipped at 1 and scaled by the weight's own size."""
    import jax.numpy as jnp

    # A stack's first axis counts layers: statistics are of each layer.
    whole = tuple(range(len(entry.size)))[1 if name.split(".")[0] in ("layers", "encoder", "decoder") else 0 :]
    keep = 1.0 - now.count**-DECAY_EXPONENT
    squared = gradient**2 + 1e-30
    if factored(entry):
        row = keep * state[f"row.{name}"] + (1 - keep) * jnp.mean(squared, axis=-1)
        column = keep * state[f"column.{name}"] + (1 - keep) * jnp.mean(squared, axis=-2)
        share = row / jnp.mean(row, axis=-1, keepdims=True)
        ahead = gradient / jnp.sqrt(share[..., None] * column[..., None, :])
        kept = {f"row.{name}": row, f"column.{name}": column}
    else:
        second = keep * state[f"second.{name}"] + (1 - keep) * squared
        ahead, kept = gradient / jnp.sqrt(second), {f"second.{name}": second}
    ahead = ahead / jnp.maximum(1.0, jnp.sqrt(jnp.mean(ahead**2, axis=whole, keepdims=True)))
    size = jnp.maximum(SMALLEST_SCALE, jnp.sqrt(jnp.mean(weight**2, axis=whole, keepdims=True)))
    return weight - now.rate * (size * ahead + now.settings.weight_decay * weight), kept
