"""Repairs that a test in a later cell tells: it fails, what it tests is made anew, and it passes unchanged."""

from collections.abc import Callable, Sequence

from capibara_assets.executions.patterns.attempts import HORIZON, Attempt
from capibara_assets.executions.schema import SHELL, WRONG_OUTPUT

BELOW = "\n\n"  # between a definition and what tested it


def retested(session: Sequence[Attempt], i: int) -> tuple[int, Attempt, Attempt] | None:
    """(Index of what mended it, the failing attempt, the fixed one) where the cell at `i` tests an earlier one.

    Both attempts hold what was made and, below it, what tested it. The error of one that ended well is what it shows,
    and what it shows later.
    """
    test = session[i]
    again = _passing(session, i) if test.row["language"] != SHELL else None
    anew = _made_anew(session, i, again) if again is not None else None
    if again is None or anew is None:
        return None
    before, fix = anew
    failing = _below(session[before], test)
    if not test.failed:
        told = f"{test.code.strip()}\nOutput:\n{_shown(test)}\n\nExpected:\n{_shown(session[again])}"
        failing = Attempt(failing.row | {"error_name": WRONG_OUTPUT, "error_value": told})
    return fix, failing, session[fix] if fix == again else _below(session[fix], session[again], of=session[fix])


def _passing(session: Sequence[Attempt], i: int) -> int | None:
    """Index of the next cell that is, or that ends with, the test at `i`, and passes."""
    test = session[i]
    for j in range(i + 1, min(len(session), i + 1 + HORIZON)):
        later = session[j]
        if not later.ok or (not test.failed and (later.refuted or later.said == test.said)):
            continue
        if later.tokens == test.tokens:
            return j
        if test.failed and later.names and later.tokens[-len(test.tokens) :] == test.tokens:
            return j
    return None


def _made_anew(session: Sequence[Attempt], i: int, again: int) -> tuple[int, int] | None:
    """Indexes of what the test at `i` tested, and of what was made in its place before it passed."""
    test, called = session[i], set(session[i].tokens)
    last = again if session[again].tokens == test.tokens else again + 1  # where what mended it has to stand before
    before = _latest(session, i, lambda one: not one.names.isdisjoint(called))
    if before is not None:
        names = session[before].names
        fix = next((j for j in range(last - 1, i, -1) if session[j].ok and session[j].names & names), None)
        if fix is not None and names <= session[fix].names and session[fix].tokens != session[before].tokens:
            return before, fix
    if test.failed and "Assert" not in (test.row["error_name"] or ""):
        return None  # what looks at a value fails for many a reason
    # of values (`result = f(x)`, then `assert result == 4`) only one that was computed anew, alone, is known to mend
    before = _latest(session, i, lambda one: not one.bound.isdisjoint(called))
    ran = [j for j in range(i + 1, last) if session[j].ok and session[j].bound]
    if before is None or len(ran) != 1:
        return None
    former, fixed = session[before], session[ran[0]]
    anew = former.names | former.bound & called <= fixed.bound and fixed.tokens != former.tokens
    return (before, ran[0]) if anew else None


def _latest(session: Sequence[Attempt], i: int, made: Callable[[Attempt], bool]) -> int | None:
    return next((j for j in range(i - 1, -1, -1) if session[j].ok and made(session[j])), None)


def _below(making: Attempt, tested: Attempt, of: Attempt | None = None) -> Attempt:
    """An attempt whose code is what one cell made and another tested; its row is that of `of`, or of the test."""
    row = (of or tested).row
    return Attempt(row | {"code": f"{making.code}{BELOW}{tested.code}", "task": row["task"] or making.row["task"]})


def _shown(attempt: Attempt) -> str:
    return "\n".join(text.strip() for text in (*attempt.said, attempt.row["stderr"]) if text and text.strip())
