"""Machines as the prediction of a step's time sees them: peaks, memory, links, and islands of fast links."""

import re
from dataclasses import dataclass
from functools import cache
from math import ceil, log2, prod
from typing import Literal

from pydantic import Field, model_validator

from capibara_assets.deployment.declarations import Declared, declared, read_mapping
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.families import TpuFamily, read_families
from capibara_assets.planning.hardware.targets import HardwareTarget

Kind = Literal["tpu", "gpu", "cpu"]
REACHABLE = 0.8  # share of the peak assumed for a chip without measurements
PEAK_PER_EXPONENTIAL = 256
CPU_TILE = 16  # rows of an AMX or BFMMLA block; a CPU's cores are one machine
NVLINKED = 8  # GPUs that a host's NVLink joins
# Words that do not distinguish one chip's name from another's: vendor, product line, socket, kind of memory.
NOISE = re.compile(
    r"nvidia|amd|intel|habana|google|cloud|instinct|tesla|geforce|quadro|dgx|hgx|gpus?|tpus?|tensor|core|grace|hopper"
    r"|blackwell|ampere|ada|oam|sxm\d?|hbm\d?e?|superchip|nvlink"
)
POWER_EXPONENT = 0.4  # dynamic power grows with about the 2.5th power of the clock, since voltage follows it


class ChipFacts(Declared):
    """A vendor's figures for a chip; declared for chips that have no family file, else derived from that file."""

    kind: Literal["tpu", "gpu"]
    peak_tflops: dict[str, float]
    hbm_gib: float = Field(gt=0)
    hbm_gb_per_s: float = Field(gt=0)
    link_gb_per_s: float = Field(gt=0, description="one link (TPU) or the whole port (GPU), one way")
    chips_per_host: int = Field(ge=1)
    torus: int = Field(default=0, ge=0, le=3, description="dimensions; 0 = switched")
    source: str


class Accelerator(Declared):
    """One chip of `resources/planning/accelerators.yaml` (the file's header explains each field)."""

    family: str | None = None
    architecture: str | None = None
    facts: ChipFacts | None = None
    tile: int = Field(gt=0)
    gemm: float = Field(default=REACHABLE, gt=0, le=1)
    power: float = Field(default=1.0, gt=0, le=1)
    exp_per_s: float | None = Field(default=None, gt=0)
    network_gb_per_s: float | None = Field(default=None, gt=0)
    island: int = Field(default=NVLINKED, ge=1)
    aliases: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_source(self) -> "Accelerator":
        if (self.family is None) == (self.facts is None):
            raise ValueError("needs either `family` or `facts`")
        return self


@dataclass(frozen=True)
class Machine:
    """`chips` of one family, in islands of `island` chips with fast links; rates are per chip and second.

    `axes` and `wraps` describe the torus of one island; empty for a switch that joins all pairs at `link`. `reachable`
    is the share of the peak that the best matrix product reaches.
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
    reachable: float = REACHABLE
    exponentials: float = 0.0
    architecture: str = ""

    @property
    def hosts(self) -> int:
        return ceil(self.chips / self.chips_per_host)

    def peak(self, precision: str) -> float:
        """Dense FLOP/s of one chip in this precision; the bf16 peak where the chip declares none for it."""
        peaks = dict(self.peaks)
        return peaks.get(precision, peaks["bf16"])


@cache
def accelerators() -> dict[str, Accelerator]:
    """All chips of `accelerators.yaml`, by name."""
    file = resources_root() / "planning" / "accelerators.yaml"
    return {name: declared(Accelerator, values, f"{file}: {name}") for name, values in read_mapping(file).items()}


@cache
def facts_of(name: str) -> ChipFacts:
    """A chip's declared figures, or those of its family file."""
    accelerator = accelerators()[name]
    if accelerator.facts is not None:
        return accelerator.facts
    family = read_families(resources_root() / "hardware" / "families")[str(accelerator.family)]
    bandwidth = family.memory.bandwidth_gb_per_s
    if bandwidth is None:
        raise InputError(f"hardware family {family.name}: declares no memory bandwidth")
    tpu = isinstance(family, TpuFamily)
    return ChipFacts(
        kind="tpu" if tpu else "gpu",
        peak_tflops={str(precision): peak.tflops for precision, peak in family.peaks.items()},
        hbm_gib=family.memory.usable_gib,
        hbm_gb_per_s=bandwidth,
        link_gb_per_s=family.links.chip_gb_per_s,
        chips_per_host=family.chips_per_host if isinstance(family, TpuFamily) else NVLINKED,
        torus=len(family.shapes[0]) if isinstance(family, TpuFamily) else 0,
        source="; ".join(family.sources),
    )


@cache
def network_of(name: str) -> float:
    """Bandwidth (bytes/s) of one chip on the network between islands."""
    accelerator, facts = accelerators()[name], facts_of(name)
    if accelerator.network_gb_per_s is not None:
        return accelerator.network_gb_per_s * 1e9
    family = read_families(resources_root() / "hardware" / "families")[str(accelerator.family)]
    host = family.links.host_network_gb_per_s
    if host is None:
        raise InputError(f"accelerator {name}: neither it nor its family says how fast its network is")
    return host * 1e9 / facts.chips_per_host


def find_family(name: str) -> str:
    """Name in `accelerators.yaml` of the chip written as `TPU v5p`, `h100-80gb-sxm`, `A100` …

    Raises:
        InputError: unknown chip; the message lists the known ones.
    """
    plain = plain_name(name)
    known = _spellings()
    sliced = re.fullmatch(r"(v\d\w*?|7x)-\d+", plain)  # v5p-128: a slice's name in place of its chip's
    for spelling in (plain, plain.removeprefix("tpu-").removeprefix("tpu"), sliced[1] if sliced else plain):
        if spelling in known:
            return known[spelling]
    raise InputError(f"unknown accelerator {name!r}; known: {', '.join(accelerators())}")


def plain_name(name: str) -> str:
    """A chip's name without vendor, socket and memory type: `NVIDIA A100-SXM4-80GB` becomes `a100-80gb`."""
    words = re.findall(r"[a-z0-9.]+", name.lower().replace("tpuv", "v"))
    return "-".join(re.sub(r"^(\d+)g(ib)?$", r"\1gb", word) for word in words if not NOISE.fullmatch(word))


@cache
def _spellings() -> dict[str, str]:
    """Plain name or alias -> the chip's name in `accelerators.yaml`."""
    spellings: dict[str, str] = {}
    for known, accelerator in accelerators().items():
        for name in (known, accelerator.family, *accelerator.aliases):
            if name is not None:
                spellings.setdefault(plain_name(name), known)
    return spellings


def reachable_share(accelerator: Accelerator) -> float:
    """Share of the peak that the best matrix product reaches within the chip's power limit."""
    return float(accelerator.gemm * accelerator.power**POWER_EXPONENT)


def exponentials_per_s(chip: Accelerator, facts: ChipFacts) -> float:
    """Exponentials per second of one chip."""
    return chip.exp_per_s * 1e12 if chip.exp_per_s else facts.peak_tflops["bf16"] * 1e12 / PEAK_PER_EXPONENTIAL


def machine_of(target: HardwareTarget) -> Machine:
    """The machine of a hardware target.

    Raises:
        InputError: the target declares no bf16 peak or no memory bandwidth, so that no step time can be computed.
    """
    peaks = tuple((str(name), peak.tflops * 1e12) for name, peak in sorted(target.peaks.items()))
    bandwidth = target.memory.bandwidth_gb_per_s
    if "bf16" not in dict(peaks) or bandwidth is None:
        raise InputError(
            f"{target.name} declares no {'memory bandwidth' if peaks else 'bf16 peak'}"
            f" ({target.peaks_note or 'see its file'}): a step's time cannot be computed; measure it on the machine"
        )
    try:
        name = find_family(target.family)
    except InputError:
        name = ""
    known = accelerators().get(name)
    links, topology = target.links, target.topology
    per_host = max(1, target.chips // max(1, target.hosts))
    link = links.chip_gb_per_s * 1e9 if links is not None else bandwidth * 1e9
    network = links.host_network_gb_per_s if links is not None else None
    return Machine(
        family=name or target.family,
        kind=target.kind,
        chips=target.chips,
        island=prod(topology.axes) if topology is not None else min(target.chips, known.island if known else NVLINKED),
        peaks=peaks,
        memory_bytes=target.usable_bytes,
        hbm=bandwidth * 1e9,
        link=link,
        network=network * 1e9 / per_host if network else (network_of(name) if known else link / NVLINKED),
        tile=known.tile if known else CPU_TILE,
        chips_per_host=per_host,
        axes=topology.axes if topology is not None else (),
        wraps=topology.wrap if topology is not None else (),
        reachable=reachable_share(known) if known else REACHABLE,
        exponentials=exponentials_per_s(known, facts_of(name)) if known else dict(peaks)["bf16"] / PEAK_PER_EXPONENTIAL,
        architecture=(known.architecture if known else None) or name or target.family,
    )


def doublings(count: int) -> float:
    """log2 of a count, 0 for counts below 2: the scaling of the wait for the slowest host."""
    return log2(max(1, count))
