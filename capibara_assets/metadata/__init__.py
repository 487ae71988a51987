"""Presentation of results in Dagster's UI and in reports: size-limited previews, tables, and plots as inline SVG.

One function per asset makes what its page shows (`*_page`); `page.py` decides the order.
Imports the libraries, never `assets` or `resources`.
"""

from capibara_assets.metadata.charts import ChartRow, bar_chart, heat_map, line_chart, row_chart
from capibara_assets.metadata.page import AssetPage, KeyFigure, PageVerdict
from capibara_assets.metadata.tables import (
    PREVIEW_CHARACTERS,
    PREVIEW_ROWS,
    badge,
    counts,
    document,
    matrix,
    plot,
    preview,
)

__all__ = [
    "PREVIEW_CHARACTERS",
    "PREVIEW_ROWS",
    "AssetPage",
    "ChartRow",
    "KeyFigure",
    "PageVerdict",
    "badge",
    "bar_chart",
    "counts",
    "document",
    "heat_map",
    "line_chart",
    "matrix",
    "plot",
    "preview",
    "row_chart",
]
