"""Metadata of the evaluation and router assets: the report's content, limited to the size of an event."""

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
from capibara_assets.metadata.tables import ENTRY_BYTES, plot, preview

if TYPE_CHECKING:
    from capibara_assets.evaluation.routing.router import Router

COMPARED = 24  # rows of the table of differences


def evaluation_entries(report: EvaluationReport, page: str) -> dict[str, dg.MetadataValue]:
    """Metadata of `evaluation`: verdict, explanation, tables, charts, and the path of the HTML page.

    Args:
        report: the evaluation's report.
        page: path of the HTML file in the published artifact.
    """
    entries: dict[str, dg.MetadataValue] = {
        "verdict": dg.MetadataValue.text(report.verdict),
        "why": dg.MetadataValue.md(markdown_text(report.paragraph)),
        "report": dg.MetadataValue.path(page),
        "side_by_side": dg.MetadataValue.md(side_by_side(report)),
        "differences": dg.MetadataValue.md(differences(report.comparisons)),
    }
    pictures = dict(zip(("intervals", "intervals_2", "intervals_3"), charts(report), strict=False))
    if report.curves:
        pictures["learning_curves"] = line_chart(report.curves, "step", "validation loss")
    pictures |= dict(zip(("router_calibration", "router_confusion"), router_charts(report.router), strict=False))
    # A chart cannot be shortened: one that is too large is only on the page
    entries |= {name: plot(drawing) for name, drawing in pictures.items() if len(drawing) <= ENTRY_BYTES}
    if report.worst:
        entries["worst_examples"] = preview(_worst(report))
    if report.sources:
        lines = [
            (markdown_link(source.name, source.url), markdown_code(source.digest[:16])) for source in report.sources
        ]
        entries["made_from"] = dg.MetadataValue.md(markdown_table(("result", "digest"), lines))
    if report.notes:
        entries["notes"] = dg.MetadataValue.md(markdown_list(report.notes))
    return entries


def router_entries(report: Mapping[str, Any], router: "Router", routes: pl.DataFrame) -> dict[str, Any]:
    """Metadata of `expert_router`: its report, and its latency on this machine (not part of the artifact)."""
    from capibara_assets.evaluation.routing.report import latency

    prompts = routes.filter(pl.col("split") == "test")["prompt"].head(50).to_list()
    timed = latency(router, prompts, repeats=1) if prompts else None
    shown: dict[str, Any] = {"report": dg.MetadataValue.json(dict(report))}
    if timed is not None:
        shown |= {"median_ms": round(timed.median_ms, 3), "p99_ms": round(timed.p99_ms, 3)}
    if "load" in report:
        shown |= {
            "load": plot(bar_chart(report["load"], "share of test prompts")),
            "drifted": report["drift"]["drifted"],
        }
    return shown


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
