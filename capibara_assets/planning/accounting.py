"""FLOPs and bytes of a training step, counted from the model's shape; every convention is named.

FLOPs: a multiply-add is two. Per token the forward pass costs 2·N, N the weights that multiply it (blocks and head; the
embedding is a look-up). The backward pass costs twice that, of which half is the weights' gradients: LoRA skips
those for the frozen base, so it costs 4·N where full fine-tuning costs 6·N. Attention scores come on top:
12·L·h·d·S per token (QKᵀ and scores·V, forward and backward) when all S positions are counted (`full`, as PaLM and
MaxText's older tables do), half of it when only the causal half is (`causal`). A rate in FLOP/s means nothing without
saying which.
"""

from dataclasses import dataclass, fields
from enum import StrEnum

from capibara_assets.planning.hardware import GIB
from capibara_assets.planning.models import LinearModule, ModelShape

LOGIT_ELEMENTS = 1 << 24  # logits that our loss holds at once (modeling/losses.py)
NF4_BITS_PER_WEIGHT = 4.127  # 4 bits and the doubly quantised block constants (QLoRA, Dettmers et al. 2023, section 3)


class Attention(StrEnum):
    """Which attention positions a FLOP count includes."""

    FULL = "full"
    CAUSAL = "causal"


class Method(StrEnum):
    """What is trained."""

    FULL = "full"
    LORA = "lora"


class Remat(StrEnum):
    """What the backward pass computes again instead of keeping.

    NONE keeps every intermediate result; MINIMAL keeps the results of matrix products; FULL keeps each layer's input.
    """

    NONE = "none"
    MINIMAL = "minimal"
    FULL = "full"


class Optimizer(StrEnum):
    """Optimizers by their state: two float32 moments; factored second moment only; two 8-bit moments."""

    ADAMW = "adamw"
    ADAFACTOR = "adafactor"
    ADAMW_8BIT = "adamw_8bit"


def flops_per_token(
    shape: ModelShape,
    sequence: int,
    *,
    method: Method = Method.FULL,
    attention: Attention = Attention.FULL,
    lora_parameters: int = 0,
) -> float:
    """FLOPs of one training step per token, recomputation not counted.

    For encoder-decoders a token is a target token, with an input of the same length: the encoder's pass and the
    cross-attention's keys and values are counted to it.

    Args:
        shape: the model.
        sequence: tokens in a sequence (of the inputs and of the targets, each, for encoder-decoders).
        method: full fine-tuning (6·N) or LoRA (4·N + 6·lora_parameters).
        attention: positions counted in the scores of causal attention.
        lora_parameters: trainable parameters of the adapter.
    """
    per_weight = 6 if method is Method.FULL else 4
    dense = per_weight * shape.matmul_parameters + (6 * lora_parameters if method is Method.LORA else 0)
    width = shape.heads * shape.head_dim
    scores = 12.0 * width * sequence
    causal = scores / 2 if attention is Attention.CAUSAL else scores
    if shape.family == "t5":
        return dense + shape.encoder_layers * scores + shape.layers * (causal + scores)
    return dense + shape.layers * causal


@dataclass(frozen=True)
class Breakdown:
    """Bytes on one device."""

    weights: int
    adapters: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    gathered: int

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))

    def document(self) -> dict[str, int]:
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "total": self.total}

    def arithmetic(self) -> str:
        """The sum, largest first, in GiB (MiB where that is more readable)."""
        parts = sorted(((getattr(self, field.name), field.name) for field in fields(self)), reverse=True)
        return " + ".join(f"{size(value)} {name}" for value, name in parts if value) + f" = {size(self.total)}"


def size(count: float) -> str:
    """Bytes as a person reads them."""
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


def saved_per_token(
    shape: ModelShape, *, remat: Remat, method: Method = Method.FULL, rank: int = 0, dropout: bool = False
) -> float:
    """Elements that one layer keeps for the backward pass, per token.

    `none` follows PyTorch's autograd on the Transformers implementation with fused (SDPA/flash) attention, every linear
    layer adapted under LoRA: norms keep their input, the normalised value (only if their weights are trained) and
    the output; attention keeps q, k, v, its output and the log-sum of each head; a gated MLP keeps four tensors of its
    width. Dropout before an adapter replaces the kept input by the dropped input and its mask, one pair per adapter.

    Args:
        shape: the model (of a T5 the mean of encoder and decoder layers).
        remat: recomputation policy.
        method: full fine-tuning, or LoRA with everything else frozen.
        rank: rank of the adapters.
        dropout: the adapters have dropout.
    """
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    hidden, width = shape.hidden, shape.intermediate * shape.experts_per_token
    attentions, _ = _counts(shape)
    first = 2 if shape.gated else 1
    if remat is Remat.FULL:
        return float(hidden)
    if remat is Remat.MINIMAL:
        return 2 * hidden + attentions * (2 * query + 2 * key + hidden) + first * width
    lora = method is Method.LORA
    norm = (1 if dropout else 2) if lora else 3
    kept_by_mlp = 2 * first
    if shape.family == "t5":  # dropout masks after each block, and a GELU written out in elementary operations
        norm, kept_by_mlp = norm + 1, 8 if shape.gated else 3
    norms = (attentions + 1) * (norm * hidden + 1)
    attention = attentions * (2 * query + 2 * key + shape.heads)
    mlp = (kept_by_mlp - 1 if lora and dropout else kept_by_mlp) * width
    adapters = 0.0
    if lora:
        adapters = (4 * attentions + first + 1) * rank
        if dropout:
            adapters += 2 * (attentions * (3 * hidden + query) + first * hidden + width)
    return norms + attention + mlp + adapters


def _counts(shape: ModelShape) -> tuple[float, int]:
    """Attention blocks per layer (a T5 decoder layer has two), and layers in all."""
    layers = shape.layers + shape.encoder_layers
    return (shape.encoder_layers + 2 * shape.layers) / layers if shape.family == "t5" else 1.0, layers


def scores_per_token(shape: ModelShape, sequence: int, *, eager: bool = False) -> float:
    """Elements of attention scores kept per layer and token where attention is not fused.

    Written out (`eager`), attention keeps the probabilities twice: as the softmax gave them in float32, two elements,
    and in compute precision. T5 adds a learnt bias to its scores; Transformers computes its attention unfused and keeps
    three matrices of h·S a token for each attention: the probabilities, the dropout's mask and the dropped
    probabilities.
    """
    if shape.family == "t5":
        return 3 * _counts(shape)[0] * shape.heads * sequence
    return 3.0 * shape.heads * sequence if eager else 0.0


@dataclass(frozen=True)
class Layout:
    """How state and work are cut over devices: each number divides."""

    weights: int = 1
    gradients: int = 1
    optimizer: int = 1
    tensor: int = 1

    @classmethod
    def zero(cls, stage: int, devices: int) -> "Layout":
        """ZeRO (Rajbhandari et al. 2020): 1 cuts the optimizer, 2 the gradients too, 3 the weights too."""
        return cls(
            weights=devices if stage >= 3 else 1,
            gradients=devices if stage >= 2 else 1,
            optimizer=devices if stage >= 1 else 1,
        )


@dataclass(frozen=True)
class Step:
    """One device's share of a training step, as far as memory goes."""

    sequences: int
    sequence: int
    weight_bytes: float
    compute_bytes: int
    method: Method
    optimizer: Optimizer = Optimizer.ADAMW
    remat: Remat = Remat.NONE
    lora_rank: int = 0
    lora_modules: tuple[str, ...] = ()
    lora_dropout: bool = False
    nf4: bool = False
    logit_chunks: int = 1
    eager: bool = False
    autocast: bool = False
    layout: Layout = Layout()

    @property
    def tokens(self) -> int:
        return self.sequences * self.sequence


def training_memory(shape: ModelShape, step: Step) -> Breakdown:
    """Bytes on one device during a step.

    Logits: the compute-precision result, its float32 copy and the float32 gradient, for `tokens / logit_chunks`
    tokens at once (chunked cross-entropy, or MaxText's vocabulary tiling). Trained weights in 16 bits are assumed to
    have a float32 master copy in the optimizer.
    """
    layout = step.layout
    lora = step.method is Method.LORA
    trainable = shape.lora_parameters(step.lora_rank, step.lora_modules) if lora else shape.parameters
    trained_bytes = 4 if lora else step.weight_bytes
    layers = shape.layers + shape.encoder_layers
    whole = _saved(shape, step, Remat.NONE) + scores_per_token(shape, step.sequence, eager=step.eager)
    kept = whole if step.remat is Remat.NONE else _saved(shape, step, step.remat)
    # Under recomputation one layer at a time is rebuilt whole.
    rebuilt = 0.0 if step.remat is Remat.NONE else whole
    activations = step.tokens * step.compute_bytes * (layers * kept + rebuilt) / layout.tensor
    chunk = -(-step.tokens // step.logit_chunks)
    logits = chunk * shape.vocabulary * (8 + (step.compute_bytes if step.compute_bytes < 4 else 0)) / layout.tensor
    return Breakdown(
        weights=round(_weights(shape, step) / layout.weights),
        adapters=trainable * 4 if lora else 0,
        gradients=round(trainable * trained_bytes / layout.gradients),
        optimizer=round(optimizer_bytes(shape, step, trainable) / layout.optimizer),
        activations=round(activations),
        logits=round(logits),
        gathered=_gathered(shape, step),
    )


def _saved(shape: ModelShape, step: Step, remat: Remat) -> float:
    return saved_per_token(shape, remat=remat, method=step.method, rank=step.lora_rank, dropout=step.lora_dropout)


def _weights(shape: ModelShape, step: Step) -> float:
    if not step.nf4:
        return shape.parameters * step.weight_bytes
    blocks = sum(module.parameters for module in shape.linear_modules)
    return blocks * NF4_BITS_PER_WEIGHT / 8 + (shape.parameters - blocks) * step.compute_bytes


def _gathered(shape: ModelShape, step: Step) -> int:
    """Full-size copies made on the fly: two layers being gathered (sharded weights), or one matrix dequantised.

    Under autocast every frozen float32 matrix is copied to the compute precision, and the copies are kept for the
    backward pass (of one layer at a time, where layers are computed again).
    """
    if step.autocast and step.weight_bytes > step.compute_bytes:
        layers = shape.layers + shape.encoder_layers
        blocks = sum(module.parameters for module in shape.linear_modules)
        at_once = blocks if step.remat is Remat.NONE else blocks // layers
        return (at_once + shape.head_parameters) * step.compute_bytes
    if step.nf4:
        return max(module.inputs * module.outputs for module in shape.linear_modules) * step.compute_bytes
    if step.layout.weights <= step.layout.tensor:
        return 0
    blocks = sum(module.parameters for module in shape.linear_modules)
    per_layer = blocks / (shape.layers + shape.encoder_layers)
    return round(2 * per_layer * step.compute_bytes / step.layout.tensor)


def optimizer_bytes(shape: ModelShape, step: Step, trainable: int) -> float:
    """State of the optimizer before it is cut over devices."""
    master = 4 * trainable if step.method is Method.FULL and step.weight_bytes < 4 else 0
    if step.optimizer is Optimizer.ADAMW:
        return 8 * trainable + master
    if step.optimizer is Optimizer.ADAMW_8BIT:
        return 2 * trainable + master
    return 4 * _factored(shape, step) + master


def _factored(shape: ModelShape, step: Step) -> int:
    """Adafactor's second moment: a row and a column instead of a matrix (Shazeer and Stern 2018)."""
    if step.method is Method.LORA:
        modules = shape.modules(step.lora_modules)
        return sum((module.inputs + module.outputs + 2 * step.lora_rank) * module.copies for module in modules)
    embeddings = LinearModule("embedding", shape.vocabulary, shape.hidden, 1 if shape.tied else 2)
    modules = (*shape.linear_modules, embeddings)
    return sum((module.inputs + module.outputs) * module.copies for module in modules) + shape.vector_parameters
