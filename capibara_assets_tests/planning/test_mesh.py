"""Meshes divide chips and model; tensor groups tile the torus; rings get the bandwidth of their axes."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.planning.hardware import Topology, find_target
from capibara_assets.planning.mesh import Mesh, largest_tensor, meshes, ring_gb_per_s, submesh
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets_tests.planning.shapes import NANO

SLICES = ["tpu-v4-64", "tpu-v5e-64", "tpu-v6e-64", "tpu-v6e-256"]


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize(
    "shape", [NANO, read_shape("llama3.1-8b"), read_shape("t5_1_1-small")], ids=lambda shape: shape.name
)
def test_every_mesh_divides_slice_and_model(name: str, shape: ModelShape) -> None:
    target = find_target(name)
    found = list(meshes(shape, target, max_tensor=16))
    assert Mesh(data=target.chips, fsdp=1, tensor=1) in found
    assert len({str(mesh) for mesh in found}) == len(found)
    for mesh in found:
        assert mesh.chips == target.chips
        assert mesh.tensor <= 16
        for size in (shape.heads, shape.kv_heads, shape.intermediate, shape.vocabulary):
            assert size % mesh.tensor == 0
        assert shape.hidden % mesh.fsdp == 0


def test_t5_small_with_six_heads_takes_two_tensor_shards_at_most() -> None:
    assert largest_tensor(read_shape("t5_1_1-small")) == 2
    assert max(mesh.tensor for mesh in meshes(read_shape("t5_1_1-small"), find_target("tpu-v5e-64"), 16)) == 2


@pytest.mark.parametrize(
    ("tensor", "axes", "block"),
    [
        (1, (8, 8), (1, 1, 1, 1)),
        (4, (8, 8), (2, 2, 1, 1)),
        (8, (8, 8), (4, 2, 1, 1)),
        (16, (8, 8), (4, 4, 1, 1)),
        (8, (2, 4, 4), (2, 2, 2, 1)),
        (3, (8, 8), None),
        (128, (8, 8), None),
    ],
)
def test_tensor_groups_are_compact_blocks(tensor: int, axes: tuple[int, ...], block: tuple[int, ...] | None) -> None:
    assert submesh(tensor, Topology(axes=axes, wrap=(False,) * len(axes), note="")) == block


@given(st.sampled_from(SLICES), st.integers(1, 300))
def test_a_submesh_tiles_the_slice_or_does_not_exist(name: str, tensor: int) -> None:
    topology = find_target(name).topology
    assert topology is not None
    block = submesh(tensor, topology)
    if block is None:
        assert tensor not in {
            a * b * c
            for a in _divisors(topology.axes, 0)
            for b in _divisors(topology.axes, 1)
            for c in _divisors(topology.axes, 2)
        }
    else:
        assert prod(block) == tensor
        assert all(axis % side == 0 for axis, side in zip((*topology.axes, 1)[:3], block, strict=False))


def _divisors(axes: tuple[int, ...], index: int) -> list[int]:
    length = axes[index] if index < len(axes) else 1
    return [side for side in range(1, length + 1) if length % side == 0]


def test_a_torus_has_twice_the_ring_bandwidth_of_a_mesh() -> None:
    mesh, torus = find_target("tpu-v6e-64"), find_target("tpu-v6e-256")
    assert ring_gb_per_s(mesh, 64) == 2 * 90
    assert ring_gb_per_s(torus, 256) == 2 * 2 * 90
    assert ring_gb_per_s(torus, 16) == 2 * 90
    # Half an axis is no ring, even where the whole axis is one.
    assert ring_gb_per_s(torus, 8) == 90


def test_meshes_are_for_slices_only() -> None:
    with pytest.raises(InputError, match="h100-8 declares no topology"):
        next(meshes(NANO, find_target("h100-8"), 8))
