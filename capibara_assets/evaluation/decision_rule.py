"""The decision rule: `resources/recipes/decision.yaml`."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from capibara_assets.deployment.declarations import Declared
from capibara_assets.domains import Domain

LOWER = frozenset({"loss_per_assistant_token", "perplexity"})
HIGHER = frozenset({"exact_match", "repair_rate", "bleu", "chrf", "rouge_l"})
_PASS = re.compile(r"pass@[1-9]\d*(/(un)?seen)?")

End = float | Literal["base"]


class ScoreRule(Declared):
    """Metric of a domain, its mapping to a score between 0 and 1, and the required score.

    A point is a hundredth of the range. A loss's bad end may be `base`: the base model's own loss on the same items, so
    that a score is the share of it that is saved.
    """

    metric: str = Field(default="pass@1", description="pass@<k>, exact_match, loss_per_assistant_token …")
    direction: Literal["higher", "lower"] = Field(default="higher", description="Which way is better.")
    range: tuple[End, End] = Field(
        default=(0.0, 1.0), description="Lowest and highest value; a loss's highest may be base."
    )
    min_score: float = Field(default=0.90, ge=0, le=1, description="The score's lower end must reach it.")
    min_gain: float = Field(
        default=0.05, ge=0, le=1, description="So must the lower end of what it is above the base with the playbook."
    )

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        if metric not in LOWER | HIGHER and not _PASS.fullmatch(metric):
            raise ValueError(f"unknown metric {metric!r}: one of {', '.join(sorted(LOWER | HIGHER))}, or pass@<k>")
        return metric

    @model_validator(mode="after")
    def _sound(self) -> "ScoreRule":
        wanted = "lower" if self.metric in LOWER else "higher"
        if self.direction != wanted:
            raise ValueError(f"direction of {self.metric} is {wanted}, not {self.direction}")
        if self.good == "base" or (self.bad == "base" and wanted == "higher"):
            raise ValueError("range: base may only be the bad end, and of a loss: a share may leave nothing to gain")
        if not isinstance(self.bad, str) and not float(self.range[0]) < float(self.range[1]):
            raise ValueError(f"range: the lowest value comes first: {list(self.range)}")
        return self

    @property
    def bad(self) -> End:
        """The end of the range that scores 0."""
        return self.range[0] if self.direction == "higher" else self.range[1]

    @property
    def good(self) -> End:
        """The end of the range that scores 1."""
        return self.range[1] if self.direction == "higher" else self.range[0]


class DecisionRule(Declared):
    """The rule by which a domain's consensus adapter is promoted over the base model."""

    default: ScoreRule = Field(default_factory=ScoreRule, description="The score of every domain …")
    domains: dict[Domain, ScoreRule] = Field(
        default_factory=dict, description="… and what differs in a domain (keys of `default`; the others are as there)."
    )
    graded: ScoreRule | None = Field(
        default=None,
        description="The score that decides in place of a loss where enough items are graded and it can tell; null: "
        "never.",
    )
    min_graded: int = Field(default=60, ge=1, description="Graded items of a domain that are enough.")
    min_groups: int = Field(
        default=6, ge=2, description="Groups of test items without which no interval is believed: inconclusive."
    )
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    resamples: int = Field(default=10_000, ge=1_000)
    seed: int = 20_261_120

    @model_validator(mode="before")
    @classmethod
    def _domains_inherit(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or not isinstance(values.get("domains"), Mapping):
            return values
        default = values.get("default") or {}
        plain = default.model_dump() if isinstance(default, ScoreRule) else default
        own = {
            name: {**plain, **given} if isinstance(given, Mapping) else given
            for name, given in values["domains"].items()
        }
        return {**values, "domains": own}

    def deciding_by(self, score: ScoreRule) -> "DecisionRule":
        """The rule with this score for every domain."""
        return self.model_copy(update={"default": score, "domains": {}, "graded": None})

    def score(self, domain: str) -> ScoreRule:
        """The score rule of a domain, or the default for a benchmark of another name."""
        return next((rule for known, rule in self.domains.items() if known.value == domain), self.default)
