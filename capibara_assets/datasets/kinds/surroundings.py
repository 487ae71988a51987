"""Context of a task in its prompt: required earlier code, tables, and the beginnings of files."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code.queries import sql_texts
from capibara_assets.datasets.code.sessions import Piece, SessionContext, carried, cell_names, statements
from capibara_assets.datasets.kinds.evidence import Evidence, quotable
from capibara_assets.datasets.kinds.files_shown import files_shown
from capibara_assets.datasets.kinds.prompts import Shown
from capibara_assets.datasets.kinds.schema_shown import ShownSchema, schema_shown
from capibara_assets.datasets.recipe import DatasetRecipe

_DEFINED = re.compile(
    r"(?:@.*\n)*(?:async )?(?:def|class|function\*?) +([\w$]+)|"
    r"(?:const|let|var) +([\w$]+) *= *(?:async *)?(?:function\b|\([^()\n]*\) *=>|[\w$]+ *=>)"
)
_LIKE = 0.5  # share of its text that a changed function keeps; another one of its name keeps less
CUT = "the earlier code that it needs is longer than the recipe's context"


@dataclass(frozen=True)
class Surroundings:
    """Earlier code (oldest first), tables and files with their executions, and why a part is missing, if so."""

    session: tuple[str, ...]
    shown: Shown
    execution_ids: tuple[str, ...]
    lacking: str | None
    inferred: bool = False  # tables are only known by the columns that queries read
    changes: bool = False  # the earlier code holds an older version of what the answer defines


def surroundings(
    evidence: Evidence,
    execution_id: str,
    codes: Sequence[tuple[str, str]],
    told: str,
    recipe: DatasetRecipe,
    without: Collection[str] = (),
) -> Surroundings:
    """Collect the session context of an execution for its prompt.

    Args:
        codes: code that the prompt must make understood, with its language; the answer first.
        told: what the prompt says besides.
        without: executions that are not quoted.
    """
    context = evidence.context(execution_id)
    pieces = [piece for piece in context.pieces if piece.row["execution_id"] not in without]
    if codes[0][1] == "sql":
        pieces = []  # of the statements before a query, it needs the tables that they made, not their rows
    pieces = [piece for piece in pieces if not _attempt(evidence, execution_id, piece, codes[0])]
    pieces = _less_of_failed(pieces, [code for code, language in codes if language == codes[0][1]])
    older = [] if without else _older_versions(evidence, execution_id, codes[0], pieces)
    pieces = _in_order(evidence, execution_id, [*pieces, *older])
    fitting = quotable(SessionContext(tuple(pieces), context.complete), recipe.context_chars)
    lacking = CUT if len(fitting) < len(pieces) else None
    session, position = evidence.places.get(execution_id, ([], 0))
    files = files_shown(session, position, codes)
    schema = ShownSchema("")
    if any(True for code in codes for _ in sql_texts(*code)):
        earlier = [piece.text for piece in fitting]
        schema = schema_shown(evidence, execution_id, codes, told, earlier, recipe.context_chars)
    ids = [*(p.row["execution_id"] for p in fitting), *schema.execution_ids, *(one.execution_id for one in files)]
    return Surroundings(
        tuple(piece.text for piece in fitting),
        Shown(schema.text, tuple((one.name, one.head) for one in files)),
        tuple(dict.fromkeys(ids)),
        lacking or schema.lacking,
        schema.inferred,
        any(piece is one for piece in older for one in fitting),
    )


def _less_of_failed(pieces: Sequence[Piece], codes: Sequence[str]) -> list[Piece]:
    """The pieces, those of failed cells without what only the tests of an attempt need."""
    kept: list[Piece] = []
    shown = list(codes)
    for piece in reversed(pieces):
        if piece.row["outcome"] != "ok":
            text = "\n".join(dict.fromkeys(filter(None, (carried(piece.row, code) for code in shown))))
            piece = replace(piece, text=text)
        if piece.text:
            kept.append(piece)
            shown.append(piece.text)
    return kept[::-1]


def _older_versions(
    evidence: Evidence, execution_id: str, answer: tuple[str, str], pieces: Sequence[Piece]
) -> list[Piece]:
    """The last versions, of an earlier task, of the functions and classes that an answer changes."""
    session, position = evidence.places.get(execution_id, ([], 0))
    row = evidence.known.get(execution_id)
    if row is None or not row["task"]:
        return []
    changed = {name: one.text for one in statements(*answer) if (name := _defined(one.text))}
    shown = {_defined(one.text) for piece in pieces for one in statements(piece.text, answer[1])}
    found: list[Piece] = []
    for cell in reversed(session[:position]):
        if cell["language"] != answer[1] or cell["outcome"] != "ok" or cell["task"] in (None, row["task"]):
            continue
        for one in statements(cell["code"], cell["language"]):
            name = _defined(one.text)
            if name in changed and name not in shown and _is_like(one.text, changed.pop(name)):
                found.append(Piece(cell, one.text, True))
    return found


def _defined(statement: str) -> str | None:
    """The name of the function or class that a statement defines."""
    found = _DEFINED.match(statement)
    return found and (found[1] or found[2])


def _is_like(older: str, newer: str) -> bool:
    """Whether one version was made of the other, and is not the same."""
    return older != newer and SequenceMatcher(None, older, newer, autojunk=False).ratio() >= _LIKE


def _in_order(evidence: Evidence, execution_id: str, pieces: Sequence[Piece]) -> list[Piece]:
    session, _ = evidence.places.get(execution_id, ([], 0))
    places = {row["execution_id"]: place for place, row in enumerate(session)}
    return sorted(pieces, key=lambda piece: places[piece.row["execution_id"]])


def _attempt(evidence: Evidence, execution_id: str, piece: Piece, answer: tuple[str, str]) -> bool:
    """Whether earlier code is an attempt at the same task that binds nothing the answer needs: it would tell it."""
    row = evidence.known.get(execution_id)
    own = dissect(row["code"], row["language"]).statement if row is not None else None
    if own is None or dissect(piece.row["code"], piece.row["language"]).statement != own:
        return False
    bound, needs = cell_names(piece.text, piece.row["language"]), cell_names(*answer)
    return bound is not None and needs is not None and not bound.bound & needs.needed
