"""Pages of the evaluation and router assets: the report's content, limited to the size of an event."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
import polars as pl

from capibara_assets.escaping.languages import (
    Markdown,
    markdown_code,
    markdown_link,
    markdown_list,
    markdown_table,
    markdown_text,
)
from capibara_assets.evaluation.report import Comparison, EvaluationReport, metric_of
from capibara_assets.evaluation.schema import Interval
from capibara_assets.metadata.charts import bar_chart, line_chart
from capibara_assets.metadata.evaluation_charts import figure
from capibara_assets.metadata.evaluation_page import charts, router_charts
from capibara_assets.metadata.page import AssetPage, KeyFigure, Level, PageVerdict
from capibara_assets.metadata.tables import ENTRY_BYTES, plot, preview

if TYPE_CHECKING:
    from capibara_assets.evaluation.routing.router import Router

COMPARED = 24  # rows of the table of differences


def evaluation_asset_page(report: EvaluationReport, html: str, items: int) -> AssetPage:
    """Page of `evaluation`: verdict, explanation, charts, tables, and the path of the HTML page.

    Args:
        report: the evaluation's report.
        html: path of the HTML file in the published artifact.
        items: number of held-out examples.
    """
    drawn = dict(zip(("intervals", "intervals_2", "intervals_3"), charts(report), strict=False))
    if report.curves:
        drawn["learning_curves"] = line_chart(report.curves, "step", "validation loss")
    drawn |= dict(zip(("router_calibration", "router_confusion"), router_charts(report.router), strict=False))
    contents: dict[str, Any] = {
        **({"why": dg.MetadataValue.md(markdown_text(report.paragraph))} if report.paragraph else {}),
        "report": dg.MetadataValue.path(html),
        "side_by_side": dg.MetadataValue.md(side_by_side(report)),
        "differences": dg.MetadataValue.md(differences(report.comparisons)),
        "test_examples": items,
    }
    if report.worst:
        contents["worst_examples"] = preview(_worst(report))
    if report.notes:
        contents["notes"] = dg.MetadataValue.md(markdown_list(report.notes))
    records = {}
    if report.sources:
        lines = [
            (markdown_link(source.name, source.url), markdown_code(source.digest[:16])) for source in report.sources
        ]
        records["made_from"] = dg.MetadataValue.md(markdown_table(("result", "digest"), lines))
    gain = gain_over_base(report)
    return AssetPage(
        evaluation_verdict(report),
        None if gain is None else KeyFigure("gain_over_base", gain.difference.estimate),
        # A chart cannot be shortened: one that is too large is only on the page
        pictures={name: plot(drawing) for name, drawing in drawn.items() if len(drawing) <= ENTRY_BYTES},
        contents=contents,
        records=records,
    )


_LEVELS: dict[str, Level] = {"promote": "good", "reject": "bad"}


def evaluation_verdict(report: EvaluationReport) -> PageVerdict:
    """The decision and its gain; a warning if there is none or it is inconclusive."""
    words = report.verdict or "no decision: the contenders were compared alone"
    if one := gain_over_base(report):
        low, middle, high = (figure(end, True, signed=True) for end in _ends(one))
        metric = metric_of(one.metric)
        what = f"of the {metric.title} saved" if metric.direction == "lower" else f"of {metric.title}"
        words += f"; {one.candidate} against the base: {middle} ({low} to {high}) {what}"
    return PageVerdict(_LEVELS.get(report.verdict, "look"), words)


def _ends(one: Comparison) -> tuple[float, float, float]:
    return one.difference.low, one.difference.estimate, one.difference.high


def gain_over_base(report: EvaluationReport) -> Comparison | None:
    """Gain of the judged contender over the base, in the deciding metric; None if not compared."""
    against = [one for one in report.comparisons if (one.candidate, one.reference) == (report.judged, "base")]
    return next((one for one in against if one.metric == report.metric), next(iter(against), None))


def router_page(report: Mapping[str, Any], router: "Router", routes: pl.DataFrame) -> AssetPage:
    """Page of `expert_router`: its report, and its latency on this machine (not part of the artifact)."""
    from capibara_assets.evaluation.routing.report import latency

    prompts = routes.filter(pl.col("split") == "test")["prompt"].head(50).to_list()
    timed = latency(router, prompts, repeats=1) if prompts else None
    accuracy, count = report["test_accuracy"], report["test_prompts"]
    words = f"right for {accuracy:.0%} of {count:,} test prompts; guessing is for {1 / max(len(router.experts), 1):.0%}"
    drifted = "load" in report and report["drift"]["drifted"]
    words += "; the load on test prompts is not that on training prompts" * drifted
    return AssetPage(
        PageVerdict("look" if drifted or not count else "good", words),
        KeyFigure("test_accuracy", accuracy),
        pictures={"load": plot(bar_chart(report["load"], "share of test prompts"))} if "load" in report else {},
        contents={"drifted": drifted},
        cost={} if timed is None else {"median_ms": round(timed.median_ms, 3), "p99_ms": round(timed.p99_ms, 3)},
        records={"report": dg.MetadataValue.json(dict(report))},
    )


def untrained_router_page(report: Mapping[str, Any]) -> AssetPage:
    """Page of a router that was left out."""
    words = PageVerdict("look", f"no router was trained: {report['why']}")
    return AssetPage(words, records={"report": dg.MetadataValue.json(dict(report))})


def side_by_side(report: EvaluationReport) -> str:
    """Markdown table: a row per contender, a column per score with its interval."""
    names = report.metrics()
    head = ["contender", *(f"{name} {'↓' if metric_of(name).direction == 'lower' else '↑'}" for name in names)]
    lines: list[list[str]] = []
    counts: dict[str, str] = {}
    for contender, row in report.figures.items():
        shown = markdown_text(contender)
        shown = Markdown(f"**{shown}**") if contender == report.judged else shown
        lines.append([shown, *(_figure(row, name) for name in names)])
        counts |= {name: f"{one.n} ({one.groups} groups)" for name, one in row.items()}
    lines.append([Markdown("*n*"), *(counts.get(name, "–") for name in names)])
    return markdown_table(head, lines, right=range(1, len(head)))


def differences(comparisons: Sequence[Comparison]) -> str:
    """Markdown table of comparisons: interval, p-value after Holm, and smallest detectable difference."""
    lines: list[Sequence[str]] = []
    for one in comparisons[:COMPARED]:
        gain = one.difference
        ends = f"{figure(gain.low, True, signed=True)} – {figure(gain.high, True, signed=True)}"
        adjusted = "–" if one.adjusted is None else f"{one.adjusted:.3f}"
        smallest = "–" if gain.detectable is None else figure(gain.detectable, True)
        named = (one.candidate, one.reference, one.metric)
        lines.append((*named, figure(gain.estimate, True, signed=True), ends, adjusted, smallest))
    if len(comparisons) > COMPARED:
        lines.append((f"{len(comparisons) - COMPARED} more are on the page", *[""] * 6))
    head = ("contender", "against", "score", "difference", "interval", "p after Holm", "smallest")
    return markdown_table(head, lines, right=range(3, len(head)))


def _figure(row: Mapping[str, Interval], name: str) -> str:
    one = row.get(name)
    if one is None:
        return "–"
    percent = metric_of(name).percent
    return f"{figure(one.estimate, percent)} ({figure(one.low, percent)} – {figure(one.high, percent)})"


def _worst(report: EvaluationReport) -> pl.DataFrame:
    rows = [
        {
            "item": item.item_id,
            "why": item.why,
            "contender": answer.contender,
            "verdict": answer.verdict or "",
            "loss": answer.loss,
            "answer": answer.text or "",
        }
        for item in report.worst
        for answer in item.answers
        if answer.text is not None or answer.contender == report.judged
    ]
    return pl.DataFrame(rows, schema_overrides={"loss": pl.Float64})
