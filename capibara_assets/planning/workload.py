"""The workload of a training step: model, lengths, batch, mesh, recomputation, number formats and software."""

from dataclasses import dataclass, field, replace

from capibara_assets.planning.accounting import Method, Optimizer, Remat
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape

EIGHT_BIT = ("fp8", "int8")
LONGER = ("tf32", "fp32")  # slower matrix products, on chips that declare a peak for them


@dataclass(frozen=True)
class Recompute:
    """Share of the forward pass that the backward pass recomputes, by part of a layer, and offloading to the host.

    `offloaded` counts elements per token and layer moved to host memory and back, in units of the hidden size.
    """

    qkv: float = 0.0
    output: float = 0.0
    mlp: float = 0.0
    scores: float = 0.0
    elementwise: float = 0.0
    offloaded: float = 0.0


NOTHING = Recompute()
EVERYTHING = Recompute(qkv=1, output=1, mlp=1, scores=1, elementwise=1)
POLICIES = {
    Remat.NONE: NOTHING,
    # Results of matrix products and of fused attention are kept; norms, activations and rotations are recomputed.
    Remat.MINIMAL: Recompute(elementwise=1),
    Remat.FULL: EVERYTHING,
}
JAX = ("maxtext", "t5x", "maxdiffusion", "levanter", "axlearn", "easydel", "capibara-jax")


def policy(remat: Remat, software: str) -> Recompute:
    """What a framework recomputes under a policy.

    JAX removes from the second forward pass what the backward pass does not use, which is a layer's last product.
    """
    again = POLICIES[remat]
    return replace(again, mlp=2 / 3 * again.mlp) if software in JAX else again


@dataclass(frozen=True)
class Workload:
    """Settings that the step time of a training run depends on.

    Attributes:
        shape: the model.
        sequence: tokens of a sequence (the targets of an encoder-decoder).
        global_batch: sequences of one optimizer step over all chips.
        mesh: how the chips are used.
        inputs: tokens of the encoder's sequence; 0 for decoders.
        micro_steps: forward and backward passes per optimizer step (gradient accumulation).
        virtual_stages: groups of layers per pipeline stage, run in turns (interleaved schedule).
        context: chips that share one sequence (context parallelism); part of `mesh.fsdp`, or of `mesh.data`.
        recompute: what the backward pass recomputes.
        precision: `bf16`, `tf32`, `fp32`, or `fp8`/`int8` with the scaling's name behind a dash (`fp8-rowwise`).
        weight_bytes: bytes of a stored weight.
        replicated_weights: weights stay whole on each chip while the optimizer is sharded (ZeRO-2, `SHARD_GRAD_OP`).
        optimizer: kind of optimizer state.
        method: full fine-tuning or LoRA.
        lora_rank: of the adapters.
        software: the training framework, lower case; unknown ones get no correction of their own.
        active_parameters: weights that multiply one token, without the embedding, where the model's publisher states
            them and the shape alone does not give them (shared experts, latent attention); None uses the shape's.
        window: positions that windowed layers attend to.
        windowed: share of the layers that are windowed.
        capacity: slots per expert over the tokens of an even distribution (tokens beyond are dropped, empty slots are
            computed all the same).
        generation: publisher of the software's numbers; versions differ by more than settings do.
        eager: PyTorch without a compiler, which does not fuse elementwise operations.
        overlapped_tensor: tensor-parallel reductions overlap with matrix products (asynchronous TP).
        prefix: all positions are attended to (prefix-LM or bidirectional model).
        logit_chunks: parts in which the loss over the vocabulary is computed.
    """

    shape: ModelShape
    sequence: int
    global_batch: float
    mesh: Mesh
    inputs: int = 0
    micro_steps: int = 1
    virtual_stages: int = 1
    context: int = 1
    recompute: Recompute = field(default=NOTHING)
    precision: str = "bf16"
    weight_bytes: float = 4
    replicated_weights: bool = False
    optimizer: Optimizer = Optimizer.ADAMW
    method: Method = Method.FULL
    lora_rank: int = 0
    lora_modules: tuple[str, ...] = ()
    software: str = "maxtext"
    active_parameters: float | None = None
    window: int = 0
    windowed: float = 0.0
    capacity: float = 1.0
    generation: str = ""
    eager: bool = False
    overlapped_tensor: bool = False
    prefix: bool = False
    logit_chunks: int = 1

    @property
    def circular(self) -> bool:
        """Whether the pipeline is circular, one layer a stage and turn: MaxText's num_layers_per_pipeline_stage = 1."""
        return self.software == "maxtext"

    @property
    def chips(self) -> int:
        return self.mesh.chips

    @property
    def tokens(self) -> float:
        """Tokens of one step over all chips; for an encoder-decoder, target tokens."""
        return self.global_batch * self.sequence

    @property
    def eight_bit(self) -> bool:
        return self.precision.startswith(EIGHT_BIT)

    @property
    def format(self) -> str:
        """The number format of the linear layers' products: the key of a chip's peak."""
        return next((name for name in (*EIGHT_BIT, *LONGER) if self.precision.startswith(name)), "bf16")

    @property
    def matmul_parameters(self) -> float:
        """Weights that multiply each token."""
        return float(self.shape.matmul_parameters if self.active_parameters is None else self.active_parameters)

    def attended(self, *, causal: bool) -> float:
        """Positions that a decoder token attends to in a layer, on average over layers.

        Args:
            causal: count only the positions that the mask leaves (what kernels compute), else all (PaLM's count).
        """
        length = self.sequence * (0.5 if causal and not self.prefix else 1.0)
        if not self.window or not self.windowed:
            return length
        near = float(min(self.window, length)) if causal else float(min(self.window, self.sequence))
        return (1 - self.windowed) * length + self.windowed * near

    def flops_per_token(self, *, causal: bool) -> float:
        """Model FLOPs per token of a training step: 6·N and 12·h·d·(positions attended to) in each layer.

        N excludes the embedding lookup and includes the head, as MaxText counts; recomputation is not counted. An
        encoder-decoder's input tokens are attributed to its target tokens, each part of the model with its own length.

        Args:
            causal: count only the causal half of decoder self-attention, else all positions.
        """
        per_weight = 6.0 if self.method is Method.FULL else 4.0
        adapters = 6.0 * self.shape.lora_parameters(self.lora_rank, self.lora_modules) if self.lora_modules else 0.0
        width = self.shape.heads * self.shape.head_dim
        if self.shape.family == "t5":
            ratio = self.inputs / self.sequence
            layer = _t5_layer(self.shape)
            dense = self.shape.encoder_layers * layer * ratio
            # Cross-attention's keys and values are made from the encoder's tokens.
            keys = 2 * self.shape.hidden * width
            dense += self.shape.layers * (layer + 2 * width * self.shape.hidden + keys * ratio)
            dense += self.shape.head_parameters
            scores = self.shape.encoder_layers * ratio * self.inputs
            scores += self.shape.layers * (self.attended(causal=causal) + self.inputs)
            return per_weight * dense + adapters + 12.0 * width * scores
        scores = self.shape.layers * self.attended(causal=causal)
        return per_weight * self.matmul_parameters + adapters + 12.0 * width * scores


def _t5_layer(shape: ModelShape) -> float:
    """Weights of one T5 layer's self-attention and MLP."""
    width = shape.heads * shape.head_dim
    return 4.0 * shape.hidden * width + (3 if shape.gated else 2) * shape.hidden * shape.intermediate
