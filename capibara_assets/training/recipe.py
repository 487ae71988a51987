"""The training recipe (resources/recipes/*.yaml): what a deployment chooses, in strict sections."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from capibara_assets.deployment.declarations import Declared
from capibara_assets.modeling.lora.targets import is_expert
from capibara_assets.modeling.precision import Quantization
from capibara_assets.training.strategy import PlainStrategy, Strategy, incompatibility

Backend = Literal["single", "ddp", "fsdp2", "zero2", "accelerate"]


class VoterSpec(Declared):
    """One voter. All voters start from the same LoRA weights, so that their deltas are comparable."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="Folder name of its adapter")
    seed: int = Field(ge=0, description="Seed of its own order of examples")
    shard: int = Field(ge=0, description="Part of the groups that it does not train on but validates on")
    strategy: Strategy = Field(default=PlainStrategy(), description="How it is trained")


class LoraChoice(Declared):
    """LoRA settings that override the LoRA plan's; None keeps the plan's."""

    rank: int | None = Field(None, gt=0)
    alpha: float | None = Field(None, gt=0)
    dropout: float | None = Field(None, ge=0, lt=1)
    modules: tuple[str, ...] | None = Field(
        None, description="Module-name suffixes; experts.gate_up_proj, experts.down_proj: of a mixture's experts"
    )
    use_rslora: bool | None = None
    use_dora: bool = Field(False, description="Weight-decomposed LoRA (arXiv 2402.09353): no sum of products any more")


class ModelChoice(Declared):
    """The model that is trained: base, its head and quantisation, LoRA settings, attention."""

    base: str | None = Field(
        None, description="Base model where none is named: a folder, one that ships, or id@revision"
    )
    head: Literal["auto", "causal", "seq2seq", "masked"] = Field("auto", description="auto: by the base's config")
    lora: LoraChoice = LoraChoice.model_validate({})
    quantization: Quantization | None = Field(None, description="How the frozen base is held; None: as the plan says")
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = Field(
        "auto", description="auto: by device, base and what is installed (modeling/attention.py)"
    )


class DataChoice(Declared):
    """Which examples are trained on, and how they are batched."""

    max_length: int | None = Field(None, gt=1, description="Most tokens of an example")
    on_fault: Literal["raise", "leave_out"] = Field(
        "leave_out", description="An example that cannot be trained on is an error, or left out by name and counted"
    )
    too_long: Literal["leave_out", "raise", "truncate"] | None = Field(
        None, description="Examples above max_length; truncate keeps their beginning; None: as on_fault says"
    )
    packing: bool = Field(False, description="Several examples in one row, without attention across them")
    weights: bool = Field(
        False, description="Draw examples by the dataset's weight and balance, where it has them; false: all alike"
    )
    length_window: int = Field(4, gt=0, description="Optimizer steps' worth of examples sorted by length together")
    max_validation_examples: int | None = Field(None, gt=0, description="Of the shard, lowest digests first")


class EarlyStopping(Declared):
    """Ends a training when validations stop improving."""

    patience: int = Field(gt=0, description="Validations without a better loss")
    min_delta: float = Field(0.0, ge=0, description="What counts as better, nats per token")


class TrainingChoice(Declared):
    """Length, batches, optimizer and schedule. Accumulation follows from the global batch."""

    epochs: float | Literal["auto"] | None = Field(None, description="Passes over the examples; auto: by their number")
    max_steps: int | None = Field(None, gt=0, description="Most optimizer steps, whatever the epochs")
    max_tokens: int | None = Field(None, gt=0, description="Tokens trained on, about: bounds a run's time")
    global_batch: int | None = Field(None, gt=0, description="Examples per optimizer step over all processes")
    micro_batch: int | None = Field(
        None, gt=0, description="Examples per process and pass; None: by micro_batch_tokens"
    )
    micro_batch_tokens: int = Field(2048, gt=0, description="Rows x longest row of one forward pass, at most")
    accumulation: int | None = Field(
        None, gt=0, description="Only checked: micro_batch x processes x it = global_batch"
    )

    optimizer: Literal["adamw", "adamw_8bit"] = Field("adamw", description="8-bit states need CUDA and bitsandbytes")
    learning_rate: float | None = Field(None, gt=0, description="Peak of warm-up and cosine")
    final_learning_rate: float = Field(0.1, ge=0, le=1, description="Share of the peak at the last step")
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps that warm up")
    weight_decay: float = Field(0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = Field(1e-8, gt=0)
    max_gradient_norm: float = Field(1.0, gt=0)

    evaluate_every: int = Field(gt=0, description="Steps between validations on the voter's own shard")
    early_stopping: EarlyStopping | None = None

    @model_validator(mode="after")
    def _epochs_are_positive(self) -> "TrainingChoice":
        if isinstance(self.epochs, float) and self.epochs <= 0:
            raise ValueError(f"epochs: {self.epochs:g} must be above 0")
        return self


class EmaChoice(Declared):
    """Exponential moving average of the trained weights: validated, saved and published in their place."""

    decay: float = Field(0.999, gt=0, lt=1)
    every: int = Field(1, gt=0, description="Optimizer steps between updates")


class SpikeChoice(Declared):
    """Rolls back to a snapshot after a loss far above recent ones, skipping its batch (PaLM, arXiv 2204.02311, 5.1)."""

    window: int = Field(32, ge=4, description="Steps whose losses it is compared with")
    sigmas: float = Field(6.0, gt=0, description="Standard deviations above their mean, and")
    relative: float = Field(0.5, gt=0, description="this share above their mean")
    snapshot_every: int = Field(10, gt=0, description="Steps between snapshots of weights and optimizer, in memory")
    max_rollbacks: int = Field(3, ge=0, description="More of them end the training")


class ScalerChoice(Declared):
    """Dynamic loss scale of fp16 (`torch.amp.GradScaler`)."""

    init_scale: float = Field(65536.0, gt=0)
    growth_factor: float = Field(2.0, gt=1)
    backoff_factor: float = Field(0.5, gt=0, lt=1)
    growth_interval: int = Field(2000, gt=0)


class ContinuityChoice(Declared):
    """Ends a training whose loss jumped after a resume in another environment: something was restored wrongly."""

    steps: int = Field(8, gt=0, description="Steps after the resume that are watched, by the mean of their losses")
    window: int = Field(32, ge=4, description="Steps before it whose losses that mean is compared with")
    sigmas: float = Field(4.0, gt=0, description="Standard errors above their mean, and")
    relative: float = Field(0.2, gt=0, description="this share above their mean")


class GuardChoice(Declared):
    """Reactions to NaN, infinity, loss spikes and broken resumes."""

    max_skipped_steps: int = Field(5, ge=0, description="Steps with NaN or infinity that are skipped before giving up")
    spike: SpikeChoice | None = None
    continuity: ContinuityChoice | None = Field(
        ContinuityChoice.model_validate({}), description="Ends a training whose loss jumped when it was resumed"
    )
    scaler: ScalerChoice = ScalerChoice.model_validate({})


class HardwareChoice(Declared):
    """Backend, processes, precision and threads. In the graph, backend, processes and precision that are left out or
    null are the LoRA plan's."""

    backend: Backend = Field("single", description="single: one process; else `processes` of them")
    processes: int = Field(1, gt=0, description="Processes (GPUs) of one voter on this host")
    deepspeed: dict[str, Any] | None = Field(
        None, description='zero2: the user\'s JSON: "auto" or what the recipe says'
    )
    precision: Literal["auto", "bf16", "fp16", "fp32"] = Field("auto", description="auto: bf16 where it is fast")
    tf32: bool = Field(True, description="CUDA: float32 matrix products in TF32")
    compile: bool = Field(False, description="torch.compile of the forward pass")
    gradient_checkpointing: int | None = Field(None, ge=0, description="Every n-th layer; 0 none; None: the plan's")
    share_base: bool = Field(
        True, description="CPU, several voters: they map the base's weights, so that these are in memory once"
    )
    threads: int = Field(1, gt=0, description="Processor threads of a voter; part of the environment's fingerprint")
    parallel: int | None = Field(
        None,
        gt=0,
        description="Voters at a time; None: one for each GPU or group of them; without any, cores / threads",
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        open_ = ("backend", "processes", "precision")
        return {key: value for key, value in values.items() if value is not None or key not in open_}

    @field_validator("backend", mode="before")
    @classmethod
    def _data_parallel_is_ddp(cls, value: Any) -> Any:
        if isinstance(value, str) and value.lower().replace("_", "").split(".")[-1] in ("dp", "dataparallel"):
            raise ValueError(
                f"backend {value}: DataParallel is not offered, it copies the model in each step and drives all GPUs "
                "from one process; set backend: ddp, and processes to the number of GPUs"
            )
        return value

    @model_validator(mode="after")
    def _one_process_is_single(self) -> "HardwareChoice":
        if self.backend == "single" and self.processes != 1:
            raise ValueError(
                f"backend single with {self.processes} processes: name ddp, fsdp2, zero2 or accelerate "
                "(DataParallel is not offered, it is slower than DDP)"
            )
        if self.deepspeed is not None and self.backend != "zero2":
            raise ValueError(f"a DeepSpeed configuration, but backend {self.backend}: set backend: zero2")
        return self


class EpochChoice(Declared):
    """Which of a voter's adapters go to the checkpoint store during training, and which of them are kept."""

    every: int = Field(1, gt=0, description="Validations between checkpoints; after the last one there is always one")
    optimizer: bool = Field(False, description="With AdamW's state: three times the bytes, to train on elsewhere")
    keep_last: int = Field(1, ge=1, description="Newest checkpoints kept when training has finished")
    keep_best: int | None = Field(1, ge=1, description="Best checkpoints kept then, by validation loss")


class CheckpointChoice(Declared):
    """Resume points, epoch checkpoints, and restarts of voters that were killed."""

    every: int = Field(gt=0, description="Steps between resume points")
    keep: int = Field(2, ge=2, description="Resume points kept; two, so that one damaged is not the end")
    epochs: EpochChoice = EpochChoice.model_validate({})
    max_restarts: int = Field(2, ge=0, description="Times a killed voter is started again from its last resume point")
    restart_delay_s: float = Field(
        1.0, ge=0, description="Wait before the first restart; doubles each time, 8 times at most"
    )


class ReportChoice(Declared):
    """Progress lines and exporters. Exporters copy the event log; none of them can stop a training."""

    every: int = Field(10, gt=0, description="Steps between progress lines; one comes after ten seconds at the latest")
    exporters: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    callbacks: tuple[str, ...] = Field(
        (), description="Own functions to call: entry points, package.module:name or file.py:name (callbacks.py)"
    )
    online: bool = Field(False, description="W&B sends at once where WANDB_API_KEY is set; else files for `wandb sync`")


class TrainingRecipe(Declared):
    """Parameters of a training. Where one is None, the domain's LoRA plan decides."""

    name: str = Field(description="Name of the profile")
    seed: int = Field(ge=0, description="Seed of LoRA's start, of the examples' order and of dropout")
    voters: tuple[VoterSpec, ...] = Field(min_length=1, description="Independent runs; n >= 3f + 1 tolerate f bad ones")
    model: ModelChoice = ModelChoice.model_validate({})
    data: DataChoice = DataChoice.model_validate({})
    training: TrainingChoice
    ema: EmaChoice | None = None
    guards: GuardChoice = GuardChoice.model_validate({})
    hardware: HardwareChoice = HardwareChoice.model_validate({})
    checkpoint: CheckpointChoice
    report: ReportChoice = ReportChoice.model_validate({})

    @model_validator(mode="after")
    def _voters_differ(self) -> "TrainingRecipe":
        names = [voter.name for voter in self.voters]
        if len(set(names)) != len(names):
            raise ValueError(f"voters must have different names: {', '.join(names)}")
        for voter in self.voters:
            if voter.shard >= len(self.voters):
                raise ValueError(
                    f"voter {voter.name}: shard {voter.shard}, but {len(self.voters)} voters make shards "
                    f"0..{len(self.voters) - 1}"
                )
        return self

    @model_validator(mode="after")
    def _strategies_fit(self) -> "TrainingRecipe":
        for voter in self.voters:
            if problem := incompatibility(voter.strategy, self):
                raise ValueError(f"voter {voter.name}: strategy {voter.strategy.kind}: {problem}")
        return self

    @model_validator(mode="after")
    def _zero2_has_its_optimizer(self) -> "TrainingRecipe":
        if self.hardware.backend == "zero2" and self.training.optimizer != "adamw":
            raise ValueError(f"backend zero2 shares out adamw, not {self.training.optimizer}: name adamw, or ddp")
        return self

    @model_validator(mode="after")
    def _several_voters_can_be_compared(self) -> "TrainingRecipe":
        lora = self.model.lora
        kind = "use_dora" if lora.use_dora else "experts" if any(map(is_expert, lora.modules or ())) else None
        if kind and len(self.voters) > 1:
            raise ValueError(
                f"model.lora: {kind} with {len(self.voters)} voters: such an adapter is more than scale * B @ A, so "
                "voters cannot be compared by it; train one voter, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _accumulation_fits(self) -> "TrainingRecipe":
        whole, micro, processes = self.training.global_batch, self.training.micro_batch, self.hardware.processes
        if whole is None or micro is None:
            return self
        if self.training.accumulation is not None:
            made = micro * processes * self.training.accumulation
            if made != whole:
                raise ValueError(
                    f"micro_batch {micro} x processes {processes} x accumulation {self.training.accumulation} = "
                    f"{made}, but global_batch is {whole}: change one of them, or leave accumulation out"
                )
        elif whole % (micro * processes):
            raise ValueError(
                f"global_batch {whole} is no multiple of micro_batch {micro} x processes {processes} = "
                f"{micro * processes}: the accumulation would be {whole / (micro * processes):.2f}"
            )
        return self

    def without_exporters(self) -> "TrainingRecipe":
        """The same training, exported nowhere."""
        return self.model_copy(update={"report": self.report.model_copy(update={"exporters": ()})})

    @property
    def tolerated(self) -> int:
        """f: number of bad or missing voters tolerated, with n >= 3f + 1 voters."""
        return (len(self.voters) - 1) // 3

    @property
    def quorum(self) -> int:
        """2f + 1: number of voters that must finish for anything to be published."""
        return 2 * self.tolerated + 1
