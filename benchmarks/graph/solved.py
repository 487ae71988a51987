"""Items that base and consensus solve, over several runs with a seed each."""

from collections.abc import Sequence

import polars as pl

from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.statistics.figures import figures

PASSED = "pass@1"
ARMS = ("base", "consensus")


def solved(runs: Sequence[pl.DataFrame], rule: DecisionRule) -> dict[str, dict[str, float | int]]:
    """`pass@1`, `pass@1/seen` and `pass@1/unseen` -> share solved by base and consensus, and the gain's interval.

    An item counts as the share of the runs in which it was solved, so that the interval is that of the items, drawn by
    groups, at the rule's confidence.

    Args:
        runs: one domain's rows of `Score`, of each run.
    """
    rows = pl.concat(runs).filter(pl.col("metric").str.starts_with(PASSED) & pl.col("contender").is_in(ARMS))
    own = [name for name in rows.columns if name not in ("metric", "contender", "item_id", "score")]
    mean = rows.group_by("metric", "contender", "item_id", maintain_order=True).agg(
        pl.col("score").mean(), *(pl.col(name).first() for name in own)
    )
    by_arm, comparisons = figures(mean, rule, ARMS, ARMS[:1])
    return {
        one.metric: {
            **{arm: round(by_arm[arm][one.metric].estimate, 4) for arm in ARMS},
            "gain_low": round(one.difference.low, 4),
            "gain_high": round(one.difference.high, 4),
            "items": one.difference.n,
            "groups": one.difference.groups,
        }
        for one in comparisons
    }


def domains_that_learn(found: dict[str, dict[str, dict[str, float | int]]]) -> int:
    """Domains whose gain in `pass@1` has an interval above zero."""
    return sum(domain.get(PASSED, {}).get("gain_low", 0) > 0 for domain in found.values())
