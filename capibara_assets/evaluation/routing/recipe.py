"""The recipe of the router: `resources/recipes/router.yaml`."""

from typing import Literal

from pydantic import Field

from capibara_assets.deployment.declarations import Declared


class RouterRecipe(Declared):
    """Features, fit and calibration of a router, and when it leaves a prompt to the base."""

    kind: Literal["ngrams", "embedding"] = Field(
        default="ngrams",
        description="ngrams: hashed n-grams of bytes and words, under a millisecond. embedding: the base model's mean "
        "hidden state, as slow as reading the prompt with it.",
    )
    penalty: float = Field(default=20.0, gt=0, description="C of the logistic regression: larger fits more closely.")
    max_iterations: int = Field(default=100, ge=1)
    seed: int = 20_261_120
    min_validation: int = Field(
        default=20, ge=2, description="Validation prompts below which the router is not calibrated and never abstains."
    )
    abstain_cost: float | None = Field(
        default=0.5,
        gt=0,
        le=1,
        description="What leaving a prompt to the base costs, where a wrong expert costs 1 (Chow 1970); null: never.",
    )
    unlike: float | None = Field(
        default=0.8,
        gt=0,
        le=1,
        description="A prompt whose n-grams are less like the nearest expert's than this share of what 99 % of the "
        "validation prompts reach is left to the base; null: never.",
    )
    bins: int = Field(default=10, ge=2, description="Bins of the reliability diagram.")
    drift_psi: float = Field(
        default=0.2, gt=0, description="Population stability index of the experts' load from which drift is reported."
    )
    embedding_tokens: int = Field(default=256, ge=8, description="Tokens of a prompt that are embedded: its last ones.")
