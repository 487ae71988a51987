"""What a deployment chooses about plans: the typed form of `resources/recipes/planning.yaml`."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from capibara_assets.declarations import Declared


class Rung(Declared):
    """One row of a half-open table: `value` for counts under `below`; the last row has no bound."""

    below: int | None = Field(default=None, gt=0)
    value: int = Field(gt=0)


Ladder = tuple[Rung, ...]


def climb(ladder: Sequence[Rung], count: int) -> int:
    """The value of the first rung that `count` is below."""
    return next(rung.value for rung in ladder if rung.below is None or count < rung.below)


def _check_ladder(name: str, ladder: Ladder) -> None:
    bounds = [rung.below for rung in ladder]
    finite = [bound for bound in bounds[:-1] if bound is not None]
    if not ladder or bounds[-1] is not None or len(finite) != len(bounds) - 1 or finite != sorted(set(finite)):
        raise ValueError(f"{name}: bounds must rise, and the last rung (alone) has none; got {bounds}")


class LoraRecipe(Declared):
    """How the LoRA recipe follows from data and hardware."""

    ranks: Ladder = Field(description="rank by training examples")
    hard_difficulty: float = Field(gt=0, le=1, description="mean difficulty from which the rank is doubled")
    rank_per_hidden: int = Field(gt=0, description="largest rank is hidden size over this (at least 8)")
    max_rank: int = Field(gt=0)
    alpha_per_rank: float = Field(gt=0)
    rslora_from_rank: int = Field(gt=0, description="rank from which alpha is scaled by 1/sqrt(r) instead of 1/r")
    dropout: float = Field(ge=0, lt=1)
    epochs: Ladder = Field(description="epochs by training examples")
    global_batches: Ladder = Field(description="examples per optimizer step by training examples")
    cpu_micro_batch: int = Field(gt=0, description="largest micro-batch on a CPU")
    gpu_micro_batch: int = Field(gt=0, description="largest micro-batch on one GPU")
    learning_rate: float = Field(gt=0, description="at hidden size 4096")
    learning_rate_exponent: float = Field(ge=0, le=1, description="rate grows as (4096/hidden) to this power")
    max_learning_rate: float = Field(gt=0)
    max_length: int = Field(gt=0, description="longest sequence planned")
    length_step: int = Field(gt=0, description="lengths are multiples of this")

    @model_validator(mode="after")
    def _ladders_rise(self) -> "LoraRecipe":
        for name in ("ranks", "epochs", "global_batches"):
            _check_ladder(name, getattr(self, name))
        return self


class TpuRecipe(Declared):
    """How the TPU configuration follows from data and slice."""

    max_length: int = Field(gt=0)
    length_step: int = Field(gt=0, description="a multiple of 128, the lanes of a vector register")
    learning_rate: float = Field(gt=0, description="peak rate of full fine-tuning with AdamW (MaxText)")
    t5_learning_rate: float = Field(gt=0, description="constant rate with Adafactor (T5X)")
    t5_dropout: float = Field(ge=0, lt=1)
    t5_pretrained_steps: int = Field(ge=0, description="steps of the public checkpoint that fine-tuning goes on from")
    t5_loss_normalizing_factor: int = Field(gt=0, description="2048·114 for the public T5 1.1 checkpoints")
    t5_default: str = Field(description="T5 preset of the gin file where the base model is decoder-only")
    logit_chunks: int = Field(gt=0, description="vocabulary tiling of the loss")
    max_tensor: int = Field(gt=0, description="largest tensor-parallel group that a plan may use")
    storage_root: str = Field(description="where checkpoints and data of TPU jobs lie; a gs:// path or a placeholder")


class PlanningRecipe(Declared):
    """Choices for all plans."""

    headroom: float = Field(gt=0, le=1, description="share of the usable memory that a plan may fill")
    chars_per_token: float = Field(gt=0, description="used where the statistics carry no token lengths")
    method: Literal["lora"] = Field(default="lora", description="what lora_config plans")
    xla: Literal["skip", "lower", "compile"] = Field(
        default="skip", description="whether tpu_config has its step lowered (needs jax) or compiled (needs libtpu too)"
    )
    lora: LoraRecipe
    tpu: TpuRecipe
