"""SVG primitives of the charts: text, frames, scales, colours.

A chart has a white background, so that it is readable in light and dark themes, and no scripts, fonts or links: a
browser shows it as an image. The same figures give the same bytes.
"""

from collections.abc import Callable, Sequence

from capibara_assets.escaping.languages import markup

INK, FAINT, GRID = "#374151", "#6b7280", "#e5e7eb"
GREEN, AMBER, RED, BLUE, GREY = "#2e7d32", "#b26a00", "#c62828", "#3568c0", "#9ca3af"
COLOURS = (BLUE, "#d1602a", "#3a8f4d", "#9a4cb5", "#b58a00", "#2f9aa0", "#c23b6e", FAINT)
SIZE = 11  # of the font, in pixels, where a text has none of its own
_CHARACTER = 0.56  # of the font size: the mean width of a character in the usual sans-serif fonts


def svg(parts: Sequence[str], width: float, height: float) -> str:
    """An SVG document of the parts on a white background."""
    body = "".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="{SIZE}">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{body}</svg>'
    )


def text(
    x: float, y: float, words: str, *, anchor: str = "start", colour: str = INK, size: int = SIZE, bold: bool = False
) -> str:
    """A text element, escaped; `anchor` (start, middle, end) is the part of the text placed at (x, y)."""
    style = f' text-anchor="{anchor}"' if anchor != "start" else ""
    style += f' font-size="{size}"' if size != SIZE else ""
    style += ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{style}>{markup(words)}</text>'


def word(x: float, y: float, words: str) -> str:
    """A text element for a `words_group`, which has the style: many labels stay small."""
    return f'<text x="{x:.1f}" y="{y:.1f}">{markup(words)}</text>'


def words_group(words: Sequence[str], *, size: int, colour: str, anchor: str) -> str:
    """A group of `word` elements with a common style; empty without words."""
    if not words:
        return ""
    return f'<g font-size="{size}" fill="{colour}" text-anchor="{anchor}">{"".join(words)}</g>'


def width_of(words: str, size: float = SIZE) -> float:
    """Approximate width of words in pixels (fonts differ between browsers)."""
    return len(words) * size * _CHARACTER


def shortened(words: str, most: int) -> str:
    """Words cut to `most` characters, with an ellipsis."""
    return words if len(words) <= most else words[: most - 1] + "…"


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """A linear map from values in low..high to positions in start..end."""
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)
