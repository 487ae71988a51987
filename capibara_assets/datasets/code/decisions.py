"""The tests, loops and steps of a cell by their place, as the tracers of `executions/replay` note them."""

import ast
from functools import lru_cache
from typing import Literal, NamedTuple

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.structure import JAVASCRIPT
from capibara_assets.executions.replay.javascript_tracing import is_step, place

Sort = Literal["if", "while", "for", "filter", "choice", "name", "value"]

_LONGEST = 60
_JAVASCRIPT: dict[str, Sort] = {
    "if_statement": "if",
    "while_statement": "while",
    "ternary_expression": "choice",
    "for_statement": "for",
    "for_in_statement": "for",
}


class Decision(NamedTuple):
    """A test, a loop or a step of a cell: what is tested, looped over or evaluated, as written on one line."""

    sort: Sort
    text: str
    line: int


@lru_cache(maxsize=1024)
def decisions(code: str, language: str) -> dict[str, Decision]:
    """Place -> test or loop; those with a long text are left out."""
    if language == "python":
        listed = _of_python(code)
    elif language in JAVASCRIPT:
        listed = _of_javascript(javascript_source.parse(code))
    else:
        listed = {}
    return {at: found for at, found in listed.items() if found.text and len(found.text) <= _LONGEST}


def _of_python(code: str) -> dict[str, Decision]:
    tree = python_source.parse(code)
    found: dict[str, Decision] = {}
    for node in ast.walk(tree) if tree is not None else ():
        match node:
            case ast.If() | ast.While() | ast.IfExp():
                sort: Sort = "if" if isinstance(node, ast.If) else "while" if isinstance(node, ast.While) else "choice"
                found[_place(node)] = Decision(sort, _segment(code, node.test), node.lineno)
            case ast.For():
                found[_place(node)] = Decision("for", _segment(code, node.iter), node.lineno)
            case ast.comprehension():
                for test in node.ifs:
                    found[_place(test)] = Decision("filter", _segment(code, test), test.lineno)
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.setdefault(_place(node), Decision("name", name, node.lineno))
            case ast.Call():
                found.setdefault(_place(node), Decision("value", _segment(code, node), node.lineno))
    return found


def _place(node: ast.stmt | ast.expr) -> str:
    return f"{node.lineno}:{node.col_offset}:{node.end_lineno}:{node.end_col_offset}"


def _segment(code: str, node: ast.expr) -> str:
    return " ".join((ast.get_source_segment(code, node) or "").split())


def _of_javascript(root: Node) -> dict[str, Decision]:
    found: dict[str, Decision] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        pending += node.named_children
        if node.parent is not None and is_step(node.parent, node, returned=True):
            named = node.parent.child_by_field_name("name") if node.parent.type == "variable_declarator" else None
            said = _line(node) if named is None else _line(named)
            found[place(node)] = Decision("name" if named else "value", said, node.start_point[0] + 1)
        if (sort := _JAVASCRIPT.get(node.type)) is None:
            continue
        tested = node.child_by_field_name("right" if node.type == "for_in_statement" else "condition")
        if tested is not None:
            text = _line(tested).removesuffix(";")
            if tested.type == "parenthesized_expression":
                text = text[1:-1].strip()
            found[place(node)] = Decision(sort, text, node.start_point[0] + 1)
    return found


def _line(node: Node | None) -> str:
    return "" if node is None else " ".join(javascript_source.text(node).split())
