"""Decoding settings of recipes. Imports no torch, since recipes are read where no model runs."""

import math

from pydantic import Field

from capibara_assets.deployment.declarations import Declared


class Decoding(Declared):
    """How answers are decoded, the same for all contenders."""

    max_new_tokens: int = Field(default=256, ge=1, description="Budget of an answer, its end-of-turn token included.")
    tokens_per_character: float | None = Field(
        default=None,
        gt=0,
        description="Also so many for each character of the recorded answer, and 16: a model that repeats itself is "
        "given up early, the same for all contenders; null: `max_new_tokens` for every item.",
    )
    temperature: float = Field(default=0.0, ge=0, description="0: greedy, always the likeliest token.")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="Share of probability that is drawn from, likeliest first."
    )
    samples: int = Field(default=1, ge=1, description="Answers per item (n of pass@k); greedy ones are all the same.")
    seed: int = Field(default=20_261_121, ge=0)

    def budget(self, reference: str) -> int:
        """Tokens that an answer may have where `reference` is the recorded one; "": there is none."""
        if self.tokens_per_character is None or not reference:
            return self.max_new_tokens
        return min(self.max_new_tokens, 16 + math.ceil(self.tokens_per_character * len(reference)))
