"""The gate's statistics on planted data: how often it finds a difference that is there, and one that is not.

Each experiment draws pass/fail of two contenders on 1,000 items with a known difference, and asks the function that the
decision asks. Twice: every item a group of its own, and groups of five items that share how hard they are and whom
they suit.
"""

import time
from typing import Any

import numpy as np
import polars as pl

from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.statistics.points import ContenderPoints, compared

ITEMS = 1_000
DISCORDANCE = 0.15
DIFFERENCE = 0.05
_PER_GROUP = 5
_LEANING = 0.3  # how far a group leans to one contender where they differ: 0 not at all, 1 wholly
_PASS_RATE = 0.5


def run_statistics(power_seeds: int = 200, null_seeds: int = 2_000, clustered_seeds: int = 2_000) -> dict[str, Any]:
    """`power` and `false_positive_rate` (the larger of independent and clustered items), and what they are made of."""
    began = time.monotonic()
    power = significant(power_seeds, DIFFERENCE, clustered=False)
    clustered_power = significant(power_seeds, DIFFERENCE, clustered=True)
    null = significant(null_seeds, 0.0, clustered=False)
    clustered_null = significant(clustered_seeds, 0.0, clustered=True)
    return {
        "power": power,
        "power_clustered": clustered_power,
        "power_seeds": power_seeds,
        "false_positive_rate": max(null, clustered_null),
        "false_positive_rate_independent": null,
        "false_positive_rate_clustered": clustered_null,
        "null_seeds": null_seeds,
        "clustered_seeds": clustered_seeds,
        "items": ITEMS,
        "difference": DIFFERENCE,
        "discordance": DISCORDANCE,
        "seconds": round(time.monotonic() - began, 1),
    }


def significant(seeds: int, difference: float, *, clustered: bool) -> float:
    """Share of the seeds in which a planted difference is called significant."""
    rule = DecisionRule()
    found = 0
    for seed in range(seeds):
        scores = planted(seed, difference, clustered=clustered)
        points = ContenderPoints.of(scores, ("base", "consensus"), rule.default, rule)
        _, p_value = compared(points, "base")["consensus"]
        found += p_value < 1 - rule.confidence
    return found / seeds


def planted(seed: int, difference: float, *, clustered: bool) -> pl.DataFrame:
    """`ItemScore` rows of two contenders that differ on 15 % of the items, `difference` more often in favour of one."""
    random = np.random.default_rng(seed)
    groups = ITEMS // _PER_GROUP if clustered else ITEMS
    of_item = np.arange(ITEMS) * groups // ITEMS
    lean = np.repeat(0.0, groups) if not clustered else random.choice([-_LEANING, _LEANING], groups)
    wins = (1 + difference / DISCORDANCE) / 2 + lean[of_item] / 2
    differ = random.random(ITEMS) < DISCORDANCE
    hard = random.random(groups)[of_item] if clustered else random.random(ITEMS)
    base = (hard < _PASS_RATE).astype(np.float64)
    candidate_wins = random.random(ITEMS) < wins
    base = np.where(differ, np.where(candidate_wins, 0.0, 1.0), base)
    candidate = np.where(differ, 1 - base, base)
    ids = [f"item-{n:04}" for n in range(ITEMS)]
    names = [f"group-{n:04}" for n in of_item]
    frames = [
        pl.DataFrame({"contender": name, "item_id": ids, "group_id": names, "score": score, "weight": 1.0, "kind": ""})
        for name, score in (("base", base), ("consensus", candidate))
    ]
    return pl.concat(frames)
