"""Chip families (`resources/hardware/families`), and the hardware target of any slice of a family."""

import re
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from capibara_assets.deployment.declarations import Declared, declared, read_mapping
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.declaration import (
    Efficiency,
    HardwareTarget,
    Kubernetes,
    Links,
    Memory,
    PeakRate,
    Price,
    Toleration,
    Topology,
)

CUBE = 4  # side of the cube of chips that optical switches join (Jouppi et al. 2023, TPU v4)
RING = 16  # length at which an axis of a two-dimensional pod wraps round
_SIZE = re.compile(r"\d+(?:x\d+)*")
_LISTED = 12  # possible sizes that an error names


def _axes(text: object) -> object:
    return tuple(int(side) for side in text.split("x")) if isinstance(text, str) and _SIZE.fullmatch(text) else text


Axes = Annotated[tuple[int, ...], BeforeValidator(_axes)]


class ChipPrice(Declared):
    """On-demand price of one chip; null with the reason where none is certain."""

    usd_per_chip_hour: float | None = Field(default=None, gt=0)
    date: str | None = None
    note: str


class FamilyKubernetes(Declared):
    """Google Kubernetes Engine's names for the family."""

    accelerator: str = Field(description="value of the node selector")
    machine_types: dict[int, str] = Field(min_length=1, description="by the chips of a machine")


class Xla(Declared):
    """Name and options of the family in `jax.experimental.topologies`."""

    platform: str
    options: dict[str, str] = Field(default_factory=dict)


class _Common(Declared):
    """Fields that TPU and GPU families share."""

    name: str
    title: str
    memory: Memory
    peaks: dict[Literal["fp32", "tf32", "bf16", "fp8", "int8"], PeakRate] = Field(min_length=1)
    links: Links
    efficiency: Efficiency
    price: ChipPrice
    kubernetes: FamilyKubernetes | None
    sources: tuple[str, ...]


class TpuFamily(_Common):
    """A TPU generation.

    Slices are the listed shapes; with `cubes` also every box of whole cubes of 4x4x4 chips up to `max_chips`. Names
    count cores (v4, v5p, TPU7x) or chips (v5e, v6e).
    """

    kind: Literal["tpu"]
    accelerator: str = Field(description="the cloud's name before the count")
    counts: Literal["chips", "cores"]
    cores_per_chip: int = Field(ge=1)
    chips_per_host: int = Field(ge=1, description="chips that share one host's network cards")
    chips_per_vm: int = Field(ge=1, description="chips of each virtual machine in slices larger than one host")
    max_chips: int = Field(ge=1)
    shapes: tuple[Axes, ...] = Field(min_length=1)
    cubes: bool
    wraps: Literal["axis of 16", "full cubes"] = Field(
        description="axis of 16: such an axis alone is a ring; full cubes: all axes, where all are multiples of 4"
    )
    xla: Xla | None = Field(description="null: plans are not compiled for it")

    @model_validator(mode="after")
    def _one_dimension(self) -> "TpuFamily":
        if len({len(shape) for shape in self.shapes}) != 1 or any(prod(s) > self.max_chips for s in self.shapes):
            raise ValueError(f"shapes {self.shapes}: all need the same number of axes, and at most {self.max_chips}")
        return self

    @property
    def per_count(self) -> int:
        """What one chip adds to the count in a slice's name: its cores, or 1."""
        return self.cores_per_chip if self.counts == "cores" else 1

    def counts_to(self) -> Iterator[int]:
        """Chip counts for which a slice exists, in ascending order."""
        listed = {prod(shape) for shape in self.shapes}
        cubes = range(CUBE**3, self.max_chips + 1, CUBE**3) if self.cubes else range(0)
        yield from sorted(listed | set(cubes))

    def shape_of(self, chips: int) -> tuple[int, ...] | None:
        """The shape of a slice with this many chips, the most compact one; None where no such slice exists."""
        for shape in self.shapes:
            if prod(shape) == chips:
                return shape
        if not self.cubes or chips % CUBE**3 or chips > self.max_chips:
            return None
        cubes = chips // CUBE**3
        sides = [number for number in range(1, cubes + 1) if cubes % number == 0]
        boxes = [
            (a, b, cubes // (a * b))
            for a in sides
            for b in sides
            if a <= b and cubes % (a * b) == 0 and b * b * a <= cubes
        ]
        a, b, c = min(boxes, key=sum)
        return (CUBE * a, CUBE * b, CUBE * c)

    def has(self, axes: tuple[int, ...]) -> bool:
        """Whether a slice can have this shape."""
        whole = self.cubes and len(axes) == 3 and all(side % CUBE == 0 for side in axes)
        return tuple(sorted(axes)) in {tuple(sorted(shape)) for shape in self.shapes} or (
            whole and prod(axes) <= self.max_chips
        )

    def wrap(self, axes: tuple[int, ...]) -> tuple[bool, ...]:
        """Which axes of a slice of this shape wrap round."""
        if self.wraps == "axis of 16":
            return tuple(side == RING for side in axes)
        return (all(side % CUBE == 0 for side in axes),) * len(axes)


class GpuFamily(_Common):
    """A GPU model: part of one host, or whole hosts."""

    kind: Literal["gpu"]
    per_host: tuple[int, ...] = Field(min_length=1, description="GPUs that a machine can have; the last: a whole host")


Family = TpuFamily | GpuFamily


def read_families(folder: Path) -> dict[str, Family]:
    """All chip families declared in a folder, by name.

    Raises:
        InputError: a file does not validate, or its `name` differs from the file name.
    """
    families: dict[str, Family] = {}
    for file in sorted(folder.glob("*.yaml")):
        values = read_mapping(file)
        kind: type[TpuFamily] | type[GpuFamily] = TpuFamily if values.get("kind") == "tpu" else GpuFamily
        family: Family = declared(kind, values, file)
        if family.name != file.stem:
            raise InputError(f"chip family {file}: its name is {family.name!r}; name the file {family.name}.yaml")
        families[family.name] = family
    return families


def family_of(name: str, families: Mapping[str, Family]) -> tuple[Family, str] | None:
    """Family and size from a target's name (`tpu-v6e-4x8` -> v6e, `4x8`), or None."""
    family, _, size = name.rpartition("-")
    return (families[family], size) if family in families and _SIZE.fullmatch(size) else None


def describe(family: Family) -> str:
    """The slices of a family, in words, for error messages."""
    if isinstance(family, GpuFamily):
        return f"{', '.join(map(str, family.per_host))} GPUs, or a multiple of {family.per_host[-1]}"
    counts = [count * family.per_count for count in family.counts_to()]
    what = f"N counts {family.counts}" + (f", {family.cores_per_chip} a chip" if family.per_count > 1 else "")
    if len(counts) <= _LISTED:
        return f"{what}: {', '.join(map(str, counts))}"
    step = CUBE**3 * family.per_count
    small = [str(count) for count in counts if count < step]
    return f"{what}: {', '.join(small)}, or a multiple of {step} up to {counts[-1]}"


def slice_target(family: Family, size: str) -> HardwareTarget:
    """The hardware target of one slice of a family.

    Args:
        family: the chip family.
        size: a count as in the cloud's names, or for TPUs a shape (`4x4x8`).

    Raises:
        InputError: no such slice; the message lists those that exist, and the nearest.
    """
    if not _SIZE.fullmatch(size):
        raise InputError(f"{family.title}: {size!r} is no size of a slice; there are {describe(family)}")
    return _tpu(family, size) if isinstance(family, TpuFamily) else _gpu(family, size)


def _tpu(family: TpuFamily, size: str) -> HardwareTarget:
    axes = _tpu_axes(family, size)
    chips = prod(axes)
    hosts = -(-chips // family.chips_per_host)
    per_vm = chips if chips <= family.chips_per_host else family.chips_per_vm
    shape = "x".join(map(str, axes))
    count = chips * family.per_count
    counted = f"{count} cores, that is {chips} chips" if family.per_count > 1 else f"{chips} chips"
    wrap = family.wrap(axes)
    rings = (
        "every axis wraps round" if all(wrap) else "no axis wraps round" if not any(wrap) else "one axis wraps round"
    )
    rule = (
        f"an axis wraps round only at length {RING}"
        if family.wraps == "axis of 16"
        else f"axes wrap round only where every one is a multiple of {CUBE}"
    )
    kubernetes = None
    if family.kubernetes is not None:
        machine = family.kubernetes.machine_types.get(per_vm)
        if machine is None:
            raise InputError(f"families/{family.name}.yaml: kubernetes.machine_types has none with {per_vm} chips")
        kubernetes = Kubernetes(
            machine_type=machine,
            nodes=chips // per_vm,
            node_selector={
                "cloud.google.com/gke-tpu-accelerator": family.kubernetes.accelerator,
                "cloud.google.com/gke-tpu-topology": shape,
            },
            limits={"google.com/tpu": str(per_vm)},
            tolerations=(Toleration(key="google.com/tpu", operator="Exists", effect="NoSchedule"),),
        )
    return HardwareTarget(
        name=f"{family.name}-{size}",
        description=f"{family.title}, {counted} in {shape}, {rings}",
        kind="tpu",
        family=family.name,
        accelerator_type=f"{family.accelerator}-{count}",
        chips=chips,
        hosts=hosts,
        vms=chips // per_vm,
        memory=family.memory,
        peaks=family.peaks,
        bf16="native",
        links=_links(family, min(chips, family.chips_per_host), family.chips_per_host),
        topology=Topology(axes=axes, wrap=wrap, note=f"{rule}: {rings}; an open axis gives rings half the bandwidth"),
        xla_topology=None if family.xla is None else f"{family.xla.platform}:{shape}",
        xla_options={} if family.xla is None else family.xla.options,
        efficiency=family.efficiency,
        price=_price(family.price, chips),
        launcher="tpu-vm",
        kubernetes=kubernetes,
        sources=family.sources,
    )


def _tpu_axes(family: TpuFamily, size: str) -> tuple[int, ...]:
    """The shape of a slice given by count or by shape.

    Raises:
        InputError: no such slice; the message lists those that exist.
    """
    if "x" in size:
        axes = tuple(int(side) for side in size.split("x"))
        if 0 in axes or not family.has(axes):
            shapes = ", ".join("x".join(map(str, shape)) for shape in family.shapes)
            more = (
                f", or sides that are multiples of {CUBE} with at most {family.max_chips} chips" if family.cubes else ""
            )
            raise InputError(f"no {family.title} slice has the shape {size}: there are {shapes}{more}")
        return axes
    count = int(size)
    chips, rest = divmod(count, family.per_count)
    shape = None if rest or chips == 0 else family.shape_of(chips)
    if shape is None:
        possible = [number * family.per_count for number in family.counts_to()]
        below = [number for number in possible if number < count][-1:]
        above = [number for number in possible if number > count][:1]
        near = " and ".join(f"{family.name}-{number}" for number in below + above)
        raise InputError(f"there is no {family.name}-{size}: {describe(family)}; the nearest: {near}")
    return shape


def _gpu(family: GpuFamily, size: str) -> HardwareTarget:
    host = family.per_host[-1]
    count = int(size) if size.isdigit() else 0
    if count not in family.per_host and (count == 0 or count % host):
        raise InputError(f"there is no {family.name}-{size}: {describe(family)}")
    hosts = -(-count // host)
    each = count // hosts
    machine, kubernetes = None, None
    if family.kubernetes is not None:
        machine = family.kubernetes.machine_types[each]
        kubernetes = Kubernetes(
            machine_type=machine,
            nodes=hosts,
            node_selector={"cloud.google.com/gke-accelerator": family.kubernetes.accelerator},
            limits={"nvidia.com/gpu": str(each)},
            tolerations=(Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),),
        )
    where = "one host" if hosts == 1 else f"{hosts} hosts of {host}"
    return HardwareTarget(
        name=f"{family.name}-{size}",
        description=f"{count} x {family.title}, {where}",
        kind="gpu",
        family=family.name,
        accelerator_type=machine,
        chips=count,
        hosts=hosts,
        vms=hosts,
        memory=family.memory,
        peaks=family.peaks,
        bf16="native",
        quantization=("none", "nf4"),
        links=_links(family, each, host),
        efficiency=family.efficiency,
        price=_price(family.price, count),
        launcher="k8s",
        kubernetes=kubernetes,
        sources=family.sources,
    )


def _links(family: Family, chips: int, per_host: int) -> Links:
    """The family's links, with the network bandwidth of a machine that has `chips` of the host's `per_host`."""
    network = family.links.host_network_gb_per_s
    if network is None:
        return family.links
    share = network / per_host
    return family.links.model_copy(update={"host_network_gb_per_s": share * chips, "chip_network_gb_per_s": share})


def _price(price: ChipPrice, chips: int) -> Price:
    """The price of `chips` chips together."""
    hourly = price.usd_per_chip_hour
    each = "" if hourly is None else f"{chips} x {hourly:g} USD a chip and hour; "
    return Price(
        usd_per_hour=None if hourly is None else round(hourly * chips, 2), date=price.date, note=each + price.note
    )
