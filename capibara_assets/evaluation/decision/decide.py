"""Decide on a fine-tuned model from confidence intervals of four arms: promote, reject or inconclusive.

Arms: A the base model, B the base model with the playbook in context, C the fine-tuned model, D the fine-tuned model
with the playbook. Where the domain has no playbook, B is A.

| C's score | C − B | on the point | verdict |
|---|---|---|---|
| reaches `min_score` | reaches `min_gain` | adopt C | promote |
| below it | reaches it | keep B: `below_bar` | reject |
| any | from 0 to below it | keep B: `small_gain` | reject |
| any | below 0 | keep B: `overfitting` | reject |

Each condition is met when the interval's lower end reaches its bar, and failed when the upper end stays below it. One
that is neither makes the verdict *inconclusive*, unless another one has failed. Also, C must not be significantly worse
than the base model, than the promoted model, or in any slice: a kind or a source of items, or what `deciding.py` puts
beside them (Holm over the slices).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from capibara_assets.evaluation.decision.deciding import Beside
from capibara_assets.evaluation.decision.paragraph import DecisionFacts, explain
from capibara_assets.evaluation.decision.test_uses import TestUse
from capibara_assets.evaluation.decision_rule import DecisionRule, ScoreRule
from capibara_assets.evaluation.schema import ArmScore, Decision, DecisionOutcome, Interval, SliceResult, Verdict
from capibara_assets.evaluation.statistics.bootstrap import holm, items_needed
from capibara_assets.evaluation.statistics.points import ContenderPoints, NotComparable

_ROUNDING = 1e-9  # scores are sums of floats: what misses a bar by less stands on it

VERDICTS: dict[DecisionOutcome, Verdict] = {
    "adopt": "promote",
    "overfitting": "reject",
    "small_gain": "reject",
    "below_bar": "reject",
    "worse_than_base": "reject",
    "worse_than_promoted": "reject",
    "worse_slice": "reject",
    "wide_interval": "inconclusive",
    "few_groups": "inconclusive",
    "second_look": "inconclusive",
    "many_domains": "inconclusive",
}


@dataclass(frozen=True)
class Arms:
    """Names of the arms among the contenders."""

    base: str = "base"
    playbook: str = "playbook"
    tuned: str = "consensus"
    tuned_playbook: str = "consensus+playbook"
    promoted: str = "promoted"

    def run(self, scores: pl.DataFrame, crashed: Mapping[str, str]) -> list[str]:
        """The arms to compare, base first: base and tuned always, the others where they were run or crashed."""
        there = {*scores["contender"].unique().to_list(), *crashed}
        names = (self.base, self.playbook, self.tuned, self.tuned_playbook, self.promoted)
        return [name for name in names if name in there or name in (self.base, self.tuned)]


def decide(
    domain: str,
    scores: pl.DataFrame,
    rule: DecisionRule,
    *,
    arms: Arms = Arms(),
    crashed: Mapping[str, str] | None = None,
    test_use: TestUse | None = None,
    beside: Mapping[str, Beside] | None = None,
    why: str = "",
) -> Decision:
    """Judge the fine-tuned model against the base model and, where there is one, the base with the playbook in context.

    Args:
        scores: rows of `ItemScore`, in the metric of `rule.score(domain)`. Contenders that are not arms are ignored.
        crashed: contender → why it has no scores. An arm that crashed is not promoted, nor is another over it.
        test_use: this use of the test items, from the ledger (test_uses.py): its level of significance replaces the
            rule's, and it may refuse the candidate.
        beside: scores of the same arms that do not decide, in which the fine-tuned model may not be worse either.
        why: why this metric decides (deciding.py), for the record.
    """
    score_rule, broken = rule.score(domain), dict(crashed or {})
    if test_use is not None:
        rule = rule.model_copy(update={"confidence": 1 - test_use.level})
    points, broken = _points(scores, score_rule, rule, arms, broken)
    lost = {name: why for name, why in broken.items() if name != arms.tuned_playbook}
    if points is None or lost:
        return _crashed(domain, score_rule, arms, lost, test_use)
    reference = arms.playbook if arms.playbook in points.names else arms.base
    score = points.score(arms.tuned, score_rule.min_score)
    gain = points.gain(arms.tuned, reference, score_rule.min_gain)
    over_base = gain if reference == arms.base else points.gain(arms.tuned, arms.base)
    over_promoted = points.gain(arms.tuned, arms.promoted) if arms.promoted in points.names else None
    of_playbook = points.gain(arms.tuned_playbook, arms.tuned) if arms.tuned_playbook in points.names else None
    try:
        names = (arms.base, arms.tuned, reference, arms.playbook)
        slices = _slices(scores, beside or {}, score_rule, rule, names)
    except NotComparable as unfit:
        return _crashed(domain, score_rule, arms, {unfit.contender: unfit.why}, test_use)
    outcome = _outcome(points, rule, test_use, score, gain, _worse(over_base, over_promoted, slices))
    verdict = VERDICTS[outcome]
    more = max(items_needed(score, score_rule.min_score), items_needed(gain, score_rule.min_gain))
    scored = {name: ArmScore(value=points.value(name), score=points.score(name)) for name in points.names}
    story = DecisionFacts(
        domain, score_rule, why, outcome, scored, score, gain, over_base, of_playbook, slices, more, rule.min_groups,
        test_use, arms.base, reference, arms.tuned, broken,
    )  # fmt: skip
    return Decision(
        verdict=verdict,
        outcome=outcome,
        reason=explain(story),
        metric=score_rule.metric,
        metric_reason=why,
        arms=scored,
        gain_over_base=over_base,
        gain_over_playbook=gain if reference == arms.playbook else None,
        gain_of_playbook=of_playbook,
        p_value=max(_short(score), _short(gain)),
        items_needed=more if outcome == "wide_interval" else None,
        slices=slices,
        look=test_use.number if test_use else None,
    )


def judge(score: Interval, gain: Interval) -> DecisionOutcome:
    """The region of the rule that the intervals prove: overfitting, small_gain, below_bar, adopt, or none of them.

    Args:
        score: of C, with what it needs.
        gain: of C over B, with what it needs.
    """
    enough, good = _reaches(gain), _reaches(score)
    if gain.high < -_ROUNDING:
        return "overfitting"
    if enough is False:
        return "small_gain"
    if good is False:
        return "below_bar"
    return "adopt" if enough and good else "wide_interval"


def across_domains(decisions: Mapping[str, Decision], rule: DecisionRule) -> dict[str, Decision]:
    """Adjust the decisions of several domains: a promotion has to be significant after Holm, too.

    A domain that is judged at a stricter level (a later use of its test items) keeps it: its p-value counts in units
    of that level.
    """
    alpha = 1 - rule.confidence
    judged = {name: one for name, one in decisions.items() if one.p_value is not None}
    levels = {name: _level(one, alpha) for name, one in judged.items()}
    scaled = {name: min(1.0, (one.p_value or 0.0) * alpha / levels[name]) for name, one in judged.items()}
    adjusted = holm(scaled)
    return {
        name: _demoted(one, adjusted[name], len(judged))
        if name in judged and one.verdict == "promote" and adjusted[name] > alpha >= scaled[name]
        else one
        for name, one in decisions.items()
    }


def _level(decision: Decision, alpha: float) -> float:
    confidence = decision.gain_over_base.confidence if decision.gain_over_base else None
    return alpha if confidence is None else 1 - confidence


def _demoted(decision: Decision, adjusted: float, domains: int) -> Decision:
    why = (
        f" But {domains} domains were judged together: adjusted for that, p = {adjusted:.2g} is not significant; "
        "inconclusive, add items."
    )
    update = {"verdict": "inconclusive", "outcome": "many_domains", "reason": decision.reason + why}
    return decision.model_copy(update=update)


def _points(
    scores: pl.DataFrame,
    score_rule: ScoreRule,
    rule: DecisionRule,
    arms: Arms,
    crashed: dict[str, str],
) -> tuple[ContenderPoints | None, dict[str, str]]:
    """The arms that can be compared (None: not even the base), and why the others cannot."""
    names, broken = [name for name in arms.run(scores, crashed) if name not in crashed], dict(crashed)
    while names and arms.base not in broken:
        try:
            return ContenderPoints.of(scores, names, score_rule, rule), broken
        except NotComparable as unfit:
            broken[unfit.contender] = unfit.why
            names.remove(unfit.contender)
    return None, broken


def _crashed(
    domain: str, score_rule: ScoreRule, arms: Arms, broken: Mapping[str, str], test_use: TestUse | None
) -> Decision:
    named = "; ".join(f"{name}: {why}" for name, why in sorted(broken.items()))
    fine = arms.tuned not in broken
    return Decision(
        verdict="inconclusive" if fine else "reject",
        outcome="crashed_arm",
        reason=(
            f"In {domain}, an arm is missing or crashed ({named}), so nothing was compared and nothing is promoted: "
            "mend it and evaluate again."
        ),
        metric=score_rule.metric,
        arms={},
        gain_over_base=None,
        gain_over_playbook=None,
        look=test_use.number if test_use else None,
    )


def _outcome(
    points: ContenderPoints,
    rule: DecisionRule,
    test_use: TestUse | None,
    score: Interval,
    gain: Interval,
    worse: DecisionOutcome | None,
) -> DecisionOutcome:
    if test_use is not None and test_use.refused:
        return "second_look"
    if points.group_count < rule.min_groups:
        return "few_groups"
    region = judge(score, gain)
    return region if worse is None or VERDICTS[region] == "reject" else worse


def _worse(
    over_base: Interval, over_promoted: Interval | None, slices: Mapping[str, SliceResult]
) -> DecisionOutcome | None:
    """What the fine-tuned model is worse than; None: nothing."""
    if over_base.high < -_ROUNDING:
        return "worse_than_base"
    if over_promoted is not None and over_promoted.high < -_ROUNDING:
        return "worse_than_promoted"
    return "worse_slice" if any(one.worse for one in slices.values()) else None


def _reaches(found: Interval) -> bool | None:
    """Whether the truth reaches what is needed; None: the interval straddles it."""
    needed = (found.needed or 0.0) - _ROUNDING
    return True if found.low >= needed else None if found.high >= needed else False


def _short(found: Interval) -> float:
    """p-value that the truth falls short of what is needed."""
    reached = found.estimate >= (found.needed or 0.0) - _ROUNDING
    return found.needed_p_value if reached and found.needed_p_value is not None else 1.0


def _slices(
    scores: pl.DataFrame,
    beside: Mapping[str, Beside],
    score_rule: ScoreRule,
    rule: DecisionRule,
    names: tuple[str, str, str, str],
) -> dict[str, SliceResult]:
    """Of each kind and source of items, where there are several, and of all beside them: did it get worse?

    Holm adjusts over all of them.
    """
    base, tuned, reference, playbook = names
    parts: dict[str, tuple[pl.DataFrame, ScoreRule]] = {}
    for column, named in (("kind", "{}"), ("source", "source {}")):
        values = sorted(set(scores[column].to_list()) - {""}) if column in scores.columns else []
        own = {named.format(value): (scores.filter(pl.col(column) == value), score_rule) for value in values}
        parts |= own if len(values) > 1 else {}
    gains: dict[str, Interval | None] = {}
    for name, (part, its_rule) in parts.items():
        gains[name] = _gain(name, part, its_rule, rule, (base, tuned, reference))
    for name, one in sorted(beside.items()):
        there = set(one.scores["contender"])
        over = playbook if playbook in there else base  # not all contenders answer
        if {base, tuned} & there:
            gains[name] = _gain(name, one.scores, one.rule, rule, (base, tuned, over))
    adjusted = holm({name: one.p_value for name, one in gains.items() if one is not None and one.p_value is not None})
    return {
        name: SliceResult(
            gain=one,
            p_holm=adjusted.get(name),
            worse=one is not None and one.estimate < 0 and adjusted[name] < 1 - rule.confidence,
        )
        for name, one in gains.items()
    }


def _gain(
    name: str,
    part: pl.DataFrame,
    score_rule: ScoreRule,
    rule: DecisionRule,
    names: tuple[str, str, str],
) -> Interval | None:
    """Gain of the second named contender over the third on a slice; None: too few groups to say."""
    try:
        points = ContenderPoints.of(part, dict.fromkeys(names), score_rule, rule)
    except NotComparable as unfit:
        raise NotComparable(unfit.contender, f"in {name} it {unfit.why}") from unfit
    return points.gain(names[1], names[2]) if points.group_count >= rule.min_groups else None
