"""Device meshes: the lengths of their axes, what tensor parallelism has to divide, and its place on the torus."""

from itertools import product
from math import gcd

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.planning.hardware.targets import Topology
from capibara_assets.planning.models import ModelShape


class Mesh(BaseModel):
    """Lengths of the logical axes; their product is the number of chips.

    `data` repeats the weights, `fsdp` cuts weights and batch, `tensor` cuts heads, MLP and vocabulary, `pipeline` cuts
    the layers into stages, `expert` cuts the experts of a mixture (and the batch outside them). These five lie inside
    one slice, joined by its fast links; `slices` repeats the whole over the data-centre network (more data
    parallelism).
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
        """Chips of one slice."""
        return self.data * self.fsdp * self.tensor * self.pipeline * self.expert

    @property
    def chips(self) -> int:
        """Chips of all slices."""
        return self.slice_chips * self.slices

    @property
    def batch_shards(self) -> int:
        """Parts that the global batch is cut into."""
        return self.data * self.fsdp * self.expert * self.slices

    def __str__(self) -> str:
        extra = ((name, getattr(self, name)) for name in ("pipeline", "expert", "slices"))
        named = "".join(f" x {name} {length}" for name, length in extra if length > 1)
        return f"data {self.data} x fsdp {self.fsdp} x tensor {self.tensor}{named}"


def divisors(count: int) -> list[int]:
    """All divisors, rising."""
    return [number for number in range(1, count + 1) if count % number == 0]


def largest_tensor(shape: ModelShape) -> int:
    """The number that every tensor-parallel degree has to divide: heads, key/value heads, MLP width and vocabulary."""
    return gcd(shape.heads, shape.kv_heads, shape.intermediate, shape.vocabulary)


def submesh(tensor: int, topology: Topology) -> tuple[int, int, int, int] | None:
    """The (x, y, z, core) block of neighbouring chips for one model-parallel group, as T5X names it.

    Each side divides the topology's axis, so that the blocks tile the slice. Of several the most compact is taken
    (least sum of sides), then the one without z. None where no block of that many chips tiles the slice.
    """
    axes = (*topology.axes, 1, 1)[:3]
    blocks = [
        sides for sides in product(*(divisors(axis) for axis in axes)) if sides[0] * sides[1] * sides[2] == tensor
    ]
    if not blocks:
        return None
    x, y, z = min(blocks, key=lambda sides: (sum(sides), sides[2], -sides[0]))
    return (x, y, z, 1)
