"""One training step of either family: loss, gradients and update in one program, sharded over a mesh."""

from collections.abc import Callable
from typing import Any

from capibara_assets.modeling.jax import decoder, lora, t5
from capibara_assets.modeling.jax.layers import Tree
from capibara_assets.modeling.jax.loss import cross_entropy
from capibara_assets.modeling.jax.optimizers import state_table, update
from capibara_assets.modeling.jax.placement import BATCH, Placement
from capibara_assets.modeling.jax.sizes import Sizes, StepSettings, Table, check_supported

# Raise it ("2", "3" ...) with every change of the program that a step is: verdicts of XLA are kept under it, and
# test_step_version.py says when. The first value is what commit aebd925 computed of its sources.
STEP_VERSION = "a4da5f8982d3928c9d29baf7f0ff4664a1e47e36e9e3060561549ca408aadd41"
WHOLE = Placement()


def base_table(sizes: Sizes) -> Table:
    """The model's own weights."""
    check_supported(sizes)
    return decoder.table(sizes) if sizes.family == "decoder" else t5.table(sizes)


def tables(sizes: Sizes, settings: StepSettings) -> tuple[Table, Table, Table]:
    """What is trained, what is frozen, and the optimizer's state (all float32 but the frozen, in compute precision)."""
    base = base_table(sizes)
    trained, frozen = (base, {}) if settings.method == "full" else (lora.factors(base, settings), base)
    return trained, frozen, state_table(trained, settings)


def batch_table(
    sizes: Sizes, settings: StepSettings, batch: int, sequence: int
) -> dict[str, tuple[tuple[int, int], str]]:
    """The arrays of a batch: size and dtype. `mask` is 1 where a token is to be predicted."""
    arrays = {"tokens": ((batch, sequence), "int32"), "mask": ((batch, sequence), "float32")}
    if sizes.family == "t5":
        arrays |= {"inputs": ((batch, sequence), "int32"), "inputs_mask": ((batch, sequence), "int32")}
    if settings.packed:
        arrays["segments"] = ((batch, sequence), "int32")
    return arrays


def loss_sum(
    sizes: Sizes, settings: StepSettings, trained: Tree, frozen: Tree, batch: Tree, placement: Placement = WHOLE
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
    hidden = family.hidden_states(sizes, settings, placement, weights, known, batch)
    targets, counted = batch["tokens"], batch["mask"]
    if sizes.family == "decoder":
        targets = jnp.roll(targets, -1, axis=1)
        counted = jnp.roll(counted, -1, axis=1).at[:, -1].set(0.0)
    head = weights["embedding" if sizes.tied else "head"]
    return cross_entropy(hidden, head, targets, counted, settings, placement)


def supervised(sizes: Sizes, batch: Tree) -> Any:
    """How many tokens of a batch are predicted; at least 1, so that an empty one has loss 0."""
    import jax.numpy as jnp

    mask = batch["mask"][:, 1:] if sizes.family == "decoder" else batch["mask"]
    return jnp.maximum(jnp.sum(mask), 1.0)


def loss(
    sizes: Sizes, settings: StepSettings, trained: Tree, frozen: Tree, batch: Tree, placement: Placement = WHOLE
) -> Any:
    """Mean cross-entropy in nats over the supervised tokens of a batch; see `loss_sum`."""
    return loss_sum(sizes, settings, trained, frozen, batch, placement) / supervised(sizes, batch)


def train_step(
    sizes: Sizes, settings: StepSettings, placement: Placement = WHOLE
) -> Callable[[Tree, Tree, Tree, Any, Any, Tree], tuple[Tree, Tree, Any, Any]]:
    """The step `(trained, frozen, state, count, rate, batch) -> (trained, state, count, loss)`, to be jitted.

    `count` is the float32 number of steps done, `rate` the learning rate of this one. Donate arguments 0 and 2: the
    results take their place. With micro-steps the loss is still the mean over the whole batch's supervised tokens.
    """
    trained_table, _, _ = tables(sizes, settings)

    def step(
        trained: Tree, frozen: Tree, state: Tree, count: Any, rate: Any, batch: Tree
    ) -> tuple[Tree, Tree, Any, Any]:
        value, gradients = _gradients(sizes, settings, placement, trained_table, trained, frozen, batch)
        count = count + 1
        trained, state = update(settings, rate, trained, gradients, state, count, trained_table)
        return trained, state, count, value

    return step


def _gradients(
    sizes: Sizes,
    settings: StepSettings,
    placement: Placement,
    table: Table,
    trained: Tree,
    frozen: Tree,
    batch: Tree,
) -> tuple[Any, Tree]:
    """Mean loss of a batch and its gradients, in as many passes as the settings say."""
    import jax
    import jax.numpy as jnp

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


def abstract_arguments(sizes: Sizes, settings: StepSettings, batch: int, sequence: int, mesh: Any) -> tuple[Any, ...]:
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
