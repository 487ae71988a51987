"""The earlier code that a cell depends on, as a backward slice of its session by names."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import polars as pl

from capibara_assets.datasets.code import javascript_source, python_source, sql_source
from capibara_assets.datasets.code.names import Statement, StatementNames
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.patterns.statements import stopped_line
from capibara_assets.storage.kept import of_text

_DEFINED = re.compile(
    r"(?:@.*\n)*(?:async )?(?:def|class|function\*?) +([\w$]+)|"
    r"(?:const|let|var) +([\w$]+) *= *(?:async *)?(?:function\b|\([^()\n]*\) *=>|[\w$]+ *=>)"
)
Row = Mapping[str, Any]  # one Execution as a dictionary


@dataclass(frozen=True)
class Piece:
    """Statements of one earlier cell, as written, that a later cell needs."""

    row: Row
    text: str
    defines: bool  # binds names; False: only changes objects in place


@dataclass(frozen=True)
class SessionContext:
    """The earlier code that a cell needs, oldest first, and whether it is complete."""

    pieces: tuple[Piece, ...]
    complete: bool  # False: a name is bound nowhere, or where a cell failed


def sessions(executions: pl.DataFrame) -> dict[tuple[str, str], list[Row]]:
    """Executions by session (sandbox, context), in order of time."""
    by_session: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in executions.sort("timestamp", "execution_id").iter_rows(named=True):
        by_session[row["sandbox_id"] or row["execution_id"], row["context_id"] or ""].append(row)
    return dict(by_session)


def needed(session: Sequence[Row], position: int) -> SessionContext:
    """The statements before the cell at `position` that bind, or change in place, what it needs, transitively.

    Statements that only check something bind nothing, so tests and their expected values are not among them.
    """
    row = session[position]
    names = cell_names(row["code"], row["language"])
    if names is None:
        return SessionContext((), False)
    before = [cell for cell in session[:position] if cell["language"] == row["language"]]
    wanted = names.needed
    while True:  # a function may read names that are bound after it: search again from the end
        pieces, missing, later, exact = _slice(before, wanted)
        if later <= wanted:
            return SessionContext(tuple(pieces), exact and names.exact and not missing)
        wanted |= later


def _slice(before: Sequence[Row], names: frozenset[str]) -> tuple[list[Piece], set[str], frozenset[str], bool]:
    """(pieces, names that nothing binds, names read by the functions in the pieces, whether every cell is known)."""
    # a call's effect on a module (a figure, a seed) is no value that a later cell reads by name
    modules = {name for cell in before for s in statements(cell["code"], cell["language"]) for name in s.names.imported}
    pieces: list[Piece] = []
    wanted, later, exact = set(names), frozenset[str](), True
    for cell in reversed(before):
        listed = statements(cell["code"], cell["language"])
        if not any(_gives(s.names, modules) & wanted for s in listed):
            continue
        if cell["outcome"] != "ok":
            ran = before_failure(cell)
            at_failure = listed[len(ran) : len(ran) + 1] if ran is not None else listed
            exact &= not any(_gives(s.names, modules) & wanted for s in at_failure)  # it may have done a part
            listed = ran or ()
        chosen: list[Statement] = []
        for statement in reversed(listed):
            if _gives(statement.names, modules) & wanted:
                chosen.append(statement)
                exact &= statement.names.exact
                later |= statement.names.later
                wanted = (wanted - statement.names.bound) | (statement.names.needed - statement.names.later)
        if not chosen:
            continue
        text = "\n".join(statement.text for statement in reversed(chosen))
        pieces.append(Piece(cell, text, any(statement.names.bound for statement in chosen)))
    return pieces[::-1], wanted, later, exact


def before_failure(cell: Row) -> tuple[Statement, ...] | None:
    """The statements of a failed cell that ended before the one that failed; None where its traceback tells no line."""
    at, lines = stopped_line(cell["language"], cell["code"], cell["traceback"]), cell["code"].split("\n")
    if at is None:
        return None
    whole = statements(cell["code"], cell["language"])
    for end in range(at - 1, 0, -1):
        ran = statements("\n".join(lines[:end]), cell["language"])
        if ran:  # of a statement of several lines, a beginning may parse as well
            pairs = takewhile(lambda pair: pair[0] == pair[1], zip(ran, whole, strict=False))
            return tuple(one for one, _ in pairs)
    return ()


def defined_name(statement: str) -> str | None:
    """The name of the function or class that a statement of Python or JavaScript defines."""
    found = _DEFINED.match(statement)
    return found and (found[1] or found[2])


def definitions(code: str, language: str) -> dict[str, str]:
    """The functions and classes that code defines at its top: name -> its last definition, without its docstring."""
    return {name: one.text for one in statements(code, language) if (name := defined_name(one.text))}


def carried(cell: Row, names: frozenset[str]) -> str:
    """What gives these names in a cell that failed later, as far as it ran, with what that needs; "" for nothing."""
    while True:
        pieces, _, later, _ = _slice([cell], names)
        if later <= names:
            return "\n".join(piece.text for piece in pieces)
        names |= later


def _gives(names: StatementNames, modules: set[str]) -> set[str]:
    # what a function changes when it is called, its definition does not
    return set(names.bound | (names.changed - names.later - modules))


def cell_names(code: str, language: str) -> StatementNames | None:
    """Names that a cell binds, changes and needs; None when it does not parse or the language is not known."""
    listed = statements(code, language)
    if not listed and _language(language) is None:
        return None
    if not listed and code.strip() and not _parses(code, language):
        return None
    bound: set[str] = set()
    changed: set[str] = set()
    needs: set[str] = set()
    later: set[str] = set()
    for statement in listed:
        needs |= statement.names.needed - statement.names.later - bound
        later |= statement.names.later
        bound |= statement.names.bound
        changed |= statement.names.changed
    needs |= later - bound
    exact = all(statement.names.exact for statement in listed)
    imported = frozenset(name for statement in listed for name in statement.names.imported)
    return StatementNames(frozenset(bound), frozenset(changed), frozenset(needs), exact, frozenset(), imported)


def _encoded(listed: Sequence[Statement]) -> list[list[Any]]:
    return [[s.text, [sorted(part) if isinstance(part, frozenset) else part for part in s.names]] for s in listed]


def _decoded(stated: Sequence[tuple[str, Sequence[Any]]]) -> tuple[Statement, ...]:
    return tuple(
        Statement(text, StatementNames._make(frozenset(part) if isinstance(part, list) else part for part in names))
        for text, names in stated
    )


@of_text("statements", _encoded, _decoded)
def statements(code: str, language: str) -> tuple[Statement, ...]:
    """The top-level statements of a cell with their names; none when it does not parse or the language is not known."""
    source = _language(language)
    return () if source is None else source.statements(code)


def _language(language: str) -> Any:
    return {"python": python_source, "sql": sql_source, **dict.fromkeys(JAVASCRIPT, javascript_source)}.get(language)


def _parses(code: str, language: str) -> bool:
    if language == "python":
        return python_source.parse(code) is not None
    return language not in JAVASCRIPT or not javascript_source.parse(code).has_error
