"""The parts of a cell: what it says it is for, its signature, its code, and the assertions that check it.

Nothing is invented: each part is a piece of the recorded code. The code less its statement and its tests still is code
that ran, and code + tests is what ran.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any

from capibara_assets.datasets.code import anatomy_javascript, anatomy_python
from capibara_assets.datasets.code.comments import is_statement, leading_comment
from capibara_assets.datasets.code.parts import Parts
from capibara_assets.datasets.code.structure import JAVASCRIPT
from capibara_assets.storage.kept import of_text

_BLANKS = re.compile(r"\n{3,}")


@dataclass(frozen=True)
class Anatomy:
    """One dissected cell."""

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
    """Cuts a cell into its parts; code that does not parse is cut at its leading comment only."""
    found = None
    if language == "python":
        found = anatomy_python.parts(code)
    elif language in JAVASCRIPT:
        found = anatomy_javascript.parts(code)
    if found is None:
        comment, rest = leading_comment(code, language)
        stated = comment is not None and is_statement(comment)
        body = rest if stated else code
        found = Parts(comment if stated else None, False, "", body, body, ())
    return Anatomy(
        found.statement, found.documented, found.signature, _tidy(found.body), _tidy(found.definitions), found.tests
    )


def _tidy(code: str) -> str:
    """Without blank lines at both ends and with at most two in a row: what cutting leaves behind."""
    return _BLANKS.sub("\n\n\n", code.strip("\n")).rstrip()
