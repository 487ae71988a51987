"""The experience recipe: which executions and playbooks a deployment uses (time window, languages, thresholds)."""

from datetime import datetime
from typing import Any

from pydantic import Field, field_validator

from capibara_assets.deployment.declarations import Declared
from capibara_assets.domains import Domain
from capibara_assets.playbooks.consolidate import COVERAGE, TOP_K
from capibara_assets.playbooks.graduation import HALF_LIFE_DAYS

_DAYS = 100_000


class ExperienceRecipe(Declared):
    """Parameters of reading executions and playbooks (resources/recipes/experience.yaml)."""

    time_range_days: int = Field(
        30, gt=0, le=_DAYS, description="Executions at most this many days older than as_of are used"
    )
    as_of: datetime | None = Field(None, description="End of the window; None: the newest execution")
    languages: tuple[str, ...] = Field(
        ("python", "javascript", "sql"), description="Languages of executions that are used"
    )
    min_success_rate: float = Field(
        0.7, ge=0, le=1, description="Least success rate of a pattern (never of repair pairs)"
    )
    min_quality_score: float = Field(0.6, ge=0, le=1, description="Least quality score of an execution")
    min_graduation_score: float = Field(0.85, ge=0, le=1, description="Least graduation score of an agent's playbook")
    min_interactions: int = Field(100, ge=0, description="Least number of interactions of a graduated agent")
    min_agent_success_rate: float = Field(0.85, ge=0, le=1, description="Least success rate of a graduated agent")
    domain_expertise: tuple[Domain, ...] | None = Field(
        None, description="A graduated agent knows one of these domains; None: any"
    )
    evidence_half_life_days: float = Field(
        HALF_LIFE_DAYS, gt=0, description="Age at which a rating of a bullet counts half"
    )
    top_k: int = Field(TOP_K["standard"], gt=0, description="Most bullets kept per domain, or standard or large")
    playbook_budget_tokens: int = Field(512, gt=0, description="Token budget of the in-context playbook")
    playbook_coverage: float = Field(
        COVERAGE, gt=0, le=1, description="Share of the weighted coverage that the in-context playbook keeps"
    )

    def agent_filter(self) -> dict[str, Any]:
        """Thresholds of a graduated agent, as fields of `playbooks.graduation.AgentFilter`."""
        expertise = {} if self.domain_expertise is None else {"domain_expertise": list(self.domain_expertise)}
        return {
            "min_graduation_score": self.min_graduation_score,
            "min_interactions": self.min_interactions,
            "min_success_rate": self.min_agent_success_rate,
            **expertise,
        }

    def playbook_size(self) -> dict[str, Any]:
        """Limits on a domain's playbook, as keyword arguments of `playbooks.consolidate.consolidate`."""
        budget, coverage = self.playbook_budget_tokens, self.playbook_coverage
        return {"top_k": self.top_k, "budget_tokens": budget, "coverage": coverage}

    @field_validator("top_k", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return TOP_K.get(value, value) if isinstance(value, str) else value

    @field_validator("as_of")
    @classmethod
    def _with_zone(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("as_of needs a time zone, such as 2026-10-30T00:00:00Z")
        if value is not None and not 1970 <= value.year <= 9000:
            raise ValueError("as_of needs a year from 1970 to 9000")
        return value
