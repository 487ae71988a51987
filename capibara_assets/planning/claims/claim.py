"""A row of the claims table."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from capibara_assets.planning.claims.measured import Measured

Verdict = Literal["holds", "holds in part", "does not hold", "cannot be judged"]
How = Literal["computed", "measured", "computed and measured"]


@dataclass(frozen=True)
class Claim:
    """One promise of the specification and what became of it.

    Attributes:
        claim: as the specification has it.
        ours: our figure, in words.
        how: whether it was computed or measured.
        verdict: what the figure says about the claim.
        why: the arithmetic, and under which conditions.
        values: the numbers behind the words.
    """

    claim: str
    ours: str
    how: How
    verdict: Verdict
    why: str
    values: dict[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def how(measured: Measured | None) -> How:
    return "computed" if measured is None else "computed and measured"


def said(measured: Measured | None, name: str, unit: str = "%") -> str:
    """What this machine said about a ratio, in words."""
    if measured is None:
        return ""
    value = float(getattr(measured, name))
    said = f"{value:.1%}" if unit == "%" else f"{value:.2f}x"
    return f"; measured here on {measured.model}: {said}"


def values(measured: Measured | None, name: str) -> dict[str, float]:
    return {} if measured is None else {"measured": float(getattr(measured, name))}
