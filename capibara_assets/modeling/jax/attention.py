"""Attention with grouped queries: written out in plain operations (any device), or by the fused splash kernel (TPU)."""

from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.jax.placement import BATCH, Placement

SCORE_FLOOR = -1e30
LANES = 128  # of a TPU's vector register: the kernel's blocks are multiples
LARGEST_BLOCK = 512


def plain(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float,
    causal: bool,
    bias: Any = None,
    mask: Any = None,
    segments: Any = None,
) -> Any:
    """Softmax attention with the scores written out in float32.

    Args:
        query: (batch, queries, heads, head_dim).
        key: (batch, keys, kv_heads, head_dim), kv_heads dividing heads; `value` alike.
        scale: of the scores.
        causal: mask every later key.
        bias: float32 (heads, queries, keys), added to the scores.
        mask: (batch, keys), 0 where a key is padding.
        segments: int32 (batch, positions); keys of other segments are masked.

    Returns:
        (batch, queries, heads · head_dim).
    """
    import jax
    import jax.numpy as jnp

    batch, queries, heads, width = query.shape
    keys, kv_heads = key.shape[1], key.shape[2]
    grouped = query.reshape(batch, queries, kv_heads, heads // kv_heads, width)
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", grouped, key).astype(jnp.float32) * scale
    if bias is not None:
        scores = scores + bias.reshape(1, kv_heads, heads // kv_heads, queries, keys)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((queries, keys), dtype=bool)), scores, SCORE_FLOOR)
    if mask is not None:
        scores = jnp.where(mask[:, None, None, None, :] > 0, scores, SCORE_FLOOR)
    if segments is not None:
        same = segments[:, :, None] == segments[:, None, :]
        scores = jnp.where(same[:, None, None], scores, SCORE_FLOOR)
    weights = jax.nn.softmax(scores, axis=-1).astype(query.dtype)
    return jnp.einsum("bhgqk,bkhd->bqhgd", weights, value).reshape(batch, queries, heads * width)


def splash(query: Any, key: Any, value: Any, *, scale: float, placement: Placement, segments: Any = None) -> Any:
    """Causal attention by JAX's splash kernel, which never writes scores to memory. Shapes as in `plain`.

    Raises:
        InputError: the sequence length is no multiple of 128.
    """
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
    from jax.sharding import PartitionSpec

    batch, sequence, heads, width = query.shape
    block = splash_block(sequence)
    blocks = kernels.BlockSizes(
        **dict.fromkeys(("block_q", "block_kv", "block_kv_compute"), block),
        **dict.fromkeys(("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"), block),
        **dict.fromkeys(("block_q_dq", "block_kv_dq"), block),
    )

    def local(query: Any, key: Any, value: Any, segments: Any = None) -> Any:
        mask = masks.MultiHeadMask([masks.CausalMask((sequence, sequence))] * query.shape[1])
        kernel = kernels.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)
        if segments is None:
            return jax.vmap(kernel)(query, key, value)
        return jax.vmap(kernel)(query, key, value, kernels.SegmentIds(segments, segments))

    if placement.mesh is not None:
        spec = PartitionSpec(BATCH, "tensor", None, None)
        specs = (spec,) * 3 if segments is None else ((spec,) * 3 + (PartitionSpec(BATCH, None),))
        cut = jax.shard_map(local, mesh=placement.mesh, in_specs=specs, out_specs=spec, check_vma=False)
    else:
        cut = local
    by_head = [jnp.swapaxes(part, 1, 2) for part in (query * scale, key, value)]
    extra = () if segments is None else (segments,)
    return jnp.swapaxes(cut(*by_head, *extra), 1, 2).reshape(batch, sequence, heads * width)


def splash_block(sequence: int) -> int:
    """The kernel's block size: the largest multiple of 128 up to 512 that divides the sequence length."""
    for block in range(LARGEST_BLOCK, 0, -LANES):
        if sequence % block == 0:
            return block
    raise InputError(f"the splash kernel needs a sequence that {LANES} divides; got {sequence}")
