"""The data classes of a training plan: voters, time and the whole; `plan.plan` makes them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from capibara_assets.training.plan.files import PlannedFiles, SavedSizes
from capibara_assets.training.plan.memory import MemoryPlan


@dataclass(frozen=True)
class MeasuredSpeed:
    """A probe's measurements on this machine, with this base, recipe and data.

    Attributes:
        tokens_per_s: of training steps, padding not counted.
        validation_tokens_per_s: of validations.
        start_s: from the process's start to the first step.
        memory_bytes: peak memory over that held before the base was loaded.
        steps: optimizer steps that were timed.
    """

    tokens_per_s: float
    validation_tokens_per_s: float
    start_s: float
    memory_bytes: int
    steps: int


@dataclass(frozen=True)
class TimePlan:
    """Predicted seconds and cost of the whole run; None, with the reason, where they cannot be known.

    Attributes:
        seconds: (best, typical); equal where they were measured.
        usd: (best, typical) cost.
        source: what they are computed from, or why they are not known.
        usd_note: on the price.
        tokens_per_s: typical speed of one voter.
        each: typical seconds of each voter alone.
    """

    seconds: tuple[float, float] | None
    usd: tuple[float, float] | None
    source: str
    usd_note: str
    tokens_per_s: float | None
    each: tuple[float, ...] | None = None


@dataclass(frozen=True)
class VoterPlan:
    """The planned training of one voter.

    Attributes:
        trainings: number of trainings it consists of (seeds, clients x rounds, levels; else 1).
        examples: that it trains on; `epochs` passes over them.
        steps: optimizer steps, over all its trainings.
        micro_steps: forward and backward passes of one process.
        tokens: trained on, padding not counted.
        validations: number of validations, each on `validation_examples` (`validation_tokens` tokens).
    """

    name: str
    strategy: str
    trainings: int
    examples: int
    epochs: float
    steps: int
    micro_steps: int
    tokens: int
    validations: int
    validation_examples: int
    validation_tokens: int


@dataclass(frozen=True)
class TrainingPlan:
    """The plan of a training.

    Attributes:
        parameters: of the base; `trainable` of one voter's adapter, as PEFT counts them.
        adapted: number of linear layers with an adapter.
        accumulation: how micro-batches make up the global batch, for people.
        memory: of one process.
        smaller: what is tried once where memory runs out; empty where nothing smaller is left.
        budget_bytes: memory of the device or machine that the run is planned for; None where none was named.
    """

    domain: str
    base: str
    recipe: str
    target: str
    parameters: int
    trainable: int
    adapted: int
    modules: tuple[str, ...]
    modules_reason: str
    rank: int
    quantization: str
    precision: str
    attention: str
    attention_reason: str
    gradient_checkpointing: int
    backend: str
    processes: int
    parallel: int
    global_batch: int
    accumulation: str
    examples: int
    examples_left_out: int
    supervised_share: float
    longest: int
    tokens_exact: bool
    tokens_source: str
    size: SavedSizes
    files: tuple[PlannedFiles, ...]
    voters: tuple[VoterPlan, ...]
    memory: MemoryPlan
    budget_bytes: int | None
    time: TimePlan
    smaller: str
    warnings: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all files together, at the most."""
        return sum(file.bytes for file in self.files)

    @property
    def steps(self) -> int:
        """Optimizer steps of all voters."""
        return sum(voter.steps for voter in self.voters)

    @property
    def micro_steps(self) -> int:
        """Forward and backward passes of all voters, of one process each."""
        return sum(voter.micro_steps for voter in self.voters)

    def document(self) -> dict[str, Any]:
        """The plan as JSON, with its sums."""
        files = [{**dataclasses.asdict(file), "bytes": file.bytes} for file in self.files]
        memory = {**dataclasses.asdict(self.memory), "together": self.memory.together}
        return {
            **dataclasses.asdict(self),
            "files": files,
            "memory": memory,
            "bytes": self.bytes,
            "optimizer_steps": self.steps,
            "micro_steps": self.micro_steps,
        }
