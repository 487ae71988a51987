"""Code as trees: Python through ast (IPython magics set aside), JavaScript through tree-sitter, SQL through sqlglot."""

from __future__ import annotations

import ast
import re
import warnings
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tree_sitter
    from sqlglot import exp

_PYTHON_CELL_MAGICS = ("time", "timeit", "capture", "prun", "memit", "python", "python3", "py")
_MAGIC_LINE = re.compile(r"^(\s*)(?:[%!?]|[\w.\]\[]+\?{1,2}\s*$)")
_MAGIC_VALUE = re.compile(r"^(\s*[\w, ]+=\s*)[!%](?=\w).*$")
_MAX_SQL = 20_000  # characters; a longer text is data, not a query


def parse_python(code: str) -> ast.Module | None:
    """The tree of a notebook cell; None when it is no Python even without its magics."""
    tree = _parse(code)
    if tree is None and ("%" in code or "!" in code or "?" in code):
        tree = _parse(without_magics(code))
    return tree


def without_magics(code: str) -> str:
    """`code` with IPython's magics, shell lines and help lines replaced by `pass`; line numbers stay.

    A cell of another language (`%%bash`, `%%html`) becomes empty.
    """
    lines = code.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        if lines[first][2:].split(maxsplit=1)[:1] not in [[name] for name in _PYTHON_CELL_MAGICS]:
            return ""
        lines[first] = ""
    continued = False
    for i, line in enumerate(lines):
        if continued:
            continued, lines[i] = line.rstrip().endswith("\\"), ""
        elif match := _MAGIC_LINE.match(line):
            continued, lines[i] = line.rstrip().endswith("\\"), match.group(1) + "pass"
        elif match := _MAGIC_VALUE.match(line):
            continued, lines[i] = line.rstrip().endswith("\\"), match.group(1) + "None"
    return "\n".join(lines)


def parse_javascript(code: str) -> tree_sitter.Tree:
    """The tree of a program; `tree.root_node.has_error` tells whether it is one."""
    return _javascript_parser().parse(code.encode("utf-8"))


def parse_sql(code: str) -> list[exp.Expr] | None:
    """The statements of a SQL text; None when no common dialect can read it."""
    # imported here: 0.1 s, which loading the asset definitions should not pay
    import sqlglot
    from sqlglot.errors import SqlglotError

    if len(code) > _MAX_SQL:
        return None
    for dialect in ("sqlite", "postgres", "tsql"):
        try:
            statements = [statement for statement in sqlglot.parse(code, read=dialect) if statement is not None]
        except (SqlglotError, RecursionError, ValueError):
            continue
        if statements:
            return statements
    return None


def is_statementless(tree: ast.Module) -> bool:
    """Whether a cell only holds comments, magics and bare constants: nothing to learn from."""
    return all(
        isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in tree.body
    )


def _parse(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code are not ours to report
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@cache
def _javascript_parser() -> tree_sitter.Parser:
    import tree_sitter
    import tree_sitter_javascript

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_javascript.language()))
