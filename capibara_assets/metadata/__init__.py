"""How a result looks in the UI and in the report: previews with a size cap, plots as small inline SVG."""

from capibara_assets.metadata.charts import ChartRow, bar_chart, heat_map, line_chart, row_chart
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
    "ChartRow",
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
