"""Activation memory: elements per token that a layer keeps for the backward pass, and that the backward pass adds.

Counted after PyTorch's autograd on the Transformers implementation (a test compares it with torch's allocator); XLA
fuses operations and keeps less.
"""

from capibara_assets.planning.conventions import Method, Remat
from capibara_assets.planning.models import ModelShape


def attention_blocks(shape: ModelShape, *, most: bool = False) -> float:
    """Attention blocks per layer, on average or (`most`) at the maximum: a T5 decoder layer has two."""
    if shape.family != "t5":
        return 1.0
    return 2.0 if most else (shape.encoder_layers + 2 * shape.layers) / (shape.layers + shape.encoder_layers)


def saved_per_token(
    shape: ModelShape,
    *,
    remat: Remat,
    method: Method = Method.FULL,
    rank: int = 0,
    dropout: bool = False,
    modules: tuple[str, ...] = (),
    largest: bool = False,
) -> float:
    """Elements that one layer keeps for the backward pass, per token, attention's scores not counted.

    `none`: norms keep their input, the normalised value (only if their weights are trained) and the output; fused
    (SDPA/flash) attention keeps q, k, v, its output and the log-sum of each head; a gated MLP keeps four tensors of its
    width. Under LoRA an input is kept where an adapter reads it; dropout before an adapter replaces the kept input by
    the dropped input and its mask, one pair per adapter.

    Args:
        shape: the model (of a T5 the mean of encoder and decoder layers).
        remat: recomputation policy.
        method: full fine-tuning, or LoRA with everything else frozen.
        rank: rank of the adapters.
        dropout: whether the adapters have dropout.
        modules: linear layers with an adapter; empty: all of them.
        largest: count the largest layer (a T5's decoder layer) instead of the mean.
    """
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    hidden, width = shape.hidden, shape.mlp_width
    attentions = attention_blocks(shape, most=largest)
    first = 2 if shape.gated else 1
    if remat is Remat.FULL:
        return float(hidden)
    if remat is Remat.MINIMAL:
        return 2 * hidden + attentions * (2 * query + 2 * key + hidden) + first * width
    lora = method is Method.LORA
    norm = (1 if lora and dropout else 2) if lora else 3
    norms_per_layer = attentions + 1 if shape.family == "t5" else shape.norms_per_layer
    kept_by_mlp = 2 * first
    if shape.family == "t5":  # dropout masks after each block, and a GELU written out in elementary operations
        norm, kept_by_mlp = norm + 1, 8 if shape.gated else 3
    norms = norms_per_layer * (norm * hidden + 1)
    attention = attentions * (2 * query + 2 * key + shape.heads)
    mlp = (kept_by_mlp - 1 if lora and dropout else kept_by_mlp) * width
    if not lora:
        return norms + attention + mlp
    layers = shape.layers + shape.encoder_layers
    adapted = [one for one in shape.linear_modules if not modules or one.name in modules]
    adapters = sum(rank * one.copies for one in adapted) / layers
    if dropout:
        return norms + attention + mlp + adapters + sum(2 * one.inputs * one.copies for one in adapted) / layers
    # Without dropout an adapter keeps its input itself; inputs that no adapter reads are not kept.
    read = {one.inputs for one in adapted if one.outputs == hidden and one.inputs == shape.intermediate}
    unread_product = 0 if read else width
    from_norm = [one for one in adapted if one.inputs == hidden]
    into_mlp = any(one.outputs in (shape.intermediate, 2 * shape.intermediate) for one in from_norm)
    into_attention = any(one.outputs in (query, key, query + 2 * key) for one in from_norm)
    unread_norms = hidden * ((not into_mlp) + (not into_attention))
    return norms + attention + mlp - unread_product - unread_norms + adapters


def scores_per_token(
    shape: ModelShape, sequence: int, *, compute_bytes: int = 2, eager: bool = False, largest: bool = False
) -> float:
    """Elements of attention scores kept per layer and token where attention is not fused.

    Written out (`eager`), attention keeps the probabilities as the softmax gave them in float32 and, where the rest
    computes in 16 bits, a copy in that precision; keys and values are repeated for all query heads. T5 adds a learnt
    bias to its scores; Transformers computes its attention unfused and keeps three matrices of h·S a token for each
    attention: the probabilities, the dropout's mask and the dropped probabilities.
    """
    if shape.family == "t5":
        return 3 * attention_blocks(shape, most=largest) * shape.heads * sequence
    if not eager:
        return 0.0
    copies = 1 if compute_bytes == 4 else 3
    return float(copies * shape.heads * sequence + 2 * (shape.heads - shape.kv_heads) * shape.head_dim)


def backward_per_token(shape: ModelShape, sequence: int, *, eager: bool = False, remat: Remat = Remat.NONE) -> float:
    """Peak of the elements per token that the backward pass of one layer holds, kept activations not counted.

    In the MLP: the gradient of the residual stream and those of the gated product and of its two factors, where the
    product itself is already free. In unfused attention: the gradients of probabilities and scores and a quarter more
    (measured), where the MLP's and its norm's values are free already. Recomputed layers keep the mask for all of them,
    those of a T5 its three learnt biases.
    """
    hidden, width = shape.hidden, shape.mlp_width
    mlp = hidden + (2 if shape.gated else 1) * width
    if not eager and shape.family != "t5":
        return float(mlp)
    free = (4 if shape.gated else 2) * width + 2 * hidden
    mask = 0 if remat is Remat.NONE else sequence * (3 * shape.heads if shape.family == "t5" else 1)
    return mask + max(mlp, 2 * hidden + 2.25 * shape.heads * sequence - free)


def ends_per_token(shape: ModelShape, remat: Remat, method: Method) -> float:
    """Elements kept outside the layers, per token: by the last norm (of a T5 the encoder's too).

    Under LoRA the last norm and the frozen head keep nothing but the norm's input, and without recomputation the first
    layer's input needs no gradient, so that its norm keeps none.
    """
    if shape.family == "t5":
        return float((2 if method is Method.LORA else 3) * 2 * shape.hidden)
    if method is Method.FULL:
        return 3.0 * shape.hidden
    return 0.0 if remat is Remat.NONE else float(shape.hidden)
