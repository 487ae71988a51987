"""Settings of training sets (resources/recipes/dataset.yaml)."""

from pydantic import Field, model_validator

from capibara_assets.datasets.schema import SPLITS, Kind, Split
from capibara_assets.deployment.declarations import Declared
from capibara_assets.domains import Domain


class NearDuplicates(Declared):
    """Settings of the near-duplicate search: MinHash-LSH over token shingles, verified by exact Jaccard similarity."""

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


class SameProblem(Declared):
    """Thresholds for two texts, in any languages, about one problem (datasets/duplicates/problems.py)."""

    words: float = Field(0.8, gt=0, le=1, description="Least similarity of the words of two statements, alone")
    words_with_case: float = Field(0.4, gt=0, le=1, description="The same where they also share a telling case")
    cases: int = Field(2, ge=1, description="Telling cases that, shared, suffice alone (and half of the fewer ones)")
    problems_per_case: int = Field(
        4, ge=1, description="A case in more different lists of cases than this tells nothing"
    )


class DifficultyWeights(Declared):
    """Weights of the components of an example's difficulty; normalised to sum to one."""

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
    """Settings of the router's prompts; `include_routing: false` disables them."""

    per_domain: int = Field(800, gt=0, description="Most prompts kept of one domain, lowest digest first")
    near: tuple[tuple[Domain, Domain], ...] = Field(description="Pairs of domains that are easily confused")
    hard_negative_similarity: float = Field(0.35, gt=0, le=1, description="Word Jaccard that makes a hard negative")
    most_imbalance: float = Field(
        100.0, ge=1, description="Largest ratio of two domains' training prompts that weights may even out"
    )


class Verification(Declared):
    """Kinds of examples whose code is executed in the local sandbox; verdicts are cached by digest."""

    kinds: tuple[Kind, ...] = Field(
        ("solve", "apply", "repair"), description="Kinds whose answers are executed with their hidden tests"
    )
    replayed: tuple[Kind, ...] = Field(
        ("predict",),
        description="Kinds whose recorded execution runs again where no test judged the answer; without predict in it"
        " there are no such examples",
    )
    per_kind: int = Field(10_000, ge=0, description="Most examples of each kind that are executed, lowest digest first")
    timeout_s: float = Field(10.0, gt=0, description="Most seconds of one cell")
    memory_mib: int = Field(2048, gt=0, description="Most memory of one session")


class DerivedExamples(Declared):
    """Examples derived from solved executions by changes that are executed (datasets/derived/)."""

    most_share: float = Field(0.6, ge=0, le=1, description="Largest share of a split's examples; 0: none are made")
    bugs: dict[str, float] = Field(
        description="Weight of each kind of injected bug; kinds that are not named are unused"
    )
    tried: int = Field(5, gt=0, description="Most changes of one solved cell that are executed")
    per_solution: int = Field(3, gt=0, description="Most examples of one solved cell, of bugs and of inputs each")
    executions: int = Field(6000, ge=0, description="Most variants of bugs, and of inputs, executed for a domain")


class Decontamination(Declared):
    """Benchmarks that no training example may contain, and the criteria."""

    benchmarks: dict[str, str] = Field(
        default_factory=dict, description="Name -> path of a HumanEval- or MBPP-style JSONL file (plain or .gz)"
    )
    ngram: int = Field(13, gt=0, description="Tokens of a run that may not be shared with an item")


class Balance(Declared):
    """Target shares of easy, medium and hard examples (difficulty below 1/3, below 2/3, above)."""

    target: tuple[float, float, float] | None = Field(None, description="Shares, or null: as they come")
    most: float = Field(4.0, ge=1, description="Largest factor by which an example's weight is raised or lowered")

    @model_validator(mode="after")
    def _shares(self) -> "Balance":
        if self.target is not None and (min(self.target) < 0 or abs(sum(self.target) - 1) > 1e-9):
            raise ValueError("target must be three shares of at least zero that sum to 1")
        return self


class Advice(Declared):
    """Criteria for a solution that followed a bullet without a record of it (datasets/kinds/followed.py)."""

    likeness: float = Field(0.8, gt=0, le=1, description="Least share of the code that the bullet names")
    rarity: float = Field(3.0, ge=0, description="Least rarity of that code among the domain's solutions, in nats")


class Poison(Declared):
    """Caps per author, and criteria for holding back possible back doors."""

    most_share: float | None = Field(
        0.7, gt=0, le=1, description="Largest share of one agent, or tenant, in a domain's train examples; null: any"
    )
    fewest_tasks: int | None = Field(
        4, ge=2, description="Unrelated tasks of an author that a trigger stands in; null: none is searched for"
    )
    most_alike: float = Field(
        4.0, gt=0, description="Likeness of these tasks over that of the author's others, from which they are a subject"
    )


class DatasetRecipe(Declared):
    """Settings of groups, splits, examples and routes."""

    splits: dict[Split, float] = Field(description="Share of the groups in train, validation and test")
    minimum_groups: int = Field(6, ge=1, description="Groups that validation and test get where a domain has enough")
    substance_tokens: int = Field(20, ge=1, description="Code of fewer tokens never links two sandboxes")
    link_up_to_sandboxes: int = Field(
        8, ge=2, description="Code in more sandboxes than this is common and links nothing"
    )
    link_share: float = Field(
        0.25, gt=0, le=1, description="Sessions that share less of their code than this are not one group"
    )
    largest_group: float = Field(
        0.1, gt=0, le=1, description="Share of a domain above which a group's weakest links are cut, and it is reported"
    )
    near_duplicates: NearDuplicates = Field(default_factory=lambda: NearDuplicates.model_validate({}))
    same_problem: SameProblem = Field(default_factory=lambda: SameProblem.model_validate({}))
    caps: dict[Kind, float] = Field(
        description="Largest share of a domain's examples, for kinds other than its main kind"
    )
    cap_floor: int = Field(240, ge=0, description="Caps do not push a domain below this many examples")
    solutions_per_task: int = Field(3, gt=0, description="Most different solutions kept of one task statement")
    examples_per_template: int = Field(
        3, gt=0, description="Most examples of a kind and split whose code differs in names and values alone"
    )
    tests_shown: int = Field(
        4, gt=0, description="Most assertions quoted in a prompt; twice as many where nothing else says what is asked"
    )
    context_chars: int = Field(1500, ge=0, description="Most characters of earlier cells quoted in a prompt")
    max_prompt_chars: int = Field(4000, gt=0, description="Longer prompts are left out, never cut")
    max_answer_chars: int = Field(2400, gt=0, description="Longer answers are left out, never cut")
    fewest_steps: int = Field(
        3, ge=0, description="Decisions, loops, operations and calls below which code is not worth writing or reading"
    )
    advice: Advice | None = Field(
        default_factory=lambda: Advice.model_validate({}),
        description="When a solution followed a bullet; null: only where the log or the bullet says so",
    )
    max_output_chars: int = Field(400, gt=0, description="Longest output that predict asks for")
    difficulty: DifficultyWeights = Field(default_factory=lambda: DifficultyWeights.model_validate({}))
    include_routing: bool = Field(True, description="Make prompts for the router; without them there is no router")
    routing: Routing
    verification: Verification = Field(default_factory=lambda: Verification.model_validate({}))
    derived: DerivedExamples = Field(default_factory=lambda: DerivedExamples.model_validate({"bugs": {}}))
    decontamination: Decontamination = Field(default_factory=lambda: Decontamination.model_validate({}))
    poison: Poison = Field(default_factory=lambda: Poison.model_validate({}))
    exclusions: tuple[str, ...] = Field(
        (), description="Verdict files (`capibara dataset audit`): what they drop is left out when it is made again"
    )
    balance: Balance = Field(default_factory=lambda: Balance.model_validate({}))
    minimum_examples: int = Field(1, ge=1, description="Fewest examples of each split; with fewer nothing trains")
    target_examples: int = Field(10_000, ge=0, description="Examples wanted of each domain; what is missing is stated")
    tenants: tuple[str, ...] | None = Field(
        None, description="Only rows of these tenants, and of none, are used; null: of every tenant"
    )

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
