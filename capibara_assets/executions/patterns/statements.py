"""Top-level statements of a cell, and the one at which it stopped."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import tree_sitter

from capibara_assets.executions.parsing import JAVASCRIPT, first_line, parse_javascript, parse_python, walk
from capibara_assets.executions.patterns.similarity import tokens
from capibara_assets.executions.tracebacks import own_frames

_PATTERN = re.compile(r"[\w$]+(?=\s*(?:[,=}\]]|$))")
_MOST = 60  # statements of a cell that are told apart: they are compared with those of each of fifty later cells


@dataclass(frozen=True)
class CellStatement:
    """A top-level statement.

    Attributes:
        lines: from its first to its last, from 1.
        tokens: its words and signs; of an assertion without the message.
        places: what it assigns, as written (`df["a"]`), and names that it binds otherwise.
        targets: names that it binds, or of whose objects it sets a part (`df`).
        defines: it defines a function or class.
    """

    lines: range
    tokens: tuple[str, ...]
    places: frozenset[str]
    targets: frozenset[str]
    defines: bool


@lru_cache(maxsize=4096)
def top_level(language: str, code: str) -> tuple[CellStatement, ...]:
    """The statements of Python or JavaScript that parses; none of anything else, or of more than a cell has."""
    if language == "python" and (tree := parse_python(code)) is not None and len(tree.body) <= _MOST:
        return tuple(_python(code, node) for node in tree.body)
    if language in JAVASCRIPT and not (root := parse_javascript(code).root_node).has_error:
        nodes = [node for node in root.named_children if node.type != "comment"]
        return tuple(map(_javascript, nodes)) if len(nodes) <= _MOST else ()
    return ()


def stopped_at(language: str, code: str, traceback: str | None) -> int | None:
    """Index of the statement that raised the error of a traceback; None where it does not tell."""
    line = stopped_line(language, code, traceback)
    return next((at for at, one in enumerate(top_level(language, code)) if line in one.lines), None)


def stopped_line(language: str, code: str, traceback: str | None) -> int | None:
    """The line, from 1, at which the error of a traceback left a cell; None where it does not tell."""
    frames, lines = own_frames(traceback, language, code), code.split("\n")
    at = frames[0].line if frames else None
    if at is None or frames[0].function or not 0 < at <= len(lines):
        return None  # a deep stack is cut at its outer end: its first frame is then a function's
    return at if frames[0].text in ("", lines[at - 1].strip()) else None  # else the line of another cell


def _python(code: str, node: ast.stmt) -> CellStatement:
    first, last = first_line(node), node.end_lineno or node.lineno
    if isinstance(node, ast.Assert):
        text = f"assert {ast.get_source_segment(code, node.test)}"
    else:
        text = "\n".join(code.split("\n")[first - 1 : last])
    written = {place: root for place, root in _bound_by(code, node) if root}
    defines = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return CellStatement(
        range(first, last + 1), tuple(tokens(text)), frozenset(written), frozenset(written.values()), defines
    )


def _bound_by(code: str, node: ast.stmt) -> Iterator[tuple[str, str]]:
    """(What a statement assigns or binds as written, the name of its root)."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        names = [(one.asname or one.name).split(".")[0] for one in node.names]
        yield from zip(names, names, strict=True)
    else:
        for one in walk(node):
            if isinstance(one, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(one.ctx, ast.Load):
                yield ast.get_source_segment(code, one) or "", _root(one)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _javascript(node: tree_sitter.Node) -> CellStatement:
    condition = node.child_by_field_name("condition") if node.type == "if_statement" else None
    body = node.child_by_field_name("consequence")
    throws = condition is not None and body is not None and b"throw " in (body.text or b"")
    text = (condition.text if throws and condition is not None else node.text) or b""
    lines = range(node.start_point[0] + 1, node.end_point[0] + 2)
    places = frozenset(_set_by(node))
    targets = frozenset(tokens(one)[0] for one in places if tokens(one))
    defines = node.child_by_field_name("body") is not None and bool(places)
    return CellStatement(lines, tuple(tokens(text.decode())), places, targets, defines)


def pattern_names(text: str) -> list[str]:
    """The names that a pattern of JavaScript binds: of `a`, `[a, b]` and `{ a, of: b }`."""
    return _PATTERN.findall(text)


def _set_by(node: tree_sitter.Node) -> Iterator[str]:
    """What a statement declares or assigns as written, not in functions that it defines."""
    if (name := node.child_by_field_name("name")) is not None and name.text:
        yield from pattern_names(name.text.decode())
    elif node.type in ("assignment_expression", "augmented_assignment_expression"):
        left = node.child_by_field_name("left")
        if left is not None and left.text:
            yield left.text.decode()
    if node.type in ("lexical_declaration", "variable_declaration", "expression_statement"):
        for child in node.named_children:
            yield from _set_by(child)
