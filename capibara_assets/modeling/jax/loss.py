"""Cross-entropy with the vocabulary tiled: logits of one part of the sequence at a time, computed again backwards."""

from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.jax.placement import Placement
from capibara_assets.modeling.jax.sizes import StepSettings


def cross_entropy(
    hidden: Any, head: Any, targets: Any, weights: Any, settings: StepSettings, placement: Placement
) -> Any:
    """Sum of the negative log-likelihoods, in nats, of the positions with weight 1.

    Args:
        hidden: (batch, sequence, width).
        head: (vocabulary, width), in its stored precision and sharding.
        targets: int32 (batch, sequence).
        weights: float32 (batch, sequence), 0 or 1.

    Raises:
        InputError: `settings.chunks` does not divide the sequence.
    """
    import jax
    import jax.numpy as jnp

    batch, sequence = targets.shape
    parts = settings.chunks
    if sequence % parts:
        raise InputError(f"{parts} chunks of the loss do not divide {sequence} positions")

    def chunk(total: Any, part: Any) -> tuple[Any, None]:
        states, wanted, counted = part
        narrow = placement.weight(head.astype(hidden.dtype), ("tensor", "fsdp"))
        logits = (states @ narrow.T).astype(jnp.float32)
        logits = placement.weight(logits, (("data", "fsdp"), None, "tensor"))
        # A sum over a comparison, not a gather: each shard of the vocabulary finds its own.
        hit = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2) == wanted[..., None]
        chosen = jnp.sum(jnp.where(hit, logits, 0.0), axis=-1)
        return total + jnp.sum((jax.nn.logsumexp(logits, axis=-1) - chosen) * counted), None

    # Cutting the sequence, not the batch, keeps each part spread over all batch shards.
    cut = tuple(
        jnp.moveaxis(value.reshape(batch, parts, sequence // parts, *value.shape[2:]), 1, 0)
        for value in (hidden, targets, weights)
    )
    total, _ = jax.lax.scan(jax.checkpoint(chunk, prevent_cse=False), jnp.zeros((), jnp.float32), cut)
    return total
