"""What a deployment chooses about its training sets (resources/recipes/dataset.yaml)."""

from pydantic import Field, model_validator

from capibara_assets.datasets.schema import SPLITS, Kind, Split
from capibara_assets.declarations import Declared
from capibara_assets.domains import Domain


class NearDuplicates(Declared):
    """MinHash-LSH over token shingles; candidate pairs are verified by their exact Jaccard similarity."""

    permutations: int = Field(112, gt=0, description="MinHash permutations")
    bands: int = Field(14, gt=0, description="LSH bands; permutations / bands rows each")
    shingle: int = Field(5, gt=0, description="Tokens per shingle")
    jaccard: float = Field(0.8, gt=0, le=1, description="Least exact similarity of a near-duplicate")
    seed: int = Field(1, description="Seed of the permutations")

    @model_validator(mode="after")
    def _whole_bands(self) -> "NearDuplicates":
        if self.permutations % self.bands:
            raise ValueError(f"{self.permutations} permutations do not divide into {self.bands} bands")
        return self


class DifficultyWeights(Declared):
    """Share of each ingredient in an example's difficulty; they are normalised to sum to one."""

    attempts: float = Field(0.3, ge=0, description="Failed attempts before the code worked")
    error: float = Field(0.2, ge=0, description="How hard the class of error met is to mend")
    complexity: float = Field(0.3, ge=0, description="Decisions in the code (branches, joins, sub-queries)")
    length: float = Field(0.2, ge=0, description="Tokens of the answer")

    @model_validator(mode="after")
    def _not_all_zero(self) -> "DifficultyWeights":
        if self.attempts + self.error + self.complexity + self.length <= 0:
            raise ValueError("at least one weight of difficulty must be above zero")
        return self


class Routing(Declared):
    """Prompts for the router."""

    per_domain: int = Field(800, gt=0, description="Most prompts kept of one domain, lowest digest first")
    near: tuple[tuple[Domain, Domain], ...] = Field(description="Pairs of domains that are easily confused")
    hard_negative_similarity: float = Field(0.35, gt=0, le=1, description="Word Jaccard that makes a hard negative")


class DatasetRecipe(Declared):
    """Parameters of groups, splits, examples and routes."""

    splits: dict[Split, float] = Field(description="Share of the groups in train, validation and test")
    minimum_groups: int = Field(4, ge=1, description="Groups that validation and test get where a domain has enough")
    substance_tokens: int = Field(20, ge=1, description="Code of fewer tokens never links two sandboxes")
    link_up_to_sandboxes: int = Field(
        8, ge=2, description="Code in more sandboxes than this is common and links nothing"
    )
    near_duplicates: NearDuplicates = Field(default_factory=lambda: NearDuplicates.model_validate({}))
    caps: dict[Kind, float] = Field(
        description="Largest share of a domain's examples, for kinds other than its main kind"
    )
    cap_floor: int = Field(240, ge=0, description="Caps do not push a domain below this many examples")
    solutions_per_task: int = Field(3, gt=0, description="Most different solutions kept of one task statement")
    tests_shown: int = Field(4, gt=0, description="Most assertions quoted in a prompt")
    context_chars: int = Field(1500, ge=0, description="Most characters of earlier cells quoted in a prompt")
    max_prompt_chars: int = Field(4000, gt=0, description="Longer prompts are left out, never cut")
    max_answer_chars: int = Field(2400, gt=0, description="Longer answers are left out, never cut")
    max_output_chars: int = Field(400, gt=0, description="Longest output that predict asks for")
    difficulty: DifficultyWeights = Field(default_factory=lambda: DifficultyWeights.model_validate({}))
    routing: Routing

    @model_validator(mode="after")
    def _sound(self) -> "DatasetRecipe":
        if (
            set(self.splits) != set(SPLITS)
            or min(self.splits.values()) <= 0
            or abs(sum(self.splits.values()) - 1) > 1e-9
        ):
            raise ValueError(f"splits must give {', '.join(SPLITS)} shares above zero that sum to 1")
        if any(not 0 < cap <= 1 for cap in self.caps.values()):
            raise ValueError("caps must lie in (0, 1]")
        return self
