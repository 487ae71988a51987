"""The decision: every region and boundary of the rule, whole evaluations, guards, crashed arms, and the paragraph."""

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.domains import Domain
from capibara_assets.evaluation.decision.decide import VERDICTS, Arms, across_domains, decide, judge
from capibara_assets.evaluation.decision.deciding import Beside
from capibara_assets.evaluation.decision.test_uses import TestUse as Use
from capibara_assets.evaluation.decision_rule import DecisionRule, ScoreRule
from capibara_assets.evaluation.schema import Decision, Interval, ItemScore, read_decision
from capibara_assets.storage.records import table

SPECIFIED = DecisionRule(resamples=1_000)  # pass@1: 90 points, 5 over B
LOSS = ScoreRule(
    metric="loss_per_assistant_token", direction="lower", range=(0.0, "base"), min_score=0.125, min_gain=0.0625
)
BY_LOSS = DecisionRule(default=LOSS, resamples=1_000)
POINTS = 100


def interval(low: float, high: float, needed: float, n: int = 40) -> Interval:
    return Interval(estimate=(low + high) / 2, low=low, high=high, n=n, groups=n, needed=needed)


def expected(b: Fraction, c: Fraction) -> str:
    """The specification's rule on exact numbers."""
    if c < b:
        return "overfitting"
    if c - b < Fraction(5, 100):
        return "small_gain"
    return "adopt" if c >= Fraction(90, 100) else "below_bar"


def test_every_region_and_boundary_on_exact_scores():
    """B and C in steps of half a point: 0.90 itself, a gain of exactly 5 points, equal scores; floats as they fall."""
    seen: dict[str, int] = {}
    for b, c in itertools.product(range(2 * POINTS + 1), repeat=2):
        exact_b, exact_c = Fraction(b, 2 * POINTS), Fraction(c, 2 * POINTS)
        score, gain = float(exact_c), float(exact_c) - float(exact_b)
        found = judge(interval(score, score, 0.90), interval(gain, gain, 0.05))
        assert found == expected(exact_b, exact_c), (b, c)
        seen[found] = seen.get(found, 0) + 1
    assert sorted(seen) == ["adopt", "below_bar", "overfitting", "small_gain"] and min(seen.values()) > 100


def test_floats_that_only_round_differently_stand_on_the_bar():
    assert 0.95 - 0.90 < 0.05 and 0.1 * 9 != 0.8999999999999999  # what the rule must not trip over
    for b, c in ((0.90, 0.95), (0.85, 0.90), (0.3 + 0.55, 0.9)):
        assert judge(interval(c, c, 0.90), interval(c - b, c - b, 0.05)) == "adopt"
    missed = 0.90 - 1e-6
    assert judge(interval(missed, missed, 0.90), interval(0.3, 0.3, 0.05)) == "below_bar"
    assert judge(interval(0.95, 0.95, 0.90), interval(0.05 - 1e-6, 0.05 - 1e-6, 0.05)) == "small_gain"


@pytest.mark.parametrize(
    ("score", "gain", "outcome"),
    [
        ((0.90, 0.95), (0.05, 0.20), "adopt"),  # both stand on their bars
        ((0.90, 0.95), (0.04, 0.20), "wide_interval"),
        ((0.89, 0.95), (0.05, 0.20), "wide_interval"),
        ((0.89, 0.90), (0.04, 0.05), "wide_interval"),  # both reach up to their bars
        ((0.95, 0.99), (0.01, 0.04), "small_gain"),
        ((0.95, 0.99), (-0.02, 0.04), "small_gain"),  # perhaps below B, certainly not 5 points above
        ((0.80, 0.99), (-0.02, 0.04), "small_gain"),
        ((0.95, 0.99), (-0.09, -0.01), "overfitting"),
        ((0.20, 0.30), (-0.09, -0.01), "overfitting"),
        ((0.20, 0.30), (-0.09, 0.0), "small_gain"),
        ((0.80, 0.89), (0.30, 0.40), "below_bar"),
        ((0.80, 0.89), (0.01, 0.40), "below_bar"),  # whatever the gain is, the score fails
        ((0.80, 0.89), (-0.05, 0.40), "below_bar"),
    ],
)
def test_each_condition_is_judged_on_its_interval(score: tuple[float, float], gain: tuple[float, float], outcome: str):
    assert judge(interval(*score, 0.90), interval(*gain, 0.05)) == outcome


ends = st.tuples(st.floats(-1, 1), st.floats(-1, 1)).map(sorted)


@given(score=ends, gain=ends)
def test_the_verdict_is_what_every_point_of_the_intervals_agrees_on(score: list[float], gain: list[float]):
    """Promote only where no point of the intervals says otherwise; reject only where no point says adopt."""
    verdict = VERDICTS[judge(interval(*score, 0.90), interval(*gain, 0.05))]
    corners = [s >= 0.90 - 1e-9 and g >= 0.05 - 1e-9 for s, g in itertools.product(score, gain)]
    assert verdict == ("promote" if all(corners) else "inconclusive" if any(corners) else "reject")


@given(score=ends, gain=ends, lift=st.floats(0, 1), which=st.sampled_from([0, 1]))
def test_a_better_interval_never_makes_the_verdict_worse(
    score: list[float], gain: list[float], lift: float, which: int
):
    rank = {"reject": 0, "inconclusive": 1, "promote": 2}
    before = (score, gain)
    after = tuple([end + lift * (number == which) for end in one] for number, one in enumerate(before))
    verdicts = [VERDICTS[judge(interval(*s, 0.90), interval(*g, 0.05))] for s, g in (before, after)]
    assert rank[verdicts[1]] >= rank[verdicts[0]]


def scores(
    arms: Mapping[str, Sequence[float]],
    *,
    groups: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    weight: float = 1.0,
) -> pl.DataFrame:
    """Contender → score of each item; every item a group of its own unless `groups` says otherwise."""
    return table(
        ItemScore,
        [
            ItemScore(
                contender=name,
                item_id=f"e{i:04}",
                group_id=groups[i] if groups else f"g{i:04}",
                score=value,
                weight=weight,
                kind=kinds[i] if kinds else "",
            )
            for name, values in arms.items()
            for i, value in enumerate(values)
        ],
    )


def passes(rate: float, n: int = 400) -> list[float]:
    """The first items pass, the others do not: contenders then differ on as few items as they can."""
    return [float(i < round(rate * n)) for i in range(n)]


@pytest.mark.parametrize(
    ("b", "c", "n", "outcome"),
    [
        (0.70, 0.97, 400, "adopt"),
        (0.70, 0.97, 30, "wide_interval"),
        (0.70, 0.85, 400, "below_bar"),
        (0.95, 0.96, 400, "small_gain"),
        (0.96, 0.90, 400, "overfitting"),
        (0.96, 0.96, 400, "small_gain"),
        (0.96, 0.96, 40, "wide_interval"),  # equal on 40 items: 5 points cannot be excluded
        (0.86, 0.93, 400, "wide_interval"),
    ],
)
def test_pass_or_fail_as_specified(b: float, c: float, n: int, outcome: str):
    arms = {"base": passes(0.5, n), "playbook": passes(b, n), "consensus": passes(c, n)}
    found = decide("python", scores(arms), SPECIFIED)
    assert (found.outcome, found.verdict) == (outcome, VERDICTS[outcome])
    assert found.metric == "pass@1" and found.gain_over_playbook.method == "exact McNemar, Tango's interval"
    assert found.arms["consensus"].value == pytest.approx(round(c * n) / n)
    assert (found.items_needed is None) == (outcome != "wide_interval")


def test_a_point_estimate_over_both_bars_is_no_promotion():
    """97 % and 27 points more on 30 items: the lower end of the score is what counts, never a silent pass."""
    arms = {"base": passes(0.5, 30), "playbook": passes(0.7, 30), "consensus": passes(0.97, 30)}
    found = decide("python", scores(arms), SPECIFIED)
    assert found.arms["consensus"].score.estimate > 0.9 and found.verdict == "inconclusive"
    assert found.items_needed >= 1 and f"needs about {found.items_needed} more items" in found.reason


def test_perfect_on_a_few_groups_of_many_items_is_not_certain():
    """All answers pass, in 8 groups of 50: eight sessions are no proof of 90 %."""
    n = 400
    groups = [f"g{i // 50}" for i in range(n)]
    arms = {"base": passes(0.0, n), "consensus": passes(1.0, n)}
    found = decide("python", scores(arms, groups=groups), SPECIFIED)
    assert found.outcome == "wide_interval" and found.arms["consensus"].score.low == pytest.approx(0.676, abs=1e-3)
    alone = decide("python", scores(arms), SPECIFIED)
    assert alone.outcome == "adopt"


def test_without_a_playbook_the_base_is_what_to_beat():
    found = decide("python", scores({"base": passes(0.7), "consensus": passes(0.97)}), SPECIFIED)
    assert found.verdict == "promote" and found.gain_over_playbook is None
    assert found.gain_over_base.estimate == pytest.approx(0.27)
    assert "no bullet graduated" in found.reason and found.reason.endswith("promote.")


def losses(**shares: float) -> pl.DataFrame:
    """Losses of six examples of very different size, each arm at its share of the base's."""
    sizes = 8 * np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    return scores({"base": list(sizes)} | {name: list(share * sizes) for name, share in shares.items()}, weight=10.0)


def test_losses_that_stand_exactly_on_both_bars_promote():
    found = decide("sql", losses(playbook=0.9375, consensus=0.875), BY_LOSS)
    assert (found.arms["consensus"].score.low, found.gain_over_playbook.low) == pytest.approx((0.125, 0.0625))
    assert found.verdict == "promote"


@pytest.mark.parametrize(
    ("playbook", "consensus", "outcome"),
    [
        (1.0, 0.5, "adopt"),
        (0.94, 0.88, "small_gain"),
        (0.96, 0.88, "below_bar"),
        (0.70, 0.75, "overfitting"),
        (1.2, 1.1, "below_bar"),  # better than a harmful playbook, worse than the base model
    ],
)
def test_losses_are_points_between_the_bases_and_none(playbook: float, consensus: float, outcome: str):
    found = decide("sql", losses(playbook=playbook, consensus=consensus), BY_LOSS)
    assert found.outcome == outcome
    assert found.arms["base"].score.estimate == 0 and found.arms["base"].value == pytest.approx(8.4)
    assert found.gain_over_base.estimate == pytest.approx(1 - consensus)


def test_better_than_a_harmful_playbook_is_not_enough():
    """C clears both bars of the rule, but the plain base model is better still."""
    rule = DecisionRule(default=ScoreRule(min_score=0.5), resamples=1_000)
    arms = {"base": passes(0.9), "playbook": passes(0.5), "consensus": passes(0.7)}
    found = decide("python", scores(arms), rule)
    assert (found.outcome, found.verdict) == ("worse_than_base", "reject")
    assert "significantly worse than the base model without a playbook" in found.reason


def test_what_serves_now_is_not_replaced_by_less():
    arms = {"base": passes(0.5), "consensus": passes(0.95), "promoted": passes(1.0)}
    found = decide("python", scores(arms), SPECIFIED)
    assert (found.outcome, found.verdict) == ("worse_than_promoted", "reject")
    assert decide("python", scores(arms | {"promoted": passes(0.95)}), SPECIFIED).verdict == "promote"
    better = arms | {"promoted": passes(0.96), "consensus": passes(0.97)}
    assert decide("python", scores(better), SPECIFIED).verdict == "promote"


def test_the_playbook_on_top_is_reported():
    arms = {"base": passes(0.5), "playbook": passes(0.5), "consensus": passes(0.95)}
    more = decide("python", scores(arms | {"consensus+playbook": passes(1.0)}), SPECIFIED)
    assert more.gain_of_playbook.estimate == pytest.approx(0.05)
    assert "5.0 points" in more.reason and "serve it with the playbook" in more.reason
    less = decide("python", scores(arms | {"consensus+playbook": passes(0.5)}), SPECIFIED)
    assert "serve it without" in less.reason
    same = decide("python", scores(arms | {"consensus+playbook": passes(0.95)}), SPECIFIED)
    assert "which may be nothing" in same.reason
    assert more.verdict == less.verdict == same.verdict  # it has no say


def sliced(worse: float) -> pl.DataFrame:
    """Three kinds of 100 items: the adapter is far better in two, and passes `worse` of 50 % in the third."""
    kinds = [kind for kind in ("explain", "repair", "solve") for _ in range(100)]
    base = passes(0.5, 100) * 3
    return scores({"base": base, "consensus": passes(1.0, 100) * 2 + passes(worse, 100)}, kinds=kinds)


def test_a_slice_that_gets_worse_stops_the_rest():
    rule = DecisionRule(default=ScoreRule(min_score=0.5), resamples=1_000)
    found = decide("python", sliced(0.2), rule)
    assert (found.outcome, found.verdict) == ("worse_slice", "reject")
    assert [name for name, one in found.slices.items() if one.worse] == ["solve"]
    assert "It is worse in solve (-30.0 points" in found.reason
    kept = decide("python", sliced(0.48), rule)  # two items fewer are chance
    assert kept.verdict == "promote" and "no significant loss in explain, repair, solve" in kept.reason


def test_a_source_that_gets_worse_stops_the_rest():
    """What carries the gain, such as one source's boilerplate, does not hide a loss on another source."""
    sources = ["harnessed"] * 200 + ["real"] * 100
    frame = scores({"base": passes(0.5, 100) * 3, "consensus": passes(1.0, 200) + passes(0.2, 100)})
    named = dict(zip(frame["item_id"].unique(maintain_order=True), sources, strict=True))
    frame = frame.with_columns(source=pl.col("item_id").replace_strict(named))
    found = decide("python", frame, DecisionRule(default=ScoreRule(min_score=0.5), resamples=1_000))
    assert (found.outcome, found.verdict) == ("worse_slice", "reject")
    assert "It is worse in source real (-30.0 points" in found.reason
    assert not found.slices["source harnessed"].worse


def test_slices_are_adjusted_for_their_number():
    """Six items lost of a hundred, none won: p = 0.03 alone, but one of three slices that did not get better."""
    kinds = [kind for kind in ("apply", "explain", "repair", "solve") for _ in range(100)]
    tuned = passes(1.0, 100) + passes(0.5, 100) * 2 + passes(0.44, 100)
    frame = scores({"base": passes(0.5, 100) * 4, "consensus": tuned}, kinds=kinds)
    rule = DecisionRule(default=ScoreRule(min_score=0.5), resamples=1_000)
    found = decide("python", frame, rule)
    assert found.slices["solve"].gain.p_value < 0.05 < found.slices["solve"].p_holm
    assert not any(one.worse for one in found.slices.values())


def beside(**parts: pl.DataFrame) -> dict[str, Beside]:
    return {name: Beside(part, SPECIFIED.default) for name, part in parts.items()}


def test_what_stands_beside_is_a_slice():
    better = scores({"base": passes(0.5), "consensus": passes(0.97)})
    worse = scores({"base": passes(0.5), "consensus": passes(0.3)})
    found = decide("python", better, SPECIFIED, beside=beside(unseen=worse, seen=better))
    assert found.outcome == "worse_slice" and found.slices["unseen"].worse and not found.slices["seen"].worse


def test_an_arm_that_lacks_what_stands_beside_is_a_crashed_arm():
    better = scores({"base": passes(0.5), "consensus": passes(0.97)})
    found = decide("python", better, SPECIFIED, beside=beside(loss=better.filter(pl.col("contender") == "base")))
    assert (found.outcome, found.verdict) == ("crashed_arm", "reject")
    assert "consensus: in loss it was not scored" in found.reason


def test_a_slice_of_few_groups_is_named_not_judged():
    kinds = ["solve"] * 396 + ["repair"] * 4
    found = decide("python", scores({"base": passes(0.5), "consensus": passes(0.97)}, kinds=kinds), SPECIFIED)
    assert found.slices["repair"].gain is None and not found.slices["repair"].worse
    assert "too few groups to tell in repair" in found.reason


@pytest.mark.parametrize("missing", ["base", "consensus"])
def test_an_arm_that_was_not_scored_is_not_promoted(missing: str):
    arms = {name: passes(rate) for name, rate in (("base", 0.5), ("consensus", 0.97)) if name != missing}
    found = decide("python", scores(arms), SPECIFIED)
    assert found.outcome == "crashed_arm" and found.verdict != "promote"
    assert f"{missing}: was not scored" in found.reason and found.gain_over_base is None


@pytest.mark.parametrize("name", ["base", "playbook", "consensus", "promoted"])
def test_a_crashed_arm_is_named_with_why(name: str):
    arms = {"base": 0.5, "playbook": 0.5, "consensus": 0.97, "promoted": 0.9}
    left = scores({arm: passes(rate) for arm, rate in arms.items() if arm != name})
    found = decide("python", left, SPECIFIED, crashed={name: "out of memory at item 17"})
    assert found.outcome == "crashed_arm" and found.verdict in ("reject", "inconclusive")
    assert f"{name}: out of memory at item 17" in found.reason


def test_a_crash_of_the_arm_that_only_reports_is_reported():
    arms = {"base": passes(0.5), "consensus": passes(0.97)}
    found = decide("python", scores(arms), SPECIFIED, crashed={"consensus+playbook": "too long a prompt"})
    assert found.verdict == "promote" and "could not be run (too long a prompt)" in found.reason


def test_an_arm_on_other_items_is_a_crashed_arm():
    arms = {"base": passes(0.5), "consensus": passes(0.97)[:-1]}
    found = decide("python", scores(arms), SPECIFIED)
    assert found.outcome == "crashed_arm"
    assert "consensus: was scored on other items (399) than the base model (400), such as e0399" in found.reason
    both = decide("python", scores(arms | {"consensus": passes(1), "playbook": passes(1, 3)}), SPECIFIED)
    assert "playbook: was scored on other items (3)" in both.reason


def test_an_arm_on_other_tokens_is_a_crashed_arm():
    frame = losses(consensus=0.5)
    longer = frame.with_columns(weight=pl.when(pl.col("contender") == "base").then(11.0).otherwise(pl.col("weight")))
    assert "with another weight" in decide("sql", longer, BY_LOSS).reason


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_a_crashed_arm(value: float):
    frame = losses(consensus=0.5).with_columns(
        score=pl.when((pl.col("contender") == "consensus") & (pl.col("item_id") == "e0003"))
        .then(value)
        .otherwise(pl.col("score"))
    )
    found = decide("sql", frame, BY_LOSS)
    assert found.verdict == "reject" and "consensus: has no finite score of item e0003" in found.reason


def test_a_few_groups_make_no_interval():
    """However good: a bootstrap over five groups has no width to speak of."""
    verdicts = []
    for count in (BY_LOSS.min_groups, BY_LOSS.min_groups - 1):
        arms = {"base": [10.0] * 30, "consensus": [2.0] * 30}
        found = decide("ml", scores(arms, groups=[f"g{i % count}" for i in range(30)], weight=10.0), BY_LOSS)
        verdicts.append(found.verdict)
    assert verdicts == ["promote", "inconclusive"]
    assert "5 groups of test items make no interval (6 needed)" in found.reason


def test_items_of_one_group_count_once():
    better = [6.0 if i % 8 > 2 else 10.5 for i in range(32)]
    arms = {"base": [10.0] * 32, "consensus": better}
    grouped = decide("debug", scores(arms, groups=[f"g{i % 8}" for i in range(32)], weight=1.0), BY_LOSS)
    assert (grouped.gain_over_base.n, grouped.gain_over_base.groups) == (32, 8)
    spread = decide("debug", scores(arms), BY_LOSS)
    assert (grouped.verdict, spread.verdict) == ("inconclusive", "promote")


def test_a_refused_use_of_the_test_is_no_promotion():
    arms = scores({"base": passes(0.5), "consensus": passes(0.99)})
    found = decide("python", arms, SPECIFIED, test_use=Use(2, 0.03, "another candidate of the same voters was judged"))
    assert (found.outcome, found.verdict) == ("second_look", "inconclusive")
    assert "Not judged: another candidate of the same voters was judged" in found.reason


def test_a_later_use_is_judged_more_strictly():
    arms = scores({"base": passes(0.5), "consensus": passes(0.94)})
    first, later = (decide("python", arms, SPECIFIED, test_use=use) for use in (Use(1, 0.03), Use(9, 0.0004)))
    assert (first.verdict, later.verdict) == ("promote", "inconclusive")
    assert "This is use 9 of these test items, so it is judged at the level 0.0004" in later.reason
    assert first.look == 1 and later.arms["consensus"].score.confidence == pytest.approx(0.9996)


def test_several_domains_are_adjusted_for_their_number():
    good = decide("python", scores({"base": passes(0.5), "consensus": passes(0.99)}), SPECIFIED)
    close = decide("sql", scores({"base": passes(0.5), "consensus": passes(0.93)}), SPECIFIED)
    worse = decide("ml", scores({"base": passes(0.5), "consensus": passes(0.3)}), SPECIFIED)
    assert close.verdict == "promote" and 0.01 < close.p_value < 0.05
    alone = across_domains({"sql": close}, SPECIFIED)
    assert alone == {"sql": close}
    found = across_domains({"python": good, "sql": close, "ml": worse} | {f"d{i}": close for i in range(4)}, SPECIFIED)
    assert found["python"] == good and found["ml"] == worse
    assert (found["sql"].verdict, found["sql"].outcome) == ("inconclusive", "many_domains")
    assert "7 domains were judged together" in found["sql"].reason


def test_a_domain_has_its_own_score():
    rule = DecisionRule(default=LOSS, domains={Domain.SQL: {"min_gain": 0.5}}, resamples=1_000)
    frame = losses(consensus=0.6)
    assert (decide("python", frame, rule).outcome, decide("sql", frame, rule).outcome) == ("adopt", "small_gain")


def test_other_contenders_have_no_say():
    arms = {"base": passes(0.5), "consensus": passes(0.97)}
    others = {"voter-0": passes(1), "expert:sql": passes(0.2), "merged": passes(0.6, 3)}
    assert decide("python", scores(arms | others), SPECIFIED) == decide("python", scores(arms), SPECIFIED)


def test_arms_of_other_names():
    arms = {"theirs": passes(0.5), "theirs with a prompt": passes(0.6), "ours": passes(0.97)}
    names = Arms(base="theirs", playbook="theirs with a prompt", tuned="ours")
    found = decide("HumanEval", scores(arms), SPECIFIED, arms=names)
    assert found.verdict == "promote" and found.gain_over_playbook.estimate == pytest.approx(0.37)


def test_the_paragraph_says_what_was_compared_by_how_much_and_why():
    arms = {"base": passes(0.5), "playbook": passes(0.85), "consensus": passes(0.93)}
    found = decide("python", scores(arms), SPECIFIED)
    for part in (
        "In python, 400 held-out items in 400 groups were scored by pass@1",
        "the base model 0.5, the base model with the playbook 0.85, the fine-tuned model 0.93",
        "The fine-tuned model scores 93.0 points (95 % interval 90.1 to 95.1; needed: 90)",
        "Over the base model with the playbook it gains 8.0 points (95 % interval 5.7 to 11.1; needed: 5)",
        "p < 0.0001 for no difference",
        "these items would have shown a difference of",
        "Every lower end reaches its bar: promote.",
    ):
        assert part in found.reason, found.reason


def test_the_same_scores_make_the_same_document():
    random = np.random.default_rng(2)
    base = list(random.uniform(5, 50, 60))
    frame = scores({"base": base, "consensus": [0.7 * one for one in base]}, weight=3.0)
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=3)
    assert decide("sql", frame, BY_LOSS).model_dump_json() == decide("sql", shuffled, BY_LOSS).model_dump_json()


def test_a_decision_of_the_first_version_is_still_read():
    side = {"estimate": 0.2, "low": 0.1, "high": 0.3, "n": 40, "groups": 20}
    old = {"verdict": "promote", "reason": "Better.", "gain_over_base": side, "gain_over_playbook": None}
    found = read_decision(old)
    assert (found.verdict, found.outcome, found.gain_over_base.high) == ("promote", None, 0.3)
    assert read_decision(found.model_dump(mode="json")) == found
    new = decide("sql", losses(consensus=0.5), BY_LOSS)
    assert read_decision(new.model_dump(mode="json")) == new and isinstance(new, Decision)
