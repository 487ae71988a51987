"""Repairs that a test in a later cell tells: it fails, what it tests is made anew, and it passes unchanged."""

import re
from collections.abc import Sequence

from capibara_assets.executions.patterns.attempts import HORIZON, Attempt
from capibara_assets.executions.patterns.redone import checks_hold, repeats
from capibara_assets.executions.schema import SHELLS, WRONG_OUTPUT

_RAN = re.compile(r"^Ran \d+ tests? in ", re.MULTILINE)
_CASE = re.compile(r"^(?:FAIL|ERROR): .*?(?=^={9,}$|^-{9,}\nRan \d|\Z)", re.MULTILINE | re.DOTALL)
BELOW = "\n\n"  # between a definition and what tested it


def retested(session: Sequence[Attempt], i: int) -> tuple[int, Attempt, Attempt] | None:
    """(Index of what mended it, the failing attempt, the fixed one) where the cell at `i` tests an earlier one.

    Both attempts hold what was made and, below it, what tested it. The error of one that ended well is what it shows,
    and what it shows later.
    """
    test = session[i]
    if test.refuted and test.names and (shown := _shown_again(session, i)) is not None:
        told = f"Output:\n{test.output}\n\nExpected:\n{session[shown].output}"
        return shown, Attempt(test.row | {"error_name": WRONG_OUTPUT, "error_value": told}), session[shown]
    again = _passing(session, i) if test.row["language"] not in SHELLS else None
    anew = _made_anew(session, i, again) if again is not None else None
    if again is None or anew is None:
        return None
    before, fix = (session[j] for j in anew)
    made = before.code
    if before.names and not before.names <= fix.bound:
        made = BELOW.join(text for name, text in before.definitions.items() if name in fix.names)
        if not made.strip():
            return None  # of code that does not parse only names are known
    failing = _below(made, test, test, before.row["task"])
    if not test.failed:
        failing = Attempt(failing.row | {"error_name": WRONG_OUTPUT, "error_value": _told(test, session[again])})
    return anew[1], failing, fix if anew[1] == again else _below(fix.code, session[again], fix)


def _told(test: Attempt, again: Attempt) -> str:
    """What a test showed and shows later; of `unittest`, whose output holds times, the first case that failed."""
    case = _CASE.search(test.output) if _RAN.search(test.output) else None
    if case is not None:
        return case[0].strip()
    return f"{test.code.strip()}\nOutput:\n{test.output}\n\nExpected:\n{again.output}"


def _passing(session: Sequence[Attempt], i: int) -> int | None:
    """Index of the next cell that is, or that holds, the test at `i`, and passes."""
    test = session[i]
    for j in range(i + 1, min(len(session), i + 1 + HORIZON)):
        later = session[j]
        if not later.ok:
            continue
        if later.tokens == test.tokens:
            if test.failed or (later.output != test.output and not later.refuted):
                return j
        elif test.failed and (
            _ends_with(later, test) or (repeats(test, later) is not None and checks_hold(test, later))
        ):
            return j
    return None


def _ends_with(later: Attempt, test: Attempt) -> bool:
    return bool(later.names) and later.tokens[-len(test.tokens) :] == test.tokens


def _shown_again(session: Sequence[Attempt], i: int) -> int | None:
    """Index of the next cell that defines the same, shows it by a statement of the one at `i`, and shows no failure."""
    shows = session[i]
    asked = [one.tokens for one in shows.statements if not one.places and "(" in one.tokens]
    for j in range(i + 1, min(len(session), i + 1 + HORIZON)):
        later = session[j]
        if not later.names >= shows.names or not (later.failed or later.ok):
            continue
        if all(later.definitions[name] == written for name, written in shows.definitions.items()):
            continue
        again = any(one.tokens in asked or _begins(one.tokens, asked) for one in later.statements)
        if later.failed or not again:
            return None
        if not later.refuted:
            return j if later.output != shows.output else None
    return None


def _begins(listed: Sequence[str], asked: Sequence[Sequence[str]]) -> bool:
    """Whether a list begins with all that a list that was asked for holds."""
    return any(one[-1] == listed[-1] == "]" and listed[: len(one) - 1] == one[:-1] for one in asked)


def _made_anew(session: Sequence[Attempt], i: int, again: int) -> tuple[int, int] | None:
    """Indexes of what the test at `i` tested, and of what was made in its place before it passed.

    A cell that the test needs and that was not made anew may be a test itself: then it is what that needs.
    """
    test, called = session[i], set(session[i].tokens)
    last = again if session[again].tokens == test.tokens else again + 1  # where what mended it has to stand before
    for j in range(i - 1, -1, -1):
        before = session[j]
        if not before.ok or before.bound.isdisjoint(called):
            continue
        defining = (k for k in range(last - 1, i, -1) if session[k].ok and session[k].names & before.names)
        fix = next(defining, None) if before.names & called else None
        if fix is None:
            fix = _alone(session, i, last, before, called)
        if fix is not None and _differs(before, session[fix]):
            return j, fix
        called |= set(before.tokens)
    return None


def _differs(before: Attempt, fix: Attempt) -> bool:
    """Whether what is made anew is not as before."""
    if before.names <= fix.names:
        return before.tokens != fix.tokens
    return any(before.definitions[name] != fix.definitions.get(name) for name in before.names & fix.names)


def _alone(session: Sequence[Attempt], i: int, last: int, before: Attempt, called: set[str]) -> int | None:
    """Index of the only cell between two runs of a test that made something, if it made anew what the test needs.

    That is all of it, or, of a program that the test calls by an object (`client`), a definition and that object. Of
    values (`result = f(x)`, then `assert result == 4`) no other is known to have mended the test.
    """
    test = session[i]
    if test.failed and "Assert" not in (test.row["error_name"] or "") and not before.names:
        return None  # what looks at a value fails for many a reason
    ran = [j for j in range(i + 1, last) if session[j].ok and session[j].bound]
    if len(ran) != 1:
        return None
    made, used = session[ran[0]], before.bound & called
    rebuilt = bool(before.names & made.names and used & made.bound) and not before.names & called
    return ran[0] if rebuilt or before.names | used <= made.bound else None


def _below(made: str, tested: Attempt, of: Attempt, task: str | None = None) -> Attempt:
    """An attempt whose code is what was made and, below it, what tested it; its row is that of `of`."""
    row = of.row
    return Attempt(row | {"code": f"{made}{BELOW}{tested.code}", "task": row["task"] or task})
