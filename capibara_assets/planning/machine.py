"""The chips that a step runs on, as far as its time depends on them: peaks, memory, links and where the fast ones end."""

import re
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, log2, prod
from typing import Literal

from pydantic import Field

from capibara_assets.declarations import Declared, declared, read_mapping
from capibara_assets.errors import InputError
from capibara_assets.locations import resources_root
from capibara_assets.planning.hardware import GIB, HardwareTarget

Kind = Literal["tpu", "gpu", "cpu"]
REACHABLE = 0.8  # of the peak of a chip that nothing was measured on
PEAK_PER_EXPONENTIAL = 256
CPU_TILE = 16  # rows of an AMX or BFMMLA block; a CPU's cores are one machine


class Accelerator(Declared):
    """One chip family, as `resources/planning/accelerators.yaml` declares it (its head explains each figure)."""

    kind: Kind
    peak_tflops: dict[str, float]
    hbm_gib: float = Field(gt=0)
    hbm_gb_per_s: float = Field(gt=0)
    tile: int = Field(gt=0)
    torus: int = Field(default=0, ge=0, le=3, description="dimensions of the torus; 0 = switched")
    wrap_at: int = Field(default=16, gt=0, description="an axis wraps where its length is a multiple of this")
    island: int = Field(ge=1)
    link_gb_per_s: float = Field(gt=0)
    network_gb_per_s: float = Field(gt=0)
    chips_per_host: int = Field(ge=1)
    cores_named: int = Field(default=1, description="what one chip counts for in accelerator types (v5p-128: 2)")
    power: float = Field(default=1.0, gt=0, le=1)
    gemm: float = Field(default=0.8, gt=0, le=1)
    exp_per_s: float | None = Field(default=None, gt=0)
    aliases: tuple[str, ...] = ()
    source: str


@dataclass(frozen=True)
class Machine:
    """`chips` of one family, in islands of `island` chips; rates in units a second, one chip.

    `axes` and `wraps` describe the torus of one island; empty for a switch that joins all pairs at `link`. `reachable` is
    the share of the peak that the best matrix product gets.
    """

    family: str
    kind: Kind
    chips: int
    island: int
    peaks: tuple[tuple[str, float], ...]
    memory_bytes: int
    hbm: float
    link: float
    network: float
    tile: int
    chips_per_host: int
    axes: tuple[int, ...] = ()
    wraps: tuple[bool, ...] = ()
    reachable: float = 1.0
    exponentials: float = 0.0

    @property
    def islands(self) -> int:
        return ceil(self.chips / self.island)

    @property
    def hosts(self) -> int:
        return ceil(self.chips / self.chips_per_host)

    def peak(self, precision: str) -> float:
        """Dense FLOP/s of one chip for matrix products in this precision; bf16 where the chip has no such unit."""
        peaks = dict(self.peaks)
        return peaks.get(precision, peaks["bf16"])

    def widened(self, factor: float) -> "Machine":
        """The same machine with all bandwidths times `factor`, for questions of the kind "what if"."""
        return replace(self, hbm=self.hbm * factor, link=self.link * factor, network=self.network * factor)


def accelerators() -> dict[str, Accelerator]:
    """All families that ship, by name."""
    return dict(_accelerators())


@cache
def _accelerators() -> dict[str, Accelerator]:
    file = resources_root() / "planning" / "accelerators.yaml"
    return {name: declared(Accelerator, values, f"{file}: {name}") for name, values in read_mapping(file).items()}


def find_family(name: str) -> str:
    """The family that a table's name of a chip means: `TPU v5p`, `h100-80gb-sxm`, `A100` …

    Raises:
        InputError: unknown; the message lists the known ones.
    """
    plain = re.sub(r"[\s_]+", "-", name.strip().lower()).removeprefix("nvidia-").removeprefix("amd-")
    for family, accelerator in _accelerators().items():
        if plain in {family, family.removeprefix("tpu-"), f"tpu-{family.removeprefix('tpu')}", *accelerator.aliases}:
            return family
    raise InputError(f"unknown accelerator {name!r}; known: {', '.join(_accelerators())}")


def machine(family: str, chips: int, islands: int = 1) -> Machine:
    """`chips` of a family in `islands` equal slices or hosts (at least as many as their size asks for).

    Raises:
        InputError: unknown family, or chips that islands do not divide.
    """
    found = _accelerators()[find_family(family)]
    if chips < 1 or islands < 1:
        raise InputError(f"{family}: {chips} chips in {islands} slices is no machine")
    size = ceil(chips / islands)
    if found.kind != "tpu":
        size = min(found.island, chips)
    axes = slice_axes(size, found.torus, found.wrap_at) if found.torus else ()
    return Machine(
        family=find_family(family),
        kind=found.kind,
        chips=chips,
        island=size,
        peaks=tuple((name, tera * 1e12) for name, tera in found.peak_tflops.items()),
        memory_bytes=int(found.hbm_gib * GIB),
        hbm=found.hbm_gb_per_s * 1e9,
        link=found.link_gb_per_s * 1e9,
        network=found.network_gb_per_s * 1e9,
        tile=found.tile,
        chips_per_host=min(found.chips_per_host, size),
        axes=axes,
        wraps=axis_wraps(axes, found.wrap_at),
        reachable=_reachable(found),
        exponentials=_exponentials(found),
    )


def _reachable(found: Accelerator) -> float:
    # Dynamic power grows with about the 2.5th power of the clock (voltage follows it), so clocks fall with power^0.4.
    return float(found.gemm * found.power**0.4)


def _exponentials(found: Accelerator) -> float:
    return found.exp_per_s * 1e12 if found.exp_per_s else found.peak_tflops["bf16"] * 1e12 / PEAK_PER_EXPONENTIAL


def slice_axes(chips: int, dimensions: int, wrap_at: int) -> tuple[int, ...]:
    """The sides of a slice: of all that multiply to `chips` the most compact, whole multiples of `wrap_at` preferred.

    So v5e-64 is 8x8 and v5p-256 (128 chips) 4x4x8, as the cloud cuts them.
    """
    if dimensions == 1:
        return (chips,)
    options = []
    for side in range(1, chips + 1):
        if chips % side == 0:
            options += [(side, *rest) for rest in _splits(chips // side, dimensions - 1) if side <= rest[0]]
    # Three-dimensional slices are whole cubes of 4x4x4 wherever they can be; two-dimensional ones just compact.
    cubes = [axes for axes in options if dimensions == 3 and all(axis % wrap_at == 0 for axis in axes)]
    return min(cubes or options, key=lambda axes: (sum(axes), axes))


@cache
def _splits(chips: int, dimensions: int) -> tuple[tuple[int, ...], ...]:
    if dimensions == 1:
        return ((chips,),)
    sides = (side for side in range(1, chips + 1) if chips % side == 0)
    return tuple(
        (side, *rest) for side in sides for rest in _splits(chips // side, dimensions - 1) if side <= rest[0]
    )


def axis_wraps(axes: tuple[int, ...], wrap_at: int) -> tuple[bool, ...]:
    """Which axes close to rings: two-dimensional ones at length 16, three-dimensional ones when all are multiples of 4."""
    if len(axes) == 3:
        return (all(axis % wrap_at == 0 for axis in axes),) * 3
    return tuple(axis % wrap_at == 0 for axis in axes)


def machine_of(target: HardwareTarget) -> Machine:
    """The machine that a hardware target declares.

    Raises:
        InputError: no bf16 peak or memory bandwidth is declared: its step time cannot be computed.
    """
    peaks = tuple((name, peak.tflops * 1e12) for name, peak in sorted(target.peaks.items()))
    bandwidth = target.memory.bandwidth_gb_per_s
    if "bf16" not in dict(peaks) or bandwidth is None:
        raise InputError(
            f"{target.name} declares no {'memory bandwidth' if peaks else 'bf16 peak'}"
            f" ({target.peaks_note or 'see its file'}): a step's time cannot be computed; measure it on the machine"
        )
    try:
        known: Accelerator | None = _accelerators()[find_family(target.family)]
    except InputError:
        known = None
    links = target.links
    link = links.chip_gb_per_s * 1e9 if links is not None else bandwidth * 1e9
    hosts = max(1, target.hosts)
    network = links.host_network_gb_per_s if links is not None else None
    per_host = max(1, target.chips // hosts)
    topology = target.topology
    return Machine(
        family=find_family(target.family) if known else target.family,
        kind=target.kind,
        chips=target.chips,
        island=prod(topology.axes) if topology is not None else min(target.chips, known.island if known else 8),
        peaks=peaks,
        memory_bytes=target.usable_bytes,
        hbm=bandwidth * 1e9,
        link=link,
        network=(network * 1e9 / per_host) if network else (known.network_gb_per_s * 1e9 if known else link / 8),
        tile=known.tile if known else CPU_TILE,
        chips_per_host=per_host,
        axes=topology.axes if topology is not None else (),
        wraps=topology.wrap if topology is not None else (),
        reachable=_reachable(known) if known else REACHABLE,
        exponentials=_exponentials(known) if known else dict(peaks)["bf16"] / PEAK_PER_EXPONENTIAL,
    )


def doublings(count: int) -> float:
    """log2 of a count, 0 for one: how often a group of stragglers has doubled."""
    return log2(max(1, count))
