"""The reason of a decision as a paragraph: what was compared, by how much, with what power, and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass

from capibara_assets.evaluation.decision.test_uses import TestUse
from capibara_assets.evaluation.decision_rule import ScoreRule
from capibara_assets.evaluation.schema import ArmScore, DecisionOutcome, Interval, SliceResult

_METRICS = {
    "loss_per_assistant_token": "loss per assistant token",
    "perplexity": "perplexity of the assistant's tokens",
    "exact_match": "exact matches",
    "repair_rate": "repairs that run",
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge_l": "ROUGE-L",
}


@dataclass(frozen=True)
class DecisionFacts:
    """The facts of a decision that its paragraph states; scores are 0..1."""

    domain: str
    score_rule: ScoreRule
    why: str  # why this metric decides; "": no other was asked
    outcome: DecisionOutcome
    arms: Mapping[str, ArmScore]
    score: Interval
    gain: Interval
    over_base: Interval
    of_playbook: Interval | None
    slices: Mapping[str, SliceResult]
    items_needed: int
    min_groups: int
    test_use: TestUse | None
    base: str
    reference: str
    tuned: str
    broken: Mapping[str, str]


def explain(facts: DecisionFacts) -> str:
    """Write the paragraph."""
    said = [_score(facts), _gain(facts), _playbook(facts), _slices(facts), _test_use(facts)]
    return " ".join([*(sentence for sentence in (facts.why, _compared(facts), *said) if sentence), _ending(facts)])


def _compared(facts: DecisionFacts) -> str:
    rule, score = facts.score_rule, facts.score
    metric = _METRICS.get(rule.metric, rule.metric)
    values = [f"{_arm(facts, name)} {arm.value:.3g}" for name, arm in facts.arms.items()]
    ends = [f"the base model's {metric}" if end == "base" else f"{metric} {end:g}" for end in (rule.bad, rule.good)]
    return (
        f"In {facts.domain}, {score.n} held-out items in {score.groups} groups were scored by {metric}: "
        f"{', '.join(values)}. Scores go from 0 points ({ends[0]}) to 100 ({ends[1]})."
    )


def _score(facts: DecisionFacts) -> str:
    return f"The fine-tuned model scores {_points(facts.score)}."


def _gain(facts: DecisionFacts) -> str:
    gain = facts.gain
    other = _arm(facts, facts.reference)
    without = "" if facts.reference != facts.base else " (no bullet graduated, or no arm with a playbook answered)"
    p = f", {_p(gain.p_value)} for no difference" if gain.p_value is not None else ""
    least = (
        f"these items would have shown a difference of {100 * gain.detectable:.1f} points with 80 % power"
        if gain.detectable is not None
        else "so few items would have shown no difference at all with 80 % power"
    )
    over_base = "" if facts.reference == facts.base else f" Over the base model it gains {_points(facts.over_base)}."
    return f"Over {other}{without} it gains {_points(gain)}{p}; {least}.{over_base}"


def _playbook(facts: DecisionFacts) -> str:
    for name, why in sorted(facts.broken.items()):
        return f"The arm {name} could not be run ({why})."
    gain = facts.of_playbook
    if gain is None:
        return ""
    if gain.low > 0:
        return f"With the playbook in its context it scores {_points(gain)} more: serve it with the playbook."
    if gain.high < 0:
        return f"With the playbook in its context its score changes by {_points(gain)}: serve it without."
    return f"The playbook in its context changes its score by {_points(gain)}, which may be nothing."


def _slices(facts: DecisionFacts) -> str:
    worse = [
        f"{name} ({_points(one.gain)}, {_p(one.p_holm)} after Holm)"
        for name, one in facts.slices.items()
        if one.worse and one.gain is not None and one.p_holm is not None
    ]
    if worse:
        return f"It is worse in {', '.join(worse)}."
    judged = [name for name, one in facts.slices.items() if one.gain is not None]
    small = [name for name in facts.slices if name not in judged]
    parts = [f"no significant loss in {', '.join(judged)}"] if judged else []
    parts += [f"too few groups to tell in {', '.join(small)}"] if small else []
    return f"By slice: {'; '.join(parts)}." if parts else ""


def _test_use(facts: DecisionFacts) -> str:
    if facts.test_use is None or facts.test_use.number == 1:
        return ""
    number, level = facts.test_use.number, facts.test_use.level
    return f"This is use {number} of these test items, so it is judged at the level {level:.2g}."


def _ending(facts: DecisionFacts) -> str:
    rule = facts.score_rule
    bar, least = 100 * rule.min_score, 100 * rule.min_gain
    kept = "reject, keep what serves now."
    match facts.outcome:
        case "adopt":
            return "Every lower end reaches its bar: promote."
        case "overfitting":
            return f"The fine-tuned model is below {_arm(facts, facts.reference)}: a sign of overfitting; {kept}"
        case "small_gain":
            return f"The gain stays under {least:g} points, even at the interval's upper end: {kept}"
        case "below_bar":
            return f"Its score stays below the bar of {bar:g} points, even at the interval's upper end: {kept}"
        case "worse_than_base":
            return f"It is significantly worse than the base model without a playbook: {kept}"
        case "worse_than_promoted":
            return f"It is significantly worse than the model that serves now: {kept}"
        case "worse_slice":
            return f"A gain on the whole may not cost a slice: {kept}"
        case "second_look":
            return f"Not judged: {facts.test_use.refused if facts.test_use else ''}. Inconclusive, nothing is promoted."
        case "few_groups":
            return (
                f"{facts.score.groups} groups of test items make no interval ({facts.min_groups} needed): "
                "inconclusive, add executions of other problems or sessions."
            )
        case _:
            return f"An interval straddles its bar: inconclusive, needs about {facts.items_needed} more items."


def _points(interval: Interval) -> str:
    """`23.3 points (95 % interval 18.1 to 29.0; needed: 5)`."""
    needed = f"; needed: {100 * interval.needed:g}" if interval.needed is not None else ""
    confidence = f"{100 * interval.confidence:.3g} % interval " if interval.confidence is not None else ""
    low, high = 100 * interval.low, 100 * interval.high
    return f"{100 * interval.estimate:.1f} points ({confidence}{low:.1f} to {high:.1f}{needed})"


def _arm(facts: DecisionFacts, name: str) -> str:
    words = {facts.base: "the base model", facts.tuned: "the fine-tuned model"}
    if name == facts.reference and name != facts.base:
        return "the base model with the playbook"
    return words.get(name, name)


def _p(value: float) -> str:
    """A p-value; smaller ones are not exact, since they rest on few resamples or an extreme tail."""
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"
