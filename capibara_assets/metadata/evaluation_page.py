"""The report of an evaluation as one HTML page without scripts or external resources; answers are escaped as text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from capibara_assets.escaping.pages import html_page
from capibara_assets.evaluation.report import Comparison, EvaluationReport, metric_of
from capibara_assets.evaluation.schema import Interval
from capibara_assets.metadata.charts import line_chart
from capibara_assets.metadata.evaluation_charts import (
    CalibrationBin,
    IntervalRow,
    calibration_chart,
    confusion_matrix,
    figure,
    interval_chart,
)

CHARTED = 3  # number of scores that have a chart


def page(report: EvaluationReport) -> str:
    """The report as an HTML page; the same report gives the same bytes."""
    names = report.metrics()
    values = {
        "report": report,
        "columns": [_column(report, name) for name in names],
        "rows": _rows(report, names),
        "charts": charts(report),
        "comparisons": [_comparison(one) for one in report.comparisons if _first(one, report)],
        "further": [_comparison(one) for one in report.comparisons if not _first(one, report)],
        "curves": line_chart(report.curves, "step", "validation loss") if report.curves else "",
        "router_charts": router_charts(report.router),
        "router_facts": _router_facts(report.router),
        "settings": [(name, str(value)) for name, value in report.settings.items()],
    }
    return html_page("capibara_assets.metadata", "evaluation.html.jinja", values)


def charts(report: EvaluationReport) -> list[str]:
    """Interval charts of all contenders, for the first scores in which they differ."""
    drawn: list[str] = []
    for name in report.metrics():
        estimates = {row[name].estimate for row in report.figures.values() if name in row}
        if name == "perplexity" or len(drawn) == CHARTED or (len(estimates) == 1 and len(report.figures) > 1):
            continue
        metric = metric_of(name)
        rows = [
            IntervalRow(who, row[name].estimate, row[name].low, row[name].high, mark=who == report.judged)
            for who, row in report.figures.items()
            if name in row
        ]
        better = "less" if metric.direction == "lower" else "more"
        base = next(iter(report.figures.values())).get(name)
        title = f"{metric.title}: {metric.meaning} ({better} is better)"
        drawn.append(interval_chart(rows, title, line=base.estimate if base else None, percent=metric.percent))
    return drawn


def router_charts(router: Mapping[str, Any]) -> list[str]:
    """Calibration chart and confusion matrix, if the router's report has them."""
    drawn = []
    if bins := router.get("calibration"):
        bars = [CalibrationBin(one["confidence"], one["accuracy"], one["count"]) for one in bins]
        drawn.append(calibration_chart(bars, "the router's probabilities"))
    if rows := router.get("confusion"):
        actual = sorted(rows)
        picked = sorted({column for row in rows.values() for column in row})
        counts = {(row, column): count for row, cells in rows.items() for column, count in cells.items()}
        drawn.append(confusion_matrix(actual, picked, counts, "prompts of a domain (row) sent to an expert (column)"))
    return drawn


def _router_facts(router: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of the scalar figures in the router's report."""
    facts = []
    for name, value in router.items():
        if isinstance(value, bool | int | str):
            facts.append((name.replace("_", " "), str(value)))
        elif isinstance(value, float):
            facts.append((name.replace("_", " "), f"{value:.4g}"))
    return facts


def _rows(report: EvaluationReport, names: Sequence[str]) -> list[dict[str, Any]]:
    best = {name: _best(report, name) for name in names}
    rows = []
    for contender, figures in report.figures.items():
        usage = report.usage.get(contender)
        rows.append(
            {
                "name": contender,
                "cells": [_cell(figures.get(name), name, best[name], _shared_counts(report, name)) for name in names],
                "speed": "–" if usage is None or usage.tokens_per_second is None else f"{usage.tokens_per_second:,.0f}",
                "memory": "–" if usage is None or usage.peak_mib is None else f"{usage.peak_mib:,.0f} MiB",
            }
        )
    return rows


def _column(report: EvaluationReport, name: str) -> dict[str, str]:
    metric = metric_of(name)
    return {
        "title": metric.title,
        "meaning": metric.meaning,
        "arrow": "↓" if metric.direction == "lower" else "↑",
        "counts": _shared_counts(report, name) or "",
    }


def _shared_counts(report: EvaluationReport, name: str) -> str | None:
    """Number of items and groups of a score, if all contenders have the same."""
    distinct = {_counts(row[name]) for row in report.figures.values() if name in row}
    return distinct.pop() if len(distinct) == 1 else None


def _best(report: EvaluationReport, name: str) -> float:
    values = [row[name].estimate for row in report.figures.values() if name in row]
    finite = [value for value in values if math.isfinite(value)]
    # A column of equal figures has no best
    if not finite or min(finite) == max(finite):
        return math.nan
    return min(finite) if metric_of(name).direction == "lower" else max(finite)


def _cell(interval: Interval | None, name: str, best: float, shared: str | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    percent = metric_of(name).percent
    return {
        "figure": figure(interval.estimate, percent),
        "interval": f"{figure(interval.low, percent)} – {figure(interval.high, percent)}",
        "counts": "" if shared else _counts(interval),
        "best": interval.estimate == best,
    }


def _first(one: Comparison, report: EvaluationReport) -> bool:
    """Whether a comparison is listed first: of the judged contender, or of the first score with the first contender."""
    first = next(iter(report.figures), "")
    return one.candidate == report.judged or (one.metric == report.metrics()[0] and one.reference == first)


def _comparison(one: Comparison) -> dict[str, str]:
    gain = one.difference
    return {
        "candidate": one.candidate,
        "reference": one.reference,
        "metric": metric_of(one.metric).title,
        "difference": figure(gain.estimate, True, signed=True),
        "interval": f"{figure(gain.low, True, signed=True)} – {figure(gain.high, True, signed=True)}",
        "counts": f"{gain.n} ({gain.groups})",
        "p_value": _p(gain.p_value),
        "adjusted": _p(one.adjusted),
        "smallest": "–" if gain.detectable is None else figure(gain.detectable, True),
    }


def _counts(interval: Interval) -> str:
    return f"n = {interval.n} in {interval.groups} groups"


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
