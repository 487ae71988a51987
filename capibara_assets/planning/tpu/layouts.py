"""What is asked of a search, and every setting that it may try: meshes, batches, passes."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, gcd

from capibara_assets.planning.accounting import Method, Optimizer
from capibara_assets.planning.hardware.machine import machine_of
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.mesh import Mesh, divisors, largest_tensor, submesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.recipe import Level


@dataclass(frozen=True)
class Lengths:
    """One way to fill rows: how long they are, and which share of their tokens is data."""

    sequence: int
    filled: float = 1.0
    packed: bool = False


@dataclass(frozen=True)
class Question:
    """What is to be laid out.

    Attributes:
        shape: the model.
        target: one slice or machine.
        lengths: ways to fill rows; without packing the rows are padded.
        wanted: rows per optimizer step that the data asks for.
        limits: the level's bounds on memory, recomputation and batch.
        axes: mesh axes that the trainer has.
        slices: numbers of slices that may be rented.
        accumulate: the trainer can split a batch into several passes.
    """

    shape: ModelShape
    target: HardwareTarget
    lengths: tuple[Lengths, ...]
    wanted: int
    limits: Level
    axes: frozenset[str] = frozenset({"data", "fsdp", "tensor"})
    slices: tuple[int, ...] = (1,)
    accumulate: bool = False
    max_tensor: int = 16
    max_pipeline: int = 16
    method: Method = Method.FULL
    optimizer: Optimizer = Optimizer.ADAMW
    weight_bytes: float = 4
    lora_rank: int = 0
    lora_modules: tuple[str, ...] = ()
    software: str = "maxtext"
    precision: str = "bf16"
    logit_chunks: int = 1


def row_tokens(question: Question) -> float:
    """Data tokens of a row as the recipe counts rows: unpacked ones where there are any."""
    first = min(question.lengths, key=lambda one: one.packed)
    return first.sequence * first.filled


def layouts(question: Question, slices: int = 1) -> Iterator[Mesh]:
    """Every mesh that divides the target's chips and the model, fewest model shards and most fsdp first.

    `tensor` divides heads, key/value heads, MLP and vocabulary, tiles the torus and stays inside an NVLink domain;
    `pipeline` divides the layers; `expert` divides the experts; `fsdp` divides the width.
    """
    shape, target = question.shape, question.target
    chips = target.chips
    island = machine_of(target).island
    for tensor in divisors(gcd(chips, largest_tensor(shape))) if "tensor" in question.axes else [1]:
        tiles = target.topology is None or submesh(tensor, target.topology) is not None
        if tensor > min(question.max_tensor, island) or not tiles:
            continue
        for pipeline in divisors(gcd(chips // tensor, shape.layers)) if "pipeline" in question.axes else [1]:
            if pipeline > question.max_pipeline or (pipeline > 1 and shape.family == "t5"):
                continue
            left = chips // tensor // pipeline
            for expert in divisors(gcd(left, shape.experts)) if "expert" in question.axes else [1]:
                rest = left // expert
                for fsdp in reversed(divisors(rest) if "fsdp" in question.axes else [1]):
                    if shape.hidden % fsdp == 0 and (rest == fsdp or "data" in question.axes):
                        yield Mesh(
                            data=rest // fsdp,
                            fsdp=fsdp,
                            tensor=tensor,
                            pipeline=pipeline,
                            expert=expert,
                            slices=slices,
                        )


def batches(wanted: int, shards: int, growth: float) -> list[int]:
    """Rows per shard that are tried: what the data asks for, and doublings up to the level's growth; at least one."""
    least = max(1, ceil(wanted / shards))
    most = max(least, int(wanted * growth) // shards)
    counts, count = [], least
    while count <= most:
        counts.append(count)
        count *= 2
    return counts


def splits(rows: int, mesh: Mesh, question: Question) -> list[int]:
    """Passes that `rows` a shard may be cut into, few first, within the level's sequences a chip and pass.

    Powers of two where the trainer accumulates. A pipeline needs a pass for each stage, and gains little beyond four.
    """
    passes = [1]
    if mesh.pipeline > 1:
        passes = [mesh.pipeline * times for times in (1, 2, 4) if rows % (mesh.pipeline * times) == 0]
    elif question.accumulate:
        passes = [count for count in divisors(rows) if count & (count - 1) == 0]
    chips = mesh.tensor * mesh.pipeline  # a shard of several chips may hold as many for each
    return [count for count in passes if rows / count / chips <= question.limits.micro_batch]
