"""Memory that XLA:TPU allocates on one chip for our JAX step, computed from shapes.

Arguments (exact): weights, optimizer state and the batch, as the mesh shards them, in the layouts that pad them least.
Kept for the backward pass: what JAX lists as residuals of a layer, stacked over the layers. A head's queries, keys and
results are separate rows of `head_dim` elements, padded to the 128 lanes of a vector register.
Temporaries are the larger of two phases: the loss (gathered embeddings, logits of a chunk, gradients of the embeddings)
or the backward pass through the layers (all gradients, the gathered weights of a layer and their gradients before they
are scattered, recomputed values). How many copies of each coexist depends on XLA's scheduler; those numbers are fitted
on compiled cases (resources/planning/xla_cases.json; `python -m benchmarks plan-xla --fit` fits them again).
"""

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations
from math import prod

from pydantic import Field

from capibara_assets.deployment.declarations import Declared
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.modeling.jax.attention import LANES
from capibara_assets.modeling.jax.sizes import StepSettings, Table, Weight
from capibara_assets.modeling.jax.step import batch_table, tables
from capibara_assets.planning.accounting import Breakdown, DeviceStep, Method, Optimizer, Remat
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.workload import Workload

CASES = "planning/xla_cases.json"
WIDE, NARROW = 4, 2  # bytes of float32 and of bfloat16
SUBLANES = 8  # rows of a tile
SCORE_BYTES = 6  # T5's attention keeps, of each score, the exponential in float32 and the weight in bfloat16


class Copies(Declared):
    """Fitted numbers of copies of each quantity that XLA's schedule holds at once."""

    layer_weights_full: float = Field(description="gathered bf16 matrices of a layer, with their gradients")
    hoisted: float = Field(description="bf16 copies of all layers' trained shards, converted before the loops")
    layer_weights_lora: float = Field(description="the same where the matrices have no gradients")
    rebuilt: float = Field(description="tensors as wide as the MLP, where a layer is computed again")
    rebuilt_wide: float = Field(description="tensors as wide as the model, where a layer is computed again")
    passing: float = Field(description="tensors as wide as the MLP, where it is not")
    passing_wide: float = Field(description="tensors as wide as the model, where it is not")
    partial_sums: float = Field(description="tensors as wide as the model, where tensor shards are summed")
    scores: float = Field(description="float32 scores of an attention that is written out, where it is computed again")
    scores_passing: float = Field(description="the same where it is not, or only its products are kept")
    embeddings_full: float = Field(description="gathered bf16 head and its gradient during the loss")
    embeddings_tied: float = Field(description="the same where head and embedding are one")
    embeddings_lora: float = Field(description="the same where they have no gradients")
    logits: float = Field(description="float32 logits of a chunk")
    logits_whole: float = Field(description="float32 logits where the loss is not cut into chunks")
    embedding_shards: float = Field(description="float32 shards of the embedding's or head's gradient during the loss")


@dataclass(frozen=True)
class Quantities:
    """Bytes on one chip of each quantity: those that exist once, and those that coexist a fitted number of times.

    Attributes:
        sums: of gradients over micro-steps.
        kept: residuals of all layers.
        copies: bf16 copies of the layers' weights that are residuals too (`none` on trained weights).
        narrow: the same where they are not residuals: XLA converts a chip's shards of all layers before the loops.
        layer: gathered bf16 matrices of one layer.
        mlp: one bf16 tensor (tokens, MLP).
        wide: one bf16 tensor (tokens, hidden).
        scores: float32 scores of one attention that is written out; 0 where it is fused.
        embedding: the gathered bf16 embedding.
        embedding_shard: its float32 shard.
        logits: float32 logits of a chunk.
    """

    weights: int
    adapters: int
    optimizer: int
    batch: int
    gradients: int
    sums: int
    kept: float
    copies: int
    narrow: int
    layer: float
    mlp: float
    wide: float
    scores: float
    embedding: float
    embedding_shard: float
    logits: float
    lora: bool
    rebuilds: bool
    tied: bool
    sharded: bool
    chunked: bool


@cache
def fitted() -> Copies:
    """The shipped numbers of copies."""
    file = resources_root() / CASES
    return Copies.model_validate(json.loads(file.read_text(encoding="utf-8"))["copies"])


def tpu_memory(
    shape: ModelShape, mesh: Mesh, step: DeviceStep, copies: Copies | None = None, *, micro_steps: int = 1
) -> Breakdown:
    """Peak memory of our JAX step on one chip of a TPU slice.

    Args:
        shape: a decoder or T5 that the JAX step supports.
        mesh: its axes data, fsdp and tensor; the JAX step has no pipeline or experts.
        step: `sequences` counts one batch shard (`tensor` chips) and one micro-step.
        copies: default: the fitted ones.
        micro_steps: with more than one, accumulated gradients exist beside those of the current micro-step.

    Raises:
        InputError: the JAX step does not support the model or the optimizer.
    """
    held = fitted() if copies is None else copies
    return breakdown(quantities(shape, mesh, step, micro_steps), held)


def weigh_tpu(load: Workload) -> Breakdown:
    """`tpu_memory` of a workload: the `weigh` function of the layout search."""
    from capibara_assets.planning.footprint import recomputed

    share = recomputed(load)
    remat = Remat.FULL if share >= 1 else (Remat.MINIMAL if load.recompute.elementwise >= 1 else Remat.NONE)
    sequences = load.global_batch / load.mesh.batch_shards / load.micro_steps
    step = DeviceStep(
        sequences=max(1, round(sequences)),
        sequence=load.sequence,
        weight_bytes=load.weight_bytes,
        compute_bytes=NARROW,
        method=load.method,
        optimizer=load.optimizer,
        remat=remat,
        lora_rank=load.lora_rank,
        lora_modules=load.lora_modules,
        logit_chunks=load.logit_chunks,
    )
    return tpu_memory(load.shape, load.mesh, step, micro_steps=load.micro_steps)


def breakdown(each: Quantities, held: Copies) -> Breakdown:
    """Peak memory from the quantities and the number of copies of each.

    `temporaries` are a layer's, `gathered` whole weights; `reused` subtracts the smaller of the two phases.
    """
    per_layer = held.layer_weights_lora if each.lora else held.layer_weights_full
    if each.rebuilds:
        passing = held.rebuilt * each.mlp + held.rebuilt_wide * each.wide
    else:
        passing = held.passing * each.mlp + held.passing_wide * each.wide
    passing += held.partial_sums * each.wide if each.sharded else 0
    passing += (held.scores if each.rebuilds else held.scores_passing) * each.scores
    gathered = per_layer * each.layer
    backward = each.gradients + gathered + passing
    trained = held.embeddings_tied if each.tied else held.embeddings_full
    embeddings = (held.embeddings_lora if each.lora else trained) * each.embedding
    shards = 0.0 if each.lora else held.embedding_shards * each.embedding_shard
    logits = (held.logits if each.chunked else held.logits_whole) * each.logits
    loss = embeddings + shards + logits
    fuller = max(backward, loss)
    return Breakdown(
        weights=each.weights + each.batch,
        adapters=each.adapters,
        gradients=each.gradients + each.sums,
        optimizer=each.optimizer,
        activations=round(each.kept) + each.copies + round(held.hoisted * each.narrow),
        logits=round(logits + shards),
        gathered=round(gathered + embeddings),
        temporaries=round(passing),
        reused=round(fuller - backward - loss),
    )


def quantities(shape: ModelShape, mesh: Mesh, step: DeviceStep, micro_steps: int = 1) -> Quantities:
    """Bytes of each quantity on one chip, from the step's own tables of weights and shardings."""
    settings = _settings(step)
    trained, frozen, state = tables(shape, settings)
    lora = step.method is Method.LORA
    matrices = {name: entry for name, entry in {**trained, **frozen}.items() if _matrix(name, entry)}
    tokens, tensor = step.tokens, mesh.tensor
    embedding = shape.vocabulary * shape.hidden / tensor
    arrays = batch_table(shape, settings, step.sequences * micro_steps, step.sequence)
    stacks = {name.split(".")[0] for name in matrices}
    fused = shape.family == "decoder" and step.sequence % LANES == 0
    return Quantities(
        weights=_bytes(frozen, mesh, NARROW) if lora else _bytes(trained, mesh, WIDE),
        adapters=_bytes(trained, mesh, WIDE) if lora else 0,
        optimizer=_bytes(state, mesh, WIDE),
        batch=sum(prod(size) * WIDE for size, _ in arrays.values()),
        gradients=_bytes(trained, mesh, WIDE),
        sums=_bytes(trained, mesh, WIDE) if micro_steps > 1 else 0,
        kept=tokens * _kept_per_token(shape, step, tensor, fused=fused),
        copies=_bytes(matrices, mesh, NARROW) if step.remat is Remat.NONE and not lora else 0,
        narrow=_bytes(matrices, mesh, NARROW) if step.remat is not Remat.NONE and not lora else 0,
        layer=NARROW
        / tensor
        * max(sum(prod(one.size[1:]) for name, one in matrices.items() if name.startswith(stack)) for stack in stacks),
        mlp=NARROW * tokens * shape.intermediate / tensor,
        wide=NARROW * tokens * shape.hidden,
        scores=0.0 if fused else WIDE * tokens * step.sequence * shape.heads / tensor,
        embedding=NARROW * embedding,
        embedding_shard=WIDE * embedding / mesh.fsdp,
        logits=WIDE * tokens / step.logit_chunks * shape.vocabulary / tensor,
        lora=lora,
        rebuilds=step.remat is Remat.FULL,
        tied=shape.tied,
        sharded=tensor > 1,
        chunked=step.logit_chunks > 1,
    )


def _settings(step: DeviceStep) -> StepSettings:
    if step.optimizer is Optimizer.ADAMW_8BIT:
        raise InputError("the JAX step has AdamW and Adafactor; 8-bit AdamW is not among them")
    return StepSettings(
        method="lora" if step.method is Method.LORA else "full",
        optimizer="adafactor" if step.optimizer is Optimizer.ADAFACTOR else "adamw",
        lora_rank=step.lora_rank,
        lora_modules=step.lora_modules,
    )


def _matrix(name: str, entry: Weight) -> bool:
    return len(entry.size) == 3 and ".lora_" not in name


def _bytes(part: Table, mesh: Mesh, width: int) -> int:
    """Bytes of one chip's shards of arrays with `width` bytes per element, in the layouts that XLA chooses."""
    lengths = {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor}
    return width * sum(
        tiled(tuple(-(-size // (lengths[axis] if axis else 1)) for size, axis in zip(*entry, strict=True)))
        for entry in part.values()
    )


@lru_cache(maxsize=4096)  # a search asks for the same few sizes for each mesh that it weighs
def tiled(size: tuple[int, ...]) -> int:
    """Elements of an array stored in tiles of 8 x 128, its dimensions ordered for the least padding.

    A dimension of fewer than 8 rows gets a tile of the next power of two.
    """

    def rows(count: int) -> int:
        return 1 << (count - 1).bit_length() if count < SUBLANES else -(-count // SUBLANES) * SUBLANES

    def lanes(count: int) -> int:
        return -(-count // LANES) * LANES

    if len(size) < 2:
        return prod(size)
    return min(
        prod(size) // (size[row] * size[lane]) * rows(size[row]) * lanes(size[lane])
        for row, lane in permutations(range(len(size)), 2)
    )


def _kept_per_token(shape: ModelShape, step: DeviceStep, tensor: int, *, fused: bool) -> float:
    """Bytes of residuals of all layers per token, as `jax.ad_checkpoint.print_saved_residuals` lists them."""
    if shape.family == "t5":
        encoder, decoder = _t5_kept(shape, step, tensor)
        return shape.encoder_layers * encoder + shape.layers * decoder
    hidden, width = shape.hidden, shape.intermediate / tensor
    if step.remat is Remat.FULL:
        return shape.layers * NARROW * hidden
    if step.remat is Remat.MINIMAL:
        # The layer's input and the results of six of its seven products, which are not yet cut into heads.
        products = (shape.heads + 2 * shape.kv_heads) * shape.head_dim / tensor
        return shape.layers * NARROW * (2 * hidden + products + 2 * width)
    # Queries, keys and values are kept as the heads that they are cut into; a head fills whole lanes.
    lanes = -(-shape.head_dim // LANES) * LANES
    query, key = shape.heads * lanes / tensor, shape.kv_heads * lanes / tensor
    # The input of a matrix is kept where its own gradient is wanted (or that of LoRA factors beside it).
    wanted = {name for name in _DECODER if _trains(step, name)}
    attended, gated = bool(wanted & set(_DECODER[:3])), bool(wanted & set(_DECODER[4:6]))
    kept: float = _norm(step, attended) * hidden + _norm(step, gated) * hidden
    # The gated MLP: two products and three tensors of SiLU, and what goes down.
    kept += NARROW * (5 + ("down_proj" in wanted)) * width
    kept += NARROW * (2 * query + 2 * key)
    kept += NARROW * shape.heads * shape.head_dim / tensor if "o_proj" in wanted else 0
    # Rotation follows these norms: it is linear, and wants no result of theirs.
    kept += (WIDE + (NARROW if step.method is Method.FULL else 0)) * (query + key) if shape.qk_norm else 0
    kept += WIDE * shape.heads / tensor if fused else SCORE_BYTES * step.sequence * shape.heads / tensor
    return shape.layers * (kept + _between_factors(step, wanted))


_DECODER = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_T5 = ("q", "k", "v", "o", "wi", "wi_0", "wi_1", "wo")


def _trains(step: DeviceStep, name: str) -> bool:
    return step.method is Method.FULL or name in step.lora_modules


def _norm(step: DeviceStep, wanted: bool) -> int:
    """Bytes per element that a norm keeps.

    Its input in float32, its result where the gradient of a following matrix needs it (`wanted`), and the normalised
    value where its own weight is trained.
    """
    return WIDE + NARROW * (2 if step.method is Method.FULL else int(wanted))


def _between_factors(step: DeviceStep, wanted: set[str]) -> int:
    """Bytes per token kept between the two LoRA factors of a layer's matrices."""
    return NARROW * step.lora_rank * len(wanted) if step.method is Method.LORA else 0


def _t5_kept(shape: ModelShape, step: DeviceStep, tensor: int) -> tuple[float, float]:
    """Bytes per token kept by an encoder layer and by a decoder layer."""
    hidden, width, inner = shape.hidden, shape.intermediate / tensor, shape.heads * shape.head_dim / tensor
    first = 2 if shape.gated else 1
    if step.remat is Remat.FULL:
        return NARROW * hidden, NARROW * hidden
    if step.remat is Remat.MINIMAL:
        return (
            NARROW * (2 * hidden + 3 * inner + first * width),
            NARROW * (3 * hidden + 6 * inner + first * width),
        )
    wanted = {name for name in _T5 if _trains(step, name)}
    attended, gated = bool(wanted & {"q", "k", "v"}), bool(wanted & {"wi", "wi_0", "wi_1"})
    scores = SCORE_BYTES * step.sequence * shape.heads / tensor
    # A GELU by its tanh keeps five tensors of its own.
    mlp = NARROW * ((7 if shape.gated else 2) + ("wo" in wanted)) * width
    products = NARROW * (3 + ("o" in wanted)) * inner
    norms = _norm(step, attended) * hidden + _norm(step, gated) * hidden
    between = _between_factors(step, wanted)
    return (
        norms + products + mlp + scores + between,
        norms + _norm(step, attended) * hidden + 2 * products + mlp + 2 * scores + 2 * between,
    )
