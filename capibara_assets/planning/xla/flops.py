"""FLOPs of a training step as counted by XLA, and our own count of the same operations.

XLA's analysis counts the body of a loop once, however often it runs; our step scans its layers. So the step is lowered
with one layer and with two, unrolled, and extrapolated to the model's depth; this takes seconds and no compiler (it
counts the program before partitioning, divided over the chips; work that partitioning duplicates is not included).
Pallas kernels are not counted: attention in the splash kernel is missing from XLA's count, and is left out of ours
where the two are compared.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.planning.accounting import flops_per_token
from capibara_assets.planning.conventions import Method, Remat
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.xla.case import XlaCase


class StepFlops(BaseModel):
    """FLOPs of one step on one chip, by counting method."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    xla: float = Field(description="as XLA counts the lowered step: with recomputation, without fused attention")
    same: float = Field(description="our count of the same: matrix products, recomputed ones too")
    kernel: float = Field(description="fused attention by our count, which XLA does not see; 0 without it")
    model: float = Field(description="model FLOPs: no recomputation, attention in full; what rates are stated in")


def step_flops(case: XlaCase, lower: Callable[[XlaCase], Any]) -> StepFlops:
    """FLOPs of a step by XLA's count and by ours.

    Args:
        case: the step.
        lower: returns `jax.stages.Lowered` of a case.
    """
    chips, tokens = case.mesh.chips, case.global_batch * case.sequence
    trained = case.shape.lora_parameters(case.lora_rank, case.lora_modules) if case.method is Method.LORA else 0
    model = flops_per_token(case.shape, case.sequence, method=case.method, lora_parameters=trained)
    return StepFlops(
        xla=xla_flops(case, lower) / chips,
        same=counted_flops(case) / chips,
        kernel=_attention(case) / chips if case.fused else 0.0,
        model=model * tokens / chips,
    )


def xla_flops(case: XlaCase, lower: Callable[[XlaCase], Any]) -> float:
    """XLA's FLOPs of the step over all chips, extrapolated from one and two layers (of encoder and decoder each).

    Lowered with one micro-step and one chunk, which only split the same products into parts.
    """
    encoder, layers = case.shape.encoder_layers, case.shape.layers

    def at(encoder_layers: int, layers: int) -> float:
        depth = {"encoder_layers": encoder_layers, "layers": layers}
        shallow = {"shape": case.shape.model_copy(update=depth), "chunks": 1, "micro_steps": 1}
        return float(lower(case.model_copy(update=shallow)).cost_analysis()["flops"])

    with _written_out():
        shallow = at(min(encoder, 1), 1)
        deeper = at(min(encoder, 1), 2) - shallow
        encoding = at(2, 1) - shallow if encoder else 0.0
    return shallow + (layers - 1) * deeper + max(0, encoder - 1) * encoding


@contextmanager
def _written_out() -> Iterator[None]:
    """Lower scans unrolled within this context."""
    import jax

    scan = jax.lax.scan
    jax.lax.scan = partial(scan, unroll=True)
    try:
        yield
    finally:
        jax.lax.scan = scan


def counted_flops(case: XlaCase) -> float:
    """Our count of the FLOPs that XLA sees in a step, over all chips: products with weights, and unfused attention.

    A product costs 2·N forward, 2·N for the gradient of its input and, where it is trained, 2·N for its own gradient.
    Recomputed are the head (its logits always) and with `full` every product of a layer but its last, whose result the
    backward pass does not need; `minimal` keeps products and recomputes what lies between them, scores included.
    """
    shape, tokens = case.shape, case.global_batch * case.sequence
    full = case.method is Method.FULL
    last = "wo" if shape.family == "t5" else "down_proj"
    blocks = sum(module.parameters for module in shape.linear_modules)
    again = blocks - sum(module.parameters for module in shape.modules((last,))) if case.remat is Remat.FULL else 0
    per_weight = 6 if full else 4
    dense = per_weight * (blocks + shape.head_parameters) + 2 * (again + shape.head_parameters)
    if not full:
        dense += _factors(case)
    return float(dense * tokens) + (0.0 if case.fused else _attention(case))


def _factors(case: XlaCase) -> int:
    """FLOPs of the LoRA factors per token: forward, both gradients, and recomputation.

    `minimal` keeps a layer's result, but not what lies between the factors.
    """
    kept = case.shape.lora_parameters(case.lora_rank, case.lora_modules)
    modules = case.shape.modules(case.lora_modules)
    down = sum(case.lora_rank * module.inputs * module.copies for module in modules)
    return 6 * kept + {Remat.NONE: 0, Remat.MINIMAL: 2 * down, Remat.FULL: 2 * kept}[case.remat]


def _attention(case: XlaCase) -> float:
    """FLOPs of attention scores and their product with values, over all chips, all positions counted."""
    tokens = case.global_batch * case.sequence
    forward = 4.0 * case.shape.heads * case.shape.head_dim * case.sequence
    passes = 3 if case.remat is Remat.NONE else 4
    return tokens * _attentions(case.shape) * forward * passes


def _attentions(shape: ModelShape) -> int:
    return shape.encoder_layers + 2 * shape.layers if shape.family == "t5" else shape.layers
