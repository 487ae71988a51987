"""Return values of a program's functions: literals in the form of test cases, or computed values."""

import ast
from collections.abc import Iterator

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.cases import cases
from capibara_assets.executions.parsing import walk

_PARTS = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.USub)
_JAVASCRIPT_PARTS = frozenset({"number", "string", "true", "false", "null", "undefined"})


def returned(code: str, language: str) -> list[str | None]:
    """The canonical form of each returned literal in Python or JavaScript, unordered; None for computed values.

    A name that is bound once and read once, where it is returned, is what it is bound to.
    """
    if language == "python":
        tree = python_source.parse(code)
        return [] if tree is None else [form for value in _returned(tree) for form in _forms(value)]
    return [form for value in _of_javascript(javascript_source.parse(code)) for form in _forms_of_javascript(value)]


def is_literal(value: ast.expr) -> bool:
    """Whether a Python expression is made of constants alone."""
    return all(isinstance(node, _PARTS) for node in walk(value))


def is_javascript_literal(value: Node) -> bool:
    """Whether a JavaScript expression is made of constants alone."""
    if value.type in ("array", "unary_expression"):
        return all(map(is_javascript_literal, value.named_children))
    return value.type in _JAVASCRIPT_PARTS


def _returned(tree: ast.Module) -> Iterator[ast.expr]:
    for function in walk(tree):
        if not isinstance(function, python_source.Function):
            continue
        used = [node.id for node in walk(function) if isinstance(node, ast.Name)]
        bound = {
            node.targets[0].id: node.value
            for node in walk(function)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and used.count(node.targets[0].id) == 2  # and read where it is returned
        }
        for node in walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                name = node.value.id if isinstance(node.value, ast.Name) else ""
                yield bound.get(name, node.value)


def _forms(value: ast.expr) -> Iterator[str | None]:
    if isinstance(value, ast.IfExp):
        yield from _forms(value.body)
        yield from _forms(value.orelse)
    else:
        yield _form(ast.unparse(value)) if is_literal(value) else None


def _form(literal: str) -> str | None:
    """The form that a case gives a literal."""
    return next((case.expected for case in cases(f"f(0) == {literal}")), None)


def _of_javascript(root: Node) -> Iterator[Node]:
    for node in javascript_source.walk(root):
        if node.type == "return_statement" and node.named_children:
            yield node.named_children[0]
        elif node.type == "arrow_function":
            body = node.child_by_field_name("body")
            if body is not None and body.type != "statement_block":
                yield body


def _forms_of_javascript(value: Node) -> Iterator[str | None]:
    inner = value.named_children
    if value.type == "parenthesized_expression" and inner:
        yield from _forms_of_javascript(inner[0])
    elif value.type == "ternary_expression":
        for part in inner[1:]:
            yield from _forms_of_javascript(part)
    else:
        yield _form(javascript_source.text(value)) if is_javascript_literal(value) else None
