"""Sharding of arrays over the mesh: batches over data and fsdp, weights over fsdp and tensor."""

from dataclasses import dataclass
from typing import Any

from capibara_assets.modeling.jax.sizes import Axes

MESH_AXES = ("data", "fsdp", "tensor")
BATCH = ("data", "fsdp")


@dataclass(frozen=True)
class Placement:
    """Sharding constraints on a mesh with the axes `MESH_AXES`; without a mesh values are unchanged."""

    mesh: Any = None

    def rows(self, values: Any) -> Any:
        """`values` (batch, sequence, …) sharded over the batch axes in the first dimension."""
        return self.weight(values, (BATCH, *(None,) * (values.ndim - 1)))

    def weight(self, values: Any, axes: tuple[Any, ...] | Axes) -> Any:
        """`values` with dimension i sharded over the mesh axis `axes[i]`."""
        if self.mesh is None:
            return values
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        return jax.lax.with_sharding_constraint(values, NamedSharding(self.mesh, PartitionSpec(*axes)))
