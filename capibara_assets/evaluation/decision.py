"""Promote, reject or inconclusive: judged on intervals, explained in a paragraph."""

import numpy as np
import polars as pl

from capibara_assets.evaluation.recipe import DecisionRule
from capibara_assets.evaluation.schema import Decision, Interval, Verdict
from capibara_assets.evaluation.statistics import relative_gain


def decide(domain: str, losses: pl.DataFrame, rule: DecisionRule) -> Decision:
    """Judge the consensus adapter against the base and, where there is one, the base with the playbook in context.

    Args:
        losses: rows of `ExampleLoss` for the contenders base, consensus and optionally playbook.

    Raises:
        ValueError: a contender is missing or was scored on other examples than the base (a crashed arm).
    """
    over_base = _gain(losses, "consensus", "base", rule)
    has_playbook = losses["contender"].eq("playbook").any()
    over_playbook = _gain(losses, "consensus", "playbook", rule) if has_playbook else None
    checks = [("the base model", over_base, rule.min_gain_over_base)]
    if over_playbook is not None:
        checks.append(("the base model with the playbook in context", over_playbook, rule.min_gain_over_playbook))
    few = over_base.groups < rule.min_groups
    verdict = "inconclusive" if few else _verdict(checks)
    parts = [
        f"against {name} the loss per assistant token falls by {gain.estimate:.1%} "
        f"({rule.confidence:.0%} interval {gain.low:.1%} to {gain.high:.1%}, "
        f"n = {gain.n} examples in {gain.groups} groups; "
        f"needed: {needed:.0%})"
        for name, gain, needed in checks
    ]
    if over_playbook is None:
        parts.append("no bullet graduated, so there is no playbook arm to beat")
    ending = {
        "promote": "Every lower end clears its bar: promote.",
        "reject": "An interval lies wholly under its bar: keep what serves now.",
        "inconclusive": f"The interval straddles its bar: inconclusive, needs about {_needed(checks)} more examples.",
    }[verdict]
    if few:
        ending = (
            f"{over_base.groups} groups of test examples make no interval ({rule.min_groups} needed): inconclusive, "
            "add executions of other problems or sessions."
        )
    return Decision(
        verdict=verdict,
        reason=f"In {domain}, {'; '.join(parts)}. {ending}",
        gain_over_base=over_base,
        gain_over_playbook=over_playbook,
    )


def _verdict(checks: list[tuple[str, Interval, float]]) -> Verdict:
    if all(gain.low >= needed for _, gain, needed in checks):
        return "promote"
    if any(gain.high < needed for _, gain, needed in checks):
        return "reject"
    return "inconclusive"


def _needed(checks: list[tuple[str, Interval, float]]) -> int:
    """Examples to add until the half-width shrinks to the distance from the bar (it goes with 1/√n)."""
    more = [0]
    for _, gain, needed in checks:
        half, distance = (gain.high - gain.low) / 2, abs(gain.estimate - needed)
        if gain.low < needed <= gain.high:  # it straddles: the half-width is not zero
            more.append(round(gain.n * ((half / max(distance, half / 10)) ** 2 - 1)))
    return max(1, *more)


def _gain(losses: pl.DataFrame, candidate: str, reference: str, rule: DecisionRule) -> Interval:
    left = losses.filter(pl.col("contender") == candidate).sort("example_id")
    right = losses.filter(pl.col("contender") == reference).sort("example_id")
    if not left["example_id"].equals(right["example_id"]) or not left["tokens"].equals(right["tokens"]):
        raise ValueError(
            f"{candidate} ({left.height} examples) and {reference} ({right.height}) were not scored on the same items"
        )
    return relative_gain(
        left["nll"].to_numpy(),
        right["nll"].to_numpy(),
        left["tokens"].to_numpy().astype(np.float64),
        left["group_id"].to_numpy(),
        confidence=rule.confidence,
        resamples=rule.resamples,
        seed=rule.seed,
    )
