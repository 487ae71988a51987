"""The decision rule: `resources/recipes/decision.yaml`."""

from typing import Literal

from pydantic import Field

from capibara_assets.declarations import Declared


class DecisionRule(Declared):
    """When an adapter replaces the base model. Gains are relative: 1 − loss / reference loss."""

    metric: Literal["loss_per_assistant_token"] = "loss_per_assistant_token"
    direction: Literal["lower"] = "lower"
    min_gain_over_base: float = Field(default=0.10, ge=0, lt=1, description="The interval's lower end must reach it.")
    min_gain_over_playbook: float = Field(
        default=0.05, ge=0, lt=1, description="Likewise, where there is a playbook arm."
    )
    min_groups: int = Field(
        default=6, ge=2, description="Groups of test examples without which no interval is believed: inconclusive."
    )
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    resamples: int = Field(default=10_000, ge=1_000)
    seed: int = 20_261_120
    max_test_examples: int = Field(
        default=64, ge=8, description="Test examples per domain, by smallest example id digest."
    )
    playbook_budget_tokens: int = Field(
        default=512, ge=32, description="Tokens that the playbook may take in the context."
    )
    max_length: int = Field(
        default=1024, ge=128, description="Longer examples are left out of all arms alike, and counted."
    )
