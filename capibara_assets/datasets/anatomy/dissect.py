"""Dissection of a cell: the statement of its purpose, its signature, its code, and the tests that judge it.

Each part is a piece of the recorded code: the code without its statement and its tests is still code that ran.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from capibara_assets.datasets.anatomy import dissect_javascript, dissect_python, flow_shell, flow_sql
from capibara_assets.datasets.anatomy.parts import CellParts, of_roles, pieces
from capibara_assets.datasets.anatomy.roles import Role, roles
from capibara_assets.datasets.code.comments import is_statement, leading_comment
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import tidied
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.patterns.similarity import similarity, tokens
from capibara_assets.storage.kept import of_text

_OTHERS = frozenset({"sql", "bash", "sh", "shell", "zsh"})

_CALLED = re.compile(r"(\w+)\s*\(")
_ALIKE = 0.4  # least likeness of two attempts at the same


@dataclass(frozen=True)
class Anatomy:
    """The parts of one cell: statement, signature, code and tests."""

    statement: str | None  # docstring or leading comment that says what the code is for
    documented: bool  # the statement belongs to what is defined (docstring), not to the cell (leading comment)
    signature: str  # headers of the functions and classes that are asked for; "" when none
    body: str  # the code less the statement and the tests
    definitions: str  # the body less what only shows what was defined
    tests: tuple[str, ...]  # the tests as a prompt quotes them: assertions one by one, where each says all it needs
    test: str  # what the body lacks: code that judges it when it runs after it; "" when there is none
    remainder: str  # what the definitions lack: the test, and what shows what was defined, as in the cell


def _decoded(stated: dict[str, Any]) -> Anatomy:
    return Anatomy(**{**stated, "tests": tuple(stated["tests"])})


@of_text("dissect", asdict, _decoded)
def dissect(code: str, language: str) -> Anatomy:
    """Cut a cell into its parts; code that does not parse is cut at its leading comment only."""
    try:
        cell = _cell(code, language)
    except RecursionError:  # nested deeper than is followed
        cell = None
    if cell is None:
        comment, rest = leading_comment(code, language)
        stated = comment is not None and is_statement(comment)
        body = rest if stated else code
        cell = CellParts(comment if stated else None, False, "", body, body, ())
    body, definitions, test, remainder = map(tidied, (cell.body, cell.definitions, cell.test, cell.remainder))
    return Anatomy(cell.statement, cell.documented, cell.signature, body, definitions, cell.tests, test, remainder)


def _cell(code: str, language: str) -> CellParts | None:
    if language == "python":
        return dissect_python.parts(code)
    if language in JAVASCRIPT:
        return dissect_javascript.parts(code)
    return _parts(code, language) if language in _OTHERS else None


def _parts(code: str, language: str) -> CellParts:
    """The parts of a cell in a language without signatures."""
    program = flow_sql.program(code) if language == "sql" else flow_shell.program(code)
    played = flow_sql.roles(code, program) if language == "sql" else roles(program)
    tested, shown = of_roles(played, Role.TEST), of_roles(played, Role.DEMONSTRATION)
    every = set(range(len(program.units)))
    kept, defined, test, rest = (
        pieces(code, program.units, keep) for keep in (every - tested, every - tested - shown, tested, tested | shown)
    )
    comment, below = leading_comment(kept, language)
    stated = comment is not None and is_statement(comment)
    if stated:
        kept, defined = below, leading_comment(defined, language)[1]
    tests = (test.strip("\n"),) if tested else ()
    return CellParts(comment if stated else None, False, "", kept, defined, tests, test, rest)


def first_words(attempts: Iterable[Row], code: str, language: str) -> str | None:
    """What the first of some attempts at the same as a code says that it is for; later ones note what was wrong.

    An attempt at the same has its signature, and is much alike or named by the words as a call: many a problem is
    answered by a `solve(lines)`.
    """
    own = dissect(code, language)
    for row, attempt in attempts_at(own, attempts, language):
        words = row["task"] or attempt.statement
        if words and (_names(words, own.signature) or _alike(attempt, own)):
            return words.strip()
    return None


def attempts_at(own: Anatomy, rows: Iterable[Row], language: str) -> Iterator[tuple[Row, Anatomy]]:
    """The executions that define what a cell defines, each with its parts."""
    for row in rows if own.signature else ():
        if row["language"] == language:
            attempt = dissect(row["code"], language)
            if set(own.signature.split("\n")) <= set(attempt.signature.split("\n")):
                yield row, attempt


def _names(words: str, signature: str) -> bool:
    return any(f"{name}(" in words for name in _CALLED.findall(signature) if name != "solve")


def _alike(one: Anatomy, other: Anatomy) -> bool:
    return similarity(tokens(one.definitions), tokens(other.definitions)) >= _ALIKE
