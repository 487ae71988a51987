"""Metadata of the dataset assets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.escaping.languages import markdown_list, markdown_table
from capibara_assets.metadata.charts import bar_chart
from capibara_assets.metadata.tables import counts, plot, preview

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.examples import Dataset


def groups_entries(groups: "pl.DataFrame", statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of `example_groups`: number of groups, executions per split, and each domain's largest group."""
    return {
        "executions": groups.height,
        "groups": groups["group_id"].n_unique(),
        "splits": counts(dict(groups["split"].value_counts().iter_rows())),
        "left_out": int(groups["reason_left_out"].is_not_null().sum()),
        "largest_share": {domain: round(each["largest_share"], 4) for domain, each in statistics["domains"].items()},
        "too_large": statistics["too_large"],
        "preview": preview(groups),
    }


def dataset_entries(dataset: "Dataset") -> dict[str, Any]:
    """Metadata of `moe_dataset`: examples by split, kind and difficulty, and omissions by reason."""
    examples, figures = dataset.examples, dataset.statistics
    histogram = examples["difficulty"].hist(bins=[i / 10 for i in range(11)])["count"].to_list()
    bars = {f".{i}": float(n) for i, n in enumerate(histogram)}
    return {
        "examples": examples.height,
        "splits": counts(dict(examples["split"].value_counts().iter_rows())),
        "kinds": counts(dict(examples["kind"].value_counts().iter_rows())),
        "left_out": counts(dict(dataset.left_out["reason"].value_counts().iter_rows())),
        "quality": dg.MetadataValue.md(quality_table(figures["quality_report"])),
        "audit": dg.MetadataValue.json(figures["audit"]),
        "missing": dg.MetadataValue.md(markdown_list(figures["missing"])),
        "verified": dg.MetadataValue.json(figures["verified"]),
        "duplicates": dg.MetadataValue.json(figures["duplicates"]),
        "advice": dg.MetadataValue.json(figures["advice"]),
        "poison": dg.MetadataValue.json(figures["poison"]),
        "contaminated": figures["contaminated"]["examples"],
        "reexecution": dg.MetadataValue.json(dataset.reexecution),
        "difficulty": plot(bar_chart(bars, "examples by difficulty")),
        "preview": preview(examples, ["kind", "split", "difficulty", "quality", "messages"]),
    }


def quality_table(report: Sequence[Mapping[str, Any]]) -> str:
    """A quality report (`datasets.audit.quality`) as a Markdown table."""
    (kind, source, examples, *shares) = report[-1]
    head = [kind, source, examples, *(share.replace("_", " ") for share in shares)]
    rows = [
        [row[kind], row[source], f"{row[examples]:,}", *(percent(row[share]) for share in shares)] for row in report
    ]
    return markdown_table(head, rows, right=range(2, len(head)))


def percent(share: float | None) -> str:
    """A share as people read it; a dash for None."""
    return "–" if share is None else f"{share:.1%}"


def routing_entries(routes: "pl.DataFrame", figures: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of `routing_dataset`: prompts by domain."""
    return {
        "prompts": routes.height,
        "statistics": dg.MetadataValue.json(dict(figures)),
        "domains": counts(figures["by_domain"]),
        "preview": preview(routes),
    }
