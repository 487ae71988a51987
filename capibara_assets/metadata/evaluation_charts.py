"""Charts of an evaluation: intervals of the contenders, and a router's calibration and confusion matrix."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from capibara_assets.metadata.drawing import (
    BLUE,
    FAINT,
    GREY,
    GRID,
    INK,
    RED,
    scale,
    shortened,
    svg,
    text,
    width_of,
)

WIDTH = 560
NAME_CHARACTERS = 24
_FIGURES_WIDTH = 175.0  # of the column with each row's figures


@dataclass(frozen=True)
class IntervalRow:
    """One row of an `interval_chart`: an estimate with its interval; `mark` highlights it."""

    name: str
    estimate: float
    low: float
    high: float
    mark: bool = False


def interval_chart(rows: Sequence[IntervalRow], title: str, *, line: float | None = None, percent: bool = False) -> str:
    """A dot with its interval per row on one axis; `line` is a vertical reference line.

    A row with a non-finite figure shows only its name and a dash.
    """
    names = [shortened(row.name, NAME_CHARACTERS) for row in rows]
    known = [row for row in rows if all(map(math.isfinite, (row.estimate, row.low, row.high)))]
    ends = [end for row in known for end in (row.low, row.high)] + ([line] if line is not None and known else [])
    left = 22 + max((width_of(name) for name in names), default=0.0)
    top, step = 30.0, 18.0
    bottom = top + step * len(rows)
    place = scale(min(ends, default=0.0), max(ends, default=1.0), left + 6, WIDTH - _FIGURES_WIDTH)
    parts = [text(8, 16, title), f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}" stroke="{GREY}"/>']
    if line is not None and known:
        parts.append(f'<path d="M{place(line):.1f} {top:.1f}V{bottom:.1f}" stroke="{FAINT}" stroke-dasharray="3 3"/>')
    for index, (row, name) in enumerate(zip(rows, names, strict=True)):
        middle = top + step * (index + 0.5)
        colour = BLUE if row.mark else FAINT
        parts.append(text(left - 9, middle + 4, name, anchor="end", colour=INK, bold=row.mark))
        if row not in known:
            parts.append(text(left + 9, middle + 4, "–", colour=FAINT))
            continue
        low, high = place(row.low), place(row.high)
        parts.append(f'<path d="M{low:.1f} {middle:.1f}H{high:.1f}" stroke="{colour}" stroke-width="2"/>')
        for end in (low, high):
            parts.append(f'<path d="M{end:.1f} {middle - 4:.1f}v8" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<circle cx="{place(row.estimate):.1f}" cy="{middle:.1f}" r="4" fill="{colour}"/>')
        figures = f"{figure(row.estimate, percent)} [{figure(row.low, percent)}, {figure(row.high, percent)}]"
        parts.append(text(WIDTH - _FIGURES_WIDTH + 12, middle + 4, figures, size=10))
    return svg(parts, WIDTH, bottom + 10)


def figure(value: float, percent: bool, signed: bool = False) -> str:
    """A number formatted with three decimals, or as a percentage with one."""
    if not math.isfinite(value):
        return "–"
    sign = "+" if signed else ""
    return f"{value:{sign}.1%}" if percent else f"{value:{sign}.3f}"


@dataclass(frozen=True)
class CalibrationBin:
    """One bin of a calibration chart: mean probability, share of correct prompts, and their number."""

    confidence: float
    accuracy: float
    count: int


def calibration_chart(bins: Sequence[CalibrationBin], title: str) -> str:
    """A reliability diagram: predicted probability (x) against the share that was right (y)."""
    size, left, top = 220.0, 54.0, 30.0
    parts = [
        text(8, 16, title),
        f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="{GREY}"/>',
    ]
    parts.append(f'<path d="M{left} {top + size}L{left + size} {top}" stroke="{GRID}" stroke-width="2"/>')
    for share in (0.0, 0.5, 1.0):
        parts.append(text(left + size * share, top + size + 16, f"{share:g}", anchor="middle"))
        parts.append(text(left - 6, top + size * (1 - share) + 4, f"{share:g}", anchor="end"))
    filled = [one for one in bins if one.count]
    most = max((one.count for one in filled), default=1)
    for one in filled:
        x, y = left + size * one.confidence, top + size * (1 - one.accuracy)
        radius = 3 + 6 * math.sqrt(one.count / most)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{BLUE}" fill-opacity="0.65"/>')
        if x + radius + 36 < left + size + 80:
            parts.append(text(x + radius + 3, y + 4, f"{one.count}", colour=FAINT, size=9))
    if not filled:
        parts.append(text(left + size / 2, top + size / 2, "no prompts", anchor="middle"))
    parts.append(text(left + size / 2, top + size + 32, "probability", anchor="middle"))
    parts.append(text(left + size + 12, top + 12, "share that was right ↑", colour=FAINT, size=10))
    return svg(parts, left + size + 150, top + size + 42)


def confusion_matrix(
    actual: Sequence[str], picked: Sequence[str], counts: Mapping[tuple[str, str], int], title: str
) -> str:
    """A confusion matrix of counts (actual, picked), shaded by the share of the row; diagonal blue, errors red."""
    cell_width, cell_height, top = 76, 26, 50
    left = math.ceil(18 + max((width_of(name) for name in actual), default=0.0))
    parts = [text(8, 16, title)]
    for j, column in enumerate(picked):
        parts.append(text(left + cell_width * (j + 0.5), top - 8, column, anchor="middle"))
    for i, row in enumerate(actual):
        total = sum(counts.get((row, column), 0) for column in picked)
        parts.append(text(left - 8, top + cell_height * i + 17, row, anchor="end"))
        for j, column in enumerate(picked):
            count = counts.get((row, column), 0)
            share = count / total if total else 0.0
            x, y = left + cell_width * j, top + cell_height * i
            colour = BLUE if row == column else RED
            parts.append(
                f'<rect x="{x + 1}" y="{y + 1}" width="{cell_width - 2}" height="{cell_height - 2}" '
                f'fill="{colour}" fill-opacity="{0.06 + 0.5 * share:.3f}"/>'
            )
            parts.append(text(x + cell_width / 2, y + 17, f"{count}", anchor="middle"))
    return svg(parts, left + cell_width * len(picked) + 8, top + cell_height * len(actual) + 8)
