"""How a result looks in the UI and in the report: previews with a size cap, plots as small inline SVG."""

import base64
import html
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    import polars as pl

PREVIEW_ROWS = 12
PREVIEW_CHARACTERS = 160
WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 54, 110, 16, 34
COLOURS = ("#3568c0", "#d1602a", "#3a8f4d", "#9a4cb5", "#b58a00", "#2f9aa0", "#c23b6e", "#6b7280")


def preview(frame: "pl.DataFrame", columns: Sequence[str] | None = None) -> dg.TableMetadataValue:
    """The first rows of a table, long cells shortened: an event carries at most a few kilobytes."""
    shown = frame.select([c for c in columns if c in frame.columns]) if columns else frame
    records = [
        dg.TableRecord({name: _cell(value) for name, value in row.items()})
        for row in shown.head(PREVIEW_ROWS).to_dicts()
    ]
    schema = dg.TableSchema([dg.TableColumn(name, type=str(dtype)) for name, dtype in shown.schema.items()])
    return dg.MetadataValue.table(records, schema=schema)


def _cell(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    return text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"


def counts(values: Mapping[str, int]) -> dg.MarkdownMetadataValue:
    """A small two-column table of counts, largest first."""
    rows = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    lines = ["| what | count |", "| --- | ---: |", *(f"| {name} | {count:,} |" for name, count in rows)]
    return dg.MetadataValue.md("\n".join(lines))


def matrix(
    rows: Sequence[str], columns: Sequence[str], values: Mapping[tuple[str, str], float | None], corner: str = ""
) -> dg.MarkdownMetadataValue:
    """A table of numbers, e.g. ballots (voter × candidate) or losses (adapter × domain)."""
    lines = ["| " + " | ".join([corner, *columns]) + " |", "| --- |" + " ---: |" * len(columns)]
    for row in rows:
        cells = [values.get((row, column)) for column in columns]
        lines.append("| " + " | ".join([row, *("–" if c is None else f"{c:.3f}" for c in cells)]) + " |")
    return dg.MetadataValue.md("\n".join(lines))


def plot(svg: str) -> dg.MarkdownMetadataValue:
    """An SVG as a picture in the UI."""
    encoded = base64.b64encode(svg.encode()).decode()
    return dg.MetadataValue.md(f"![plot](data:image/svg+xml;base64,{encoded})")


def line_chart(series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str) -> str:
    """Lines over a numeric axis, e.g. one loss curve per voter."""
    points = [point for line in series.values() for point in line]
    if not points:
        return _frame([_text(WIDTH / 2, HEIGHT / 2, "no points", anchor="middle")], x_label, y_label)
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    scale_x = _scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    scale_y = _scale(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    parts = _ticks(min(xs), max(xs), min(ys), max(ys))
    for index, (name, line) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{scale_x(x):.1f},{scale_y(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        parts.append(_text(WIDTH - RIGHT + 8, TOP + 12 + 16 * index, name, colour=colour))
    return _frame(parts, x_label, y_label)


def bar_chart(values: Mapping[str, float], y_label: str) -> str:
    """Bars, e.g. a histogram or one bar per contender."""
    if not values:
        return _frame([_text(WIDTH / 2, HEIGHT / 2, "nothing to show", anchor="middle")], "", y_label)
    top = max(max(values.values()), 1e-12)
    scale_y = _scale(0.0, top, HEIGHT - BOTTOM, TOP)
    step = (WIDTH - LEFT - 20) / len(values)
    parts = [
        _text(LEFT - 6, scale_y(top) + 4, f"{top:.3g}", anchor="end"),
        _text(LEFT - 6, HEIGHT - BOTTOM, "0", anchor="end"),
    ]
    for index, (name, value) in enumerate(values.items()):
        x, y = LEFT + index * step, scale_y(max(value, 0.0))
        parts.append(
            f'<rect x="{x + 2:.1f}" y="{y:.1f}" width="{max(step - 4, 1):.1f}" height="{HEIGHT - BOTTOM - y:.1f}" '
            f'fill="{COLOURS[0]}"><title>{html.escape(name)}: {value:.4g}</title></rect>'
        )
        parts.append(_text(x + step / 2, HEIGHT - BOTTOM + 14, name, anchor="middle", size=10))
    return _frame(parts, "", y_label)


def heat_map(rows: Sequence[str], columns: Sequence[str], values: Mapping[tuple[str, str], float]) -> str:
    """Coloured matrix with its numbers; each column is coloured by itself, its smallest value marked."""
    cell_width, cell_height, left, top = 84, 26, 110, 30
    width, height = left + cell_width * len(columns) + 8, top + cell_height * len(rows) + 8
    parts = []
    for j, column in enumerate(columns):
        parts.append(_text(left + cell_width * (j + 0.5), top - 10, column, anchor="middle"))
        known = [values[row, column] for row in rows if (row, column) in values]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        for i, row in enumerate(rows):
            value = values.get((row, column))
            if value is None:
                continue
            share = (value - low) / (high - low) if high > low else 0.0
            fill = f"rgb({int(226 + 24 * share)},{int(240 - 90 * share)},{int(228 - 118 * share)})"
            x, y = left + cell_width * j, top + cell_height * i
            border = ' stroke="#1f2937" stroke-width="2"' if value == low else ""
            parts.append(
                f'<rect x="{x + 1}" y="{y + 1}" width="{cell_width - 2}" height="{cell_height - 2}" '
                f'fill="{fill}"{border}/>'
            )
            parts.append(_text(x + cell_width / 2, y + 17, f"{value:.3f}", anchor="middle"))
    parts += [_text(left - 8, top + cell_height * i + 17, row, anchor="end") for i, row in enumerate(rows)]
    return _svg(parts, width, height)


def _scale(low: float, high: float, start: float, end: float) -> Any:
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _ticks(x0: float, x1: float, y0: float, y1: float) -> list[str]:
    return [
        _text(LEFT, HEIGHT - BOTTOM + 16, f"{x0:.4g}", anchor="middle"),
        _text(WIDTH - RIGHT, HEIGHT - BOTTOM + 16, f"{x1:.4g}", anchor="middle"),
        _text(LEFT - 6, HEIGHT - BOTTOM, f"{y0:.3g}", anchor="end"),
        _text(LEFT - 6, TOP + 8, f"{y1:.3g}", anchor="end"),
    ]


def _frame(parts: Sequence[str], x_label: str, y_label: str) -> str:
    axes = (
        f'<path d="M{LEFT} {TOP} V{HEIGHT - BOTTOM} H{WIDTH - 16}" fill="none" stroke="#9ca3af"/>'
        + _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, anchor="middle")
        + f'<text transform="translate(12 {HEIGHT / 2}) rotate(-90)" text-anchor="middle" font-size="11" '
        f'fill="#374151">{html.escape(y_label)}</text>'
    )
    return _svg([axes, *parts], WIDTH, HEIGHT)


def _svg(parts: Sequence[str], width: float, height: float) -> str:
    body = "".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{body}</svg>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#374151", size: int = 11) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{colour}">{html.escape(text)}</text>'
