"""AdamW and Adafactor as pure functions on named float32 arrays; stacked layers are updated as layers of their own."""

from typing import Any

from capibara_assets.modeling.jax.sizes import StepSettings, Table, Weight

Tree = dict[str, Any]
BETAS = (0.9, 0.95)
EPSILON = 1e-8
SMALLEST_FACTORED = 128  # T5X and Shazeer & Stern (2018): a matrix with a side below this keeps its whole second moment
DECAY_EXPONENT = 0.8
SMALLEST_SCALE = 1e-3


def state_table(trained: Table, settings: StepSettings) -> Table:
    """The optimizer's arrays for the trained weights, sharded as they are."""
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
    """Whether Adafactor keeps a row and a column of this array's second moment: matrices, stacked or single.

    A stack of vectors (layers, width) has no `fsdp` or `tensor` axis and is no matrix.
    """
    matrix = len(weight.size) == 3 or (len(weight.size) == 2 and weight.axes[0] is not None)
    return matrix and min(weight.size[-2:]) >= SMALLEST_FACTORED


def update(
    settings: StepSettings, rate: Any, trained: Tree, gradients: Tree, state: Tree, count: Any, table: Table
) -> tuple[Tree, Tree]:
    """New weights and state after step `count` (from 1) at the learning rate `rate`."""
    if settings.clip_norm is not None:
        gradients = clipped(gradients, settings.clip_norm)
    weights: Tree = {}
    kept: Tree = {}
    for name, weight in trained.items():
        if settings.optimizer == "adamw":
            weights[name], moments = _adamw(settings, rate, name, weight, gradients[name], state, count)
        else:
            weights[name], moments = _adafactor(
                settings, rate, name, weight, gradients[name], state, count, table[name]
            )
        kept |= moments
    return weights, kept


def clipped(gradients: Tree, norm: float) -> Tree:
    """The gradients scaled down to a norm over all of them together, as `torch.nn.utils.clip_grad_norm_` does."""
    import jax.numpy as jnp

    whole = jnp.sqrt(sum(jnp.sum(value**2) for value in gradients.values()))
    share = jnp.minimum(1.0, norm / (whole + 1e-6))
    return {name: value * share for name, value in gradients.items()}


def _adamw(
    settings: StepSettings, rate: Any, name: str, weight: Any, gradient: Any, state: Tree, count: Any
) -> tuple[Any, Tree]:
    """Loshchilov and Hutter (2019), with bias correction."""
    import jax.numpy as jnp

    first = BETAS[0] * state[f"first.{name}"] + (1 - BETAS[0]) * gradient
    second = BETAS[1] * state[f"second.{name}"] + (1 - BETAS[1]) * gradient**2
    ahead = first / (1 - BETAS[0] ** count) / (jnp.sqrt(second / (1 - BETAS[1] ** count)) + EPSILON)
    updated = weight - rate * (ahead + settings.weight_decay * weight)
    return updated, {f"first.{name}": first, f"second.{name}": second}


def _adafactor(
    settings: StepSettings, rate: Any, name: str, weight: Any, gradient: Any, state: Tree, count: Any, entry: Weight
) -> tuple[Any, Tree]:
    """Shazeer and Stern (2018): no first moment, updates clipped at 1 and scaled by the weight's own size."""
    import jax.numpy as jnp

    # A stack's first axis counts layers: statistics are of each layer.
    whole = tuple(range(len(entry.size)))[1 if name.split(".")[0] in ("layers", "encoder", "decoder") else 0 :]
    keep = 1.0 - count**-DECAY_EXPONENT
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
    return weight - rate * (size * ahead + settings.weight_decay * weight), kept
