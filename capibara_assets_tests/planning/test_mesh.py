"""Meshes multiply to chips; tensor groups tile the torus."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.planning.hardware.targets import Topology, find_target
from capibara_assets.planning.mesh import Mesh, largest_tensor, submesh
from capibara_assets.planning.models import read_shape

SLICES = ["tpu-v4-64", "tpu-v5e-64", "tpu-v6e-64", "tpu-v6e-256"]


def test_axes_multiply_to_chips_and_slices_repeat_them() -> None:
    mesh = Mesh(data=2, fsdp=4, tensor=2, pipeline=2, expert=4, slices=3)
    assert (mesh.slice_chips, mesh.chips, mesh.batch_shards) == (128, 384, 96)
    assert str(mesh) == "data 2 x fsdp 4 x tensor 2 x pipeline 2 x expert 4 x slices 3"
    assert str(Mesh(data=1, fsdp=8, tensor=1)) == "data 1 x fsdp 8 x tensor 1"


def test_t5_small_with_six_heads_takes_two_tensor_shards_at_most() -> None:
    assert largest_tensor(read_shape("t5_1_1-small")) == 2


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
