"""A row of the claims table, and helpers to word it."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from capibara_assets.planning.claims.measured import MeasuredRatios

Verdict = Literal["holds", "holds in part", "does not hold", "cannot be judged"]
How = Literal["computed", "measured", "computed and measured"]


@dataclass(frozen=True)
class Claim:
    """One claim of the specification with our figure and verdict.

    Attributes:
        claim: the specification's wording.
        ours: our figure, in words.
        how: whether it was computed or measured.
        verdict: whether the figure supports the claim.
        why: the arithmetic and its conditions.
        values: the numbers in `ours`.
    """

    claim: str
    ours: str
    how: How
    verdict: Verdict
    why: str
    values: dict[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def how(measured: MeasuredRatios | None) -> How:
    """How a row's figure was obtained: computed, and measured too where measurements are given."""
    return "computed" if measured is None else "computed and measured"


def in_words(measured: MeasuredRatios | None, name: str, unit: str = "%") -> str:
    """A ratio measured on this machine, as a clause to append to a row; empty without measurements."""
    if measured is None:
        return ""
    value = float(getattr(measured, name))
    words = f"{value:.1%}" if unit == "%" else f"{value:.2f}x"
    return f"; measured here on {measured.model}: {words}"


def values(measured: MeasuredRatios | None, name: str) -> dict[str, float]:
    """A measured ratio as an entry of a row's `values`; empty without measurements."""
    return {} if measured is None else {"measured": float(getattr(measured, name))}
