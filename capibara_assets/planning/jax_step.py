"""One full fine-tuning step of a Llama-shaped decoder in JAX: layers scanned, everything sharded over a plan's mesh.

jax is imported inside the functions: planning has to be importable without it.
"""

from typing import TYPE_CHECKING, Any

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.models import ModelShape

if TYPE_CHECKING:
    from collections.abc import Callable

    import jax

    Tree = dict[str, Any]

BATCH = ("data", "fsdp")
SCORE_FLOOR = -1e30


def check_supported(shape: ModelShape) -> None:
    """Refuse what this step cannot express.

    Raises:
        InputError: an encoder-decoder, a mixture, or biases and norms that Llama and Mistral do not have.
    """
    odd = shape.experts > 1 or shape.qkv_bias or shape.mlp_bias or shape.qk_norm or not shape.gated
    if shape.family != "decoder" or odd:
        raise InputError(f"{shape.name} ({shape.architecture}): the JAX step covers Llama and Mistral shapes")


def parameter_shapes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Weights by name; those of the layers are stacked along the first axis."""
    layers, hidden, width = shape.layers, shape.hidden, shape.intermediate
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (shape.vocabulary, hidden),
        "norm": (hidden,),
        "layers.attention_norm": (layers, hidden),
        "layers.q": (layers, hidden, query),
        "layers.k": (layers, hidden, key),
        "layers.v": (layers, hidden, key),
        "layers.o": (layers, query, hidden),
        "layers.mlp_norm": (layers, hidden),
        "layers.gate": (layers, hidden, width),
        "layers.up": (layers, hidden, width),
        "layers.down": (layers, width, hidden),
    }
    if not shape.tied:
        shapes["head"] = (shape.vocabulary, hidden)
    return shapes


def partitions(shape: ModelShape) -> dict[str, tuple[str | None, ...]]:
    """Mesh axes of each weight's dimensions: `fsdp` cuts the width, `tensor` the heads, the MLP and the vocabulary."""
    column, row = (None, "fsdp", "tensor"), (None, "tensor", "fsdp")
    axes: dict[str, tuple[str | None, ...]] = {
        "embedding": ("tensor", "fsdp"),
        "norm": (None,),
        "layers.attention_norm": (None, None),
        "layers.mlp_norm": (None, None),
        **{f"layers.{name}": column for name in ("q", "k", "v", "gate", "up")},
        **{f"layers.{name}": row for name in ("o", "down")},
    }
    if not shape.tied:
        axes["head"] = ("tensor", "fsdp")
    return axes


def loss(shape: ModelShape, parameters: "Tree", tokens: "jax.Array", mask: "jax.Array", **options: Any) -> "jax.Array":
    """Mean cross-entropy of the next token over the positions that `mask` marks.

    Args:
        shape: a Llama or Mistral shape.
        parameters: as `parameter_shapes`, float32.
        tokens: int32 (batch, sequence).
        mask: float32 (batch, sequence), 1 where a token is supervised (position 0 never is).
        options: `remat` (Remat), `chunks` (parts of the batch's tokens whose logits exist at once), `dtype`, and
            `constrain`, a function that pins activations (batch, sequence, hidden) to the mesh.
    """
    import jax
    import jax.numpy as jnp

    dtype = options.get("dtype", jnp.float32)
    constrain: Callable[[Any], Any] = options.get("constrain", lambda value: value)
    sequence = tokens.shape[1]
    cosine, sine = _rotations(shape, sequence)
    stacked = {
        name.removeprefix("layers."): value.astype(dtype)
        for name, value in parameters.items()
        if name.startswith("layers.")
    }

    def block(hidden: Any, layer: Any) -> tuple[Any, None]:
        normed = _norm(hidden, layer["attention_norm"], shape.norm_epsilon)
        hidden = hidden + _attention(shape, normed, layer, cosine, sine)
        normed = _norm(hidden, layer["mlp_norm"], shape.norm_epsilon)
        hidden = hidden + (jax.nn.silu(normed @ layer["gate"]) * (normed @ layer["up"])) @ layer["down"]
        return constrain(hidden), None

    hidden = constrain(parameters["embedding"].astype(dtype)[tokens])
    hidden, _ = jax.lax.scan(_remat(block, options.get("remat", Remat.NONE)), hidden, stacked)
    hidden = _norm(hidden, parameters["norm"].astype(dtype), shape.norm_epsilon)
    head = parameters["embedding" if shape.tied else "head"].astype(dtype)
    # Position t predicts token t + 1; the last position predicts nothing.
    targets = jnp.roll(tokens, -1, axis=1)
    weights = jnp.roll(mask, -1, axis=1).at[:, -1].set(0.0)
    return _cross_entropy(hidden, head, targets, weights, options.get("chunks", 1))


def _remat(block: Any, remat: Remat) -> Any:
    import jax

    if remat is Remat.NONE:
        return block
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if remat is Remat.MINIMAL else None
    return jax.checkpoint(block, policy=policy, prevent_cse=False)


def _norm(values: Any, weight: Any, epsilon: float) -> Any:
    import jax
    import jax.numpy as jnp

    wide = values.astype(jnp.float32)
    scaled = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + epsilon)
    return scaled.astype(values.dtype) * weight


def _rotations(shape: ModelShape, sequence: int) -> tuple[Any, Any]:
    import jax.numpy as jnp

    inverse = shape.rope_theta ** -(jnp.arange(0, shape.head_dim, 2, dtype=jnp.float32) / shape.head_dim)
    angles = jnp.arange(sequence, dtype=jnp.float32)[:, None] * inverse[None, :]
    angles = jnp.concatenate([angles, angles], axis=-1)[None, :, None, :]
    return jnp.cos(angles), jnp.sin(angles)


def _rotate(values: Any, cosine: Any, sine: Any) -> Any:
    import jax.numpy as jnp

    first, second = jnp.split(values, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    return (values * cosine + turned * sine).astype(values.dtype)


def _attention(shape: ModelShape, values: Any, layer: Any, cosine: Any, sine: Any) -> Any:
    import jax
    import jax.numpy as jnp

    batch, sequence, _ = values.shape
    groups = shape.heads // shape.kv_heads
    query = (values @ layer["q"]).reshape(batch, sequence, shape.heads, shape.head_dim)
    key = (values @ layer["k"]).reshape(batch, sequence, shape.kv_heads, shape.head_dim)
    value = (values @ layer["v"]).reshape(batch, sequence, shape.kv_heads, shape.head_dim)
    query = _rotate(query, cosine, sine).reshape(batch, sequence, shape.kv_heads, groups, shape.head_dim)
    key = _rotate(key, cosine, sine)
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", query, key).astype(jnp.float32) * shape.head_dim**-0.5
    causal = jnp.tril(jnp.ones((sequence, sequence), dtype=bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, SCORE_FLOOR), axis=-1).astype(values.dtype)
    mixed = jnp.einsum("bhgqk,bkhd->bqhgd", weights, value).reshape(batch, sequence, shape.heads * shape.head_dim)
    return mixed @ layer["o"]


def _cross_entropy(hidden: Any, head: Any, targets: Any, weights: Any, chunks: int) -> Any:
    """Sum over chunks of the sequence, so that only one chunk's logits exist at a time."""
    import jax
    import jax.numpy as jnp

    def chunk(total: Any, part: Any) -> tuple[Any, None]:
        states, wanted, counted = part
        logits = (states @ head.T).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, wanted[..., None], axis=-1)[..., 0]
        return total + jnp.sum((jax.nn.logsumexp(logits, axis=-1) - chosen) * counted), None

    batch, sequence = targets.shape
    # Cutting the sequence, not the batch, keeps each part spread over all batch shards.
    parts = chunks if sequence % chunks == 0 else 1
    cut = [
        jnp.moveaxis(value.reshape(batch, parts, sequence // parts, *value.shape[2:]), 1, 0)
        for value in (hidden, targets, weights)
    ]
    total, _ = jax.lax.scan(jax.checkpoint(chunk), jnp.zeros((), jnp.float32), tuple(cut))
    return total / jnp.maximum(jnp.sum(weights), 1.0)


def train_step(
    shape: ModelShape,
    parameters: "Tree",
    moments: "Tree",
    count: "jax.Array",
    tokens: "jax.Array",
    mask: "jax.Array",
    **options: Any,
) -> tuple["Tree", "Tree", "jax.Array", "jax.Array"]:
    """Loss, gradients and AdamW (β 0.9, 0.95; ε 1e-8) in one program.

    `moments` holds `first.<name>` and `second.<name>` of each weight; `options` are those of `loss`, learning_rate and
    weight_decay. Returns weights, moments, count and loss.
    """
    import jax
    import jax.numpy as jnp

    rate, decay = options.pop("learning_rate", 1e-5), options.pop("weight_decay", 0.0)
    value, gradients = jax.value_and_grad(lambda weights: loss(shape, weights, tokens, mask, **options))(parameters)
    count = count + 1
    updated: Tree = {}
    kept: Tree = {}
    for name, weight in parameters.items():
        first = 0.9 * moments[f"first.{name}"] + 0.1 * gradients[name]
        second = 0.95 * moments[f"second.{name}"] + 0.05 * gradients[name] ** 2
        ahead = first / (1 - 0.9**count) / (jnp.sqrt(second / (1 - 0.95**count)) + 1e-8)
        updated[name] = weight - rate * (ahead + decay * weight)
        kept[f"first.{name}"], kept[f"second.{name}"] = first, second
    return updated, kept, count, value
