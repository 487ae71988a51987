"""What a deployment chooses about training (resources/recipes/training-*.yaml): strict, with a seed."""

from typing import Literal

from pydantic import Field, model_validator

from capibara_assets.declarations import Declared


class VoterSpec(Declared):
    """One voter: all start from the same LoRA weights, so that their deltas stay comparable."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="Folder name of its adapter")
    seed: int = Field(ge=0, description="Seed of its own order of examples")
    shard: int = Field(ge=0, description="It trains without this part of the train groups and validates on this one")


class LoraChoice(Declared):
    """LoRA settings that win over the plan's; None leaves the plan's."""

    rank: int | None = Field(None, gt=0)
    alpha: float | None = Field(None, gt=0)
    dropout: float | None = Field(None, ge=0, lt=1)
    modules: tuple[str, ...] | None = Field(None, description="Module-name suffixes")
    use_rslora: bool | None = None


class EpochChoice(Declared):
    """Which of a voter's weights on the way go to the checkpoint store, where there is one, and which stay there."""

    every: int = Field(1, gt=0, description="Validations between checkpoints; after the last one there is always one")
    optimizer: bool = Field(False, description="With AdamW's state: three times the bytes, to train on elsewhere")
    keep_last: int = Field(1, ge=1, description="Newest checkpoints kept when training has finished")
    keep_best: int | None = Field(1, ge=1, description="Best checkpoints kept then, by validation loss")


class TrainingRecipe(Declared):
    """Parameters of training. A None among them is taken from the domain's LoRA plan."""

    name: str = Field(description="Name of the profile")
    seed: int = Field(ge=0, description="Seed of LoRA's start, of the examples' order and of dropout")
    strategy: Literal["plain", "zero2"] = Field("plain", description="One process, or DeepSpeed ZeRO stage 2")
    voters: tuple[VoterSpec, ...] = Field(min_length=1, description="Independent runs; n >= 3f + 1 tolerate f bad ones")
    lora: LoraChoice = LoraChoice.model_validate({})

    epochs: float | None = Field(None, gt=0, description="Passes over the voter's examples")
    max_steps: int | None = Field(None, gt=0, description="Most optimizer steps, whatever the epochs")
    max_tokens: int | None = Field(None, gt=0, description="Tokens trained on, about: bounds a run's time")
    global_batch: int | None = Field(None, gt=0, description="Examples per optimizer step; accumulation follows")
    micro_batch_tokens: int = Field(2048, gt=0, description="Rows x longest row of one forward pass, at most")
    length_window: int = Field(4, gt=0, description="Optimizer steps' worth of examples sorted by length together")
    max_length: int | None = Field(None, gt=1, description="Most tokens of an example")

    learning_rate: float | None = Field(None, gt=0, description="Peak of warm-up and cosine")
    final_learning_rate: float = Field(0.1, ge=0, le=1, description="Share of the peak at the last step")
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps that warm up")
    weight_decay: float = Field(0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = Field(1e-8, gt=0)
    max_gradient_norm: float = Field(1.0, gt=0)

    precision: Literal["auto", "bf16", "fp32"] = Field("auto", description="auto: bf16 where the processor has it")
    attention: Literal["auto", "sdpa", "eager"] = Field("auto", description="auto: eager for short bf16 on a CPU")

    evaluate_every: int = Field(gt=0, description="Steps between validations on the voter's own shard")
    max_validation_examples: int | None = Field(None, gt=0, description="Of the shard, lowest digests first")
    checkpoint_every: int = Field(gt=0, description="Steps between resume points")
    keep_checkpoints: int = Field(2, ge=2, description="Resume points kept; two, so that one damaged is not the end")
    epoch_checkpoints: EpochChoice = EpochChoice.model_validate({})
    report_every: int = Field(5, gt=0, description="Steps between progress lines")
    max_skipped_steps: int = Field(5, ge=0, description="Steps with NaN or infinity that are skipped before giving up")

    threads: int = Field(1, gt=0, description="Processor threads of a voter; part of the environment's fingerprint")
    parallel: int | None = Field(None, gt=0, description="Voters at a time; None: processor cores / threads")
    max_restarts: int = Field(2, ge=0, description="Times a killed voter is started again from its last resume point")
    restart_delay_s: float = Field(1.0, ge=0, description="Wait before the first restart; doubles each time")

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

    @property
    def tolerated(self) -> int:
        """f: bad or missing voters that n = 3f + 1 tolerate."""
        return (len(self.voters) - 1) // 3

    @property
    def quorum(self) -> int:
        """2f + 1: finished voters without which nothing is published."""
        return 2 * self.tolerated + 1
