"""FLOPs and memory of a training step, computed from the model's shape, with every counting convention named.

FLOPs: a multiply-add is two. Per token the forward pass costs 2·N, N the weights that multiply it (blocks and head; the
embedding lookup multiplies nothing). The backward pass costs twice that, of which half is the weights' gradients: LoRA
skips those for the frozen base, so it costs 4·N where full fine-tuning costs 6·N. Attention scores come on top:
12·L·h·d·S per token (QKᵀ and scores·V, forward and backward) when all S positions are counted (`full`, as PaLM and
MaxText's older tables do), half of it when only the causal half is (`causal`). A rate in FLOP/s is meaningless without
naming the convention.
"""

from dataclasses import dataclass, fields

from capibara_assets.planning.activations import (
    backward_per_token,
    ends_per_token,
    saved_per_token,
    scores_per_token,
)
from capibara_assets.planning.conventions import Attention, Loss, Method, Optimizer, Remat
from capibara_assets.planning.hardware.declaration import GIB
from capibara_assets.planning.models import LinearModule, ModelShape

__all__ = [
    "Attention",
    "Breakdown",
    "DeviceStep",
    "Loss",
    "Method",
    "Optimizer",
    "Remat",
    "Sharding",
    "flops_per_token",
    "logits_at_once",
    "optimizer_bytes",
    "size",
    "training_memory",
]

NF4_BITS_PER_WEIGHT = 4.127  # 4 bits and the doubly quantised block constants (QLoRA, Dettmers et al. 2023, section 3)


def logits_at_once(kind: str) -> int:
    """Logits that our chunked loss (modeling/losses.py) holds at once on a device of a kind: cpu or gpu."""
    return 1 << 26 if kind == "gpu" else 1 << 24


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
    """Peak memory of a training step on one device, in bytes, by what it holds.

    Attributes:
        activations: kept for the backward pass, of all layers.
        logits: of the tokens whose loss is computed at once, with the loss's own copies.
        temporaries: a recomputed layer, and gradients of activations within a layer.
        gathered: full-size copies of weights made on the fly.
        reused: negative: the part of the above that never exists at the same time (logits are freed before the layers'
            gradients are computed; gradients replace activations already used), so that the sum is the peak.
    """

    weights: int
    adapters: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    gathered: int
    temporaries: int = 0
    reused: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))

    def document(self) -> dict[str, int]:
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "total": self.total}

    def arithmetic(self) -> str:
        """The sum written out, largest part first, in GiB or MiB."""
        parts = sorted(
            ((getattr(self, one.name), one.name) for one in fields(self) if one.name != "reused"), reverse=True
        )
        summands = " + ".join(f"{size(value)} {name}" for value, name in parts if value)
        less = f" - {size(-self.reused)} not at the same time" if self.reused else ""
        return f"{summands}{less} = {size(self.total)}"


def size(count: float) -> str:
    """Bytes formatted as GiB, or MiB below 1 GiB."""
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


@dataclass(frozen=True)
class Sharding:
    """How many devices each part of the training state, and the work of a layer (`tensor`), is divided over."""

    weights: int = 1
    gradients: int = 1
    optimizer: int = 1
    tensor: int = 1

    @classmethod
    def zero(cls, stage: int, devices: int) -> "Sharding":
        """Sharding of a ZeRO stage (Rajbhandari et al. 2020): 1 optimizer; 2 and gradients; 3 and weights."""
        return cls(
            weights=devices if stage >= 3 else 1,
            gradients=devices if stage >= 2 else 1,
            optimizer=devices if stage >= 1 else 1,
        )


@dataclass(frozen=True)
class DeviceStep:
    """One device's share of a training step: everything that its memory depends on."""

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
    layout: Sharding = Sharding()
    loss: Loss = Loss.CHUNKED
    accumulates: bool = True  # gradients stay allocated during the forward pass

    @property
    def tokens(self) -> int:
        return self.sequences * self.sequence


def training_memory(shape: ModelShape, step: DeviceStep) -> Breakdown:
    """Peak memory on one device over the loss, the backward pass and the optimizer's update.

    Logits: the probabilities' logarithm, its gradient and the logits' gradient, all float32, for `tokens /
    logit_chunks` tokens at once; with the whole loss the logits themselves too. Trained weights in 16 bits are assumed
    to have a float32 master copy in the optimizer.
    """
    layout = step.layout
    lora = step.method is Method.LORA
    trainable = shape.lora_parameters(step.lora_rank, step.lora_modules) if lora else shape.parameters
    trained_bytes = 4 if lora else step.weight_bytes
    layers = shape.layers + shape.encoder_layers
    per_element = step.tokens * step.compute_bytes / layout.tensor
    scores = scores_per_token(shape, step.sequence, compute_bytes=step.compute_bytes, eager=step.eager)
    whole = (_saved(shape, step, Remat.NONE) + scores) * per_element
    kept = whole if step.remat is Remat.NONE else _saved(shape, step, step.remat) * per_element
    # Under recomputation one layer at a time is rebuilt whole.
    rebuilt = 0.0 if step.remat is Remat.NONE else _rebuilt(shape, step) * per_element
    temporaries = rebuilt + backward_per_token(shape, step.sequence, eager=step.eager, remat=step.remat) * per_element
    chunk = -(-step.tokens // step.logit_chunks)
    copies = 12 + (step.compute_bytes if step.loss is Loss.WHOLE else 0)
    logits = chunk * shape.vocabulary * copies / layout.tensor
    ends = ends_per_token(shape, step.remat, step.method) * per_element
    gradients = trainable * trained_bytes / layout.gradients
    activations = layers * kept + ends
    # Gradients of a layer replace its activations; of the first layer in the backward pass only the head's are there.
    per_layer = gradients / layers
    if step.accumulates:
        peak = gradients + max(activations + logits, layers * kept + temporaries)
    else:
        head = 0.0 if lora else shape.head_parameters * trained_bytes / layout.gradients
        grown = max(layers * kept + head, kept + gradients - per_layer)
        peak = max(activations + logits + head, temporaries + grown, gradients)
    parts = [round(part) for part in (gradients, activations, logits, temporaries)]
    return Breakdown(
        weights=round(_weights(shape, step) / layout.weights),
        adapters=trainable * 4 if lora else 0,
        gradients=parts[0],
        optimizer=round(optimizer_bytes(shape, step, trainable) / layout.optimizer),
        activations=parts[1],
        logits=parts[2],
        gathered=_gathered(shape, step),
        temporaries=parts[3],
        reused=min(0, round(peak) - sum(parts)),
    )


def _rebuilt(shape: ModelShape, step: DeviceStep) -> float:
    scores = scores_per_token(shape, step.sequence, compute_bytes=step.compute_bytes, eager=step.eager, largest=True)
    return _saved(shape, step, Remat.NONE, largest=True) + scores


def _saved(shape: ModelShape, step: DeviceStep, remat: Remat, *, largest: bool = False) -> float:
    return saved_per_token(
        shape,
        remat=remat,
        method=step.method,
        rank=step.lora_rank,
        dropout=step.lora_dropout,
        modules=step.lora_modules,
        largest=largest,
    )


def _weights(shape: ModelShape, step: DeviceStep) -> float:
    if not step.nf4:
        return shape.parameters * step.weight_bytes
    blocks = sum(module.parameters for module in shape.linear_modules)
    return blocks * NF4_BITS_PER_WEIGHT / 8 + (shape.parameters - blocks) * step.compute_bytes


def _gathered(shape: ModelShape, step: DeviceStep) -> int:
    """Bytes of full-size weight copies: two layers being gathered (sharded weights), or one dequantised matrix.

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


def optimizer_bytes(shape: ModelShape, step: DeviceStep, trainable: int) -> float:
    """Bytes of the optimizer's state, a float32 master copy included, before it is sharded."""
    master = 4 * trainable if step.method is Method.FULL and step.weight_bytes < 4 else 0
    if step.optimizer is Optimizer.ADAMW:
        return 8 * trainable + master
    if step.optimizer is Optimizer.ADAMW_8BIT:
        return 2 * trainable + master
    return 4 * _factored(shape, step) + master


def _factored(shape: ModelShape, step: DeviceStep) -> int:
    """Elements of Adafactor's second moment: a row and a column per matrix (Shazeer and Stern 2018)."""
    if step.method is Method.LORA:
        modules = shape.modules(step.lora_modules)
        return sum((module.inputs + module.outputs + 2 * step.lora_rank) * module.copies for module in modules)
    embeddings = LinearModule("embedding", shape.vocabulary, shape.hidden, 1 if shape.tied else 2)
    modules = (*shape.linear_modules, embeddings)
    return sum((module.inputs + module.outputs) * module.copies for module in modules) + shape.vector_parameters
