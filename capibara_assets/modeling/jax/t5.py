"""T5, mT5 and umT5: encoder and decoder with relative positions, gated (1.1) or plain (1.0) MLP."""

from typing import Any

from capibara_assets.modeling.jax.attention import plain
from capibara_assets.modeling.jax.layers import Network, Tree, in_compute_precision, linear, norm, recomputed, stack
from capibara_assets.modeling.jax.sizes import Axes, ModelSizes, Table, Weight

COLUMN: Axes = (None, "fsdp", "tensor")
ROW: Axes = (None, "tensor", "fsdp")
FARTHEST = 128  # distance from which all positions share a bucket, in every published T5


def table(sizes: ModelSizes) -> Table:
    """Weights by name, matrices as (layers, in, out); cross-attention's are `decoder.cross_*`."""
    hidden = sizes.hidden
    weights: Table = {"embedding": Weight((sizes.vocabulary, hidden), ("tensor", "fsdp"))}
    if not sizes.tied:
        weights["head"] = Weight((sizes.vocabulary, hidden), ("tensor", "fsdp"))
    for side, layers in (("encoder", sizes.encoder_layers), ("decoder", sizes.layers)):
        weights |= {f"{side}.{name}": weight for name, weight in _side(sizes, layers, side == "decoder").items()}
        weights[f"{side}_norm"] = Weight((hidden,), (None,))
        if not sizes.position_bias_in_every_layer:
            weights[f"{side}_positions"] = Weight((sizes.position_buckets, sizes.heads), (None, "tensor"))
    return weights


def _side(sizes: ModelSizes, layers: int, crosses: bool) -> Table:
    hidden, inner, width = sizes.hidden, sizes.heads * sizes.head_dim, sizes.intermediate
    first = ("wi_0", "wi_1") if sizes.gated else ("wi",)
    weights: Table = {}
    for prefix in ("", "cross_") if crosses else ("",):
        weights |= {prefix + name: Weight((layers, hidden, inner), COLUMN) for name in "qkv"}
        weights[f"{prefix}o"] = Weight((layers, inner, hidden), ROW)
        weights[f"{prefix}norm"] = Weight((layers, hidden), (None, None))
    weights |= {name: Weight((layers, hidden, width), COLUMN) for name in first}
    weights |= {"wo": Weight((layers, width, hidden), ROW), "mlp_norm": Weight((layers, hidden), (None, None))}
    if sizes.position_bias_in_every_layer:
        weights["positions"] = Weight((layers, sizes.position_buckets, sizes.heads), (None, None, "tensor"))
    return weights


def hidden_states(network: Network, weights: Tree, table: Table, batch: Tree) -> Any:
    """The decoder's normalised output, (batch, targets, hidden), from which `batch["tokens"]` are predicted.

    Args:
        batch: `inputs` and `inputs_mask` (batch, inputs), `tokens` (batch, targets); the decoder reads the tokens
            shifted by one, starting from 0 (padding).
    """
    import jax.numpy as jnp

    sizes, placement = network.sizes, network.placement
    embedding = weights["embedding"].astype(jnp.dtype(network.settings.compute))
    side = _Side(network, table, weights)
    encoded = side.run("encoder", placement.rows(embedding[batch["inputs"]]), batch["inputs_mask"], None)
    shifted = jnp.roll(batch["tokens"], 1, axis=1).at[:, 0].set(0)
    hidden = side.run("decoder", placement.rows(embedding[shifted]), batch["inputs_mask"], encoded)
    # A shared embedding serves as head at the scale of its input (Raffel et al. 2020; mesh-tensorflow).
    return hidden * sizes.hidden**-0.5 if sizes.tied else hidden


class _Side:
    """Forward passes of encoder and decoder over the same weights."""

    def __init__(self, network: Network, table: Table, weights: Tree) -> None:
        self.network, self.table, self.weights = network, table, weights
        self.sizes, self.settings = network.sizes, network.settings

    def run(self, side: str, hidden: Any, mask: Any, encoded: Any) -> Any:
        """The output of all layers of `side`; `mask` is the inputs', `encoded` the encoder's output for the decoder."""
        import jax

        sizes, epsilon = self.sizes, self.sizes.norm_epsilon
        decodes = side == "decoder"
        length = hidden.shape[1]
        shared = (
            None
            if sizes.position_bias_in_every_layer
            else self._bias(self.weights[f"{side}_positions"], length, decodes)
        )

        def block(hidden: Any, stored: Tree) -> tuple[Any, None]:
            layer = in_compute_precision(self.network, stored, self.table, side)
            bias = self._bias(stored["positions"], length, decodes) if shared is None else shared
            normed = norm(hidden, layer["norm"], epsilon)
            own = None if decodes else mask
            hidden = hidden + self._attention(normed, normed, layer, "", causal=decodes, bias=bias, mask=own)
            if decodes:
                normed = norm(hidden, layer["cross_norm"], epsilon)
                hidden = hidden + self._attention(normed, encoded, layer, "cross_", causal=False, bias=None, mask=mask)
            hidden = hidden + self._mlp(norm(hidden, layer["mlp_norm"], epsilon), layer)
            return self.network.placement.rows(hidden), None

        hidden, _ = jax.lax.scan(recomputed(block, self.settings), hidden, stack(self.weights, side))
        return norm(hidden, self.weights[f"{side}_norm"], epsilon)

    def _attention(self, values: Any, context: Any, layer: Tree, prefix: str, **options: Any) -> Any:
        heads, width, scale = self.sizes.heads, self.sizes.head_dim, self.settings.lora_scale

        def cut(source: Any, name: str) -> Any:
            return linear(source, layer, prefix + name, scale).reshape(*source.shape[:2], heads, width)

        # T5's scores are not scaled: its initialisation accounts for that.
        mixed = plain(cut(values, "q"), cut(context, "k"), cut(context, "v"), scale=1.0, **options)
        return linear(mixed, layer, f"{prefix}o", scale)

    def _mlp(self, values: Any, layer: Tree) -> Any:
        import jax

        scale = self.settings.lora_scale
        if self.sizes.gated:
            inner = jax.nn.gelu(linear(values, layer, "wi_0", scale), approximate=True) * linear(
                values, layer, "wi_1", scale
            )
        else:
            inner = jax.nn.relu(linear(values, layer, "wi", scale))
        return linear(inner, layer, "wo", scale)

    def _bias(self, positions: Any, length: int, causal: bool) -> Any:
        """Relative position bias, float32 (heads, length, length), from a table (buckets, heads)."""
        import jax.numpy as jnp

        return jnp.moveaxis(positions.astype(jnp.float32)[_buckets(length, self.sizes.position_buckets, causal)], 2, 0)


def _buckets(length: int, count: int, causal: bool) -> Any:
    """Bucket of each (query, key) by their distance: exact when near, logarithmic when far (Raffel et al. 2020)."""
    import jax.numpy as jnp

    distance = jnp.arange(length)[None, :] - jnp.arange(length)[:, None]
    if causal:
        first, distance = 0, jnp.maximum(-distance, 0)
    else:
        count //= 2
        first, distance = jnp.where(distance > 0, count, 0), jnp.abs(distance)
    exact = count // 2
    ratio = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / exact) / jnp.log(FARTHEST / exact)
    far = jnp.minimum(exact + (ratio * (count - exact)).astype(jnp.int32), count - 1)
    return first + jnp.where(distance < exact, distance, far)
