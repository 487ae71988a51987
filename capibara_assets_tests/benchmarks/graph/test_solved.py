"""What runs with several seeds solved, pooled by item: known answers."""

import polars as pl
import pytest

from benchmarks.graph.solved import domains_that_learn, solved
from capibara_assets.evaluation.decision_rule import DecisionRule

RULE = DecisionRule(resamples=1_000)


def run(base: list[int], consensus: list[int], metric: str = "pass@1") -> pl.DataFrame:
    """Scores of two contenders, two items a group, and a loss that is not looked at."""
    rows = [
        (name, arm, f"item-{n}", f"group-{n // 2}", float(score), 1.0, "solve", "here")
        for name, arms in ((metric, {"base": base, "consensus": consensus, "merged": base}), ("loss", {"base": base}))
        for arm, passed in arms.items()
        for n, score in enumerate(passed)
    ]
    names = ["metric", "contender", "item_id", "group_id", "score", "weight", "kind", "source"]
    return pl.DataFrame(rows, schema=names, orient="row")


def test_an_item_counts_as_the_share_of_runs_that_solve_it() -> None:
    never, first, second = [0] * 40, [1] * 20 + [0] * 20, [1] * 10 + [0] * 30
    found = solved([run(never, first), run(never, second)], RULE)
    assert list(found) == ["pass@1"]
    assert found["pass@1"]["base"] == 0 and found["pass@1"]["consensus"] == pytest.approx((20 + 10) / 80)
    assert (found["pass@1"]["items"], found["pass@1"]["groups"]) == (40, 20)
    assert 0 < found["pass@1"]["gain_low"] < (20 + 10) / 80 < found["pass@1"]["gain_high"]


def test_a_domain_learns_where_the_interval_excludes_zero() -> None:
    never, many, one = [0] * 40, [1] * 20 + [0] * 20, [1] + [0] * 39
    found = {
        "sql": solved([run(never, many)] * 3, RULE),
        "ml": solved([run(never, one)] * 3, RULE),
        "api": solved([run(many, never)] * 3, RULE),
        "python": solved([run(never, never, "pass@1/seen")], RULE),
    }
    assert domains_that_learn(found) == 1
    assert found["api"]["pass@1"]["gain_high"] < 0
