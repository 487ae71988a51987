"""The TPU plan's document: mesh, batch, step time, memory, the Pareto front it was chosen from, and trainers' files."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.planning.accounting import Method, Optimizer, Remat, flops_per_token
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.prediction.throughput import ThroughputReading
from capibara_assets.planning.writers.jax_config import Lora

NOT_COMPILED: Final = "not compiled"
Span = tuple[float, float, float]


class StepTime(BaseModel):
    """Predicted seconds of one step: the calibrated model's middle figure and interval (not a measurement)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float
    middle: float
    high: float
    coverage: float = Field(description="share of published runs, their models left out, that such an interval covers")
    terms: dict[str, float] = Field(description="seconds by kernel class, overlap taken off; they sum to the middle")
    resources: dict[str, float] = Field(description="the same by resource: compute, HBM, ICI, DCN, host")
    binds: str = Field(description="the largest resource; memory where a faster setting does not fit")


class FrontEntry(BaseModel):
    """One layout on the Pareto front of time, memory and cost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    setting: str
    mesh: Mesh
    remat: Remat
    global_batch: int
    sequence: int
    packed: bool
    memory: int = Field(description="bytes per chip")
    step_seconds: Span
    tokens_per_second: float
    tflops_per_chip: float
    binds: str
    relative_time: float = Field(description="time to the same loss over the best plan's")


class RefusedSetting(BaseModel):
    """A layout that does not fit in memory, with the arithmetic."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    setting: str
    reason: str


class TpuPlan(BaseModel):
    """One feasible TPU configuration; `reasons` explains it, `gin` and `maxtext` are complete configuration files.

    Spans are (low, middle, high).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    domain: str
    model: str
    shape: ModelShape
    target: str
    level: str
    mesh: Mesh
    submesh: tuple[int, int, int, int] = Field(description="(x, y, z, core) of one tensor-parallel group")
    global_batch: int = Field(description="rows a step, over all chips")
    per_device_batch: float = Field(description="rows per chip; below 1 under tensor parallelism")
    sequence: int
    packed: bool = Field(description="rows hold several examples")
    examples_per_row: float
    remat: Remat
    method: Method = Method.FULL
    lora: Lora | None = Field(default=None, description="of method lora; None: every weight is trained")
    optimizer: Optimizer
    learning_rate: float
    logit_chunks: int
    steps: int
    epochs: int = 1
    step_time: StepTime
    tokens_per_second: Span
    tflops_per_chip: Span = Field(description="model FLOPs, attention in full")
    share_of_peak: Span
    memory: dict[str, int] = Field(description="bytes per chip")
    memory_budget: int
    feasible: bool
    front: tuple[FrontEntry, ...] = Field(description="settings that no other beats; the first is the search's best")
    refused: tuple[RefusedSetting, ...]
    throughput_target: tuple[ThroughputReading, ...] = Field(default=(), description="every reading of a given target")
    seconds: Span
    usd: Span | None
    usd_note: str
    gin: str
    t5_model: str = Field(description="the T5 preset or model that the gin file fine-tunes")
    maxtext: str | None = Field(description="None for encoder-decoders, and where every weight does not fit")
    xla: dict[str, Any] = Field(description="XLA's verdict, or that it was not asked")
    reasons: dict[str, str]

    @property
    def examples_per_step(self) -> int:
        """Examples of an optimizer step over all chips."""
        return max(1, round(self.global_batch * self.examples_per_row))

    @property
    def trained_parameters(self) -> int:
        """Trained parameters: the adapter's, or all."""
        if self.lora is None:
            return self.shape.parameters
        return self.shape.lora_parameters(self.lora.rank, self.lora.modules)

    @property
    def flops_per_token(self) -> float:
        """Model FLOPs of a token: recomputation not counted, attention in full."""
        trained = self.trained_parameters if self.lora else 0
        return flops_per_token(self.shape, self.sequence, method=self.method, lora_parameters=trained)
