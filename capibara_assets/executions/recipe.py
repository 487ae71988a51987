"""What a deployment chooses about its experience: the window, the languages and the thresholds."""

from datetime import datetime
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from capibara_assets.errors import InputError
from capibara_assets.locations import resources_root


class ExperienceRecipe(BaseModel):
    """Parameters of reading executions and playbooks (resources/recipes/experience.yaml)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


def load_recipe(path: Path | None = None) -> ExperienceRecipe:
    """The recipe in `path`, or the deployment's resources/recipes/experience.yaml.

    Raises:
        InputError: the file is missing, is no YAML mapping, or holds a value that does not fit.
    """
    source = path or resources_root() / "recipes" / "experience.yaml"
    try:
        document = yaml.safe_load(source.read_text(encoding="utf-8"))
        return ExperienceRecipe.model_validate({} if document is None else document)
    except OSError as error:
        raise InputError(f"cannot read the experience recipe {source}: {error.strerror}") from error
    except (yaml.YAMLError, ValidationError) as error:
        raise InputError(f"the experience recipe {source} does not fit: {error}") from error
