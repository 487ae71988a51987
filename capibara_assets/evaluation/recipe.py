"""The evaluation recipe, `resources/recipes/evaluation.yaml`: contenders, items and decoding."""

from typing import Literal, Self

from pydantic import Field, model_validator

from capibara_assets.deployment.declarations import Declared
from capibara_assets.evaluation.decoding import Decoding

Arm = Literal[
    "base", "playbook", "consensus", "consensus+playbook", "voters", "experts", "merged", "routed", "promoted"
]
ARMS: tuple[Arm, ...] = (
    "base", "playbook", "consensus", "consensus+playbook", "voters", "experts", "merged", "routed", "promoted",
)  # fmt: skip
NEEDED = frozenset({"base", "playbook", "consensus"})  # without them there is nothing to decide


class GenerationRecipe(Declared):
    """Which contenders generate answers, and to how many items."""

    contenders: tuple[Arm, ...] = Field(
        default=("base", "playbook", "consensus", "consensus+playbook"),
        description="Contenders that answer; losses are computed for all contenders.",
    )
    max_items: int = Field(
        default=72, ge=0, description="Items that are answered per domain, those that are graded first; 0: none."
    )
    k: tuple[int, ...] = Field(default=(1,), description="pass@k is reported for each; at most `decoding.samples`.")


class EvaluationRecipe(Declared):
    """What is measured for each contender on the held-out examples of a domain."""

    contenders: tuple[Arm, ...] = Field(
        default=ARMS, description="Who is compared; those that do not exist are left out."
    )
    max_test_examples: int = Field(
        default=64, ge=8, description="Test examples per domain whose losses are taken, by smallest id digest."
    )
    max_length: int = Field(
        default=1024, ge=128, description="Longer examples are left out of all arms alike, and counted."
    )
    playbook_budget_tokens: int = Field(
        default=512, ge=32, description="Tokens that the playbook may take in the context."
    )
    generation: GenerationRecipe = GenerationRecipe()
    decoding: Decoding = Decoding(max_new_tokens=192)
    workers: int | None = Field(default=None, ge=1, description="Processes that grade; None: one per core.")
    worst_examples: int = Field(default=8, ge=0, le=100, description="Worst examples that the report shows.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if absent := sorted(NEEDED - set(self.contenders)):
            raise ValueError(f"contenders: {', '.join(absent)} cannot be left out: the decision compares them")
        if unknown := sorted(set(self.generation.contenders) - set(self.contenders)):
            raise ValueError(f"generation.contenders: {', '.join(unknown)} are not among the contenders")
        k, samples = self.generation.k, self.decoding.samples
        if not k or min(k) < 1 or max(k) > samples:
            raise ValueError(f"generation.k: pass@{max(k, default=0)} needs that many samples, there are {samples}")
        if samples > 1 and self.decoding.temperature == 0:
            raise ValueError("decoding.samples: greedy answers are all the same; give a temperature above 0")
        return self
