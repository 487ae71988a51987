"""What decides: answers where they are many and can tell, else losses of what can be graded; the rest is watched."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from capibara_assets.evaluation.decision.decide import decide
from capibara_assets.evaluation.decision.deciding import deciding, fewest_telling
from capibara_assets.evaluation.decision_rule import DecisionRule, ScoreRule
from capibara_assets.evaluation.schema import Decision
from capibara_assets.evaluation.statistics.scores import LOSS, Score
from capibara_assets.storage.records import table

LOSSES = ScoreRule(metric=LOSS, direction="lower", range=(0.0, "base"), min_score=0.1, min_gain=0.05)
RULE = DecisionRule(default=LOSSES, graded=ScoreRule(min_score=0.0, min_gain=0.01), min_graded=60, resamples=1_000)
ARMS = ("base", "playbook", "consensus")
KINDS = ("solve", "repair", "predict", "explain")


def answers(count: int, unseen_from: int = 10**9, **solved: range) -> list[Score]:
    """pass@1 of items in groups of two; those from `unseen_from` on are of unseen families."""
    rows = []
    for name, right in solved.items():
        for n in range(count):
            for of in ("", "/unseen" if n >= unseen_from else "/seen"):
                rows.append(row(f"pass@1{of}", name, n, float(n in right), 1.0, KINDS[n % 3]))
    return rows


def losses(count: int = 40, **shares: float) -> list[Score]:
    return [row(LOSS, name, n, 10 * share, 10.0, KINDS[n % 4]) for name, share in shares.items() for n in range(count)]


def row(metric: str, name: str, n: int, score: float, weight: float, kind: str) -> Score:
    return Score(
        metric=metric,
        contender=name,
        item_id=f"i{n:03}",
        group_id=f"g{n // 2:03}",
        score=score,
        weight=weight,
        kind=kind,
    )


def decided(*rows: list[Score]) -> Decision:
    chosen = deciding("sql", table(Score, [one for part in rows for one in part]), RULE, ARMS, 0.05)
    return decide("sql", chosen.scores, RULE.deciding_by(chosen.rule), beside=chosen.beside, why=chosen.why)


def test_many_answers_that_differ_decide() -> None:
    found = decided(losses(base=1.0, consensus=1.0), answers(64, base=range(4), consensus=range(30)))
    assert (found.metric, found.verdict) == ("pass@1", "promote")
    assert found.metric_reason == "Answers that ran decide: 64 items in 32 groups are graded."
    assert found.metric_reason in found.reason
    assert found.gain_over_base is not None and found.gain_over_base.groups == 32


@pytest.mark.parametrize(
    ("count", "base", "tuned", "said"),
    [
        (59, range(0), range(40), "59 items are graded, and 60 are needed"),
        (64, range(0), range(0), "of 64 graded items 0 are solved"),
        (64, range(2), range(5), "of 64 graded items 5 are solved"),
        (64, range(64), range(1, 64), "of 64 graded items 1 are left unsolved"),
    ],
)
def test_few_or_untelling_answers_leave_it_to_the_loss(count: int, base: range, tuned: range, said: str) -> None:
    found = decided(losses(base=1.0, consensus=0.5), answers(count, base=base, consensus=tuned))
    assert (found.metric, found.verdict) == (LOSS, "promote")
    assert said in found.metric_reason and said in found.reason


def test_the_fewest_that_tell_are_those_of_an_exact_test() -> None:
    for alpha in (0.05, 0.01, 0.001):
        fewest = fewest_telling(alpha)
        assert stats.binomtest(0, fewest, 0.5).pvalue <= alpha < stats.binomtest(0, fewest - 1, 0.5).pvalue


def test_explanations_carry_no_verdict() -> None:
    """A model that only learned how explanations are worded saves loss on nothing else."""
    rows = losses(base=1.0, consensus=1.0)
    worded = [
        one.model_copy(update={"score": 1.0}) if one.kind == "explain" and one.contender == "consensus" else one
        for one in rows
    ]
    found = decided(worded)
    assert found.verdict != "promote" and found.arms["consensus"].score.estimate == pytest.approx(0)
    assert decided(losses(base=1.0, consensus=0.7)).verdict == "promote"


def test_of_explanations_alone_their_loss_decides() -> None:
    rows = [one.model_copy(update={"kind": "explain"}) for one in losses(base=1.0, consensus=0.5)]
    assert decided(rows).verdict == "promote"


@pytest.mark.parametrize("beside", ["seen families", "unseen families"])
def test_what_is_lost_on_families_is_not_made_up_for_by_others(beside: str) -> None:
    gained, lost = (range(50), range(50, 80)) if beside == "unseen families" else (range(30, 80), range(30))
    first = min(50, 30 if beside == "seen families" else 50)
    found = decided(losses(base=1.0, consensus=1.0), answers(80, first, base=lost, consensus=gained))
    assert found.outcome == "worse_slice" and found.slices[beside].worse


def test_solved_items_are_not_lost_for_a_better_loss() -> None:
    """Ten of twelve items are lost: too few graded to decide, enough to be a slice."""
    found = decided(losses(base=1.0, consensus=0.5), answers(50, base=range(14), consensus=range(0)))
    assert found.metric == LOSS and found.outcome == "worse_slice" and found.slices["pass@1"].worse


def test_a_worse_loss_than_the_playbooks_is_noticed_where_it_does_not_answer() -> None:
    rng = np.random.default_rng(0)
    rows = [
        one.model_copy(update={"score": one.score * rng.uniform(0.9, 1.1)})
        for one in losses(base=1.0, playbook=0.5, consensus=1.0)
    ]
    found = decided(rows, answers(64, base=range(4), consensus=range(30)))
    assert found.outcome == "worse_slice" and found.slices["loss"].worse


def test_a_rule_without_graded_answers_and_one_of_another_score_are_as_they_were() -> None:
    rows = table(Score, [*losses(base=1.0, consensus=0.5), *answers(64, base=range(4), consensus=range(30))])
    plain = deciding("sql", rows, RULE.model_copy(update={"graded": None}), ARMS, 0.05)
    assert (plain.rule.metric, plain.why, dict(plain.beside)) == (LOSS, "", {})
    assert plain.scores.height == rows.filter(pl.col("metric") == LOSS).height
    assert deciding("sql", rows, RULE.deciding_by(ScoreRule()), ARMS, 0.05).rule == ScoreRule()
