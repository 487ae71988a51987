"""What a deployment chooses about votes, aggregation and merges (resources/recipes/consensus.yaml)."""

from typing import Literal

from pydantic import Field

from capibara_assets.declarations import Declared

Rule = Literal[
    "mean", "median", "trimmed_mean", "meamed", "krum", "multi_krum", "bulyan", "geometric_median", "mda", "smea", "caf"
]


class MergeRecipe(Declared):
    """How the domains' experts become one dense model."""

    scales: tuple[float, ...] = Field(
        default=(0.2, 0.3, 0.4, 0.5, 0.7, 1.0), description="Factors tried on the summed deltas"
    )
    methods: tuple[Literal["sum", "ties"], ...] = Field(default=("sum", "ties"), description="Ways to sum the deltas")
    ties_density: float = Field(
        default=0.3, gt=0, le=1, description="Share of each delta that TIES keeps, by magnitude"
    )
    examples_per_domain: int = Field(
        default=24, gt=0, description="Validation examples of each domain that the search reads"
    )
    tokens_per_domain: int = Field(default=3072, gt=0, description="Most tokens of each domain that the search reads")


class MoeRecipe(Declared):
    """How the experts become a mixture with a router per layer."""

    top_k: int = Field(default=2, gt=0, description="Experts per token")
    prompts_per_domain: int = Field(default=32, gt=0, description="Routing prompts that a gate row is made of")
    tokens_per_prompt: int = Field(default=96, gt=0, description="First tokens of each prompt that are read")
    shrinkage: float = Field(default=0.1, gt=0, le=1, description="Share of the mean variance added to the covariance")
    spread: float = Field(default=1.0, gt=0, description="Standard deviation of the gate's logits after initialisation")


class ConsensusRecipe(Declared):
    """Thresholds, the rule, and how much validation data a vote reads."""

    fault_tolerance: float = Field(
        default=1 / 3, ge=0, lt=0.5, description="f = floor((n-1) * this): voters that may be bad"
    )
    norm_ratio_limit: float = Field(
        default=5.0, gt=1, description="Largest delta norm, relative to the median of the others"
    )
    tolerance: float = Field(0.02, ge=0, description="How far above the best accepted voter the consensus loss may lie")
    quality_threshold: float = Field(default=0.5, gt=0, le=1, description="Least quality that a ballot accepts")
    consensus_threshold: float = Field(
        default=0.5, gt=0, le=1, description="Share of a candidate's electors that must accept"
    )
    verification_rounds: int = Field(default=1, ge=1, description="Parts of each shard that are voted on separately")
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
