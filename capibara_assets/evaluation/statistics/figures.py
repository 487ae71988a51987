"""Figures of every contender with intervals, and paired comparisons with the references on the same items."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from capibara_assets.evaluation.decision_rule import DecisionRule, ScoreRule
from capibara_assets.evaluation.report import Comparison
from capibara_assets.evaluation.schema import Interval
from capibara_assets.evaluation.statistics.bootstrap import interval, resample
from capibara_assets.evaluation.statistics.points import ContenderPoints, compared
from capibara_assets.evaluation.statistics.scores import LOSS, of_metric

BASE = "base"
PERPLEXITY = "perplexity"

Figures = dict[str, dict[str, Interval]]


def figures(
    scores: pl.DataFrame, rule: DecisionRule, contenders: Sequence[str], references: Sequence[str]
) -> tuple[Figures, list[Comparison]]:
    """Figures by contender and metric, and comparisons with each reference, adjusted by Holm per metric and reference.

    Losses are nats per token, compared by the share of the first contender's loss that is saved; perplexity is exp of
    the loss and of its ends. Other scores are shares, compared by their difference.

    Args:
        scores: rows of `Score`.
        contenders: in the order wanted, the base model first; those without a metric are left out of it.
        references: contenders with which the others are compared, where they have the metric.

    Raises:
        NotComparable: a contender was scored on other items than the first (a crashed arm).
    """
    by_contender: Figures = {name: {} for name in contenders}
    comparisons: list[Comparison] = []
    for metric in scores["metric"].unique(maintain_order=True).to_list():
        rows = of_metric(scores, metric)
        present = set(rows["contender"])
        names = [name for name in contenders if name in present]
        score_rule = _loss_rule() if metric == LOSS else ScoreRule(metric=metric)
        points = ContenderPoints.of(rows, names, score_rule, rule)
        own = _losses(points, rule) if metric == LOSS else {name: {metric: points.score(name)} for name in names}
        for name, figure in own.items():
            by_contender[name] |= {key: _alone(one) for key, one in figure.items()}
        for place, reference in enumerate(references):
            if reference in names:
                comparisons += [
                    Comparison(metric, name, reference, gain, adjusted)
                    for name, (gain, adjusted) in compared(points, reference).items()
                    if name not in references[:place]  # that pair is there already, the other way round
                ]
    return {name: row for name, row in by_contender.items() if row}, comparisons


def as_document(figures: Mapping[str, Mapping[str, Interval]], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """As JSON: `figures` by contender and metric, `comparisons` as a list."""
    return {
        "figures": {
            name: {metric: one.model_dump(mode="json", exclude_none=True) for metric, one in row.items()}
            for name, row in figures.items()
        },
        "comparisons": [
            {
                "metric": one.metric,
                "candidate": one.candidate,
                "reference": one.reference,
                "difference": one.difference.model_dump(mode="json", exclude_none=True),
                "p_holm": one.adjusted,
            }
            for one in comparisons
        ],
    }


def _loss_rule() -> ScoreRule:
    return ScoreRule(metric=LOSS, direction="lower", range=(0.0, "base"))


def _losses(points: ContenderPoints, rule: DecisionRule) -> dict[str, dict[str, Interval]]:
    drawn = resample(points.scores, points.weights, points.groups, resamples=rule.resamples, seed=rule.seed)
    intervals = {}
    for place, name in enumerate(points.names):
        loss = interval(drawn.draws[:, place], float(drawn.estimates[place]), drawn, rule.confidence)
        ends = {end: math.exp(getattr(loss, end)) for end in ("estimate", "low", "high")}
        intervals[name] = {LOSS: loss, PERPLEXITY: loss.model_copy(update=ends)}
    return intervals


def _alone(figure: Interval) -> Interval:
    """The interval without the fields of a difference: p-value and smallest detectable difference."""
    return figure.model_copy(update={"p_value": None, "detectable": None})
