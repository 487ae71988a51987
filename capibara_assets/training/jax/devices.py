"""The devices of a JAX training: its mesh, and arrays on it; on a slice of several hosts each holds its own shards."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from capibara_assets.errors import InputError
from capibara_assets.modeling.jax.placement import BATCH, MESH_AXES
from capibara_assets.modeling.jax.sizes import Table
from capibara_assets.planning.mesh import Mesh
from capibara_assets.training.causes import TPU

Tree = dict[str, Any]


def join_hosts() -> None:
    """Connect the hosts of a slice, where the TPU VM's environment names several; the first jax call of a process."""
    if len([host for host in os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if host]) > 1:
        import jax

        jax.distributed.initialize()


def device_mesh(mesh: Mesh) -> Any:
    """All devices of the slice as `jax.sharding.Mesh`.

    Raises:
        InputError: an axis that the step does not have, or another number of devices.
    """
    import jax
    from jax.experimental.mesh_utils import create_device_mesh

    odd = [name for name in ("pipeline", "expert", "slices") if getattr(mesh, name) > 1]
    if odd:
        raise InputError(
            f"the JAX trainer shards over data, fsdp and tensor in one slice; the mesh has {', '.join(odd)}"
        )
    if jax.device_count() != mesh.chips:
        kind = jax.devices()[0].device_kind
        lost = "" if jax.default_backend() == "tpu" else f". {TPU.name}: {TPU.remedy}"
        raise InputError(
            f"{mesh} needs {mesh.chips} devices; here are {jax.device_count()} ({kind}){lost}. Plan for what is here,"
            " or run on the slice; without a TPU, "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={mesh.chips} imitates it"
        )
    lengths = (mesh.data, mesh.fsdp, mesh.tensor)
    return jax.sharding.Mesh(create_device_mesh(lengths, jax.devices(), allow_split_physical_axes=True), MESH_AXES)


def placed(mesh: Any, arrays: Mapping[str, Any], table: Table, dtype: str) -> Tree:
    """Arrays on the mesh, sharded as their table says; each host provides only its own shards."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    on_mesh: Tree = {}
    for name, weight in table.items():
        values = arrays[name].astype(jax.numpy.dtype(dtype))
        sharding = NamedSharding(mesh, PartitionSpec(*weight.axes))
        on_mesh[name] = jax.make_array_from_callback(weight.size, sharding, lambda index, values=values: values[index])
    return on_mesh


def placed_batch(mesh: Any, arrays: Mapping[str, Any]) -> Tree:
    """A batch on the mesh, its rows spread over the batch axes."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    sharding = NamedSharding(mesh, PartitionSpec(BATCH, None))
    return {
        name: jax.make_array_from_callback(values.shape, sharding, lambda index, values=values: values[index])
        for name, values in arrays.items()
    }


def on_host(arrays: Mapping[str, Any]) -> Tree:
    """Copy whole arrays into this host's memory; collective if there are several hosts."""
    import jax

    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        arrays = multihost_utils.process_allgather(dict(arrays), tiled=True)
    return {name: np.asarray(value) for name, value in arrays.items()}
