"""What a deployment chooses about votes, aggregation and merges (resources/recipes/consensus.yaml)."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from capibara_assets.consensus.aggregation.aggregate import NOT_IN_RECIPES, RULES
from capibara_assets.deployment.declarations import Declared

RECIPE_RULES = tuple(rule for rule in RULES if rule not in NOT_IN_RECIPES)
"""Aggregation rules that a recipe may name: those that need nothing but the voters' deltas."""


def _known_rule(name: str) -> str:
    if name not in RECIPE_RULES:
        raise ValueError(f"no aggregation rule {name!r}: choose from {', '.join(RECIPE_RULES)}")
    return name


Rule = Annotated[str, AfterValidator(_known_rule)]

MergeMethod = Literal["task_arithmetic", "ties", "dare_linear", "dare_ties", "svd"]


class MergeRecipe(Declared):
    """How the domains' experts become one dense model."""

    scales: tuple[float, ...] = Field(
        default=(0.2, 0.3, 0.4, 0.5, 0.7, 1.0), min_length=1, description="Factors tried on the summed deltas"
    )
    methods: tuple[MergeMethod, ...] = Field(
        default=("task_arithmetic", "ties", "dare_linear", "dare_ties", "svd"),
        min_length=1,
        description="Ways to sum the deltas; the first is searched most",
    )
    ties_density: float = Field(
        default=0.3, gt=0, le=1, description="Share of each delta that TIES keeps, by magnitude"
    )
    dare_density: float = Field(
        default=0.5, gt=0, le=1, description="Share of each delta that DARE keeps, at random, and scales up"
    )
    svd_rank: int = Field(default=32, gt=0, description="Rank that the exact sum is cut to")
    weight_steps: int = Field(default=3, ge=0, description="Steps of the search over the domains' weights, at most")
    examples_per_domain: int = Field(
        default=24, gt=0, description="Validation examples of each domain that the search reads"
    )
    tokens_per_domain: int = Field(default=1536, gt=0, description="Most tokens of each domain that the search reads")
    interference_tokens: int = Field(
        default=512, gt=0, description="Most tokens of each domain that the interference matrix reads"
    )
    seed: int = Field(default=0, ge=0, description="Of what DARE drops")


class MoeRecipe(Declared):
    """How the experts become a mixture with a router per layer."""

    top_k: int = Field(default=2, gt=0, description="Experts per token of the checkpoint; losses are told for 1 and 2")
    prompts_per_domain: int = Field(default=32, gt=0, description="Routing prompts that a gate row is made of")
    tokens_per_prompt: int = Field(default=96, gt=0, description="First tokens of each prompt that are read")
    shrinkage: float = Field(default=0.1, gt=0, le=1, description="Share of the mean variance added to the covariance")
    spread: float = Field(default=1.0, gt=0, description="Standard deviation of the gate's logits after initialisation")
    steps: int = Field(default=200, ge=0, description="Steps that the gates train; 0: they stay as initialised")
    learning_rate: float = Field(default=3e-3, gt=0, description="Of the gates at first; it falls to 0 over the steps")
    balance: float = Field(default=0.01, ge=0, description="Weight of the load-balancing loss beside the language loss")
    examples_per_domain: int = Field(
        default=256, gt=0, description="Training examples of each domain that the gates learn from, at most"
    )
    tokens_per_example: int = Field(
        default=128, gt=0, description="Longest of them; where a domain has none so short, its shortest"
    )
    tokens_per_domain: int = Field(default=2048, gt=0, description="Most validation tokens of a domain that are judged")
    seed: int = Field(default=0, ge=0, description="Of the order of the examples, and of the prompts' router")


class ConsensusRecipe(Declared):
    """Thresholds, the rule, and how much validation data a vote reads."""

    fault_tolerance: float = Field(
        default=1 / 3, ge=0, lt=0.5, description="f = floor((n-1) * this): voters that may be bad"
    )
    norm_ratio_limit: float = Field(
        default=5.0, gt=1, description="Largest delta norm, relative to the median of the others"
    )
    copy_ratio: float = Field(
        default=0.25,
        ge=0,
        lt=1,
        description="Adapters nearer to each other than this share of the usual distance count as one; 0: equal ones",
    )
    tolerance: float = Field(0.02, ge=0, description="How far above the best accepted voter the consensus loss may lie")
    quality_threshold: float = Field(default=0.5, gt=0, le=1, description="Least quality that a ballot accepts")
    consensus_threshold: float = Field(
        default=0.5, gt=0, le=1, description="Share of a candidate's electors that must accept"
    )
    verification_rounds: int = Field(default=1, ge=1, description="Parts of each shard that are voted on separately")
    voting_strategy: Literal["majority", "unanimous", "average"] = Field(
        default="majority",
        description="A voter accepts what reaches the quality in most rounds, in every round, or on average",
    )
    consensus_timeout: float = Field(default=600.0, gt=0, description="Seconds for a domain's whole vote")
    max_retries: int = Field(
        default=5,
        ge=0,
        description="Restarts of a voter's process that dies or hangs; then it is absent",
    )
    merge_strategy: Literal["weighted_average", "convex_optimization"] | None = Field(
        default=None, description="Forces this candidate; null: the best of all on validation that passes the gate"
    )
    rule: Rule = Field(default="geometric_median", description="How the accepted voters' deltas become one")
    pre: Literal["nnm", "clipping", "arc"] | None = Field(default=None, description="Mixing before the rule")
    rank: int | None = Field(
        default=None, gt=0, description="Rank of the consensus adapter; null: exact, the sum of ranks"
    )
    examples_per_shard: int = Field(default=60, gt=0, description="Validation examples of each shard that a vote reads")
    tokens_per_shard: int = Field(default=8192, gt=0, description="Most tokens of each shard that a vote reads")
    max_length: int = Field(default=1024, gt=0, description="Longest example, in tokens")
    merge: MergeRecipe = MergeRecipe()
    moe: MoeRecipe = MoeRecipe()
