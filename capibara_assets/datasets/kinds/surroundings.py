"""Context of a task in its prompt: required earlier code, tables, and the beginnings of files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code.names import StatementNames
from capibara_assets.datasets.code.queries import holds_sql
from capibara_assets.datasets.code.sessions import (
    Piece,
    Row,
    SessionContext,
    carried,
    cell_names,
    defined_name,
    definitions,
    statements,
)
from capibara_assets.datasets.kinds.evidence import Evidence, quotable
from capibara_assets.datasets.kinds.files_shown import files_shown
from capibara_assets.datasets.kinds.prompts import Shown
from capibara_assets.datasets.kinds.referents import names_as_code
from capibara_assets.datasets.kinds.schema_shown import ShownSchema, schema_shown
from capibara_assets.datasets.recipe import DatasetRecipe

_LIKE = 0.5  # share of its text that a changed function keeps; another one of its name keeps less
MENDED = "earlier code that its repair needs defines anew what had failed"
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
    part: bool = False  # the earlier code holds what the task names, from another attempt at it


def surroundings(
    evidence: Evidence,
    execution_id: str,
    codes: Sequence[tuple[str, str]],
    told: str,
    recipe: DatasetRecipe,
    failing: str | None = None,
) -> Surroundings:
    """Collect the session context of an execution for its prompt.

    Args:
        codes: code that the prompt must make understood, with its language; the answer first.
        told: what the prompt says besides.
        failing: the execution that failed, whose code stands second; it is not quoted, and what it needs is.
    """
    context = evidence.context(execution_id)
    pieces = [piece for piece in context.pieces if piece.row["execution_id"] != failing]
    if codes[0][1] == "sql":
        pieces = []  # of the statements before a query, it needs the tables that they made, not their rows
    alike = [code for code in codes if code[1] == codes[0][1]]
    needs = frozenset[str]().union(*(_names(*code).needed for code in alike))
    pieces = [piece for piece in pieces if not _attempt(evidence, execution_id, piece, needs)]
    pieces = _less_of_failed(pieces, needs)
    older = [] if failing else _older_versions(evidence, execution_id, codes[0], pieces)
    had = () if failing is None else context.pieces if failing == execution_id else evidence.context(failing).pieces
    if failing and codes[0][1] != "sql":
        pieces = _with_former(had, codes[1], pieces)
    pieces = _in_order(evidence, execution_id, [*pieces, *older])
    fitting = quotable(SessionContext(tuple(pieces), context.complete), recipe.context_chars)
    lacking = CUT if len(fitting) < len(pieces) else None
    if failing and _mends(evidence, failing, had, codes[1], pieces):
        lacking = lacking or MENDED
    session, position = evidence.place(execution_id)
    files = files_shown(session, position, codes)
    schema = ShownSchema("")
    if any(holds_sql(*code) for code in codes):
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
        any(_holds_a_part(evidence.known.get(execution_id), piece) for piece in fitting),
    )


def _less_of_failed(pieces: Sequence[Piece], wanted: frozenset[str]) -> list[Piece]:
    """The pieces, those of failed cells without what only the tests of an attempt need."""
    kept: list[Piece] = []
    for piece in reversed(pieces):
        if piece.row["outcome"] != "ok":
            piece = replace(piece, text=carried(piece.row, wanted))
        if piece.text:
            kept.append(piece)
            names = _names(piece.text, piece.row["language"])
            wanted = (wanted - names.bound) | names.needed
    return kept[::-1]


def _with_former(had: Sequence[Piece], code: tuple[str, str], pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with what failed code needs besides of what it had, such as the versions that its repair mends."""
    bound = frozenset[str]().union(*(_names(piece.text, code[1]).bound for piece in pieces))
    wanted, listed = _names(*code).needed - bound, list(pieces)
    for piece in reversed(had):
        names = _names(piece.text, code[1])
        if not names.bound & wanted or piece.row["language"] != code[1]:
            continue
        wanted = (wanted - names.bound) | (names.needed - bound)
        same = [one for one in listed if one.row["execution_id"] == piece.row["execution_id"]]
        listed = [one for one in listed if one not in same]
        listed.append(_together([piece, *same]))
    return listed


def _together(pieces: Sequence[Piece]) -> Piece:
    """One piece of a cell with the statements of several."""
    row = pieces[0].row
    chosen = {one.text for piece in pieces for one in statements(piece.text, row["language"])}
    text = "\n".join(one.text for one in statements(row["code"], row["language"]) if one.text in chosen)
    return replace(pieces[0], text=text)


def _mends(
    evidence: Evidence, failing: str, had: Sequence[Piece], code: tuple[str, str], pieces: Sequence[Piece]
) -> bool:
    """Whether what a failed cell needed, and had, is bound anew by earlier code of the cell that followed it."""
    session, position = evidence.place(failing)
    since = {row["execution_id"] for row in session[position + 1 :]}
    needed = _names(*code).needed & frozenset[str]().union(*(_names(one.text, code[1]).bound for one in had))
    return any(piece.row["execution_id"] in since and needed & _names(piece.text, code[1]).bound for piece in pieces)


def _names(code: str, language: str) -> StatementNames:
    return cell_names(code, language) or StatementNames(frozenset(), frozenset(), frozenset(), False)


def _older_versions(
    evidence: Evidence, execution_id: str, answer: tuple[str, str], pieces: Sequence[Piece]
) -> list[Piece]:
    """The last versions, of an earlier task, of the functions and classes that an answer changes."""
    session, position = evidence.place(execution_id)
    row = evidence.known.get(execution_id)
    if row is None or not row["task"]:
        return []
    changed = definitions(*answer)
    shown = {name for piece in pieces for name in definitions(piece.text, answer[1])}
    found: list[Piece] = []
    for cell in reversed(session[:position]):
        if cell["language"] != answer[1] or cell["outcome"] != "ok" or cell["task"] in (None, row["task"]):
            continue
        for one in statements(cell["code"], cell["language"]):
            name = defined_name(one.text)
            if name in changed and name not in shown and _is_like(one.text, changed.pop(name)):
                found.append(Piece(cell, one.text, True))
    return found


def _holds_a_part(row: Row | None, piece: Piece) -> bool:
    """Whether earlier code for the same task defines something that the task names."""
    if row is None or not row["task"] or piece.row["task"] != row["task"]:
        return False
    names = definitions(piece.text, piece.row["language"]).keys()
    classes = {name for name in names if name[:1].isupper()}  # "convert" in prose names no function
    return bool(names & names_as_code(row["task"]) or classes & set(re.findall(r"[\w$]+", row["task"])))


def _is_like(older: str, newer: str) -> bool:
    """Whether one version was made of the other, and is not the same."""
    return older != newer and SequenceMatcher(None, older, newer, autojunk=False).ratio() >= _LIKE


def _in_order(evidence: Evidence, execution_id: str, pieces: Sequence[Piece]) -> list[Piece]:
    session, _ = evidence.place(execution_id)
    places = {row["execution_id"]: place for place, row in enumerate(session)}
    return sorted(pieces, key=lambda piece: places[piece.row["execution_id"]])


def _attempt(evidence: Evidence, execution_id: str, piece: Piece, needs: frozenset[str]) -> bool:
    """Whether earlier code is an attempt at the same task that binds nothing that is needed: it would tell it."""
    row = evidence.known.get(execution_id)
    own = dissect(row["code"], row["language"]).statement if row is not None else None
    if own is None or dissect(piece.row["code"], piece.row["language"]).statement != own:
        return False
    bound = cell_names(piece.text, piece.row["language"])
    return bound is not None and not bound.bound & needs
