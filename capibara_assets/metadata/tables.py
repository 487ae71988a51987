"""Previews, small tables and images as Dagster metadata, limited so that an event stays a few kilobytes."""

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import dagster as dg

from capibara_assets.escaping.languages import markdown_table, visible

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.storage.records import Record

PREVIEW_ROWS = 12
PREVIEW_CHARACTERS = 160
ENTRY_BYTES = 16_384


def preview(frame: "pl.DataFrame", columns: Sequence[str] | None = None) -> dg.TableMetadataValue:
    """The first rows of a table, with long cells shortened."""
    shown = frame.select([c for c in columns if c in frame.columns]) if columns else frame
    records = [
        dg.TableRecord({name: _cell(value) for name, value in row.items()})
        for row in shown.head(PREVIEW_ROWS).to_dicts()
    ]
    schema = dg.TableSchema([dg.TableColumn(name, type=str(dtype)) for name, dtype in shown.schema.items()])
    return dg.MetadataValue.table(records, schema=schema)


def column_schema(model: "type[Record]") -> dg.TableSchema:
    """A table's columns with their meaning, as Dagster shows them on the asset's page."""
    from capibara_assets.storage.records import polars_schema

    return dg.TableSchema(
        [
            dg.TableColumn(
                name,
                type=str(dtype),
                description=model.model_fields[name].description,
                constraints=dg.TableColumnConstraints(nullable=_nullable(model, name), unique=model.key == (name,)),
            )
            for name, dtype in polars_schema(model).items()
        ]
    )


def _nullable(model: "type[Record]", name: str) -> bool:
    return type(None) in get_args(model.model_fields[name].annotation)


def _cell(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value.isoformat() if isinstance(value, datetime) else visible(str(value))
    return text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"


def counts(values: Mapping[str, int]) -> dg.MarkdownMetadataValue:
    """A two-column table of counts, largest first; "none" where there are none."""
    if not values:
        return dg.MetadataValue.md("none")
    rows = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return dg.MetadataValue.md(
        markdown_table(("what", "count"), [(name, f"{count:,}") for name, count in rows], right=[1])
    )


def matrix(
    rows: Sequence[str], columns: Sequence[str], values: Mapping[tuple[str, str], float | None], corner: str = ""
) -> dg.MarkdownMetadataValue:
    """A table of numbers, e.g. ballots (voter × candidate) or losses (adapter × domain)."""
    lines = []
    for row in rows:
        cells = [values.get((row, column)) for column in columns]
        lines.append([row, *("–" if c is None else f"{c:.3f}" for c in cells)])
    return dg.MetadataValue.md(markdown_table([corner, *columns], lines, right=range(1, len(columns) + 1)))


def plot(drawing: str) -> dg.MarkdownMetadataValue:
    """An SVG as an image in the UI."""
    encoded = base64.b64encode(drawing.encode()).decode()
    return dg.MetadataValue.md(f"![plot](data:image/svg+xml;base64,{encoded})")


def badge(name: str, colour: str) -> str:
    """A coloured dot as a Markdown image definition: `![words][name]` shows it, any number of times."""
    circle = f'<circle cx="4.5" cy="4.5" r="4.5" fill="{colour}"/>'
    dot = f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{circle}</svg>'
    return f"[{name}]: data:image/svg+xml;base64,{base64.b64encode(dot.encode()).decode()}"


def document(value: Mapping[str, Any], left_out: Collection[str], where: str) -> dg.JsonMetadataValue:
    """A document as JSON metadata; if it is too large, the parts named in `left_out` are replaced by `where`."""
    if len(json.dumps(value)) <= ENTRY_BYTES:
        return dg.MetadataValue.json(dict(value))
    return dg.MetadataValue.json({name: where if name in left_out else part for name, part in value.items()})
