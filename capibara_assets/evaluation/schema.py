"""Tables and documents of an evaluation: losses and scores per contender and held-out item, and the decision."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pydantic
from pydantic import Field

from capibara_assets.storage.records import Record

Verdict = Literal["promote", "reject", "inconclusive"]
DecisionOutcome = Literal[
    "adopt",
    "overfitting",
    "small_gain",
    "below_bar",
    "worse_than_base",
    "worse_than_promoted",
    "worse_slice",
    "crashed_arm",
    "second_look",
    "few_groups",
    "wide_interval",
    "many_domains",
]


class ExampleLoss(Record):
    """Loss of one contender on one held-out example."""

    schema_name: ClassVar[str] = "example_loss"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("contender", "example_id")

    contender: str = Field(
        description="base, playbook, a voter, consensus, consensus+playbook, expert:<domain>, merged, routed, promoted."
    )
    example_id: str = Field(description="The held-out example.")
    group_id: str = Field(description="Its group: the unit of resampling.")
    nll: float = Field(description="Summed negative log-likelihood of the assistant's tokens, in nats.")
    tokens: int = Field(description="Number of assistant tokens scored.")


class ItemScore(Record):
    """Score of one contender on one held-out item, in the metric that decides."""

    schema_name: ClassVar[str] = "item_score"
    schema_version: ClassVar[int] = 2
    key: ClassVar[tuple[str, ...]] = ("contender", "item_id")

    contender: str = Field(description="As in example_loss.")
    item_id: str = Field(description="The held-out item.")
    group_id: str = Field(description="Its group: the unit of resampling.")
    score: float = Field(description="What is summed up: pass or fail as 1 or 0, a share, or nats (loss, perplexity).")
    weight: float = Field(default=1.0, description="What the sum is divided by: 1, or the tokens scored.", gt=0)
    kind: str = Field(default="", description="Slice that may not get worse, such as the example's kind; empty: none.")
    source: str = Field(default="", description="Where the item comes from: another slice; empty: none.")


class Interval(pydantic.BaseModel):
    """An estimate with its two-sided interval."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    estimate: float
    low: float
    high: float
    n: int = Field(description="Held-out items.")
    groups: int = Field(description="Independent groups among them.")
    confidence: float | None = Field(default=None, description="Of the interval.")
    method: str | None = Field(default=None, description="How it was made.")
    p_value: float | None = Field(default=None, description="Two-sided, that the truth is 0.")
    detectable: float | None = Field(
        default=None,
        description="The smallest difference that these items would have shown with 80 % power; null: none.",
    )
    needed: float | None = Field(default=None, description="What the lower end has to reach.")
    needed_p_value: float | None = Field(default=None, description="Two-sided, that the truth is what is needed.")


class ArmScore(pydantic.BaseModel):
    """The result of one arm: the metric, and its score on the rule's range."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    value: float = Field(description="The metric over all items, such as nats per token.")
    score: Interval = Field(description="On the rule's range: 0 its bad end, 1 its good end.")


class SliceResult(pydantic.BaseModel):
    """The result on a slice (a kind or a source of items, another domain): whether it got worse."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    gain: Interval | None = Field(description="Over what serves without the adapter; null: too few groups to say.")
    p_holm: float | None = Field(description="Adjusted for the number of slices.")
    worse: bool


class Decision(pydantic.BaseModel):
    """The decision about one domain's consensus adapter, with its figures and reason."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[2] = 2
    verdict: Verdict
    outcome: DecisionOutcome | None = Field(
        description="The region of the rule, or the guard, that the verdict comes from; null: of an older version."
    )
    reason: str = Field(description="One readable paragraph: what was compared, by how much, why.")
    metric: str = Field(description="What was measured, such as loss_per_assistant_token or pass@1.")
    metric_reason: str = Field(default="", description="Why it decided, where another could have.")
    arms: dict[str, ArmScore] = Field(description="Those that were run, by contender.")
    gain_over_base: Interval | None = Field(description="Score minus the base's; null: an arm crashed.")
    gain_over_playbook: Interval | None = Field(
        description="Score minus the base's with the playbook; null: the domain has no graduated bullet (contract 3)."
    )
    gain_of_playbook: Interval | None = Field(
        default=None, description="What the playbook adds to the consensus adapter."
    )
    p_value: float | None = Field(default=None, description="That it falls short of what is needed; null: not judged.")
    items_needed: int | None = Field(default=None, description="Items to add for a verdict, where it is inconclusive.")
    slices: dict[str, SliceResult] = Field(default_factory=dict)
    look: int | None = Field(
        default=None, description="Number of this use of these test items; null: uses are not counted."
    )


def read_decision(document: Mapping[str, Any]) -> Decision:
    """Read a published decision; fields that version 1 lacks are null.

    Raises:
        pydantic.ValidationError: the document is of neither version.
    """
    if "schema_version" in document:
        return Decision.model_validate(document)
    unsaid: dict[str, Any] = {"schema_version": 2, "outcome": None, "metric": "loss_per_assistant_token", "arms": {}}
    return Decision.model_validate({**document, **unsaid})
