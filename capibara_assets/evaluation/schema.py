"""Tables and documents of an evaluation: each contender's loss on each held-out example, and what was decided."""

from typing import ClassVar, Literal

import pydantic
from pydantic import Field

from capibara_assets.storage.records import Record

Verdict = Literal["promote", "reject", "inconclusive"]


class ExampleLoss(Record):
    """Loss of one contender on one held-out example."""

    schema_name: ClassVar[str] = "example_loss"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("contender", "example_id")

    contender: str = Field(description="base, playbook, a voter, consensus, expert:<domain> or merged.")
    example_id: str = Field(description="The held-out example.")
    group_id: str = Field(description="Its group: the unit of resampling.")
    nll: float = Field(description="Summed negative log-likelihood of the assistant's tokens, in nats.")
    tokens: int = Field(description="Number of assistant tokens scored.")


class Interval(pydantic.BaseModel):
    """An estimate with its two-sided interval."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    estimate: float
    low: float
    high: float
    n: int = Field(description="Held-out examples.")
    groups: int = Field(description="Independent groups among them.")


class Decision(pydantic.BaseModel):
    """What was decided about one domain's consensus adapter, by how much, and why."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict
    reason: str = Field(description="One readable paragraph: what was compared, by how much, why.")
    gain_over_base: Interval
    gain_over_playbook: Interval | None = Field(description="None: the domain has no graduated bullet (contract 3).")
