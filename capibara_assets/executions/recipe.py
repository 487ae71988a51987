"""What a deployment chooses about its experience: the window, the languages and the thresholds."""

from datetime import datetime

from pydantic import Field, field_validator

from capibara_assets.declarations import Declared


class ExperienceRecipe(Declared):
    """Parameters of reading executions and playbooks (resources/recipes/experience.yaml)."""

    time_range_days: int = Field(30, gt=0, description="Executions at most this many days older than as_of are used")
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
    top_k: int = Field(5000, gt=0, description="Most bullets kept per domain")
    playbook_budget_tokens: int = Field(512, gt=0, description="Token budget of the in-context playbook")

    def agent_filter(self) -> dict[str, float | int]:
        """The thresholds of a graduated agent, under the names of `playbooks.AgentFilter`."""
        return {
            "min_graduation_score": self.min_graduation_score,
            "min_interactions": self.min_interactions,
            "min_success_rate": self.min_agent_success_rate,
        }

    @field_validator("as_of")
    @classmethod
    def _with_zone(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("as_of needs a time zone, such as 2026-10-30T00:00:00Z")
        return value
