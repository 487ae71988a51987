"""Charts of a training plan: roofline, memory per chip, Pareto front, and tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from capibara_assets.escaping.languages import markdown_table, markup
from capibara_assets.metadata.drawing import (
    BLUE,
    COLOURS,
    FAINT,
    GREEN,
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

WIDTH, HEIGHT = 620, 330
LEFT, RIGHT, TOP, BOTTOM = 62.0, 20.0, 34.0, 44.0
GIB = 1024**3
MOST_POINTS = 40  # points drawn of a front, which keeps the event small
MOST_NAMED = 12
_ROW = 16.0


@dataclass(frozen=True)
class RooflinePoint:
    """A layout on the roofline: model FLOPs per byte of memory traffic, and TFLOP/s per chip with interval."""

    name: str
    intensity: float
    tflops: float
    low: float
    high: float
    chosen: bool = False


@dataclass(frozen=True)
class MemoryBar:
    """Bytes on one chip by purpose; `total` if it differs from the sum of the parts."""

    name: str
    parts: Mapping[str, float]
    total: float | None = None


@dataclass(frozen=True)
class FrontPoint:
    """A layout on the Pareto front: name, bytes per chip, and seconds per step (or cost)."""

    name: str
    memory: float
    seconds: float
    chosen: bool = False


def roofline_chart(points: Sequence[RooflinePoint], peak_tflops: float, gb_per_s: float, title: str) -> str:
    """A roofline chart (log-log) of a chip's peak and memory bandwidth; the chosen layout is blue.

    A point below the slope is bound by memory at best, one below the flat part by compute; its distance from the roof
    is the cost of links, waiting and imperfect kernels.
    """
    known = [p for p in points if min(p.intensity, p.tflops, p.low) > 0 and math.isfinite(p.intensity * p.high)]
    ridge = peak_tflops * 1e3 / gb_per_s
    xs = [ridge, *(point.intensity for point in known)]
    ys = [peak_tflops, *(point.low for point in known)]
    left, right = _decade(min(xs) / 3, down=True), _decade(max(xs) * 2, down=False)
    bottom, top = _decade(min(ys) / 1.5, down=True), peak_tflops * 1.6
    height = HEIGHT + _ROW * min(len(known), MOST_NAMED)
    floor = HEIGHT - BOTTOM
    x = _LogScale(left, right, LEFT, WIDTH - RIGHT)
    y = _LogScale(bottom, top, floor, TOP)
    parts = [text(8, 16, title), *_log_grid(x, y, floor)]
    start = max(left, bottom * 1e3 / gb_per_s)
    parts.append(
        f'<path d="M{x(start):.1f} {y(start * gb_per_s / 1e3):.1f}L{x(ridge):.1f} {y(peak_tflops):.1f}'
        f'H{WIDTH - RIGHT:.1f}" fill="none" stroke="{INK}" stroke-width="1.8"/>'
    )
    parts.append(text(WIDTH - RIGHT - 4, y(peak_tflops) - 5, f"peak {peak_tflops:g} TFLOP/s", anchor="end"))
    parts.append(f'<path d="M{x(ridge):.1f} {y(peak_tflops):.1f}V{floor:.1f}" stroke="{GREY}" stroke-dasharray="3 3"/>')
    words = f"HBM {gb_per_s:g} GB/s to {ridge:.0f} FLOP/byte"
    fits = x(ridge) + 5 + width_of(words) < WIDTH - RIGHT
    place, anchor = (x(ridge) + 5, "start") if fits else (x(ridge) - 5, "end")
    parts.append(text(place, floor - 6, words, anchor=anchor, colour=FAINT))
    for index, point in reversed(list(enumerate(known[:MOST_POINTS]))):
        colour = BLUE if point.chosen else FAINT
        place, middle = x(point.intensity), y(point.tflops)
        parts.append(
            f'<path d="M{place:.1f} {y(point.low):.1f}V{y(min(point.high, top)):.1f}" stroke="{colour}" '
            f'stroke-width="{2.4 if point.chosen else 1.2}"/>'
        )
        parts.append(_numbered(place, middle, index + 1, colour, point.name))
    parts += _legend(
        [
            (f"{point.tflops:.3g} TFLOP/s [{point.low:.3g}, {point.high:.3g}]: {point.name}", point.chosen)
            for point in known[:MOST_NAMED]
        ],
        HEIGHT + 2,
    )
    parts += _axes("model FLOPs per byte of memory traffic", "TFLOP/s per chip", floor)
    return svg(parts, WIDTH, height + 6)


def memory_chart(bars: Sequence[MemoryBar], limits: Mapping[str, float], title: str) -> str:
    """Stacked bars of one chip's memory, one per source ("ours", "XLA"); limits are labelled vertical lines."""
    names = list(dict.fromkeys(name for bar in bars for name, count in bar.parts.items() if count > 0))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    sums = [sum(count for count in bar.parts.values() if count > 0) for bar in bars]
    ends = [whole if bar.total is None else bar.total for bar, whole in zip(bars, sums, strict=True)]
    most = max([*ends, *sums, *limits.values(), 1.0])
    labels = [shortened(bar.name, 18) for bar in bars]
    left = 18 + max((width_of(label) for label in labels), default=0.0)
    first = 52.0 + _ROW * len(limits)
    step, thick = 34.0, 20.0
    x = scale(0.0, most, left, WIDTH - 96)
    floor = first + step * len(bars)
    parts = [text(8, 16, title)]
    # The largest first: each line begins below the labels of the larger ones.
    for index, (name, value) in enumerate(sorted(limits.items(), key=lambda item: -item[1])):
        row = 40.0 + _ROW * index
        anchor, gap = ("end", -6) if x(value) > WIDTH / 2 else ("start", 6)
        parts.append(f'<path d="M{x(value):.1f} {row - 9:.1f}V{floor:.1f}" stroke="{RED}" stroke-dasharray="4 3"/>')
        parts.append(text(x(value) + gap, row, f"{name} {_size(value)}", anchor=anchor, colour=RED))
    for index, (bar, label, end) in enumerate(zip(bars, labels, ends, strict=True)):
        middle = first + step * index + thick / 2
        parts.append(text(left - 8, middle + 4, label, anchor="end"))
        at = 0.0
        for name, count in bar.parts.items():
            if count <= 0:
                continue
            parts.append(
                f'<rect x="{x(at):.1f}" y="{middle - thick / 2:.1f}" width="{max(x(at + count) - x(at), 0.5):.1f}" '
                f'height="{thick:g}" fill="{colours[name]}"><title>{markup(name)}: {_size(count)}</title></rect>'
            )
            at += count
        if bar.total is not None and bar.total > at:
            parts.append(
                f'<rect x="{x(at):.1f}" y="{middle - thick / 2:.1f}" width="{x(bar.total) - x(at):.1f}" '
                f'height="{thick:g}" fill="#ffffff" stroke="{GREY}"><title>not told apart</title></rect>'
            )
        if end < at:
            parts.append(
                f'<path d="M{x(end):.1f} {middle - thick / 2 - 3:.1f}v{thick + 6:g}" stroke="{INK}" stroke-width="2">'
                f"<title>{_size(end)} at once</title></path>"
            )
        # At the end of the chart: beside a bar it would overlap a limit's line.
        parts.append(text(WIDTH - 90, middle + 4, _size(end), bold=index == 0))
    parts.append(f'<path d="M{left:.1f} {first - 8:.1f}V{floor:.1f}" stroke="{GREY}"/>')
    shown = [f"{name} {_size(max(bar.parts.get(name, 0.0) for bar in bars))}" for name in names]
    place, row = left, floor + 18
    for name, words in zip(names, shown, strict=True):
        if place > left and place + 16 + width_of(words) > WIDTH - 8:
            place, row = left, row + _ROW + 2
        parts.append(f'<rect x="{place:.1f}" y="{row - 9:.1f}" width="10" height="10" fill="{colours[name]}"/>')
        parts.append(text(place + 15, row, words))
        place += 15 + width_of(words) + 18
    return svg(parts, WIDTH, row + 12)


def front_chart(points: Sequence[FrontPoint], title: str, *, limit: float | None = None, unit: str = "s a step") -> str:
    """Memory per chip against time (or cost) of each layout; a line connects the Pareto front."""
    shown = sorted(points, key=lambda p: (not p.chosen, p.seconds))[:MOST_POINTS]
    if not shown:
        return svg([text(8, 16, title), text(8, 40, "no setting fits")], WIDTH, 60)
    memories = [point.memory for point in shown] + ([limit] if limit else [])
    seconds = [point.seconds for point in shown]
    floor = HEIGHT - BOTTOM
    spread = (max(memories) - min(memories)) or max(memories) or 1.0
    x = scale(max(0.0, min(memories) - 0.06 * spread), max(memories) + 0.06 * spread, LEFT, WIDTH - RIGHT)
    low, high = min(seconds), max(seconds)
    margin = 0.08 * ((high - low) or high or 1.0)
    y = scale(max(0.0, low - margin), high + margin, floor, TOP)
    parts = [text(8, 16, title)]
    for share in range(5):
        value = low + (high - low) * share / 4
        if share and high == low:
            break
        parts.append(f'<path d="M{LEFT:.1f} {y(value):.1f}H{WIDTH - RIGHT:.1f}" stroke="{GRID}"/>')
        parts.append(text(LEFT - 6, y(value) + 4, f"{value:.3g}", anchor="end", size=10))
    ends = sorted({min(memories), max(memories)})
    for value in ends:
        parts.append(text(x(value), floor + 14, _size(value), anchor="middle", size=10))
    if limit is not None:
        parts.append(f'<path d="M{x(limit):.1f} {TOP:.1f}V{floor:.1f}" stroke="{RED}" stroke-dasharray="4 3"/>')
        parts.append(text(x(limit) - 5, TOP + 10, f"budget {_size(limit)}", anchor="end", colour=RED))
    front = sorted(shown, key=lambda p: p.memory)
    if len(front) > 1:
        line = " ".join(f"{x(point.memory):.1f},{y(point.seconds):.1f}" for point in front)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{GREEN}" stroke-width="1.2"/>')
    for index, point in reversed(list(enumerate(shown))):
        colour = BLUE if point.chosen else GREEN
        if index < MOST_NAMED:
            parts.append(_numbered(x(point.memory), y(point.seconds), index + 1, colour, point.name))
        else:
            parts.append(f'<circle cx="{x(point.memory):.1f}" cy="{y(point.seconds):.1f}" r="3" fill="{colour}"/>')
    parts += _axes("memory per chip", unit, floor)
    named = [(f"{p.seconds:.4g} {unit}, {_size(p.memory)}: {p.name}", p.chosen) for p in shown[:MOST_NAMED]]
    left_over = len(points) - len(named)
    if left_over > 0:
        named.append((f"and {left_over} more", False))
    parts += _legend(named, HEIGHT + 2, numbered=len(named) - (left_over > 0))
    return svg(parts, WIDTH, HEIGHT + _ROW * len(named) + 6)


def figures_table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Markdown table of figures, ours beside XLA's."""
    return markdown_table(("figure", "ours", "XLA's"), rows)


def reasons_table(values: Mapping[str, object], reasons: Mapping[str, str]) -> str:
    """Markdown table of a plan: each setting, its value and its reason."""
    rows = [(name, _value(value), reasons.get(name, "")) for name, value in values.items()]
    rows += [(name, "", reason) for name, reason in reasons.items() if name not in values]
    return markdown_table(("setting", "value", "why"), rows)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(part)}" for name, part in value.items())
    return str(value)


def _size(count: float) -> str:
    return f"{count / GIB:.2f} GiB" if count >= 0.1 * GIB else f"{count / 2**20:.1f} MiB"


def _numbered(x: float, y: float, number: int, colour: str, name: str) -> str:
    """A dot with its number in the legend."""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7.5" fill="{colour}" stroke="#ffffff"><title>{markup(name)}</title>'
        f"</circle>" + text(x, y + 3.5, str(number), anchor="middle", colour="#ffffff", size=9, bold=True)
    )


def _legend(rows: Sequence[tuple[str, bool]], top: float, numbered: int | None = None) -> list[str]:
    parts = []
    for index, (words, marked) in enumerate(rows):
        number = f"{index + 1}  " if numbered is None or index < numbered else ""
        colour = BLUE if marked else INK
        parts.append(
            text(LEFT - 6, top + 10 + _ROW * index, number + shortened(words, 92), colour=colour, size=11, bold=marked)
        )
    return parts


def _axes(x_label: str, y_label: str, floor: float) -> list[str]:
    return [
        f'<path d="M{LEFT:.1f} {TOP:.1f}V{floor:.1f}H{WIDTH - RIGHT:.1f}" fill="none" stroke="{GREY}"/>',
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, anchor="middle"),
        f'<text transform="translate(12 {(TOP + floor) / 2:.1f}) rotate(-90)" text-anchor="middle" '
        f'fill="{INK}">{markup(y_label)}</text>',
    ]


def _decade(value: float, *, down: bool) -> float:
    """The nearest 1, 2 or 5 times a power of ten, below or above."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = [power * step for step in (1, 2, 5, 10)]
    return max(s for s in steps if s <= value * 1.0001) if down else min(s for s in steps if s >= value * 0.9999)


@dataclass(frozen=True)
class _LogScale:
    """A logarithmic map from values in low..high to positions in start..end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return scale(math.log10(self.low), math.log10(self.high), self.start, self.end)(math.log10(value))


def _log_grid(x: _LogScale, y: _LogScale, floor: float) -> list[str]:
    parts = []
    for value in _ticks(x.low, x.high):
        parts.append(f'<path d="M{x(value):.1f} {TOP:.1f}V{floor:.1f}" stroke="{GRID}"/>')
        parts.append(text(x(value), floor + 14, f"{value:g}", anchor="middle", size=10))
    for value in _ticks(y.low, y.high):
        parts.append(f'<path d="M{LEFT:.1f} {y(value):.1f}H{WIDTH - RIGHT:.1f}" stroke="{GRID}"/>')
        parts.append(text(LEFT - 6, y(value) + 4, f"{value:g}", anchor="end", size=10))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Axis ticks at 1, 2 and 5 times powers of ten; over many decades only the powers."""
    steps: Sequence[int] = (1, 2, 5) if high / low < 3000 else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [value for value in values if low * 0.999 <= value <= high * 1.001]
