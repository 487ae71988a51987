"""Llama-like decoders (Llama, Mistral, Qwen2, Qwen3): rotary positions, grouped queries, gated MLP."""

from typing import Any

from capibara_assets.modeling.jax.attention import plain, splash
from capibara_assets.modeling.jax.layers import Network, Tree, in_compute_precision, linear, norm, recomputed, stack
from capibara_assets.modeling.jax.sizes import Axes, ModelSizes, Table, Weight

COLUMN: Axes = (None, "fsdp", "tensor")
ROW: Axes = (None, "tensor", "fsdp")


def table(sizes: ModelSizes) -> Table:
    """Weights by name, matrices as (layers, in, out); `fsdp` shards the width, `tensor` heads, MLP and vocabulary."""
    layers, hidden, width = sizes.layers, sizes.hidden, sizes.intermediate
    query, key = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    columns = {"q_proj": query, "k_proj": key, "v_proj": key, "gate_proj": width, "up_proj": width}
    weights: Table = {
        "embedding": Weight((sizes.vocabulary, hidden), ("tensor", "fsdp")),
        "norm": Weight((hidden,), (None,)),
        "layers.attention_norm": Weight((layers, hidden), (None, None)),
        "layers.mlp_norm": Weight((layers, hidden), (None, None)),
        **{f"layers.{name}": Weight((layers, hidden, size), COLUMN) for name, size in columns.items()},
        "layers.o_proj": Weight((layers, query, hidden), ROW),
        "layers.down_proj": Weight((layers, width, hidden), ROW),
    }
    if not sizes.tied:
        weights["head"] = Weight((sizes.vocabulary, hidden), ("tensor", "fsdp"))
    if sizes.qk_norm:
        weights |= {f"layers.{name}_norm": Weight((layers, sizes.head_dim), (None, None)) for name in "qk"}
    biased = [
        *(("q_proj", "k_proj", "v_proj") if sizes.qkv_bias else ()),
        *(("gate_proj", "up_proj") if sizes.mlp_bias else ()),
    ]
    weights |= {f"layers.{name}.bias": Weight((layers, columns[name]), (None, "tensor")) for name in biased}
    rows = [*(("o_proj",) if sizes.output_bias else ()), *(("down_proj",) if sizes.mlp_bias else ())]
    return weights | {f"layers.{name}.bias": Weight((layers, hidden), (None, None)) for name in rows}


def hidden_states(network: Network, weights: Tree, table: Table, batch: Tree) -> Any:
    """The last layer's normalised output, (batch, sequence, hidden), for `batch["tokens"]` (batch, sequence).

    Packed rows have `batch["segments"]` of the same size.

    Args:
        weights: arrays of `table`, with any LoRA factors.
    """
    import jax
    import jax.numpy as jnp

    sizes, settings, placement = network.sizes, network.settings, network.placement
    dtype = jnp.dtype(settings.compute)
    tokens, segments = batch["tokens"], batch.get("segments")
    turns = _rotations(sizes, tokens.shape[1])

    def block(hidden: Any, stored: Tree) -> tuple[Any, None]:
        layer = in_compute_precision(network, stored, table, "layers")
        normed = norm(hidden, layer["attention_norm"], sizes.norm_epsilon)
        hidden = hidden + _attention(network, normed, layer, turns, segments)
        normed = norm(hidden, layer["mlp_norm"], sizes.norm_epsilon)
        gate, up = (linear(normed, layer, name, settings.lora_scale) for name in ("gate_proj", "up_proj"))
        hidden = hidden + linear(jax.nn.silu(gate) * up, layer, "down_proj", settings.lora_scale)
        return placement.rows(hidden), None

    hidden = placement.rows(weights["embedding"].astype(dtype)[tokens])
    hidden, _ = jax.lax.scan(recomputed(block, settings), hidden, stack(weights, "layers"))
    return norm(hidden, weights["norm"], sizes.norm_epsilon)


def _attention(network: Network, values: Any, layer: Tree, turns: tuple[Any, Any], segments: Any) -> Any:
    sizes, settings = network.sizes, network.settings
    batch, sequence, _ = values.shape

    def heads(name: str, count: int) -> Any:
        return linear(values, layer, name, settings.lora_scale).reshape(batch, sequence, count, sizes.head_dim)

    query, key = heads("q_proj", sizes.heads), heads("k_proj", sizes.kv_heads)
    value = heads("v_proj", sizes.kv_heads)
    if sizes.qk_norm:
        query = norm(query, layer["q_norm"], sizes.norm_epsilon)
        key = norm(key, layer["k_norm"], sizes.norm_epsilon)
    query, key = _rotate(query, turns), _rotate(key, turns)
    scale = sizes.head_dim**-0.5
    if settings.attention == "splash":
        mixed = splash(query, key, value, scale=scale, placement=network.placement, segments=segments)
    else:
        mixed = plain(query, key, value, scale=scale, causal=True, segments=segments)
    return linear(mixed, layer, "o_proj", settings.lora_scale)


def _rotations(sizes: ModelSizes, sequence: int) -> tuple[Any, Any]:
    """Cosines and sines of the rotary embedding (Su et al. 2021), float32 (1, sequence, 1, head_dim)."""
    import jax.numpy as jnp

    inverse = sizes.rope_theta ** -(jnp.arange(0, sizes.head_dim, 2, dtype=jnp.float32) / sizes.head_dim)
    angles = jnp.arange(sequence, dtype=jnp.float32)[:, None] * inverse[None, :]
    angles = jnp.concatenate([angles, angles], axis=-1)[None, :, None, :]
    return jnp.cos(angles), jnp.sin(angles)


def _rotate(values: Any, turns: tuple[Any, Any]) -> Any:
    import jax.numpy as jnp

    cosine, sine = turns
    first, second = jnp.split(values, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    return (values * cosine + turned * sine).astype(values.dtype)
