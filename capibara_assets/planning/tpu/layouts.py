"""The layout search's problem, and the candidates that it enumerates: meshes, batches and micro-steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, gcd

from capibara_assets.planning.accounting import Method, Optimizer
from capibara_assets.planning.hardware.machine import machine_of
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.mesh import Mesh, divisors, largest_tensor, submesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.recipe import PlanLevel


@dataclass(frozen=True)
class RowFilling:
    """Length of a row, and the share of its tokens that is data (the rest is padding)."""

    sequence: int
    filled: float = 1.0
    packed: bool = False


@dataclass(frozen=True)
class SearchProblem:
    """A training step to lay out on hardware, and the limits of the search.

    Attributes:
        shape: the model.
        target: one slice or machine.
        lengths: row lengths to try, padded or packed.
        wanted: rows per optimizer step, from the number of examples.
        limits: the level's limits on memory, recomputation and batch.
        axes: mesh axes that the trainer supports.
        slices: numbers of slices to try.
        accumulate: whether the trainer supports gradient accumulation.
    """

    shape: ModelShape
    target: HardwareTarget
    lengths: tuple[RowFilling, ...]
    wanted: int
    limits: PlanLevel
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


def row_tokens(problem: SearchProblem) -> float:
    """Data tokens of a row in the recipe's sense: of an unpacked row where there is one."""
    first = min(problem.lengths, key=lambda one: one.packed)
    return first.sequence * first.filled


def layouts(problem: SearchProblem, slices: int = 1) -> Iterator[Mesh]:
    """Every mesh that the target's chips and the model's sizes allow; fewest model shards and most fsdp first.

    `tensor` divides heads, key/value heads, MLP and vocabulary, tiles the torus and stays inside an NVLink domain;
    `pipeline` divides the layers; `expert` divides the experts; `fsdp` divides the hidden size.
    """
    shape, target = problem.shape, problem.target
    chips = target.chips
    island = machine_of(target).island
    for tensor in divisors(gcd(chips, largest_tensor(shape))) if "tensor" in problem.axes else [1]:
        tiles = target.topology is None or submesh(tensor, target.topology) is not None
        if tensor > min(problem.max_tensor, island) or not tiles:
            continue
        for pipeline in divisors(gcd(chips // tensor, shape.layers)) if "pipeline" in problem.axes else [1]:
            if pipeline > problem.max_pipeline or (pipeline > 1 and shape.family == "t5"):
                continue
            left = chips // tensor // pipeline
            for expert in divisors(gcd(left, shape.experts)) if "expert" in problem.axes else [1]:
                rest = left // expert
                for fsdp in reversed(divisors(rest) if "fsdp" in problem.axes else [1]):
                    if shape.hidden % fsdp == 0 and (rest == fsdp or "data" in problem.axes):
                        yield Mesh(
                            data=rest // fsdp,
                            fsdp=fsdp,
                            tensor=tensor,
                            pipeline=pipeline,
                            expert=expert,
                            slices=slices,
                        )


def batches(wanted: int, shards: int, growth: float) -> list[int]:
    """Rows per shard to try: `wanted` over the shards (at least 1), and its doublings up to the level's growth."""
    least = max(1, ceil(wanted / shards))
    most = max(least, int(wanted * growth) // shards)
    counts, count = [], least
    while count <= most:
        counts.append(count)
        count *= 2
    return counts


def splits(rows: int, mesh: Mesh, problem: SearchProblem) -> list[int]:
    """Numbers of micro-steps to split a shard's `rows` into, ascending, within the level's sequences per chip and pass.

    Powers of two where the trainer accumulates. A pipeline needs a pass per stage, and gains little beyond four.
    """
    passes = [1]
    if mesh.pipeline > 1:
        passes = [mesh.pipeline * times for times in (1, 2, 4) if rows % (mesh.pipeline * times) == 0]
    elif problem.accumulate:
        passes = [count for count in divisors(rows) if count & (count - 1) == 0]
    chips = mesh.tensor * mesh.pipeline  # the limit holds per chip; a shard may have several
    return [count for count in passes if rows / count / chips <= problem.limits.micro_batch]
