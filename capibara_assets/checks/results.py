"""Results of checks in words: what failed, by how much, and what to do about it."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from capibara_assets.escaping.languages import markdown_text, one_line

PROBLEMS, REMEDY = "problems", "what_to_do"
NAMED = 3  # problems in the sentence; the metadata have more
LISTED = 20  # in the metadata, of what may be thousands


def judged(
    problems: Sequence[str], good: str, remedy: str, *, warn: bool = False, **metadata: Any
) -> dg.AssetCheckResult:
    """A check that passed without problems.

    Args:
        problems: what failed, each with its figures.
        good: what the check found where there are none.
        remedy: what to do where there are some.
        warn: a failure only warns.
        metadata: further figures.
    """
    failed = {PROBLEMS: [one_line(problem) for problem in problems[:LISTED]], REMEDY: remedy} if problems else {}
    return dg.AssetCheckResult(
        passed=not problems,
        severity=dg.AssetCheckSeverity.WARN if warn else dg.AssetCheckSeverity.ERROR,
        description=markdown_text(sentence(problems, remedy) if problems else good),
        metadata={**failed, "count": len(problems), **metadata},
    )


def found(evaluation: dg.AssetCheckEvaluation) -> str:
    """Message of a failed check as plain text for a terminal; its description if it is not one of ours."""
    shown = {name: value.value for name, value in evaluation.metadata.items()}
    if PROBLEMS in shown and REMEDY in shown:
        return sentence(shown[PROBLEMS], shown[REMEDY], shown["count"])
    return evaluation.description or "it gives no reason"


def sentence(problems: Sequence[str], remedy: str, count: int | None = None) -> str:
    """Format the first problems, the number of further ones out of `count`, and the remedy."""
    more = (len(problems) if count is None else count) - NAMED
    named = "; ".join(problem.rstrip(".;") for problem in problems[:NAMED])
    return f"{named}{f'; and {more} more' if more > 0 else ''}. What to do: {remedy}"
