"""General charts as SVG: lines, bars, rows, and a heat map."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from capibara_assets.escaping.languages import markup
from capibara_assets.metadata.drawing import (
    BLUE,
    COLOURS,
    GREY,
    GRID,
    INK,
    scale,
    shortened,
    svg,
    text,
    width_of,
)

WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 54, 110, 16, 34
NAME_CHARACTERS = 24


def line_chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    x_label: str,
    y_label: str,
    *,
    title: str = "",
    markers: bool = False,
) -> str:
    """A line chart over a numeric axis, e.g. one loss curve per voter.

    Args:
        series: name -> points (x, y), in the order in which they are connected.
        x_label: label of the horizontal axis.
        y_label: label of the vertical axis.
        title: printed above the chart.
        markers: draw a dot at each point, for series of few points.
    """
    points = [point for line in series.values() for point in line]
    if not points:
        return _frame([text(WIDTH / 2, HEIGHT / 2, "no points", anchor="middle")], x_label, y_label, title)
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    scale_x = scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    scale_y = scale(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    parts = _ticks(min(xs), max(xs), min(ys), max(ys))
    for index, (name, line) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [f"{scale_x(x):.1f},{scale_y(y):.1f}" for x, y in line]
        parts.append(f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        if markers:
            dots = (place.split(",") for place in places)
            parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in dots]
        parts.append(text(WIDTH - RIGHT + 8, TOP + 12 + 16 * index, name, colour=colour))
    return _frame(parts, x_label, y_label, title)


def bar_chart(values: Mapping[str, float], y_label: str) -> str:
    """A bar chart, e.g. a histogram or one bar per contender."""
    if not values:
        return _frame([text(WIDTH / 2, HEIGHT / 2, "nothing to show", anchor="middle")], "", y_label)
    top = max(max(values.values()), 1e-12)
    scale_y = scale(0.0, top, HEIGHT - BOTTOM, TOP)
    step = (WIDTH - LEFT - 20) / len(values)
    parts = [
        text(LEFT - 6, scale_y(top) + 4, f"{top:.3g}", anchor="end"),
        text(LEFT - 6, HEIGHT - BOTTOM, "0", anchor="end"),
    ]
    for index, (name, value) in enumerate(values.items()):
        x, y = LEFT + index * step, scale_y(max(value, 0.0))
        parts.append(
            f'<rect x="{x + 2:.1f}" y="{y:.1f}" width="{max(step - 4, 1):.1f}" height="{HEIGHT - BOTTOM - y:.1f}" '
            f'fill="{COLOURS[0]}"><title>{markup(name)}: {value:.4g}</title></rect>'
        )
        parts.append(text(x + step / 2, HEIGHT - BOTTOM + 14, name, anchor="middle", size=10))
    return _frame(parts, "", y_label)


@dataclass(frozen=True)
class ChartRow:
    """One row of a `row_chart`; a row without a value shows only its note."""

    name: str
    value: float | None
    colour: str = BLUE
    note: str = ""


def row_chart(rows: Sequence[ChartRow], title: str, *, bars: bool, most: float | None = None) -> str:
    """A chart with a line per row: bars from 0, or dots on an axis from the least value, so that small gaps show.

    A bar's length is relative to the largest value; negative values have no bar. With `most` the axis ends there, and
    an arrow marks larger values. Non-finite values are only printed.
    """
    names = [shortened(row.name, NAME_CHARACTERS) for row in rows]
    left = 22 + max((width_of(name) for name in names), default=0.0)
    right, top, step = 150.0, 30.0, 18.0
    finite = [row.value for row in rows if row.value is not None and math.isfinite(row.value)]
    low = 0.0 if bars else min(finite, default=0.0)
    high = max([*finite, low], default=0.0) if most is None else max(most, low)
    place = scale(low, high, left, WIDTH - right)
    bottom = top + step * len(rows)
    parts = [text(8, 16, title), f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}" stroke="{GREY}"/>']
    for index, (row, name) in enumerate(zip(rows, names, strict=True)):
        middle = top + step * (index + 0.5)
        end = left
        parts.append(text(left - 9, middle + 4, name, anchor="end", colour=INK if row.colour == BLUE else row.colour))
        if row.value is not None and math.isfinite(row.value):
            end = min(max(place(row.value), left), WIDTH - right)
            if bars:
                size = f'width="{end - left:.1f}" height="12"'
                parts.append(f'<rect x="{left:.1f}" y="{middle - 6:.1f}" {size} fill="{row.colour}"/>')
            else:
                parts.append(f'<path d="M{left:.1f} {middle:.1f}H{end:.1f}" stroke="{GRID}"/>')
            if row.value > high:
                parts.append(f'<path d="M{end - 3:.1f} {middle - 5:.1f}l9 5l-9 5z" fill="{row.colour}"/>')
            elif not bars:
                parts.append(f'<circle cx="{end:.1f}" cy="{middle:.1f}" r="4.5" fill="{row.colour}"/>')
        figure = "" if row.value is None else f"{row.value:.5g}"
        words = " ".join(part for part in (figure, row.note) if part)
        parts.append(text(end + 9, middle + 4, words, colour=INK if row.colour == BLUE else row.colour))
    return svg(parts, WIDTH, bottom + 10)


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Mapping[tuple[str, str], float],
    title: str = "",
    *,
    around_zero: bool = False,
) -> str:
    """A coloured matrix with its numbers, e.g. losses (expert × domain).

    Each column has its own scale, and its smallest value is marked. With `around_zero` the values are changes: one
    scale for the whole matrix, increases red, decreases green, zero white, with signs and without marks.
    """
    cell_width, cell_height, left, top = 84, 26, 110, 30 + (20 if title else 0)
    width, height = left + cell_width * len(columns) + 8, top + cell_height * len(rows) + 8
    parts = [text(8, 16, title)] if title else []
    shown = [values[row, column] for row in rows for column in columns if (row, column) in values]
    most = max(map(abs, shown), default=0.0)
    for j, column in enumerate(columns):
        parts.append(text(left + cell_width * (j + 0.5), top - 10, column, anchor="middle"))
        known = [values[row, column] for row in rows if (row, column) in values]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        for i, row in enumerate(rows):
            value = values.get((row, column))
            if value is None:
                continue
            if around_zero:
                fill, border, words = _change_colour(value / most if most else 0.0), "", f"{value:+.3f}"
            else:
                share = (value - low) / (high - low) if high > low else 0.0
                fill = f"rgb({int(226 + 24 * share)},{int(240 - 90 * share)},{int(228 - 118 * share)})"
                border = ' stroke="#1f2937" stroke-width="2"' if value == low else ""
                words = f"{value:.3f}"
            x, y = left + cell_width * j, top + cell_height * i
            parts.append(
                f'<rect x="{x + 1}" y="{y + 1}" width="{cell_width - 2}" height="{cell_height - 2}" '
                f'fill="{fill}"{border}/>'
            )
            parts.append(text(x + cell_width / 2, y + 17, words, anchor="middle"))
    parts += [text(left - 8, top + cell_height * i + 17, row, anchor="end") for i, row in enumerate(rows)]
    return svg(parts, width, height)


def _change_colour(share: float) -> str:
    """Colour of a change from green (-1) through white (0) to red (1), light enough for dark text."""
    full = (239, 140, 130) if share > 0 else (130, 200, 145)
    red, green, blue = (round(255 + (part - 255) * abs(share)) for part in full)
    return f"rgb({red},{green},{blue})"


def _ticks(x0: float, x1: float, y0: float, y1: float) -> list[str]:
    return [
        text(LEFT, HEIGHT - BOTTOM + 16, f"{x0:.4g}", anchor="middle"),
        text(WIDTH - RIGHT, HEIGHT - BOTTOM + 16, f"{x1:.4g}", anchor="middle"),
        text(LEFT - 6, HEIGHT - BOTTOM, f"{y0:.3g}", anchor="end"),
        text(LEFT - 6, TOP + 8, f"{y1:.3g}", anchor="end"),
    ]


def _frame(parts: Sequence[str], x_label: str, y_label: str, title: str = "") -> str:
    axes = (
        f'<path d="M{LEFT} {TOP} V{HEIGHT - BOTTOM} H{WIDTH - 16}" fill="none" stroke="#9ca3af"/>'
        + text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, anchor="middle")
        + f'<text transform="translate(12 {HEIGHT / 2}) rotate(-90)" text-anchor="middle" font-size="11" '
        f'fill="#374151">{markup(y_label)}</text>'
    )
    head = [text((LEFT + WIDTH - RIGHT) / 2, 11, title, anchor="middle")] if title else []
    return svg([axes, *head, *parts], WIDTH, HEIGHT)
