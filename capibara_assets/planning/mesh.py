"""Device meshes: axis lengths, valid tensor-parallel degrees, and the block of the torus that a tensor group fills."""

from itertools import product
from math import gcd

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.planning.hardware.targets import Topology
from capibara_assets.planning.models import ModelShape


class Mesh(BaseModel):
    """Lengths of the logical mesh axes; their product is the number of chips.

    `data` replicates the weights, `fsdp` shards weights and batch, `tensor` shards heads, MLP and vocabulary,
    `pipeline` splits the layers into stages, `expert` shards the experts of a mixture (and the batch outside them).
    These five lie inside one slice and use its fast links; `slices` replicates the whole over the data-centre network
    (more data parallelism).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: int = Field(ge=1)
    fsdp: int = Field(ge=1)
    tensor: int = Field(ge=1)
    pipeline: int = Field(default=1, ge=1)
    expert: int = Field(default=1, ge=1)
    slices: int = Field(default=1, ge=1)

    @property
    def slice_chips(self) -> int:
        """Number of chips in one slice."""
        return self.data * self.fsdp * self.tensor * self.pipeline * self.expert

    @property
    def chips(self) -> int:
        """Number of chips in all slices."""
        return self.slice_chips * self.slices

    @property
    def batch_shards(self) -> int:
        """Number of parts that the global batch is split into."""
        return self.data * self.fsdp * self.expert * self.slices

    def __str__(self) -> str:
        extra = ((name, getattr(self, name)) for name in ("pipeline", "expert", "slices"))
        named = "".join(f" x {name} {length}" for name, length in extra if length > 1)
        return f"data {self.data} x fsdp {self.fsdp} x tensor {self.tensor}{named}"


def divisors(count: int) -> list[int]:
    """All divisors of `count`, in ascending order."""
    return [number for number in range(1, count + 1) if count % number == 0]


def largest_tensor(shape: ModelShape) -> int:
    """The number that every tensor-parallel degree must divide: GCD of heads, key/value heads, MLP and vocabulary."""
    return gcd(shape.heads, shape.kv_heads, shape.intermediate, shape.vocabulary)


def submesh(tensor: int, topology: Topology) -> tuple[int, int, int, int] | None:
    """The (x, y, z, core) block of neighbouring chips for one tensor-parallel group, in T5X's notation.

    Each side divides the topology's axis, so that the blocks tile the slice. Of several blocks the most compact is
    chosen (least sum of sides), then the one without z. None if no block of `tensor` chips tiles the slice.
    """
    axes = (*topology.axes, 1, 1)[:3]
    blocks = [
        sides for sides in product(*(divisors(axis) for axis in axes)) if sides[0] * sides[1] * sides[2] == tensor
    ]
    if not blocks:
        return None
    x, y, z = min(blocks, key=lambda sides: (sum(sides), sides[2], -sides[0]))
    return (x, y, z, 1)
