"""Layout of an asset's page in Dagster: verdict, picture, composition, cost, and records last.

This is the one place that decides it: Dagster shows the entries of a materialization as they are given.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import dagster as dg

from capibara_assets.escaping.languages import markdown_text
from capibara_assets.metadata.drawing import AMBER, GREEN, RED
from capibara_assets.metadata.tables import badge

Entries = Mapping[str, Any]
Level = Literal["good", "look", "bad"]
COLOURS: dict[Level, str] = {"good": GREEN, "look": AMBER, "bad": RED}

INLINE = 1_000  # characters of Markdown that Dagster shows without a click
VERDICT, COMPARED = "verdict", "compared"


@dataclass(frozen=True)
class PageVerdict:
    """Whether a result is good, a warning or bad, with the reason as a sentence."""

    level: Level
    words: str

    def shown(self) -> dg.MarkdownMetadataValue:
        """The verdict with a coloured dot, cut to the length that Dagster shows without a click."""
        frame, words = f"![][v] **{self.level}**: {{}}\n\n{badge('v', COLOURS[self.level])}", self.words
        while len(line := frame.format(markdown_text(words))) >= INLINE:
            words = words[: 9 * len(words) // 10].rstrip(" …") + " …"
        return dg.MetadataValue.md(line)


@dataclass(frozen=True)
class KeyFigure:
    """Figure for comparison with the previous result; Dagster plots it over the materializations.

    Attributes:
        better: which of two is the better one; empty: neither.
    """

    name: str
    value: float
    better: Literal["more", "less", ""] = "more"

    def compared(self, before: Entries) -> str:
        """`1.20, before 1.50 (-0.30: better)`; `before` is the metadata of the result before, empty without one."""
        earlier = before.get(self.name)
        if not isinstance(earlier, int | float):
            return f"{self.name} {_figure(self.value)}; there is none before to compare with"
        change = _rounded(self.value) - _rounded(earlier)
        words = "as before" if change == 0 else f"{change:+.4g}"
        if change and self.better:
            words += ": better" if (change > 0) == (self.better == "more") else ": worse"
        return f"{self.name} {_figure(self.value)}, before {_figure(earlier)} ({words})"


@dataclass(frozen=True)
class AssetPage:
    """The content of a result's page.

    Attributes:
        verdict: whether it is good.
        figure: its number, shown beside the one before.
        pictures: plots, the most telling one first.
        contents: what it is made of: counts, tables, previews.
        cost: seconds, bytes, dollars; `seconds` here replaces those of the step.
        records: what commands and later stages read, and documents in full.
    """

    verdict: PageVerdict
    figure: KeyFigure | None = None
    pictures: Entries = field(default_factory=dict)
    contents: Entries = field(default_factory=dict)
    cost: Entries = field(default_factory=dict)
    records: Entries = field(default_factory=dict)

    def entries(
        self, before: Entries | None = None, cost: Entries | None = None, records: Entries | None = None
    ) -> dict[str, Any]:
        """The metadata in their order.

        Args:
            before: metadata of the result before; None: it is not known.
            cost, records: what every asset has, shown between its contents and its own cost, and after its own records.
        """
        compared: dict[str, Any] = {}
        if self.figure is not None and math.isfinite(self.figure.value):
            compared = {COMPARED: self.figure.compared(before or {}), self.figure.name: _rounded(self.figure.value)}
        return {
            VERDICT: self.verdict.shown(),
            **compared,
            **self.pictures,
            **{name: _rounded(entry) for name, entry in self.contents.items()},
            **(cost or {}),
            **self.cost,
            **self.records,
            **(records or {}),
        }


def _rounded(entry: Any) -> Any:
    """A number with six digits, which is what a reader compares; anything else unchanged."""
    return float(f"{entry:.6g}") if isinstance(entry, float) and math.isfinite(entry) else entry


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
