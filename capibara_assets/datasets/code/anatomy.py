"""Dissection of a cell: the statement of its purpose, its signature, its code, and the assertions that check it.

Each part is a piece of the recorded code: the code without its statement and its tests is still code that ran.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any

from capibara_assets.datasets.code import anatomy_javascript, anatomy_python
from capibara_assets.datasets.code.comments import is_statement, leading_comment
from capibara_assets.datasets.code.parts import CellParts
from capibara_assets.datasets.code.structure import JAVASCRIPT
from capibara_assets.storage.kept import of_text

_BLANKS = re.compile(r"\n{3,}")


@dataclass(frozen=True)
class Anatomy:
    """The parts of one cell."""

    statement: str | None  # docstring or leading comment that says what the code is for
    documented: bool  # the statement belongs to what is defined (docstring), not to the cell (leading comment)
    signature: str  # headers of the functions and classes it defines; "" when none
    body: str  # the code less the statement and the tests
    definitions: str  # the body less the calls at its end that only show what was defined
    tests: tuple[str, ...]  # assertions of the cell, one per element, dedented


def _decoded(stated: dict[str, Any]) -> Anatomy:
    return Anatomy(**{**stated, "tests": tuple(stated["tests"])})


@of_text("dissect", asdict, _decoded)
def dissect(code: str, language: str) -> Anatomy:
    """Cut a cell into its parts; code that does not parse is cut at its leading comment only."""
    cell = None
    if language == "python":
        cell = anatomy_python.parts(code)
    elif language in JAVASCRIPT:
        cell = anatomy_javascript.parts(code)
    if cell is None:
        comment, rest = leading_comment(code, language)
        stated = comment is not None and is_statement(comment)
        body = rest if stated else code
        cell = CellParts(comment if stated else None, False, "", body, body, ())
    return Anatomy(
        cell.statement, cell.documented, cell.signature, _tidy(cell.body), _tidy(cell.definitions), cell.tests
    )


def _tidy(code: str) -> str:
    """The code without blank lines at both ends, and with at most two in a row."""
    return _BLANKS.sub("\n\n\n", code.strip("\n")).rstrip()
