"""A router as metadata of its materialization."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.metadata.charts import bar_chart
from capibara_assets.metadata.tables import plot

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.evaluation.routing.router import Router


def router_entries(report: Mapping[str, Any], router: "Router", routes: "pl.DataFrame") -> dict[str, Any]:
    """`expert_router`: its report, and how fast it answers here; speeds stay out of the artifact."""
    import polars as pl

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
