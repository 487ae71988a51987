"""Decoding settings of recipes. Imports no torch, since recipes are read where no model runs."""

from pydantic import Field

from capibara_assets.deployment.declarations import Declared


class Decoding(Declared):
    """How answers are decoded, the same for all contenders."""

    max_new_tokens: int = Field(default=256, ge=1, description="Budget of an answer, its end-of-turn token included.")
    temperature: float = Field(default=0.0, ge=0, description="0: greedy, always the likeliest token.")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="Share of probability that is drawn from, likeliest first."
    )
    samples: int = Field(default=1, ge=1, description="Answers per item (n of pass@k); greedy ones are all the same.")
    seed: int = Field(default=20_261_121, ge=0)
