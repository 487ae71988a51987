"""Scores of items become points: which test is used when, on which range, and what resampling alone would get wrong."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.evaluation.statistical_tests import planted, significant
from capibara_assets.evaluation.decision_rule import DecisionRule, ScoreRule
from capibara_assets.evaluation.schema import ExampleLoss, ItemScore
from capibara_assets.evaluation.statistics.paired import (
    mcnemar_exact,
    paired_difference_interval,
    table_of,
    wilson_interval,
)
from capibara_assets.evaluation.statistics.points import ContenderPoints, NotComparable, compared, loss_scores
from capibara_assets.storage.records import conform, table

RULE = DecisionRule(resamples=1_000)
SHARE = ScoreRule()
LOSS = ScoreRule(metric="loss_per_assistant_token", direction="lower", range=(0.0, "base"))


def frame(groups: list[str] | None = None, weights: list[float] | None = None, **arms: list[float]) -> pl.DataFrame:
    return table(
        ItemScore,
        [
            ItemScore(
                contender=name,
                item_id=f"e{i:03}",
                group_id=groups[i] if groups else f"g{i:03}",
                score=score,
                weight=weights[i] if weights else 1.0,
            )
            for name, values in arms.items()
            for i, score in enumerate(values)
        ],
    )


def points(
    scores: pl.DataFrame, rule: ScoreRule = SHARE, names: tuple[str, ...] = ("base", "tuned")
) -> ContenderPoints:
    return ContenderPoints.of(scores, names, rule, RULE)


bits = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40)


@given(rows=bits)
def test_pass_or_fail_with_an_item_a_group_is_exact(rows: list[tuple[bool, bool]]):
    base, tuned = ([float(row[i]) for row in rows] for i in (0, 1))
    found = points(frame(base=base, tuned=tuned))
    counted = table_of(np.array(tuned), np.array(base))
    gain = found.gain("tuned", "base")
    assert (gain.low, gain.high) == paired_difference_interval(counted.a, counted.b, counted.c, counted.d, 0.95)
    assert gain.p_value == mcnemar_exact(counted.b, counted.c)
    assert gain.estimate == pytest.approx((sum(tuned) - sum(base)) / len(rows))
    score = found.score("tuned", 0.9)
    assert (score.low, score.high) == pytest.approx(wilson_interval(sum(tuned), len(rows), 0.95))
    assert (score.method, score.needed) == ("Wilson", 0.9)


@pytest.mark.parametrize(
    ("scores", "groups"),
    [([1.0, 0.0, 0.25, 1.0, 0.0, 1.0], None), ([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], list("aabbcd"))],
    ids=["a share of samples", "several items a group"],
)
def test_everything_else_is_resampled(scores: list[float], groups: list[str] | None):
    found = points(frame(groups, base=[0.0, 0.0, 1.0, 1.0, 0.0, 0.0], tuned=scores))
    assert found.gain("tuned", "base").method == "cluster bootstrap"
    assert found.score("tuned").method == "cluster bootstrap"


def test_mcnemar_would_be_wrong_with_several_items_a_group():
    """Copies of an item in one group are no evidence; McNemar would count each."""
    base, tuned = [0.0] * 8 + [1.0] * 4, [1.0] * 8 + [0.0] * 4
    groups = [f"g{i}" for i in range(12)]
    alone = points(frame(groups, base=base, tuned=tuned)).gain("tuned", "base")
    copied = points(frame(groups * 10, base=base * 10, tuned=tuned * 10)).gain("tuned", "base")
    assert mcnemar_exact(80, 40) < 0.001 < 0.1 < copied.p_value
    assert copied.estimate == pytest.approx(alone.estimate) and copied.groups == 12


@pytest.mark.parametrize("passed", [0.0, 1.0])
def test_groups_that_are_all_alike_are_not_certain(passed: float):
    groups = [f"g{i // 3}" for i in range(30)]
    found = points(frame(groups, base=[1 - passed] * 30, tuned=[passed] * 30))
    score, gain = found.score("tuned"), found.gain("tuned", "base")
    assert (score.low, score.high) == wilson_interval(passed * 10, 10, 0.95)
    assert score.method == "Wilson, of groups" and gain.method == "Tango, of groups"
    assert gain.high - gain.low > 0.2 and gain.p_value < 0.05


def test_a_numeric_range_stretches_points():
    scores = frame(base=[0.2, 0.3, 0.4, 0.3], tuned=[0.4, 0.5, 0.6, 0.5])
    narrow = ScoreRule(metric="chrf", range=(0.1, 0.6))
    found = points(scores, narrow)
    assert found.score("tuned").estimate == pytest.approx(0.8) and found.score("base").estimate == pytest.approx(0.4)
    assert found.gain("tuned", "base").estimate == pytest.approx(0.4)
    assert found.value("tuned") == pytest.approx(0.5)


def test_lower_is_better_turns_the_range():
    scores = frame(base=[3.0, 5.0, 4.0, 4.0], tuned=[1.0, 3.0, 2.0, 2.0])
    fixed = ScoreRule(metric="loss_per_assistant_token", direction="lower", range=(0.0, 8.0))
    assert points(scores, fixed).score("tuned").estimate == pytest.approx(0.75)
    found = points(scores, LOSS)
    assert found.score("tuned").estimate == pytest.approx(0.5) and found.score("base").estimate == 0.0


def test_losses_weigh_by_their_tokens():
    scores = frame(weights=[10.0, 90.0], base=[20.0, 270.0], tuned=[10.0, 90.0])
    found = points(scores, LOSS)
    assert found.value("base") == pytest.approx(2.9) and found.value("tuned") == pytest.approx(1.0)


def test_perplexity_is_the_exponential_of_the_mean_loss():
    rule = ScoreRule(metric="perplexity", direction="lower", range=(1.0, "base"))
    found = points(frame(weights=[10.0, 90.0], base=[20.0, 180.0], tuned=[10.0, 90.0]), rule)
    assert found.value("base") == pytest.approx(np.exp(2.0)) and found.value("tuned") == pytest.approx(np.e)
    expected = (np.exp(2.0) - np.e) / (np.exp(2.0) - 1)
    assert found.score("tuned").estimate == pytest.approx(expected)


def test_a_base_model_without_loss_leaves_no_range():
    with pytest.raises(ValueError, match="nothing is left to gain"):
        points(frame(base=[0.0, 0.0], tuned=[1.0, 2.0]), LOSS).score("tuned")


def test_contenders_are_adjusted_for_their_number():
    random = np.random.default_rng(1)
    base = list(random.uniform(1, 2, 30))
    voters = {f"voter-{i}": [one * random.normal(0.95, 0.1) for one in base] for i in range(4)}
    found = compared(points(frame(base=base, **voters), LOSS, ("base", *voters)), "base")
    assert list(found) == list(voters)
    for gain, adjusted in found.values():
        assert gain.p_value <= adjusted <= min(1.0, 4 * gain.p_value)
    assert min(adjusted for _, adjusted in found.values()) == pytest.approx(
        min(1.0, 4 * min(gain.p_value for gain, _ in found.values()))
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda rows: rows.filter(pl.col("contender") == "base"), "tuned: was not scored"),
        (lambda rows: rows.head(5), "other items (2) than the base model (3), such as e002"),
        (lambda rows: pl.concat([rows, rows.tail(1)]), "has item e002 scored twice"),
        (lambda rows: rows.with_columns(score=pl.lit(1.5)), "base: has a score of item e000 that is no share"),
        (lambda rows: rows.with_columns(group_id=pl.col("contender") + pl.col("group_id")), "with another group"),
    ],
)
def test_what_cannot_be_compared_is_named(change, why: str):
    rows = frame(base=[1.0, 0.0, 1.0], tuned=[1.0, 1.0, 1.0])
    with pytest.raises(NotComparable) as caught:
        points(change(rows))
    assert why in str(caught.value)


def test_losses_of_examples_become_scores_of_items():
    losses = table(
        ExampleLoss,
        [ExampleLoss(contender="base", example_id=f"e{i}", group_id="g", nll=3.0 * i, tokens=i + 1) for i in range(3)],
    )
    found = loss_scores(losses, {"e1": "solve"}, {"e1": "agent"})
    assert conform(ItemScore, found).equals(found)
    assert found.row(1, named=True) == {
        "contender": "base", "item_id": "e1", "group_id": "g", "score": 3.0, "weight": 2.0, "kind": "solve",
        "source": "agent",
    }  # fmt: skip
    assert found["kind"].to_list() == ["", "solve", ""]


def test_planted_data_is_as_it_says():
    for clustered in (False, True):
        drawn = [planted(seed, 0.05, clustered=clustered) for seed in range(20)]
        sides = [(one.filter(pl.col("contender") == name)["score"] for name in ("consensus", "base")) for one in drawn]
        gaps = [candidate - base for candidate, base in sides]
        assert np.mean([gap.mean() for gap in gaps]) == pytest.approx(0.05, abs=0.01)
        assert np.mean([(gap != 0).mean() for gap in gaps]) == pytest.approx(0.15, abs=0.01)
        assert drawn[0]["group_id"].n_unique() == (200 if clustered else 1_000)


@pytest.mark.parametrize("draws", [50, pytest.param(100, marks=pytest.mark.extended)])
def test_a_planted_difference_is_found_and_an_absent_one_is_not(draws: int) -> None:
    """`python -m benchmarks evaluate` draws 200 and 2,000 of each; here as many as take seconds."""
    assert significant(draws // 2, 0.05, clustered=False) >= 0.95
    assert significant(draws * 3 // 2, 0.0, clustered=False) <= 0.06
    assert significant(draws, 0.0, clustered=True) <= 0.09
