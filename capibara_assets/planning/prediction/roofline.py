"""Roofline terms of a training step: seconds of each kernel class at the chip's nominal rates.

Every term is a count divided by a data-sheet rate: FLOPs over a peak, bytes over a bandwidth. The share of a rate that
a kernel class reaches is modelled in `effects` and `calibration`. Counts are per chip and optimizer step.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil

from capibara_assets.planning.accounting import Method
from capibara_assets.planning.hardware.collectives import (
    AXES,
    exchange_seconds,
    gather_seconds,
    place_axis,
    reduce_seconds,
)
from capibara_assets.planning.hardware.machine import Machine, doublings
from capibara_assets.planning.models import LinearModule, ModelShape
from capibara_assets.planning.workload import Workload

BF16 = 2
CAST = 5  # bytes moved to cast a 16-bit element to 8 bits: read for its scale, read again, written
TILE_HELD = 1024  # side of the output tile that on-chip memory holds: operands are read once per tile
# Seconds of an empty collective, of each further member of its ring, and of each further island.
COLLECTIVE_S = {"gpu": 2.0e-5, "tpu": 5.0e-6, "cpu": 5.0e-5}
HOP_S, NETWORK_HOP_S = 1.0e-6, 1.0e-5
LAUNCH_S = {"gpu": 2.5e-4, "tpu": 2.0e-5, "cpu": 1.0e-3}  # host or sequencer work per layer, forward and backward
OPTIMIZER_BYTES = 28  # a weight, its gradient and two moments read, weight and moments written, all float32
ADAPTED_BYTES = 28
HOST_LINK = 16e9  # bytes a second between a chip and its host (PCIe 4 x8 to 5 x16), for offloaded activations

# Layers by their names in Transformers.
QKV = frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "q", "k", "v"})
OUTPUT = frozenset({"o_proj", "o", "dense"})
CLOSING = frozenset({"down_proj", "wo", "dense_4h_to_h"})

TERMS = (
    "matmul",  # linear layers in 16 bits: model FLOPs and recomputation, padded to tiles
    "matmul8",  # linear layers in 8 bits
    "experts",  # linear layers of experts
    "attention",  # scores and their product with the values, causal positions, padded to tiles
    "softmax",  # exponentials of the scores
    "operands",  # operands and results of matrix products through memory, once each
    "casts",  # operands scaled and cast to 8 bits, through memory
    "reread",  # operands of matrix products read again for each output tile
    "elementwise",  # norms, residuals, activations, rotations through memory
    "routing",  # tokens copied to their experts and summed back, through memory
    "logits",  # the loss over the vocabulary through memory
    "optimizer",  # weights, gradients, moments through memory
    "gather",  # weights gathered and gradients scattered over fsdp
    "reduce",  # gradients summed over data inside an island
    "tensor",  # activations summed over tensor, or passed round over context
    "exchange",  # tokens to experts and back
    "network",  # what crosses islands
    "offload",  # activations to the host and back
    "jitter",  # waiting for the slowest of many hosts: compute time by doubling of hosts
    "launch",  # dispatch by layer and pass, and what a collective takes however little it carries
)


@dataclass(frozen=True)
class Work:
    """Nominal seconds by term (`TERMS`), the pipeline bubble, and FLOPs of one chip and step."""

    seconds: tuple[float, ...]
    bubble: float
    flops_full: float
    flops_causal: float

    def named(self) -> dict[str, float]:
        """Term -> seconds."""
        return dict(zip(TERMS, self.seconds, strict=True))


def work(load: Workload, machine: Machine) -> Work:
    """The roofline terms of one step of `load` on `machine`."""
    seconds = dict.fromkeys(TERMS, 0.0)
    _linear_layers(load, machine, seconds)
    _attention(load, machine, seconds)
    _memory(load, machine, seconds)
    _links(load, machine, seconds)
    compute = sum(seconds[name] for name in ("matmul", "matmul8", "experts", "attention"))
    seconds["jitter"] = compute * doublings(machine.hosts)
    layers = (load.shape.layers + load.shape.encoder_layers) / load.mesh.pipeline
    seconds["launch"] = layers * load.micro_steps * LAUNCH_S[machine.kind] + _latency(load, machine)
    stages = load.mesh.pipeline
    micro = float(
        max(load.micro_steps, stages)
    )  # a pipeline cuts its batch into at least as many parts as it has stages
    # Where each stage holds several groups of layers, the batch goes round once for each.
    micro *= max(1.0, layers) if load.circular else load.virtual_stages
    share = load.tokens / load.chips
    return Work(
        seconds=tuple(seconds[name] for name in TERMS),
        bubble=(stages - 1) / micro if stages > 1 else 0.0,
        flops_full=share * load.flops_per_token(causal=False),
        flops_causal=share * load.flops_per_token(causal=True),
    )


def _latency(load: Workload, machine: Machine) -> float:
    """Latency of a step's collectives in seconds, independent of their size.

    Three per layer and pass for fsdp, eight for tensor (two blocks gather and scatter, forward and backward), four for
    experts, two per step for the gradients.
    """
    mesh = load.mesh
    layers = (load.shape.layers + load.shape.encoder_layers) / mesh.pipeline * load.micro_steps
    counts = {"tensor": 8 * layers, "expert": 4 * layers, "fsdp": 3 * layers, "pipeline": 2 * load.micro_steps}
    counts |= {"data": 2.0, "slices": 2.0}
    lengths = [getattr(mesh, name) for name in AXES]
    total = 0.0
    for index, name in enumerate(AXES):
        place = place_axis(machine, lengths, index)
        if place.members > 1:
            hops = (place.inner - 1 if machine.axes else 1) * HOP_S + (place.outer - 1) * NETWORK_HOP_S
            total += counts[name] * (COLLECTIVE_S[machine.kind] + hops)
    return total


def padded(length: float, tile: int) -> float:
    """Factor by which padding to whole tiles lengthens a dimension; at least 1."""
    whole = max(1.0, length)
    return ceil(whole / tile) * tile / whole


def _rows(load: Workload) -> float:
    """Rows of one chip's matrix products: the tokens of its batch shard in one micro-batch."""
    shards = load.mesh.batch_shards
    micro = max(load.micro_steps, load.mesh.pipeline)  # a pipeline cuts its batch in at least as many parts as stages
    return max(1.0, (load.tokens + load.global_batch * load.inputs) / shards / micro)


def _again(load: Workload, module: LinearModule) -> float:
    """Share of the module's forward pass that is recomputed."""
    recompute = load.recompute
    name = module.name.rpartition(".")[2]
    if name in QKV:
        return recompute.qkv
    return recompute.output if name in OUTPUT else recompute.mlp


def _ratio(load: Workload, module: LinearModule) -> float:
    """Tokens through a module per target token: averaged over an encoder-decoder's two lengths."""
    shape = load.shape
    if shape.family != "t5":
        return 1.0
    long = load.inputs / load.sequence
    if module.name in {"k", "v"}:  # cross-attention's keys and values come from the encoder
        return (shape.encoder_layers * long + shape.layers * (1 + long)) / (shape.encoder_layers + 2 * shape.layers)
    if module.name in {"q", "o"}:
        return (shape.encoder_layers * long + 2 * shape.layers) / (shape.encoder_layers + 2 * shape.layers)
    return (shape.encoder_layers * long + shape.layers) / (shape.encoder_layers + shape.layers)


def _linear_layers(load: Workload, machine: Machine, seconds: dict[str, float]) -> None:
    """Add the matrix products of blocks and head: FLOPs over peak, and memory traffic of operands."""
    shape, tensor, tile = load.shape, load.mesh.tensor, machine.tile
    share = load.tokens / load.chips  # a chip's part of all tokens, its tensor and pipeline neighbours' work taken off
    rows = _rows(load)
    modules = _matrices(shape)
    known = sum(active for _, active in modules)
    # The publisher's count of active weights rules where it differs from what the sizes give.
    scale = load.matmul_parameters / known if load.active_parameters is not None else 1.0
    backward = 2.0 if load.method is Method.FULL else 1.0
    for module, weights in modules:
        expert = module.name.startswith("experts.")
        head = module.name == "lm_head"
        again = 0.0 if head else _again(load, module)
        passes = 1 + backward + again
        active = weights * scale * _ratio(load, module)
        inner, outer = _split(module, tensor)
        seen = rows * shape.experts_per_token / shape.experts * load.mesh.expert if expert else rows
        fill = padded(inner, tile) * padded(outer, tile) * padded(seen, 8)
        nominal = 2 * active * share * passes * fill * (load.capacity if expert else 1.0)
        # The head stays in 16 bits where the rest is computed in 8.
        small = load.eight_bit and not head
        term = "experts" if expert else "matmul8" if small else "matmul"
        precision = "bf16" if head and load.eight_bit else load.format
        seconds[term] += nominal / (machine.peak(precision) * machine.reachable)
        seconds["reread"] += nominal / TILE_HELD * (1 if small else BF16) / machine.hbm
        # A product of (rows, inner) and (inner, outer) moves both and the result once, in 16 bits.
        moved = (1 / inner + 1 / outer) + 1 / seen
        seconds["operands"] += active * share * passes * moved * BF16 / machine.hbm
        if small:
            seconds["casts"] += active * share * passes * moved * CAST / machine.hbm


@cache
def _matrices(shape: ModelShape) -> tuple[tuple[LinearModule, int], ...]:
    """The model's matrix products, the head last, each with the weights that multiply one token."""
    modules = (*shape.linear_modules, LinearModule("lm_head", shape.hidden, shape.vocabulary, 1))
    return tuple((module, shape.active_parameters(module)) for module in modules)


@cache
def _weights(shape: ModelShape) -> int:
    return shape.parameters


def _split(module: LinearModule, tensor: int) -> tuple[float, float]:
    """Sizes of a module's matrix on one chip: outputs are sharded, or inputs where the module ends a block."""
    closing = module.name.rpartition(".")[2] in OUTPUT | CLOSING
    return (module.inputs / tensor, module.outputs) if closing else (module.inputs, module.outputs / tensor)


def _attention(load: Workload, machine: Machine, seconds: dict[str, float]) -> None:
    """Add fused attention: two products forward, five backward, causal positions only."""
    shape = load.shape
    passes = 1 + 2.5 + load.recompute.scores
    share = load.tokens / load.chips
    fill = padded(shape.head_dim, min(machine.tile, 128))
    positions = _positions(load)
    flops = 4 * shape.heads * shape.head_dim * positions * share * passes
    seconds["attention"] += flops * fill / machine.peak("bf16")
    exponentials = shape.heads * positions * share * (2 + load.recompute.scores)
    seconds["softmax"] += exponentials / machine.exponentials


def _positions(load: Workload) -> float:
    """Positions attended to by one target token, over all layers."""
    shape = load.shape
    if shape.family == "t5":
        encoder = shape.encoder_layers * load.inputs / load.sequence * load.inputs
        return encoder + shape.layers * (load.attended(causal=True) + load.inputs)
    return shape.layers * load.attended(causal=True)


def _memory(load: Workload, machine: Machine, seconds: dict[str, float]) -> None:
    """Add memory traffic other than the operands of matrix products, and offloading."""
    shape = load.shape
    share = load.tokens / load.chips
    layers: float = shape.layers
    if shape.family == "t5":
        layers += shape.encoder_layers * load.inputs / load.sequence
    attention = (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
    width = shape.intermediate * shape.experts_per_token * (3 if shape.gated else 2)
    # Two norms (read, write), two residual sums (two read, one written), rotations and the activation, once forward
    # and twice backward.
    elements = layers * (10 * shape.hidden + 2 * attention + width) * (3 + load.recompute.elementwise)
    # Norms and residuals are cut over tensor too (sequence parallelism), so a chip's part is its part of the tokens.
    seconds["elementwise"] = elements * share * BF16 / machine.hbm
    if shape.experts > 1:
        # Each token is read and written once per expert on the way there and back, and the same with its gradient.
        copies = 6 * shape.experts_per_token * load.capacity * shape.hidden * layers
        seconds["routing"] = copies * (3 + load.recompute.elementwise) * share * BF16 / machine.hbm
    # Logits: written, read for the maximum and the sum, gradient written and read twice, partly in float32.
    seconds["logits"] = shape.vocabulary * share * 14 / machine.hbm
    if load.method is Method.FULL:
        cut = 1 if load.replicated_weights else load.mesh.fsdp
        held = _weights(shape) / (cut * load.mesh.tensor * load.mesh.pipeline * _expert_cut(load))
        if load.replicated_weights:
            held = held / load.mesh.data + 0.15 * held  # the optimizer is cut, the gathered weights are written whole
        seconds["optimizer"] = held * OPTIMIZER_BYTES / machine.hbm
    else:
        adapters = shape.lora_parameters(load.lora_rank, load.lora_modules) if load.lora_modules else 0
        seconds["optimizer"] = adapters * ADAPTED_BYTES / machine.hbm
    moved = share * shape.hidden * layers * load.recompute.offloaded * BF16 * 2
    seconds["offload"] = moved / HOST_LINK


def _expert_cut(load: Workload) -> float:
    """Factor by which expert parallelism reduces a chip's weights: only the experts are sharded."""
    if load.mesh.expert == 1:
        return 1.0
    experts = _expert_weights(load.shape)
    rest = _weights(load.shape) - experts
    return _weights(load.shape) / (experts / load.mesh.expert + rest)


def _expert_weights(shape: ModelShape) -> float:
    return float(sum(module.parameters for module in shape.linear_modules if module.name.startswith("experts.")))


def _links(load: Workload, machine: Machine, seconds: dict[str, float]) -> None:
    """Add the collectives of each mesh axis; those that cross islands count as `network`."""
    mesh, shape = load.mesh, load.shape
    lengths = [getattr(mesh, name) for name in AXES]
    places = {name: place_axis(machine, lengths, index) for index, name in enumerate(AXES)}

    def book(term: str, axis: str, cost: float) -> None:
        seconds["network" if places[axis].outer > 1 else term] += cost

    trained = _weights(shape)
    if load.method is not Method.FULL and load.lora_modules:
        trained = shape.lora_parameters(load.lora_rank, load.lora_modules)
    cut = mesh.tensor * mesh.pipeline * _expert_cut(load)
    whole = _weights(shape) * BF16 / cut
    gradients = trained * BF16 / cut
    if mesh.fsdp > 1:
        # Gathered for the forward and again for the backward pass of each micro-batch; gradients scattered in each.
        where = places["fsdp"]
        passes = 2 * gather_seconds(machine, where, whole) + gather_seconds(machine, where, gradients)
        book("gather", "fsdp", load.micro_steps * passes)
    held = gradients / mesh.fsdp
    if mesh.data > 1:
        book("reduce", "data", reduce_seconds(machine, places["data"], held))
    if mesh.slices > 1:
        book("network", "slices", reduce_seconds(machine, places["slices"], held / max(1, mesh.data)))
    share = load.tokens / load.chips * (1 + load.inputs / load.sequence)
    layers = shape.layers + shape.encoder_layers
    activation = share * shape.hidden * BF16
    if mesh.tensor > 1:
        # Two blocks a layer, each gathers its input and scatters its output, forward and backward.
        moved = activation * mesh.tensor * layers * 4 * (2 + 0.5 * load.recompute.mlp)
        book("tensor", "tensor", gather_seconds(machine, places["tensor"], moved))
    if load.context > 1:
        keys = 2 * shape.kv_heads * shape.head_dim * BF16 * share
        moved = keys * load.context * shape.layers * (3 + load.recompute.scores)
        ring = place_axis(machine, (mesh.tensor, load.context), 1)  # beside the chips that cut its layers
        seconds["network" if ring.outer > 1 else "tensor"] += gather_seconds(machine, ring, moved)
    if mesh.expert > 1:
        # Tokens go out and come back, forward and backward.
        moved = activation * shape.experts_per_token * shape.layers * 4
        book("exchange", "expert", exchange_seconds(machine, places["expert"], moved))
    if mesh.pipeline > 1:
        hops = activation * mesh.tensor * 2
        where = places["pipeline"]
        rate = machine.network if where.outer > 1 else machine.link
        book("network" if where.outer > 1 else "reduce", "pipeline", hops / rate)
