"""Drawings of a run's report, inline SVG whose colours are the page's: intervals on an axis, flow of data, steps.

Unlike the charts of Dagster's UI, which are images, these take their colours from classes, so that they are dark on a
dark page and plain on paper.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from capibara_assets.escaping.languages import markup
from capibara_assets.metadata.drawing import scale, shortened, width_of

NARROWEST = 0.5  # pixels of a bar, so that short steps stay visible
Ends = tuple[float, float]


@dataclass(frozen=True)
class Whisker:
    """An estimate with its interval."""

    low: float
    estimate: float
    high: float

    @property
    def finite(self) -> bool:
        """Whether it can be drawn."""
        return all(map(math.isfinite, (self.low, self.estimate, self.high)))


def common_ends(whiskers: Sequence[Whisker]) -> Ends:
    """Ends of an axis on which all of them and zero have a place."""
    finite = [one for one in whiskers if one.finite]
    return min([0.0, *(one.low for one in finite)]), max([0.0, *(one.high for one in finite)])


def whisker(one: Whisker, ends: Ends, level: str, width: int = 260) -> str:
    """A dot with its interval and a line at zero; `level` is the class that colours it."""
    if not one.finite:
        return ""
    place = scale(*ends, 8, width - 8)
    low, middle, high, zero = place(one.low), place(one.estimate), place(one.high), place(0.0)
    return (
        f'<svg class="whisker {level}" role="img" viewBox="0 0 {width} 22" width="{width}" height="22">'
        f"<title>{one.estimate:+.1%}, interval {one.low:+.1%} to {one.high:+.1%}</title>"
        f'<path class="zero" d="M{zero:.1f} 0V22"/><path d="M{low:.1f} 11H{high:.1f}M{low:.1f} 6v10M{high:.1f} 6v10"/>'
        f'<circle cx="{middle:.1f}" cy="11" r="5"/></svg>'
    )


@dataclass(frozen=True)
class Stage:
    """A column of the flow: name -> count; a part that leaves the flow there is in `lost`."""

    title: str
    parts: Mapping[str, int]
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Stream:
    """A flow from a part of one stage to a part of the next."""

    stage: int
    source: str
    target: str
    count: int


def flow(stages: Sequence[Stage], streams: Sequence[Stream], width: int = 860, height: int = 250) -> str:
    """Flow diagram: boxes in columns, scaled by their counts, with streams between them."""
    gap, top, box, room = 14.0, 26.0, 12.0, 190.0
    most = max((sum(stage.parts.values()) for stage in stages), default=0)
    if not most:
        return ""
    crowd = max(len(stage.parts) for stage in stages)
    height = max(height, round(crowd * (gap + 6)))
    unit = (height - gap * crowd) / most
    step = (width - room) / max(len(stages) - 1, 1)
    tops: dict[tuple[int, str], float] = {}
    drawn: list[str] = []
    for number, stage in enumerate(stages):
        x, y = number * step, top
        drawn.append(_words(x, 12, stage.title, "head"))
        for name, count in stage.parts.items():
            tops[number, name] = y
            high = max(count * unit, 1.0)
            look = "lost" if name in stage.lost else "kept"
            drawn.append(f'<rect class="{look}" x="{x:.1f}" y="{y:.1f}" width="{box}" height="{high:.1f}"/>')
            drawn.append(_words(x + box + 5, y + min(high / 2, high) + 4, f"{shortened(name, 26)} {count:,}", look))
            y += max(high, 6.0) + gap
    ribbons = _ribbons(stages, streams, tops, step, box, unit)
    return (
        f'<svg class="flow" role="img" viewBox="0 0 {width} {height + top + gap:.0f}" width="{width}">'
        f"{''.join(ribbons)}{''.join(drawn)}</svg>"
    )


def _ribbons(
    stages: Sequence[Stage],
    streams: Sequence[Stream],
    tops: Mapping[tuple[int, str], float],
    step: float,
    box: float,
    unit: float,
) -> list[str]:
    """The streams as bands; several from or to one box lie below each other."""
    left, right, bands = dict(tops), dict(tops), []
    for one in streams:
        source, target = (one.stage, one.source), (one.stage + 1, one.target)
        if source not in left or target not in right or not one.count:
            continue
        high = one.count * unit
        # What is in two domains leaves its box twice: the bands share it
        room = stages[one.stage].parts[one.source] * unit
        whole = sum(s.count for s in streams if (s.stage, s.source) == source) * unit
        start = high * min(1.0, room / whole) if whole else high
        x0, x1, y0, y1 = one.stage * step + box, (one.stage + 1) * step, left[source], right[target]
        middle = (x0 + x1) / 2
        look = "lost" if one.target in stages[one.stage + 1].lost else "kept"
        bands.append(
            f'<path class="band {look}" d="M{x0:.1f} {y0:.1f}'
            f"C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
            f'v{high:.1f}C{middle:.1f} {y1 + high:.1f} {middle:.1f} {y0 + start:.1f} {x0:.1f} {y0 + start:.1f}z">'
            f"<title>{markup(one.source)} to {markup(one.target)}: {one.count:,}</title></path>"
        )
        left[source], right[target] = y0 + start, y1 + high
    return bands


@dataclass(frozen=True)
class Bar:
    """One step of a run in a timeline: row, label, start and duration in seconds."""

    row: str
    name: str
    group: str
    start: float
    seconds: float


def gantt(bars: Sequence[Bar], groups: Sequence[str], seconds: float, width: int = 860) -> str:
    """Rows of bars over the time of a run; a bar's class is the place of its group."""
    rows = list(dict.fromkeys(bar.row for bar in bars))
    if not rows or seconds <= 0:
        return ""
    left = 16 + max(width_of(row, 12) for row in rows)
    place = scale(0.0, seconds, left, width - 10)
    bottom = 24.0 * len(rows) + 4
    parts = []
    for tick in ticks(seconds):
        parts.append(f'<path class="tick" d="M{place(tick):.1f} 0V{bottom:.1f}"/>')
        parts.append(_words(place(tick), bottom + 14, clock(tick), "axis", "middle"))
    for number, row in enumerate(rows):
        parts.append(_words(left - 8, 24 * number + 17, row, "kept", "end"))
        for bar in (bar for bar in bars if bar.row == row):
            start, end = place(bar.start), place(bar.start + bar.seconds)
            look = f"g{groups.index(bar.group)}" if bar.group in groups else "other"
            parts.append(
                f'<rect class="{look}" x="{start:.1f}" y="{24 * number + 3}" width="{max(end - start, NARROWEST):.1f}"'
                f' height="18"><title>{markup(bar.name)}: {clock(bar.seconds)}</title></rect>'
            )
            if width_of(bar.name, 10) < end - start - 6:
                parts.append(_words(start + 4, 24 * number + 16, bar.name, "inside"))
    return (
        f'<svg class="gantt" role="img" viewBox="0 0 {width} {bottom + 20:.0f}" width="{width}">{"".join(parts)}</svg>'
    )


def ticks(seconds: float) -> list[float]:
    """At most eight round times from 0 to `seconds`."""
    steps = [factor * unit for unit in (1, 60, 3600) for factor in (1, 2, 5, 10, 15, 30)] + [86_400.0]
    step = next((step for step in steps if seconds / step <= 7), seconds / 7)
    return [step * number for number in range(int(seconds / step) + 1)]


def clock(seconds: float) -> str:
    """Seconds as people read them: `42 s`, `12:05 min`, `3:20 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def _words(x: float, y: float, words: str, look: str, anchor: str = "start") -> str:
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{markup(words)}</text>'
