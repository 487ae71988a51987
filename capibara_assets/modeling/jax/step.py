"""One training step of either family: loss, gradients and optimizer update in one program, sharded over a mesh."""

from collections.abc import Callable
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.jax import decoder, lora, t5
from capibara_assets.modeling.jax.layers import Network, Tree
from capibara_assets.modeling.jax.optimizers import Update, state_table, updated
from capibara_assets.modeling.jax.placement import BATCH, Placement
from capibara_assets.modeling.jax.sizes import ModelSizes, StepSettings, Table, check_supported

# Raise it ("2", "3" ...) with every change of the lowered program of a step: XLA's verdicts are cached under it, and
# test_step_version.py says when. The first value is what commit aebd925 computed of its sources.
STEP_VERSION = "a4da5f8982d3928c9d29baf7f0ff4664a1e47e36e9e3060561549ca408aadd41"
WHOLE = Placement()


def base_table(sizes: ModelSizes) -> Table:
    """The table of the model's own weights."""
    check_supported(sizes)
    return decoder.table(sizes) if sizes.family == "decoder" else t5.table(sizes)


def tables(sizes: ModelSizes, settings: StepSettings) -> tuple[Table, Table, Table]:
    """Tables of the trained weights, the frozen ones (in compute precision) and the optimizer's state."""
    base = base_table(sizes)
    trained, frozen = (base, {}) if settings.method == "full" else (lora.factors(base, settings), base)
    return trained, frozen, state_table(trained, settings)


def batch_table(
    sizes: ModelSizes, settings: StepSettings, batch: int, sequence: int
) -> dict[str, tuple[tuple[int, int], str]]:
    """Size and dtype of a batch's arrays. `mask` is 1 where a token is to be predicted."""
    arrays = {"tokens": ((batch, sequence), "int32"), "mask": ((batch, sequence), "float32")}
    if sizes.family == "t5":
        arrays |= {"inputs": ((batch, sequence), "int32"), "inputs_mask": ((batch, sequence), "int32")}
    if settings.packed:
        arrays["segments"] = ((batch, sequence), "int32")
    return arrays


def loss_sum(
    sizes: ModelSizes, settings: StepSettings, trained: Tree, frozen: Tree, batch: Tree, placement: Placement = WHOLE
) -> Any:
    """Summed cross-entropy in nats over the supervised tokens of a batch (arrays as in `batch_table`).

    A decoder's position t predicts token t + 1 (the first token of a row is never supervised, nor may that of a packed
    example be); a T5's decoder predicts every target token.
    """
    import jax.numpy as jnp

    check_supported(sizes, settings)
    base = base_table(sizes)
    known = base | (lora.factors(base, settings) if settings.method == "lora" else {})
    weights = {**frozen, **trained}
    family = decoder if sizes.family == "decoder" else t5
    hidden = family.hidden_states(Network(sizes, settings, placement), weights, known, batch)
    targets, counted = batch["tokens"], batch["mask"]
    if sizes.family == "decoder":
        targets = jnp.roll(targets, -1, axis=1)
        counted = jnp.roll(counted, -1, axis=1).at[:, -1].set(0.0)
    head = weights["embedding" if sizes.tied else "head"]
    return cross_entropy(hidden, head, targets, counted, settings, placement)


def cross_entropy(
    hidden: Any, head: Any, targets: Any, weights: Any, settings: StepSettings, placement: Placement
) -> Any:
    """Sum of the negative log-likelihoods, in nats, of the positions with weight 1.

    Logits of one part of the sequence exist at a time, and are recomputed in the backward pass.

    Args:
        hidden: (batch, sequence, width).
        head: (vocabulary, width), in its stored precision and sharding.
        targets: int32 (batch, sequence).
        weights: float32 (batch, sequence), 0 or 1.

    Raises:
        InputError: `settings.chunks` does not divide the sequence.
    """
    import jax
    import jax.numpy as jnp

    batch, sequence = targets.shape
    parts = settings.chunks
    if sequence % parts:
        raise InputError(f"{parts} chunks of the loss do not divide {sequence} positions")

    def chunk(total: Any, part: Any) -> tuple[Any, None]:
        states, wanted, counted = part
        narrow = placement.weight(head.astype(hidden.dtype), ("tensor", "fsdp"))
        logits = (states @ narrow.T).astype(jnp.float32)
        logits = placement.weight(logits, (("data", "fsdp"), None, "tensor"))
        # A sum over a comparison, not a gather: each shard of the vocabulary finds its own.
        hit = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2) == wanted[..., None]
        chosen = jnp.sum(jnp.where(hit, logits, 0.0), axis=-1)
        return total + jnp.sum((jax.nn.logsumexp(logits, axis=-1) - chosen) * counted), None

    # Cutting the sequence, not the batch, keeps each part spread over all batch shards.
    cut = tuple(
        jnp.moveaxis(value.reshape(batch, parts, sequence // parts, *value.shape[2:]), 1, 0)
        for value in (hidden, targets, weights)
    )
    total, _ = jax.lax.scan(jax.checkpoint(chunk, prevent_cse=False), jnp.zeros((), jnp.float32), cut)
    return total


def supervised(sizes: ModelSizes, batch: Tree) -> Any:
    """Number of supervised tokens of a batch; at least 1, so that an empty batch has loss 0."""
    import jax.numpy as jnp

    mask = batch["mask"][:, 1:] if sizes.family == "decoder" else batch["mask"]
    return jnp.maximum(jnp.sum(mask), 1.0)


def loss(
    sizes: ModelSizes, settings: StepSettings, trained: Tree, frozen: Tree, batch: Tree, placement: Placement = WHOLE
) -> Any:
    """Mean cross-entropy in nats over the supervised tokens of a batch; see `loss_sum`."""
    return loss_sum(sizes, settings, trained, frozen, batch, placement) / supervised(sizes, batch)


def train_step(
    sizes: ModelSizes, settings: StepSettings, placement: Placement = WHOLE
) -> Callable[[Tree, Tree, Tree, Any, Any, Tree], tuple[Tree, Tree, Any, Any]]:
    """The step `(trained, frozen, state, count, rate, batch) -> (trained, state, count, loss)`, to be jitted.

    `count` is the float32 number of steps done, `rate` the learning rate of this one. Donate arguments 0 and 2: the
    results take their place. With micro-steps the loss is still the mean over the whole batch's supervised tokens.
    """
    trained_table, _, _ = tables(sizes, settings)
    network = Network(sizes, settings, placement)

    def step(
        trained: Tree, frozen: Tree, state: Tree, count: Any, rate: Any, batch: Tree
    ) -> tuple[Tree, Tree, Any, Any]:
        value, gradients = _gradients(network, trained_table, trained, frozen, batch)
        count = count + 1
        trained, state = updated(Update(settings, rate, count), trained, gradients, state, trained_table)
        return trained, state, count, value

    return step


def _gradients(network: Network, table: Table, trained: Tree, frozen: Tree, batch: Tree) -> tuple[Any, Tree]:
    """Mean loss of a batch and its gradients, summed over `settings.micro_steps` passes."""
    import jax
    import jax.numpy as jnp

    sizes, settings, placement = network.sizes, network.settings, network.placement
    total = supervised(sizes, batch)
    slope = jax.value_and_grad(lambda part, rows: loss_sum(sizes, settings, part, frozen, rows, placement) / total)
    if settings.micro_steps == 1:
        value, gradients = slope(trained, batch)
        return value, gradients

    def cut(values: Any) -> Any:
        # Neighbouring rows go to different passes, so that each pass is spread over all batch shards.
        rows = values.shape[0] // settings.micro_steps
        return jnp.moveaxis(values.reshape(rows, settings.micro_steps, *values.shape[1:]), 1, 0)

    def add(so_far: tuple[Any, Tree], rows: Tree) -> tuple[tuple[Any, Tree], None]:
        rows = {name: placement.rows(values) for name, values in rows.items()}
        value, gradients = slope(trained, rows)
        summed = {name: so_far[1][name] + gradient for name, gradient in gradients.items()}
        return (so_far[0] + value, summed), None

    zeros = {name: placement.weight(jnp.zeros_like(weight), table[name].axes) for name, weight in trained.items()}
    parts = {name: cut(values) for name, values in batch.items()}
    (value, gradients), _ = jax.lax.scan(add, (jnp.zeros((), jnp.float32), zeros), parts)
    return value, gradients


def abstract_arguments(
    sizes: ModelSizes, settings: StepSettings, batch: int, sequence: int, mesh: Any
) -> tuple[Any, ...]:
    """The step's arguments as shapes sharded over `mesh`; nothing is allocated.

    Raises:
        ValueError: an axis of the mesh does not divide a dimension; jax's message has the sizes.
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    def abstract(size: tuple[int, ...], dtype: str, axes: tuple[Any, ...]) -> Any:
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        sharding.shard_shape(size)
        return jax.ShapeDtypeStruct(size, jax.numpy.dtype(dtype), sharding=sharding)

    def all_of(part: Table, dtype: str) -> Tree:
        return {name: abstract(weight.size, dtype, weight.axes) for name, weight in part.items()}

    trained, frozen, state = tables(sizes, settings)
    arrays = batch_table(sizes, settings, batch, sequence)
    return (
        all_of(trained, "float32"),
        all_of(frozen, settings.compute),
        all_of(state, "float32"),
        abstract((), "float32", ()),
        abstract((), "float32", ()),
        {name: abstract(size, dtype, (BATCH, None)) for name, (size, dtype) in arrays.items()},
    )
