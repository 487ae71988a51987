"""A hardware target's typed declaration: memory, peaks, links, topology and price."""

from math import prod
from typing import Literal

from pydantic import Field, model_validator

from capibara_assets.deployment.declarations import Declared

GIB = 1024**3
Quantization = Literal["none", "nf4"]


class PeakRate(Declared):
    """Dense peak rate of one chip for one number format."""

    tflops: float = Field(gt=0)
    source: str


class Memory(Declared):
    """Memory of one chip (for a CPU target, of the machine)."""

    total_gib: float = Field(gt=0)
    usable_gib: float = Field(gt=0, description="memory available to a program; plans must fit in it")
    bandwidth_gb_per_s: float | None = Field(default=None, gt=0)
    usable_source: str

    @model_validator(mode="after")
    def _usable_is_real(self) -> "Memory":
        # A TPU compiler may leave slightly more than the marketing figure (v5p: 95.73 of "95"), hence the 2 %.
        if self.usable_gib > self.total_gib * 1.02:
            raise ValueError(f"usable_gib {self.usable_gib} exceeds total_gib {self.total_gib}")
        return self


class Topology(Declared):
    """Topology of one slice: lengths of the torus or mesh axes, and which of them wrap round."""

    axes: tuple[int, ...]
    wrap: tuple[bool, ...]
    note: str

    @model_validator(mode="after")
    def _one_wrap_per_axis(self) -> "Topology":
        if len(self.axes) != len(self.wrap) or min(self.axes, default=0) < 1:
            raise ValueError(f"axes {self.axes} and wrap {self.wrap} must be equally long and positive")
        return self


class Links(Declared):
    """Bandwidths between chips and between hosts, in GB/s one way."""

    chip_gb_per_s: float = Field(gt=0, description="one link (TPU) or the whole port (NVLink), one way")
    kind: Literal["ici", "nvlink"]
    links_per_chip: int | None = Field(default=None, gt=0, description="ICI links of a chip, one to each neighbour")
    host_network_gb_per_s: float | None = Field(
        default=None, gt=0, description="data-centre network of one host, or of the share of it that the target has"
    )
    chip_network_gb_per_s: float | None = Field(default=None, gt=0, description="a chip's share of it")
    source: str


class Efficiency(Declared):
    """Share of the bf16 peak sustained by published training runs on this chip family."""

    best: float = Field(gt=0, lt=1)
    typical: float = Field(gt=0, lt=1, description="median of the published runs")
    source: str

    @model_validator(mode="after")
    def _ordered(self) -> "Efficiency":
        if self.typical > self.best:
            raise ValueError(f"typical {self.typical} exceeds best {self.best}")
        return self


class Price(Declared):
    """On-demand price of the whole target; null with the reason where none is certain."""

    usd_per_hour: float | None = Field(default=None, ge=0)
    date: str | None = None
    note: str

    @model_validator(mode="after")
    def _dated(self) -> "Price":
        if (self.usd_per_hour is None) != (self.date is None):
            raise ValueError("a price needs its date, and a date its price")
        return self


class Toleration(Declared):
    """A Kubernetes toleration of a pod."""

    key: str
    operator: Literal["Exists", "Equal"]
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Kubernetes(Declared):
    """Kubernetes selectors, resource limits and tolerations for a pod on this hardware (one pod per node)."""

    node_selector: dict[str, str]
    limits: dict[str, str]
    tolerations: tuple[Toleration, ...] = ()
    nodes: int = Field(default=1, ge=1, description="nodes, and so pods, that make up the target")
    machine_type: str | None = None


class HardwareTarget(Declared):
    """Hardware that a training can run on: a machine or a slice."""

    name: str
    description: str
    kind: Literal["cpu", "gpu", "tpu"]
    family: str = Field(description="chip family, which fitted efficiencies refer to")
    accelerator_type: str | None = Field(default=None, description="the cloud's name of the slice or machine")
    chips: int = Field(ge=1, description="devices that a sharding can use; 1 for a CPU machine")
    cores: int | None = Field(default=None, ge=1, description="CPU cores, for CPU targets")
    hosts: int = Field(default=1, ge=1, description="machines; each has one set of network cards")
    vms: int = Field(default=1, ge=1, description="virtual machines: a JAX process or a pod runs on each")
    memory: Memory
    peaks: dict[Literal["fp32", "tf32", "bf16", "fp8", "int8"], PeakRate] = Field(default_factory=dict)
    peaks_note: str | None = Field(default=None, description="why a peak is missing")
    bf16: Literal["native", "measure"] = Field(description="measure: decided by timing on the machine (CPUs)")
    quantization: tuple[Quantization, ...] = ("none",)
    links: Links | None = None
    topology: Topology | None = None
    xla_topology: str | None = Field(default=None, description="name for jax.experimental.topologies")
    xla_options: dict[str, str] = Field(default_factory=dict)
    efficiency: Efficiency | None = None
    price: Price
    launcher: Literal["local", "k8s", "tpu-vm"]
    kubernetes: Kubernetes | None = None
    sources: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "HardwareTarget":
        if self.topology is not None and prod(self.topology.axes) != self.chips:
            raise ValueError(f"topology {self.topology.axes} has {prod(self.topology.axes)} chips, not {self.chips}")
        if not self.peaks and not self.peaks_note:
            raise ValueError("no peaks: say why in peaks_note")
        if self.kind == "tpu" and (self.topology is None or self.links is None or self.efficiency is None):
            raise ValueError("a TPU target needs topology, links and efficiency")
        if self.chips > 1 and self.links is None:
            raise ValueError("several chips need links")
        return self

    @property
    def usable_bytes(self) -> int:
        """Bytes available to a program on one chip (for a CPU target, on the machine)."""
        return int(self.memory.usable_gib * GIB)

    def peak(self, precision: str) -> float | None:
        """Dense peak of one chip in FLOP/s, or None where none is declared."""
        peak = self.peaks.get(precision)  # type: ignore[call-overload]
        return None if peak is None else float(peak.tflops) * 1e12
