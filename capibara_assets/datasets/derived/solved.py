"""Solved cells and their tests: code that succeeded, the earlier code it needs, and the cells that check it.

The judge is what was recorded: assertions of the cell itself, else later cells that needed it and ended well, else the
cell's own output. Where in the code a bug may go is decided by the syntax tree: into definitions that hold no
assertion and are not only called by one, or, in a cell without definitions, into its statements.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.python_source import Places
from capibara_assets.datasets.code.sessions import Row, needed
from capibara_assets.datasets.derived.trials import Cells
from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.executions.parsing import JAVASCRIPT, python_tree, walk

_MOST_JUDGES, _HORIZON = 3, 12  # later cells that judge, and that are looked at
_MOST_MS = 400.0  # longest recorded duration of a cell that is run many times
_MOST_CHARS = 6000

Span = tuple[int, int]


@dataclass(frozen=True)
class Solved:
    """A solved cell, ready to run again with changes.

    Attributes:
        before: what it needs of earlier cells, oldest first.
        after: later cells that need it, oldest first; none where the cell judges itself.
        spans: the parts of its code that are the solution.
        rows: executions that the cells come from, its own first.
    """

    row: Row
    before: Cells
    after: Cells
    spans: tuple[Span, ...]
    rows: tuple[Row, ...]

    @property
    def code(self) -> str:
        return str(self.row["code"])

    def cells(self, code: str) -> Cells:
        """The session's cells, with this code in place of the solved one."""
        return (*self.before, code, *self.after)


def solved_cells(evidence: Evidence) -> Iterator[Solved]:
    """Every solved cell of the evidence that can be judged by running it, in order of sandbox and time."""
    for session in evidence.sessions:
        for position, row in enumerate(session):
            if _is_runnable(row) and (solved := _solved(session, position)) is not None:
                yield solved


def _is_runnable(row: Row) -> bool:
    if row["outcome"] != "ok" or row["secrets"] or len(row["code"]) > _MOST_CHARS:
        return False
    if row["duration_ms"] is not None and row["duration_ms"] > _MOST_MS:
        return False
    if row["language"] == "python":
        return python_tree(row["code"]) is not None
    return row["language"] in JAVASCRIPT and not javascript_source.parse(row["code"]).has_error


def _solved(session: Sequence[Row], position: int) -> Solved | None:
    row = session[position]
    context = needed(session, position)
    rows = [row, *(piece.row for piece in context.pieces)]
    if not context.complete or any(one["secrets"] for one in rows):
        return None
    if sum(one["duration_ms"] or 0 for one in rows) > 2 * _MOST_MS:
        return None
    before = tuple(piece.text for piece in context.pieces)
    spans, asserts = solution_spans(row["code"], row["language"])
    if not spans:
        return None
    after: list[str] = []
    if not asserts:
        for later in range(position + 1, min(len(session), position + 1 + _HORIZON)):
            if cells := _judging(session, position, later, before):
                after += [cell for cell in cells if cell not in after]
                rows.append(session[later])
                if len(rows) - len(context.pieces) > _MOST_JUDGES:
                    break
    return Solved(row, before, tuple(after), spans, tuple(rows))


def _judging(session: Sequence[Row], position: int, later: int, before: Cells) -> Cells | None:
    """A later cell with what stands between that it needs, where it needs the solved one; else None."""
    row = session[later]
    if row["language"] != session[position]["language"] or not _is_runnable(row):
        return None
    if not ("assert" in row["code"] or row["stdout"].strip() or row["result_text"]):
        return None
    context = needed(session, later)
    if not context.complete or not any(piece.row is session[position] for piece in context.pieces):
        return None
    earlier = {one["execution_id"] for one in session[:position]}
    between: list[str] = []
    for piece in context.pieces:
        if piece.row["execution_id"] in earlier:
            if not any(piece.text in cell for cell in before):
                return None  # it needs more of before than the solved cell does
        elif piece.row is not session[position]:
            between.append(piece.text)
    return (*between, row["code"])


def solution_spans(code: str, language: str) -> tuple[tuple[Span, ...], bool]:
    """(where the solution stands in a cell, whether the cell holds assertions)."""
    return _python_spans(code) if language == "python" else _javascript_spans(code)


def _python_spans(code: str) -> tuple[tuple[Span, ...], bool]:
    tree = python_tree(code)
    if tree is None:
        return (), False
    testing = {node.name for node in tree.body if isinstance(node, python_source.Definition) and _holds_assertion(node)}
    asserts = any(_holds_assertion(node) for node in tree.body)
    kept = [node for node in tree.body if not _holds_assertion(node) and not python_source.names_in(node) & testing]
    if any(isinstance(node, python_source.Definition) for node in kept):
        kept = [n for n in kept if isinstance(n, (*python_source.Definition.__args__, ast.Import, ast.ImportFrom))]
    places = Places(code)
    return tuple(_span(node, places) for node in kept), asserts


def _holds_assertion(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Assert) for part in walk(node))


def _span(node: ast.stmt, places: Places) -> Span:
    return (
        places.at(node.lineno, node.col_offset),
        places.at(node.end_lineno or node.lineno, node.end_col_offset or 0),
    )


def _only_calls(declaration: Node) -> bool:
    """Whether all that is declared are results of calls: what is given to them shows what was defined."""
    values = [declarator.child_by_field_name("value") for declarator in declaration.named_children]
    return all(value is not None and value.type in ("call_expression", "new_expression") for value in values)


def _javascript_spans(code: str) -> tuple[tuple[Span, ...], bool]:
    at = javascript_source.positions(code)
    spans: list[Span] = []
    others: list[Span] = []
    asserts = False
    for node in javascript_source.parse(code).named_children:
        text, span = javascript_source.text(node), (at(node.start_byte), at(node.end_byte))
        if "assert" in text:
            asserts = True
        elif node.type in javascript_source.DEFINITIONS or (
            node.type in ("lexical_declaration", "variable_declaration")
            and ("=>" in text or "function" in text)
            and not _only_calls(node)
        ):
            spans.append(span)
        elif node.type != "comment":
            others.append(span)
    return tuple(spans or others), asserts
