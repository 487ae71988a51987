"""Building blocks of both families' layers: RMS norms, linear layers with LoRA, recomputation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from capibara_assets.modeling.jax.lora import A, B
from capibara_assets.modeling.jax.placement import Placement
from capibara_assets.modeling.jax.sizes import ModelSizes, StepSettings, Table

Tree = dict[str, Any]
PRODUCT = "product"  # what `minimal` keeps: one result of each linear layer, not one for the matrix and one for LoRA


@dataclass(frozen=True)
class Network:
    """A transformer as a step computes it: its sizes, the step's settings, and the placement of its arrays."""

    sizes: ModelSizes
    settings: StepSettings
    placement: Placement


def norm(values: Any, weight: Any, epsilon: float) -> Any:
    """RMSNorm over the last axis, in float32; the result has the precision of `values`."""
    import jax
    import jax.numpy as jnp

    wide = values.astype(jnp.float32)
    scaled = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + epsilon)
    return scaled.astype(values.dtype) * weight.astype(values.dtype)


def linear(values: Any, layer: Tree, name: str, scale: float) -> Any:
    """`values` (…, in) through the matrix `name` (in, out) of a layer, with its bias and LoRA factors if any."""
    from jax.ad_checkpoint import checkpoint_name

    result = values @ layer[name]
    if name + ".bias" in layer:
        result = result + layer[name + ".bias"]
    if name + A in layer:
        result = result + scale * ((values @ layer[name + A]) @ layer[name + B])
    return checkpoint_name(result, PRODUCT)


def stack(weights: Tree, prefix: str) -> Tree:
    """The stacked weights whose names begin with `prefix.`, by the rest of their names."""
    return {name.removeprefix(prefix + "."): value for name, value in weights.items() if name.startswith(prefix + ".")}


def in_compute_precision(network: Network, layer: Tree, table: Table, prefix: str) -> Tree:
    """One layer's weights in the compute precision, still sharded, so that the narrow copy is what gets gathered."""
    import jax.numpy as jnp

    dtype, placement = jnp.dtype(network.settings.compute), network.placement
    return {
        name: placement.weight(value.astype(dtype), table[f"{prefix}.{name}"].axes[1:]) for name, value in layer.items()
    }


def recomputed(block: Callable[..., Any], settings: StepSettings) -> Callable[..., Any]:
    """`block` with rematerialisation: the backward pass recomputes what `settings.remat` does not keep."""
    import jax

    if settings.remat == "none":
        return block
    policy = jax.checkpoint_policies.save_only_these_names(PRODUCT) if settings.remat == "minimal" else None
    # Inside a scan nothing can be merged with the first computation, so the barrier against that only costs.
    kept: Callable[..., Any] = jax.checkpoint(block, policy=policy, prevent_cse=False)
    return kept
