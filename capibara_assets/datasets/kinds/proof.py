"""The output that proves an answer: what its execution showed, else the assertions that it passed without a word."""

from collections.abc import Sequence

from capibara_assets.datasets.code.sessions import Row

_LONGEST = 1000  # characters; of longer proofs the beginning is kept, and how long the whole is


def recorded_output(row: Row) -> str:
    """What the cell showed: standard output, then the results' text."""
    return "\n".join(part.strip("\n") for part in (row["stdout"], row["result_text"] or "") if part.strip())


def proof_of(row: Row, tests: Sequence[str]) -> str | None:
    """Proof of an execution that ended well; None when it neither showed anything nor held an assertion.

    Args:
        tests: assertions that it passed, in its own cell or in later ones.
    """
    shown = recorded_output(row)
    found = shown or "\n".join(["passed:", *tests] if tests else [])
    if len(found) > _LONGEST:
        return f"{found[:_LONGEST]}\n... of {len(found)} characters"
    return found or None
