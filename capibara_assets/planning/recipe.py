"""The planning recipe: typed form of `resources/recipes/planning.yaml`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from capibara_assets.deployment.declarations import Declared
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat

Flag = Annotated[str, Field(pattern=r"^--[a-z][a-z0-9_]*=[A-Za-z0-9_.,:/-]+$")]
"""A flag for libtpu: it stands in scripts, so that nothing in it means anything to a shell."""
LevelName = Literal["conservative", "balanced", "aggressive"]
LEVELS: tuple[LevelName, ...] = ("conservative", "balanced", "aggressive")


class ThresholdRow(Declared):
    """One row of a threshold table: `value` applies to counts under `below`; the last row has no bound."""

    below: int | None = Field(default=None, gt=0)
    value: int = Field(gt=0)


ThresholdTable = tuple[ThresholdRow, ...]


def lookup(table: Sequence[ThresholdRow], count: int) -> int:
    """The value of the first row whose bound is above `count`."""
    return next(row.value for row in table if row.below is None or count < row.below)


def _check_table(name: str, table: ThresholdTable) -> None:
    bounds = [row.below for row in table]
    finite = [bound for bound in bounds[:-1] if bound is not None]
    if not table or bounds[-1] is not None or len(finite) != len(bounds) - 1 or finite != sorted(set(finite)):
        raise ValueError(f"{name}: bounds must rise, and only the last row has none; got {bounds}")


class LoraRecipe(Declared):
    """Rules that derive a LoRA plan from data and hardware."""

    ranks: ThresholdTable = Field(description="rank by training examples")
    hard_difficulty: float = Field(gt=0, le=1, description="mean difficulty from which the rank is doubled")
    rank_per_hidden: int = Field(gt=0, description="largest rank is hidden size over this (at least 8)")
    max_rank: int = Field(gt=0)
    alpha_per_rank: float = Field(gt=0)
    rslora_from_rank: int = Field(gt=0, description="rank from which alpha is scaled by 1/sqrt(r) instead of 1/r")
    dropout: float = Field(ge=0, lt=1)
    epochs: ThresholdTable = Field(description="epochs by training examples")
    global_batches: ThresholdTable = Field(description="examples per optimizer step by training examples")
    learning_rate: float = Field(gt=0, description="at hidden size 4096")
    learning_rate_exponent: float = Field(ge=0, le=1, description="rate grows as (4096/hidden) to this power")
    max_learning_rate: float = Field(gt=0)
    max_length: int = Field(gt=0, description="longest sequence planned")
    length_step: int = Field(gt=0, description="lengths are multiples of this")
    packing_gain: float = Field(
        ge=1, description="packed where a row of max_length holds at least so many examples of median length"
    )

    @model_validator(mode="after")
    def _bounds_rise(self) -> "LoraRecipe":
        for name in ("ranks", "epochs", "global_batches"):
            _check_table(name, getattr(self, name))
        return self


class TpuRecipe(Declared):
    """Rules that derive a TPU plan from data and slice."""

    method: Literal["lora", "full"] = Field(
        default="lora",
        description="what a plan for a decoder trains: an adapter, as `trained_adapters` does, or every weight;"
        " encoder-decoders are always trained whole, as T5X does",
    )
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
    xla_flags: tuple[Flag, ...] = Field(
        default=(), description="for libtpu, as --name=value; checked against the installed libtpu, refused if unknown"
    )


class PlanLevel(Declared):
    """A planning level: limits on memory, recomputation and batch."""

    headroom: float = Field(gt=0, le=1, description="share of the usable memory that a plan may fill")
    remat: tuple[Remat, ...] = Field(
        min_length=1, description="recomputation policies that a plan may choose from, least recomputation first"
    )
    micro_batch: int = Field(gt=0, description="most sequences per GPU or TPU chip and pass")
    cpu_micro_batch: int = Field(gt=0, description="most sequences per pass on a CPU")
    batch_growth: float = Field(
        ge=1,
        description="a global batch is at most this times what the data asks for, but at least one sequence a shard",
    )

    @model_validator(mode="after")
    def _remat_rises(self) -> "PlanLevel":
        order = [list(Remat).index(policy) for policy in self.remat]
        if order != sorted(set(order)):
            raise ValueError(f"remat: {[*self.remat]} must go from least recomputation to most, each once")
        return self


class DomainChoice(Declared):
    """Overrides of the LoRA recipe for one domain, with the reason."""

    max_length: int | None = Field(default=None, gt=0, description="longest sequence, where above the common one")
    rank_factor: float = Field(default=1.0, gt=0, description="on the rank that the examples ask for")
    learning_rate_factor: float = Field(default=1.0, gt=0)
    dropout: float | None = Field(default=None, ge=0, lt=1)
    packing: bool | None = Field(default=None, description="None: decided by the lengths")
    reason: str = Field(min_length=1, description="what in the domain's data asks for it")


class PresetRun(Declared):
    """The model and hardware target of a shipped training recipe; its values stay in its own file."""

    model: str = Field(description="a model preset of planning/presets.py")
    target: str


class PlanningRecipe(Declared):
    """The planning recipe of a deployment: levels, per-domain overrides, and rules for LoRA and TPU plans."""

    level: LevelName = Field(default="balanced", description="which of the levels below holds")
    levels: dict[LevelName, PlanLevel]
    domains: dict[Domain, DomainChoice] = Field(default_factory=dict, description="specialisations, by domain")
    presets: dict[str, PresetRun] = Field(
        default_factory=dict, description="training recipes that the planner accounts for, by their name"
    )
    chars_per_token: float = Field(gt=0, description="used where the statistics carry no token lengths")
    method: Literal["lora"] = Field(default="lora", description="what lora_config plans")
    xla: Literal["auto", "skip", "lower", "place", "compile"] = Field(
        default="auto",
        description="whether tpu_config has its step lowered (needs jax) or compiled (needs libtpu too); auto: compiled"
        " wherever libtpu can be imported, else not",
    )
    lora: LoraRecipe
    tpu: TpuRecipe

    @model_validator(mode="before")
    @classmethod
    def _headroom_is_a_levels(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "headroom" in values:
            raise ValueError("headroom: belongs to a level (levels.balanced.headroom)")
        return values

    @model_validator(mode="after")
    def _levels_are_complete(self) -> "PlanningRecipe":
        missing = [name for name in LEVELS if name not in self.levels]
        if missing:
            raise ValueError(f"levels: {', '.join(missing)} missing; all of {', '.join(LEVELS)} are needed")
        rooms = [self.levels[name].headroom for name in LEVELS]
        if rooms != sorted(rooms):
            raise ValueError(f"levels: headroom must not fall from conservative to aggressive; got {rooms}")
        return self

    @property
    def limits(self) -> PlanLevel:
        """Limits of the recipe's level."""
        return self.levels[self.level]

    @property
    def headroom(self) -> float:
        """Share of the usable memory that a plan may fill, at the recipe's level."""
        return self.limits.headroom

    def at_level(self, level: str | None) -> "PlanningRecipe":
        """A copy with another level; None keeps the recipe's own.

        Raises:
            InputError: unknown level.
        """
        if level is None:
            return self
        if level not in self.levels:
            raise InputError(f"no planning level {level!r}: choose one of {', '.join(LEVELS)}")
        return self.model_copy(update={"level": level})

    def for_domain(self, domain: str) -> DomainChoice | None:
        """The domain's overrides, or None."""
        return next((choice for name, choice in self.domains.items() if name == domain), None)
