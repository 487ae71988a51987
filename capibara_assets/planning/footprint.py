"""Memory of a workload on one chip: the planner's estimate, which decides which settings a plan may use."""

from dataclasses import fields, replace

from capibara_assets.planning.accounting import (
    Breakdown,
    DeviceStep,
    Remat,
    Sharding,
    training_memory,
)
from capibara_assets.planning.workload import Workload


def footprint(load: Workload) -> Breakdown:
    """Peak memory of one chip during a step.

    A policy between "keep everything" and "recompute every layer" is interpolated between the two, by the share of a
    layer's matrix products that it recomputes. With offloading, only the current layer's input stays on the chip.
    """
    share = recomputed(load)
    least = training_memory(load.shape, step_of(load, Remat.FULL))
    least = replace(least, gathered=_gathered(load, least))
    if load.recompute.offloaded:
        layers = load.shape.layers + load.shape.encoder_layers
        inputs = tokens_of(load) * load.shape.hidden * 2 * layers / (load.mesh.tensor * load.mesh.pipeline)
        return replace(least, activations=max(0, round(least.activations - inputs)))
    if share >= 1:
        return least
    if load.recompute.elementwise >= 1 and not share:
        minimal = training_memory(load.shape, step_of(load, Remat.MINIMAL))
        return replace(minimal, gathered=least.gathered)
    most = training_memory(load.shape, step_of(load, Remat.NONE))
    mixed = {
        field.name: round(share * getattr(least, field.name) + (1 - share) * getattr(most, field.name))
        for field in fields(Breakdown)
    }
    return Breakdown(**{**mixed, "gathered": least.gathered})


def recomputed(load: Workload) -> float:
    """Share of a layer that is recomputed, 0 to 1; offloading to the host counts as 1: it frees as much memory."""
    again = load.recompute
    if again.offloaded or again.mlp >= 2 / 3:
        return 1.0
    return (again.qkv + again.output + again.mlp) / 3


def step_of(load: Workload, remat: Remat) -> DeviceStep:
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


def tokens_of(load: Workload) -> float:
    """Tokens of a micro-batch on one chip."""
    return _sequences(load) * (load.sequence + (load.inputs if load.shape.family == "t5" else 0))


def _gathered(load: Workload, plain: Breakdown) -> int:
    """Bytes of two gathered layers; experts stay sharded over their axis."""
    return plain.gathered if load.mesh.expert == 1 else round(plain.gathered / load.mesh.expert)
