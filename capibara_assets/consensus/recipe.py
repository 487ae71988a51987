"""Settings of votes, aggregation and merges (resources/recipes/consensus.yaml)."""

import math
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, field_validator

from capibara_assets.consensus.aggregation.aggregate import NOT_IN_RECIPES, RULES
from capibara_assets.consensus.election.voting import read_tolerance
from capibara_assets.deployment.declarations import Declared
from capibara_assets.modeling.greedy import SoupMetric
from capibara_assets.training.strategy import Strategy

RECIPE_RULES = tuple(rule for rule in RULES if rule not in NOT_IN_RECIPES)
"""Aggregation rules that a recipe may name: those that need nothing but the voters' deltas."""


def _known_rule(name: str) -> str:
    if name not in RECIPE_RULES:
        raise ValueError(f"no aggregation rule {name!r}: choose from {', '.join(RECIPE_RULES)}")
    return name


Rule = Annotated[str, AfterValidator(_known_rule)]

STRATEGY_KINDS = tuple(kind.model_fields["kind"].default for kind in get_args(get_args(Strategy)[0]))
"""Kinds of strategies that a voter can have, as its manifest states them."""
_ROUNDING = 1e-9

MergeMethod = Literal["task_arithmetic", "ties", "dare_linear", "dare_ties", "svd"]


class MergeRecipe(Declared):
    """Settings of the dense merge of the domains' experts."""

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
    """Settings of the mixture of experts with a router per layer."""

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


class ConvexRecipe(Declared):
    """Settings of the candidate with maximum-likelihood mixture weights."""

    lambda_reg: float = Field(default=0.01, ge=0, allow_inf_nan=False, description="Pull towards equal weights")
    max_iterations: int = Field(default=100, ge=0, description="Of Newton's method; some ten suffice")


class SoupRecipe(Declared):
    """Settings of the candidates that are averages of the voters."""

    metric: SoupMetric = Field(
        default="perplexity", description="Weighted soup: shares in proportion to 1 / perplexity, or 1 / loss"
    )


class IntegratedRecipe(Declared):
    """Settings of the candidate made of voters of several strategies, with a weight for each strategy."""

    weights: dict[str, float] = Field(
        default={"hierarchical": 0.4, "convexity": 0.3, "soup": 0.3},
        description="Kind of strategy -> weight; they sum to 1, and a strategy's voters share its weight",
    )
    threshold: float = Field(
        default=0.8, ge=0, le=1, description="Least quality: share of the best voter's gain over the base"
    )

    @field_validator("weights")
    @classmethod
    def _weigh_strategies(cls, weights: dict[str, float]) -> dict[str, float]:
        if unknown := sorted(weights.keys() - set(STRATEGY_KINDS)):
            raise ValueError(f"no strategy {', '.join(unknown)}: choose from {', '.join(STRATEGY_KINDS)}")
        if not all(weight >= 0 for weight in weights.values()) or abs(math.fsum(weights.values()) - 1) > _ROUNDING:
            raise ValueError(f"they have to be >= 0 and sum to 1, not to {math.fsum(weights.values()):g}")
        return weights


class CandidateRecipe(Declared):
    """Settings of the candidates for the consensus, beside the rule's adapter and each single voter."""

    convex: ConvexRecipe = ConvexRecipe()
    soup: SoupRecipe = SoupRecipe()
    integrated: IntegratedRecipe = IntegratedRecipe()


class ConsensusRecipe(Declared):
    """Settings of a vote: thresholds, the aggregation rule, and the amount of validation data."""

    fault_tolerance: Annotated[float, AfterValidator(read_tolerance)] = Field(
        default=1 / 3, ge=0, lt=0.5, description="f = floor((n-1) * this): voters that may be bad; 0.33 is one third"
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
    consensus_timeout: float = Field(default=600.0, gt=0, description="Seconds for each round of a domain's vote")
    max_retries: int = Field(
        default=5,
        ge=0,
        description="Restarts of a voter's process that dies or hangs before its ballots; then it is absent",
    )
    merge_strategy: Literal["weighted_average", "convex_optimization"] | None = Field(
        default=None, description="Forces this candidate; null: the best of all on validation that passes the gate"
    )
    rule: Rule = Field(default="geometric_median", description="How the accepted voters' deltas become one")
    pre: Literal["nnm", "clipping", "arc"] | None = Field(default=None, description="Mixing before the rule")
    candidates: CandidateRecipe = CandidateRecipe()
    rank: int | None = Field(
        default=None, gt=0, description="Rank of the consensus adapter; null: exact, the sum of ranks"
    )
    examples_per_shard: int = Field(default=60, gt=0, description="Validation examples of each shard that a vote reads")
    tokens_per_shard: int = Field(default=8192, gt=0, description="Most tokens of each shard that a vote reads")
    max_length: int = Field(default=1024, gt=0, description="Longest example, in tokens")
    merge: MergeRecipe = MergeRecipe()
    moe: MoeRecipe = MoeRecipe()
