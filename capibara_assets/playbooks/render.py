"""A consolidated playbook as one system message for a model's context."""

from collections.abc import Callable

import polars as pl

HEADING = "Lessons from earlier work. Use those that fit the task."


def render_playbook(consolidated: pl.DataFrame, count_tokens: Callable[[str], int], budget: int) -> str:
    """The compressed bullets, best first, under their sections, in at most `budget` tokens; "" when none fits.

    A bullet goes in whole or not at all; one that does not fit makes room for the next.

    Args:
        consolidated: table of `Consolidated`.
        count_tokens: tokens of a text for the model at hand.
    """
    chosen: list[tuple[str, str]] = []
    for row in consolidated.filter("compressed").sort("rank").iter_rows(named=True):
        candidate = [*chosen, (row["section"], row["content"])]
        if count_tokens(_text(candidate)) <= budget:
            chosen = candidate
    return _text(chosen) if chosen else ""


def _text(bullets: list[tuple[str, str]]) -> str:
    """Sections in the order of their first bullet."""
    sections: dict[str, list[str]] = {}
    for section, content in bullets:
        sections.setdefault(section, []).append("- " + content.replace("\n", "\n  "))
    parts = [HEADING]
    for section, lines in sections.items():
        parts.append("\n".join([f"## {section}", *lines] if section else lines))
    return "\n\n".join(parts)
