"""Memory of a workload on one chip: the planner's estimate, and a lower bound for any implementation.

The estimate decides which settings a plan may use. The lower bound judges published runs: one is called impossible only
where even the leanest program with its settings would not fit.
"""

from collections.abc import Set
from dataclasses import fields, replace
from math import ceil

from capibara_assets.planning.accounting import (
    Breakdown,
    DeviceStep,
    Method,
    Optimizer,
    Remat,
    Sharding,
    training_memory,
)
from capibara_assets.planning.workload import Workload

LEAN_LOGIT = 2  # bytes: one 16-bit copy, its gradient written over it (fused cross-entropy)
LEAN_STATE = {Optimizer.ADAMW: 2, Optimizer.ADAMW_8BIT: 1, Optimizer.ADAFACTOR: 0}  # 16-bit elements per weight


def footprint(load: Workload, *, lora_dropout: bool = False) -> Breakdown:
    """Peak memory of one chip during a step.

    A policy between "keep everything" and "recompute every layer" is interpolated between the two, by the share of a
    layer's matrix products that it recomputes. With offloading, only the current layer's input stays on the chip.
    """
    share = recomputed(load)
    least = training_memory(load.shape, step_of(load, Remat.FULL, lora_dropout=lora_dropout))
    least = replace(least, gathered=_gathered(load, least))
    if load.recompute.offloaded:
        layers = load.shape.layers + load.shape.encoder_layers
        inputs = _tokens(load) * load.shape.hidden * 2 * layers / (load.mesh.tensor * load.mesh.pipeline)
        return replace(least, activations=max(0, round(least.activations - inputs)))
    if share >= 1:
        return least
    if load.recompute.elementwise >= 1 and not share:
        minimal = training_memory(load.shape, step_of(load, Remat.MINIMAL, lora_dropout=lora_dropout))
        return replace(minimal, gathered=least.gathered)
    most = training_memory(load.shape, step_of(load, Remat.NONE, lora_dropout=lora_dropout))
    mixed = {
        field.name: round(share * getattr(least, field.name) + (1 - share) * getattr(most, field.name))
        for field in fields(Breakdown)
    }
    return Breakdown(**{**mixed, "gathered": least.gathered})


def least_bytes(load: Workload, unstated: Set[str] = frozenset()) -> int:
    """Lower bound of the memory that a program with these settings needs on one chip, in bytes.

    Weights, gradients and moments sharded over every possible axis, in 16 bits unless the run states 32; layer inputs
    kept under recomputation (none where they are offloaded), results of products kept without it; one 16-bit copy of a
    chunk's logits.

    Args:
        load: the run.
        unstated: columns that its source leaves open; the leanest choice is assumed for each.
    """
    mesh, shape = load.mesh, load.shape
    cut = mesh.fsdp * mesh.tensor * mesh.pipeline * mesh.expert
    held = shape.parameters / cut
    stored = 2 if "weight_dtype" in unstated else load.weight_bytes
    optimizer = Optimizer.ADAFACTOR if "optimizer" in unstated else load.optimizer
    trained = held if load.method is Method.FULL else 0.0
    if load.replicated_weights:
        state = held * 2 + trained * (stored + 2 + 2 * LEAN_STATE[optimizer]) / mesh.data
    else:
        # Moments have the stored format; gradients live in 16 bits; both can be cut over what repeats the weights.
        state = held * stored + trained * (2 + stored * LEAN_STATE[optimizer]) / (mesh.data * mesh.slices)
    tokens, layers = _tokens(load), shape.layers + shape.encoder_layers
    if "per_device_batch" in unstated and load.micro_steps == 1:  # the batch may have come in passes
        tokens = min(tokens, float(load.sequence + load.inputs))
    remade = "remat_policy" in unstated or recomputed(load) >= 1
    kept = 0.0
    if remade:
        kept = 0.0 if load.recompute.offloaded else float(shape.hidden)
    elif recomputed(load) == 0:
        attention = (shape.heads + 2 * shape.kv_heads + shape.heads) * shape.head_dim
        kept = attention + 2 * shape.hidden + shape.intermediate * shape.experts_per_token
    else:
        kept = float(shape.hidden)
    activations = tokens * layers * kept * 2 / (mesh.tensor * mesh.pipeline)
    logits = ceil(tokens / max(1, load.logit_chunks)) * shape.vocabulary * LEAN_LOGIT / mesh.tensor
    return round(state + activations + logits)


def recomputed(load: Workload) -> float:
    """Share of a layer that is recomputed, 0 to 1; offloading to the host counts as 1: it frees as much memory."""
    again = load.recompute
    if again.offloaded or again.mlp >= 2 / 3:
        return 1.0
    return (again.qkv + again.output + again.mlp) / 3


def step_of(load: Workload, remat: Remat, *, lora_dropout: bool = False) -> DeviceStep:
    """One chip's share of a micro-batch, and the sharding of the training state."""
    mesh = load.mesh
    sequences = _sequences(load)
    length = load.sequence + (load.inputs if load.shape.family == "t5" else 0)
    # Under context parallelism a chip holds part of a sequence; what counts is tokens.
    whole = sequences >= 1 and sequences == int(sequences)
    cut = mesh.fsdp * mesh.tensor * mesh.pipeline * mesh.expert
    return DeviceStep(
        sequences=int(sequences) if whole else 1,
        sequence=length if whole else max(1, round(sequences * length)),
        weight_bytes=load.weight_bytes,
        compute_bytes=2,
        method=load.method,
        optimizer=load.optimizer,
        remat=remat,
        lora_rank=load.lora_rank,
        lora_modules=load.lora_modules,
        lora_dropout=lora_dropout,
        logit_chunks=load.logit_chunks,
        layout=Sharding(
            weights=cut,
            gradients=cut,
            optimizer=cut * (mesh.data * mesh.slices if load.replicated_weights else 1),
            # A stage of a pipeline holds its part of the layers' activations.
            tensor=mesh.tensor * mesh.pipeline,
        ),
    )


def _sequences(load: Workload) -> float:
    """Sequences of a micro-batch on one chip; a pipeline stage holds one micro-batch per stage in flight."""
    in_flight = min(load.mesh.pipeline, load.micro_steps)
    return load.global_batch / load.mesh.batch_shards / load.micro_steps * in_flight


def _tokens(load: Workload) -> float:
    return _sequences(load) * (load.sequence + (load.inputs if load.shape.family == "t5" else 0))


def _gathered(load: Workload, plain: Breakdown) -> int:
    """Bytes of two gathered layers; experts stay sharded over their axis."""
    return plain.gathered if load.mesh.expert == 1 else round(plain.gathered / load.mesh.expert)
