"""Configuration of our JAX trainer (YAML or JSON): written by a plan, read by `training.jax`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from capibara_assets.deployment.declarations import Declared, declared, read_declared
from capibara_assets.planning.accounting import Method, Optimizer, Remat
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.recipe import Flag

VERSION: Literal[1] = 1
HEAD = (
    "# What the JAX trainer runs, computed from a plan. On every host of the slice:\n"
    "#   python3 -m capibara_assets.training.jax THIS_FILE\n"
    "# Paths are folders or gs:// (extra gcp); `capibara dataset export DOMAIN --storage ROOT` writes the data.\n"
)


class Lora(Declared):
    """LoRA settings; the base model stays frozen."""

    rank: int = Field(gt=0)
    alpha: float = Field(gt=0, description="the update is scaled by alpha / rank (alpha / sqrt(rank) with rslora)")
    rslora: bool = False
    modules: tuple[str, ...] = Field(min_length=1, description="linear layers, by their names in Transformers")


class Chip(Declared):
    """The chip that a configuration was planned for, against which a run on it is measured."""

    target: str
    peak_tflops: float | None = Field(default=None, gt=0, description="of one chip in bf16, dense")
    step_seconds: tuple[float, float, float] | None = Field(default=None, description="predicted: low, middle, high")


class Schedule(Declared):
    """Learning rate: linear warm-up from 0 to `peak`, then cosine to `final`, or constant."""

    kind: Literal["cosine", "constant"] = "cosine"
    peak: float = Field(gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    final: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _falls(self) -> "Schedule":
        if self.final > self.peak:
            raise ValueError(f"final {self.final:g} is above peak {self.peak:g}")
        return self


class JaxConfig(Declared):
    """One training job over a slice.

    `sequences` is the global batch: sequences per optimizer step over the whole slice; it divides by the mesh's batch
    shards and by `micro_steps`, over which gradients are summed.
    """

    version: Literal[1] = VERSION
    domain: str
    model: ModelShape = Field(description="sizes; the weights in `base` have to agree")
    base: str = Field(description="folder or gs:// path of config.json, tokenizer and safetensors")
    data: str = Field(description="JSON lines of {messages: [{role, content}, ...]}; the assistant's are supervised")
    validation: str | None = Field(default=None, description="the same, to validate on; None: no validation")
    evaluate_every: int | None = Field(
        default=None, gt=0, description="steps between validations; None: before the first and after the last step only"
    )
    publish: Literal["last", "best"] = Field(default="last", description="which weights are written at the end")
    output: str = Field(description="folder or gs:// path for checkpoints, metrics and the result")
    mesh: Mesh
    sequences: int = Field(gt=0, description="rows per optimizer step over the slice")
    examples: int | None = Field(
        default=None,
        gt=0,
        description="examples per optimizer step, in the order of the PyTorch trainer; rows left over stay empty. None:"
        " `sequences` rows filled from the whole dataset",
    )
    order: str | None = Field(default=None, description="seed of that order; None: `seed`")
    length_window: int = Field(default=4, gt=0, description="steps' worth of examples sorted by length together")
    max_length: int | None = Field(default=None, gt=1, description="most tokens of an example; None: `sequence`")
    too_long: Literal["leave_out", "raise", "truncate"] | None = None
    micro_steps: int = Field(default=1, ge=1, description="passes per optimizer step (gradient accumulation)")
    sequence: int = Field(gt=0, description="tokens; of encoder-decoders of the inputs")
    target_sequence: int | None = Field(default=None, gt=0, description="tokens of the targets; encoder-decoders only")
    packing: bool = Field(default=True, description="several examples in one sequence, attention kept apart")
    remat: Remat
    method: Method
    lora: Lora | None = None
    start: str | None = Field(default=None, description="PEFT adapter that training starts from; None: drawn by `seed`")
    optimizer: Optimizer = Optimizer.ADAMW
    weight_decay: float = Field(default=0.0, ge=0)
    clip_norm: float | None = Field(default=1.0, gt=0)
    schedule: Schedule
    steps: int = Field(gt=0, description="optimizer steps")
    save_every: int = Field(gt=0, description="steps between checkpoints")
    seed: int = 42
    compute_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    weight_dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="of trained weights; a frozen base is held in compute_dtype"
    )
    logit_chunks: int = Field(default=1, ge=1, description="parts of the sequence whose logits exist at once")
    xla_flags: tuple[Flag, ...] = Field(default=(), description="for LIBTPU_INIT_ARGS")
    xla_cache: str | None = Field(default=None, description="folder in which compiled programs are kept between runs")
    chip: Chip | None = None

    @model_validator(mode="after")
    def _adds_up(self) -> "JaxConfig":
        if (self.lora is not None) != (self.method is Method.LORA):
            raise ValueError(f"method {self.method} {'needs' if self.lora is None else 'has no'} lora settings")
        if (self.target_sequence is not None) != (self.model.family == "t5"):
            raise ValueError("target_sequence belongs to encoder-decoders, and they need it")
        passes = self.mesh.batch_shards * self.micro_steps
        if self.sequences % passes:
            raise ValueError(
                f"sequences {self.sequences} is no multiple of {self.mesh.batch_shards} batch shards x"
                f" {self.micro_steps} micro-steps = {passes}"
            )
        if self.publish == "best" and self.validation is None:
            raise ValueError("publish best needs validation")
        if self.start is not None and self.lora is None:
            raise ValueError("start is an adapter, which method lora alone has")
        if self.max_length is not None and self.max_length > self.sequence:
            raise ValueError(f"max_length {self.max_length} exceeds the rows' {self.sequence} tokens")
        if self.schedule.warmup_steps > self.steps:
            raise ValueError(f"warmup_steps {self.schedule.warmup_steps} exceed steps {self.steps}")
        if self.sequence % self.logit_chunks:
            raise ValueError(f"sequence {self.sequence} is no multiple of logit_chunks {self.logit_chunks}")
        return self


def render_jax_config(config: JaxConfig) -> str:
    """The configuration as YAML; `read_jax_config` reads it back unchanged."""
    return HEAD + yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=120)


def read_jax_config(file: Path) -> JaxConfig:
    """Read a configuration from a YAML or JSON file.

    Raises:
        InputError: unreadable; an unknown, duplicate or missing key; or inconsistent settings.
    """
    return read_declared(file, JaxConfig)


def jax_config(values: Mapping[str, Any], source: object = "JAX configuration") -> JaxConfig:
    """Validate a configuration given as a mapping; raises like `read_jax_config`."""
    return declared(JaxConfig, values, source)
