"""Finds repair pairs: a failing execution and the later execution of the same session that fixed it.

The rules for a pair, within (sandbox, code context), in time order:

1. Failing and later code are about the same thing: they say so themselves (same leading comment or docstring), or
   define the same names, or were recorded for the same task and are similar, or are nearly the same text.
2. Of several failures before one success the last is paired: the earlier ones led to the next attempt.
3. Of several successes the first is paired, or a later one with the same output and other code before the session
   moves on: the final form.
4. The code changed, and the change can be the reason: where a name or table was missing, a cell in between that made it
   is the repair, not the later run of nearly the same code (the cascade of an earlier failure).
5. A shell command that failed and later, unchanged, does not was mended by what stands between: the pair's code is
   equal, and its diff is the edits and commands in between. Each failure has such a pair. Where a pipe hides the exit
   code (`pytest | tail`), the command failed if its output says so.
6. A test or call in a cell of its own that failed, and passes unchanged after a cell defined anew what it calls (or,
   alone between the two, computed anew what it tests), was mended by that cell, the last before the run that passed.
   Both codes of such a pair hold the definition and, below it, what tested it, as if they had been one cell. So was one
   that passes in the cell that defines it anew, and one that ended well and shows a failure (`FAIL`, `[true, false]`)
   that it does not show again. A cell that holds the statement that failed, and the checks after it, holds the test.
   Of what is defined anew in part, the pair holds that part.
7. Where neither text nor test tells, the statement that failed does (`redone.py`): a later cell holds it again below
   what it makes anew, or assigns the same by another statement and goes on as before; or the next cell asks the query
   that was refused otherwise, or the expression that ended the failed cell.
8. Where a verdict was recorded on attempts at a session's one task, each failure has the next that solves it.

An execution whose outcome is not known is neither a failure nor a repair, but in rule 5. False pairs are worse than
missed ones.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.executions.patterns.attempts import HORIZON, Attempt
from capibara_assets.executions.patterns.redone import asks_again, only_repeats, passes_anew, redoes
from capibara_assets.executions.patterns.retests import retested
from capibara_assets.executions.patterns.shown_failures import MAY_SHOW
from capibara_assets.executions.patterns.similarity import distance, similarity, unified_diff
from capibara_assets.executions.schema import FAILED, HIDDEN_EXIT, PATCH, SOLVED, RepairPair
from capibara_assets.storage.records import conform, polars_schema

# least similarity, by what else ties the two together; a recorded task may hold for a whole session
_SAME_STATEMENT, _SAME_NAMES, _SAME_TASK, _SAME_TEXT = 0.2, 0.3, 0.5, 0.75
_MIN_TOKENS = 4  # of code without a task or names: `f(3)` and `f(4)` are no repair
_MISSING_NAME = re.compile(
    r"name '(\w+)' is not defined|(?:^|\s)(\w+) is not defined|no such (?:table|column): ([\w.]+)"
)


def find_repairs(executions: pl.DataFrame, domain: Domain | str | None = None) -> pl.DataFrame:
    """Repair pairs among executions, whatever the order of the rows.

    Args:
        executions: Execution table of whole sessions (its `domains` may or may not carry `debug` yet): what a failure
            tested, or what passed later, may belong to another domain.
        domain: of both sides of a pair; None: any.

    Returns:
        RepairPair table; each failing execution is in at most one pair, as is each fixing one by rules 1-4, 6 and 7.
    """
    pairs = (pair for session in _sessions(executions) for pair in _pairs(session))
    return _table(_row(*pair) for pair in pairs if domain is None or _within(domain, pair))


def find_mended(commands: pl.DataFrame, domain: Domain | str) -> pl.DataFrame:
    """Repair pairs of a domain's commands that passed unchanged after files had been edited (rule 5).

    Args:
        commands: commands and edits of whole sessions (Execution), of whatever domain.
    """
    pairs = (pair for session in _sessions(commands) for pair in _mended(session))
    return _table(_row(*pair) for pair in pairs if _within(domain, pair))


def _sessions(executions: pl.DataFrame) -> Iterable[Sequence[Attempt]]:
    """The sessions in which something may have failed, each in order of time."""
    frame = executions.sort("sandbox_id", "timestamp", "execution_id")
    fails = pl.col("outcome").is_in(FAILED) | pl.col("flags").list.contains(HIDDEN_EXIT)
    told = frame.filter(fails | (pl.col("outcome") == "ok") & MAY_SHOW)["sandbox_id"].unique()
    found: dict[tuple[str, str | None], list[Attempt]] = {}
    for row in frame.filter(pl.col("sandbox_id").is_in(told.implode())).iter_rows(named=True):
        found.setdefault((row["sandbox_id"], row["context_id"]), []).append(Attempt(row))
    return found.values()


def _table(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    return conform(RepairPair, pl.DataFrame(list(rows), schema=polars_schema(RepairPair)))


_Pair = tuple[Attempt, Attempt, Sequence[Attempt]]  # failure, repair, and what stands between where that mended it


def _within(domain: Domain | str, pair: _Pair) -> bool:
    return all(str(domain) in side.row["domains"] for side in pair[:2])


def _pairs(session: Sequence[Attempt]) -> Iterator[_Pair]:
    used: set[int] = set()  # fixing executions
    solving = _solving(session)
    for i in _failures(session):
        if (fix := _told_fix(session, i, solving)) is not None:
            yield session[i], session[fix], () if fix in solving else session[i + 1 : fix]
        elif not solving:
            yield from _paired(session, i, used)
    for i in range(len(session) - 1, -1, -1) if not solving else ():
        if session[i].refuted:
            yield from _tested(session, i, used)


def _paired(session: Sequence[Attempt], i: int, used: set[int]) -> Iterator[_Pair]:
    """The pair of a failure whose fixing execution is `used` then: by its text, else by a test, else by a statement."""
    fix = _fix_of(session, i, _related)
    if fix is None and (tested := list(_tested(session, i, used))):
        yield from tested
        return
    if fix is None:
        fix = _fix_of(session, i, lambda failed, later: passes_anew(failed, later) or redoes(failed, later))
    if fix is None and i + 1 < len(session) and session[i + 1].ok and asks_again(session[i], session[i + 1]):
        fix = i + 1
    if fix is not None and fix not in used:
        used.add(fix)
        yield session[i], session[fix], ()


def _tested(session: Sequence[Attempt], i: int, used: set[int]) -> Iterator[_Pair]:
    """The pair that a later cell's test tells (rule 6), whose fixing execution is `used` then."""
    found = retested(session, i)
    if found is not None and found[0] not in used:
        used.add(found[0])
        yield found[1], found[2], ()


def _mended(session: Sequence[Attempt]) -> Iterator[_Pair]:
    """The pairs of one command, unchanged, between whose runs files were edited."""
    solving = _solving(session)
    for i in _failures(session):
        fix = _told_fix(session, i, solving)
        if fix is None or session[i].command is None or session[fix].command != session[i].command:
            continue
        if any(attempt.row["language"] == PATCH for attempt in session[i + 1 : fix]):
            yield session[i], session[fix], () if fix in solving else session[i + 1 : fix]


def _failures(session: Sequence[Attempt]) -> list[int]:
    """Indexes of the failures: the last one before a success comes first."""
    return [i for i, attempt in enumerate(session) if attempt.failed][::-1]


def _solving(session: Sequence[Attempt]) -> list[int]:
    return [i for i, attempt in enumerate(session) if SOLVED in attempt.row["flags"]]


def _told_fix(session: Sequence[Attempt], i: int, solving: Sequence[int]) -> int | None:
    """Index of what a verdict, or else a rerun, tells to be the fix."""
    solved = next((j for j in solving if j > i), None)
    return _rerun_of(session, i) if solved is None else solved


def _rerun_of(session: Sequence[Attempt], i: int) -> int | None:
    """Index of the same command's next run that does not fail; None: there is none."""
    command = session[i].command
    if not command:
        return None
    return next(
        (j for j in range(i + 1, len(session)) if session[j].command == command and not session[j].failed), None
    )


def _fix_of(session: Sequence[Attempt], i: int, related: Callable[[Attempt, Attempt], bool]) -> int | None:
    """Index of the success that ends the chain of attempts in which `i` is the last failure."""
    failing, first = session[i], None
    for j in range(i + 1, min(len(session), i + 1 + HORIZON)):
        later = session[j]
        if not related(failing, later):
            if first is not None:
                break  # the session moved on
            continue
        if not later.ok:
            if not later.failed:
                continue
            if first is None and _mends(session, i, j):
                return None  # changed and failed again: that failure is the one to pair
            if first is None:
                continue
            break
        if first is None:
            if not _mends(session, i, j):
                continue
            first = j
        elif later.said == session[first].said and later.tokens != failing.tokens:
            first = j if later.tokens != session[first].tokens else first
        else:
            break
    return first


def _related(a: Attempt, b: Attempt) -> bool:
    if a.row["language"] != b.row["language"]:
        return False
    compatible = a.names == b.names or not a.names or not b.names
    if compatible and a.statement is not None and a.statement == b.statement:
        return similarity(a.tokens, b.tokens) >= _SAME_STATEMENT
    if a.names and a.names == b.names:
        return similarity(a.tokens, b.tokens) >= _SAME_NAMES
    if min(len(a.uncommented), len(b.uncommented)) < _MIN_TOKENS or bool(a.names) != bool(b.names):
        return False
    alike = similarity(a.uncommented, b.uncommented)
    same_task = compatible and a.row["task"] is not None and a.row["task"] == b.row["task"]
    return alike >= (_SAME_TASK if same_task else _SAME_TEXT)


def _mends(session: Sequence[Attempt], i: int, j: int) -> bool:
    """Whether the change from `i` to `j` can be the repair, and not a cell in between."""
    failing, later = session[i], session[j]
    if failing.tokens == later.tokens or only_repeats(failing, later):
        return False
    match = _MISSING_NAME.search(failing.row["error_value"] or "")
    if match is None:
        return True
    name = next(group for group in match.groups() if group)
    if later.tokens.count(name) != failing.tokens.count(name) or _binds(later, name):
        return True
    return not any(between.ok and _binds(between, name) for between in session[i + 1 : j])


def _binds(attempt: Attempt, name: str) -> bool:
    word = re.escape(name.split(".")[-1])
    keyword = rf"\b(?:import|def|class|as|for|let|const|var|function|table|view|exists)\s+[\"'`]?{word}\b"
    return re.search(rf"{keyword}|\b{word}\s*=(?!=)", attempt.code, re.IGNORECASE) is not None


def _row(failing: Attempt, fixed: Attempt, between: Sequence[Attempt]) -> dict[str, Any]:
    ids = (failing.row["execution_id"], fixed.row["execution_id"])
    own = [domain for domain in fixed.row["domains"] if domain != Domain.DEBUG]
    return {
        "pair_id": hashlib.sha256("\n".join(ids).encode()).hexdigest()[:32],
        "domains": [*own[:1], str(Domain.DEBUG)],
        "language": fixed.row["language"],
        "sandbox_id": fixed.row["sandbox_id"],
        "failing_execution_id": ids[0],
        "fixed_execution_id": ids[1],
        "failing_code": failing.code,
        "fixed_code": fixed.code,
        "task": fixed.row["task"] or failing.row["task"],
        "error_name": failing.row["error_name"],
        "error_value": failing.row["error_value"],
        "traceback": failing.row["traceback"],
        "diff": "\n".join(one.code for one in between) if between else unified_diff(failing.code, fixed.code),
        "distance": max(1, distance(failing.tokens, fixed.tokens)),
        "similarity": similarity(failing.tokens, fixed.tokens),
    }
