"""Figures with intervals and paired comparisons: known answers, and contenders that cannot be compared."""

import math

import polars as pl
import pytest

from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.statistics.figures import as_document, figures
from capibara_assets.evaluation.statistics.points import NotComparable
from capibara_assets.evaluation.statistics.scores import LOSS, Score
from capibara_assets.storage.records import table

RULE = DecisionRule(resamples=1_000)
NAMES = ("base", "consensus", "voter-0")


def scored(metric: str, values: dict[str, list[float]], weight: float = 1.0, per_group: int = 1) -> pl.DataFrame:
    rows = [
        Score(
            metric=metric, contender=name, item_id=f"i{i:03}", group_id=f"g{i // per_group}", score=value,
            weight=weight, kind="solve",
        )
        for name, own in values.items()
        for i, value in enumerate(own)
    ]  # fmt: skip
    return table(Score, rows)


def test_losses_are_per_token_and_perplexity_is_their_exponential():
    scores = scored(LOSS, {"base": [20.0, 40.0, 30.0], "consensus": [10.0, 20.0, 15.0]}, weight=10.0)
    found, compared = figures(scores, RULE, NAMES, ["base"])
    assert list(found) == ["base", "consensus"] and list(found["base"]) == [LOSS, "perplexity"]
    loss = found["base"][LOSS]
    assert loss.estimate == pytest.approx(3.0) and loss.low < 3.0 < loss.high and (loss.n, loss.groups) == (3, 3)
    assert found["base"]["perplexity"].estimate == pytest.approx(math.exp(3.0))
    assert found["base"]["perplexity"].high == pytest.approx(math.exp(loss.high))
    assert [(one.candidate, one.reference) for one in compared] == [("consensus", "base")]
    gain = compared[0].difference
    assert gain.estimate == pytest.approx(0.5) and gain.low == pytest.approx(0.5)  # half of it is saved in every group


def test_shares_of_single_items_have_exact_intervals():
    base, better = [0.0] * 30 + [1.0] * 10, [1.0] * 20 + [0.0] * 10 + [1.0] * 10
    found, compared = figures(scored("pass@1", {"base": base, "consensus": better}), RULE, NAMES, ["base"])
    own = found["base"]["pass@1"]
    assert own.estimate == 0.25 and (own.low, own.high) == pytest.approx((0.14187, 0.40194), abs=1e-4)  # Wilson
    assert own.p_value is None and own.detectable is None
    gain = compared[0].difference
    assert gain.estimate == 0.5 and gain.p_value == pytest.approx(2 * 0.5**20) and gain.detectable is not None


def test_holm_counts_the_contenders_compared():
    values = {"base": [0.0] * 20, "consensus": [1.0] * 6 + [0.0] * 14, "voter-0": [1.0] * 8 + [0.0] * 12}
    _, compared = figures(scored("pass@1", values), RULE, NAMES, ["base"])
    by_name = {one.candidate: one for one in compared}
    assert by_name["voter-0"].adjusted == pytest.approx(2 * 2 * 0.5**8)
    assert by_name["consensus"].adjusted == pytest.approx(2 * 0.5**6)


def test_both_references_are_compared_where_they_exist():
    values = {"base": [0.0] * 9, "playbook": [0.0] * 8 + [1.0], "consensus": [1.0] * 9}
    _, compared = figures(scored("pass@1", values), RULE, ("base", "playbook", "consensus"), ["base", "playbook"])
    pairs = {(one.candidate, one.reference) for one in compared}
    assert {("consensus", "base"), ("consensus", "playbook"), ("playbook", "base")} <= pairs


def test_a_contender_that_was_scored_on_other_items_is_refused():
    scores = scored("pass@1", {"base": [0.0] * 9, "consensus": [1.0] * 8})
    with pytest.raises(NotComparable, match="consensus"):
        figures(scores, RULE, NAMES, ["base"])


def test_the_document_is_json_with_every_figure():
    scores = scored("exact_match", {"base": [0.0] * 9, "consensus": [1.0] * 9})
    document = as_document(*figures(scores, RULE, NAMES, ["base"]))
    assert document["figures"]["consensus"]["exact_match"]["estimate"] == 1.0
    [one] = document["comparisons"]
    assert (one["candidate"], one["reference"], one["metric"]) == ("consensus", "base", "exact_match")
