"""Whether a later cell does again, otherwise, what a failed one stopped at."""

import re
from collections import Counter
from collections.abc import Sequence

from capibara_assets.executions.parsing import query_words
from capibara_assets.executions.patterns.attempts import Attempt
from capibara_assets.executions.patterns.similarity import distance, similarity
from capibara_assets.executions.patterns.statements import CellStatement

_AT_ITS_PLACE, _ALIKE = 0.7, 0.75  # least likeness of a statement to one that assigns the same, and to any other
_MIN_TOKENS = 4  # of a statement that tells: `x` and `f()` stand in many cells
_MIN_PARTS = 6  # of an expression that another takes the place of
_WORDS_KEPT = 0.5  # of a query that was refused, in the one that takes its place
_MOST_REST = 20  # statements after the one that failed that are looked for
_LITERAL = re.compile(r"[rbfRBF]{0,2}(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`)|\b\d[\w.]*")


def repeats(failed: Attempt, later: Attempt) -> int | None:
    """Index of the statement of a later cell that is the one at which an earlier one stopped; None: there is none.

    An assertion is one that begins with it, too.
    """
    asked = _stopped(failed)
    if asked is None or (len(asked.tokens) < _MIN_TOKENS and failed.names.isdisjoint(asked.tokens)):
        return None
    checks = asked.tokens[0] == "assert"
    for at, one in enumerate(later.statements):
        if one.tokens == asked.tokens or (checks and one.tokens[: len(asked.tokens) + 1] == (*asked.tokens, "and")):
            return at
    return None


def checks_hold(failed: Attempt, later: Attempt) -> bool:
    """Whether a later cell holds every check that did not run any more."""
    held = {one.tokens for one in later.statements}
    return all(one.tokens in held for one in _rest(failed) if _checks(one))


def only_repeats(failed: Attempt, later: Attempt) -> bool:
    """Whether a later cell holds the statement that failed, and before it nothing that the failed one did not hold."""
    at = repeats(failed, later)
    old = {one.tokens for one in failed.statements}
    return at is not None and all(one.tokens in old for one in later.statements[:at])


def passes_anew(failed: Attempt, later: Attempt) -> bool:
    """Whether a later cell holds the statement that failed, below what makes anew something that it needs.

    What a check looks at may also be computed again, unchanged, after something else was set (`urls.patterns = ...`),
    and any other statement may follow a new one (`os.makedirs(folder)`).
    """
    at = repeats(failed, later)
    return at is not None and _is_new_above(failed, later, at) and _goes_on(failed, later)


def _is_new_above(failed: Attempt, later: Attempt, at: int) -> bool:
    """Whether something that the statement at `at` needs is made anew above it."""
    needs, old = set(later.statements[at].tokens), {one.tokens for one in failed.statements}
    checks = _checks(later.statements[at])
    again = not checks
    for one in reversed(later.statements[:at]):
        new = one.tokens not in old
        if new and not needs.isdisjoint(one.targets):
            return _same_purpose(failed, one)
        if new and again and (one.targets or not checks):
            return True
        if not needs.isdisjoint(one.targets):
            needs |= set(one.tokens)
            again = True
    return False


def redoes(failed: Attempt, later: Attempt) -> bool:
    """Whether another statement of a later cell takes the place of the one that failed, and what follows is done again.

    A check is none that another takes the place of. A statement without others after it has to differ in more than its
    literals and the names that it binds: `get("/a")` and `get("/b")` are two requests.
    """
    asked = _stopped(failed)
    if asked is None or len(asked.tokens) < _MIN_TOKENS or _checks(asked):
        return False
    instead = in_place_of(asked, later.statements)
    if instead is None or _checks(instead) or not _keeps_literals(failed, asked, instead):
        return False
    if [token for token in asked.tokens if token not in asked.places] == [
        token for token in instead.tokens if token not in instead.places
    ]:
        return False
    if _rest(failed):
        return _goes_on(failed, later)
    return _bare(asked) != _bare(instead)


def _rest(failed: Attempt) -> Sequence[CellStatement]:
    """What did not run any more."""
    return () if failed.stopped is None else failed.statements[failed.stopped + 1 :][:_MOST_REST]


def _goes_on(failed: Attempt, later: Attempt) -> bool:
    """Whether a later cell does again half of what did not run any more: its checks as they were, or what is alike."""
    rest, held = _rest(failed), {one.tokens for one in later.statements}
    if checks := [one for one in rest if _checks(one)]:
        return 2 * sum(one.tokens in held for one in checks) >= len(checks)
    return 2 * sum(in_place_of(one, later.statements, same=True) is not None for one in rest) >= len(rest)


def _same_purpose(failed: Attempt, anew: CellStatement) -> bool:
    """Whether what is made anew is not something else than what the failed cell made by that name."""
    former = [one for one in failed.statements if one.places & anew.places]
    return anew.defines or not former or any(_keeps_literals(failed, one, anew) for one in former)


def _keeps_literals(failed: Attempt, former: CellStatement, anew: CellStatement) -> bool:
    """Whether literals stay, but for those that the error quotes: another request or other data is no repair."""
    told = failed.row["error_value"] or ""
    kept = " ".join(anew.tokens)
    return all(one.strip("'\"` ") in told for one in _LITERAL.findall(" ".join(former.tokens)) if one not in kept)


def _stopped(failed: Attempt) -> CellStatement | None:
    return None if failed.stopped is None else failed.statements[failed.stopped]


def _checks(one: CellStatement) -> bool:
    return any(token.lower().startswith(("assert", "expect")) for token in one.tokens)


def in_place_of(asked: CellStatement, others: Sequence[CellStatement], same: bool = False) -> CellStatement | None:
    """The statement that is most like one, and like enough; `same`: it may be that one."""
    if same and (equal := next((one for one in others if one.tokens == asked.tokens), None)) is not None:
        return equal
    best, found = 0.0, None
    for one in others:
        at_its_place = bool(asked.places) and asked.places == one.places
        shorter, longer = sorted((len(asked.tokens), len(one.tokens)))
        if one.tokens == asked.tokens or not (at_its_place or shorter >= _ALIKE * longer):
            continue
        alike = _kept(asked.tokens, one.tokens) if at_its_place else similarity(asked.tokens, one.tokens)
        if alike >= max(_AT_ITS_PLACE if at_its_place else _ALIKE, best):
            best, found = alike, one
    return found


def _kept(asked: Sequence[str], instead: Sequence[str]) -> float:
    """The share of a statement's tokens that another keeps; below 1."""
    changed = distance(asked, instead) - max(0, len(instead) - len(asked))
    return min(0.99, 1 - changed / len(asked))


def _bare(one: CellStatement) -> str:
    """A statement without its literals and the names that it binds."""
    return _LITERAL.sub("", " ".join(token for token in one.tokens if token not in one.places))


def asks_again(failed: Attempt, later: Attempt) -> bool:
    """Whether what was refused is asked otherwise: a query of most of its words, an expression of most of its parts."""
    if failed.row["outcome"] != "error":
        return False
    if failed.row["language"] != "sql":
        return _calls_again(failed, later)
    asked, instead = (query_words(one.code) for one in (failed, later))
    return len(asked) >= _MIN_TOKENS and len(asked & instead) >= _WORDS_KEPT * len(asked)


def _calls_again(failed: Attempt, later: Attempt) -> bool:
    """Whether a cell holds another expression in place of the one that ended the failed cell, with all its literals."""
    asked = _stopped(failed)
    if asked is None or asked.places or len(asked.tokens) < _MIN_PARTS or _rest(failed) or _checks(asked):
        return False
    return any(
        one.tokens != asked.tokens
        and not _checks(one)
        and _holds(one.tokens, asked)
        and not _holds(_without_last(one.tokens), asked)
        and _bare(asked) != _bare(one)
        for one in later.statements
    )


def _holds(instead: Sequence[str], asked: CellStatement) -> bool:
    """Whether tokens hold what an expression is of, its literals and most of the rest."""
    return (
        asked.tokens[0] in instead
        and _kept(asked.tokens, instead) >= _ALIKE
        and not _literals(asked.tokens) - _literals(instead)
    )


def _without_last(listed: Sequence[str]) -> Sequence[str]:
    """Tokens without the last thing that is asked of a value, `.tail(2)` or `[0]`: that is no part of a repair."""
    depth, at = 0, len(listed)
    while at and (depth or at == len(listed)):
        at -= 1
        depth += (listed[at] in ")]") - (listed[at] in "([")
    if at and listed[at] != "[":
        at -= listed[at] == "("
        at -= listed[at - 1] == "."
    return listed[:at]


def _literals(listed: Sequence[str]) -> Counter[str]:
    return Counter(_LITERAL.findall(" ".join(listed)))
