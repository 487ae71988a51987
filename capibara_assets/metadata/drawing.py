"""The pieces that plots are drawn from: SVG text, frames, scales, colours.

A plot stands on a white ground of its own, so that it reads the same in a light and in a dark theme, and has no
scripts, fonts or links: a browser shows it as a picture. The same figures give the same bytes.
"""

import html
import re
from collections.abc import Callable, Sequence

INK, FAINT, GRID = "#374151", "#6b7280", "#e5e7eb"
GREEN, RED, BLUE, GREY = "#2e7d32", "#c62828", "#3568c0", "#9ca3af"
COLOURS = (BLUE, "#d1602a", "#3a8f4d", "#9a4cb5", "#b58a00", "#2f9aa0", "#c23b6e", FAINT)
_CHARACTER = 0.56  # of the font size: the mean width of a character in the usual sans-serif fonts
# What XML 1.0 has no way to write
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def svg(parts: Sequence[str], width: float, height: float) -> str:
    """The parts on a white ground."""
    body = "".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{body}</svg>'
    )


def text(
    x: float, y: float, words: str, *, anchor: str = "start", colour: str = INK, size: int = 11, bold: bool = False
) -> str:
    """Words at a place, escaped; `anchor` says which end of them stands there."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    weight = ' font-weight="bold"' if bold else ""
    return f'<text {place} font-size="{size}" fill="{colour}"{weight}>{escaped(words)}</text>'


def word(x: float, y: float, words: str) -> str:
    """Words in a `words_group`, which says the rest: many labels stay small."""
    return f'<text x="{x:.1f}" y="{y:.1f}">{escaped(words)}</text>'


def words_group(words: Sequence[str], *, size: int, colour: str, anchor: str) -> str:
    if not words:
        return ""
    return f'<g font-size="{size}" fill="{colour}" text-anchor="{anchor}">{"".join(words)}</g>'


def escaped(words: str) -> str:
    return html.escape(_UNWRITABLE.sub("\ufffd", words))


def width_of(words: str, size: int = 11) -> float:
    """About how wide words are: fonts differ from browser to browser."""
    return len(words) * size * _CHARACTER


def shortened(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Values in low..high to places in start..end."""
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)
