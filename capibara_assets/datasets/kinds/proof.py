"""Proof of an answer: the output of its execution, else the assertions that it passed."""

from collections.abc import Sequence

from capibara_assets.datasets.code.sessions import Row

_LONGEST = 1000  # characters; of a longer proof the beginning and the whole length are kept


def recorded_output(row: Row) -> str:
    """The recorded output of a cell: standard output, then the results' text."""
    return "\n".join(part.strip("\n") for part in (row["stdout"], row["result_text"] or "") if part.strip())


def proof_of(row: Row, tests: Sequence[str]) -> str | None:
    """Proof of a successful execution; None when it had neither output nor an assertion.

    Args:
        tests: assertions that it passed, in its own cell or in later ones.
    """
    shown = recorded_output(row)
    proof = shown or "\n".join(["passed:", *tests] if tests else [])
    if len(proof) > _LONGEST:
        return f"{proof[:_LONGEST]}\n... of {len(proof)} characters"
    return proof or None
