"""Metadata of materializations: previews with a size cap, plots as small inline SVG, one function per asset.

Imports Dagster and the libraries, no asset; `assets` and `cli` import it.
"""

from capibara_assets.metadata.charts import Row, bar_chart, heat_map, line_chart, row_chart
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
    "Row",
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
