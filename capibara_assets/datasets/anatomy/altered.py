"""Tests with other expected values: an answer that passes one defeats tests, whatever values it gives.

An object that equals everything, an assertion or an error display that was replaced, a changed `all`: all of them pass
with any value, and an answer that computes what is asked for with none but the right one.
"""

import ast
import re
from collections.abc import Iterator

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.javascript_source import given, text, walk
from capibara_assets.executions.parsing import JAVASCRIPT

_COMPARING = re.compile(r"(?i)equal|close|^(?:is_?)?same|^tobe$")
_ASSERTING = frozenset({"assert", "ok"})
_OF_ALL = frozenset({"all", "any"})
_OF_ALL_JAVASCRIPT = frozenset({"every", "some"})
_EQUAL = {"==": True, "===": True, "!=": False, "!==": False}


def altered(test: str, language: str) -> str:
    """The test with what each assertion compares with wrapped in a list; "" if none compares."""
    if language == "python":
        return _python(test)
    return _javascript(test) if language in JAVASCRIPT else ""


def _python(test: str) -> str:
    shared = python_source.parse(test)
    if shared is None:
        return ""
    tree, count = ast.parse(ast.unparse(shared)), 0  # a copy, which is changed
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            count += _other(node.test, True)
        elif isinstance(node, ast.If) and any(isinstance(one, ast.Raise) for one in node.body):
            count += _other(node.test, False)
        elif isinstance(node, ast.Call) and len(node.args) > 1 and _COMPARING.search(python_source.called_name(node)):
            node.args[1] = _wrapped(node.args[1])
            count += 1
    return ast.unparse(ast.fix_missing_locations(tree)) if count else ""


def _other(node: ast.expr, holds: bool) -> int:
    """Alter the comparisons on which it depends that an expression holds, or does not; their number."""
    match node:
        case ast.Compare(ops=ops) if all(
            isinstance(op, (ast.Eq, ast.Is) if holds else (ast.NotEq, ast.IsNot)) for op in ops
        ):
            node.comparators[-1] = _wrapped(node.comparators[-1])
            return 1
        case ast.BoolOp(values=values):
            return sum(_other(value, holds) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _other(operand, not holds)
        case ast.Call(func=ast.Name(id=name), args=[ast.GeneratorExp(elt=each) | ast.ListComp(elt=each)]):
            return _other(each, holds) if name in _OF_ALL else 0
    return 0


def _wrapped(node: ast.expr) -> ast.expr:
    return ast.List([node, ast.Constant("altered")], ast.Load())


def _javascript(test: str) -> str:
    root = javascript_source.parse(test)
    if root.has_error:
        return ""
    data = test.encode("utf-8", "replace")
    places = {(one.start_byte, one.end_byte) for node in walk(root) for one in _compared_with(node)}
    marks = [(end, b", 'altered']") for _, end in places] + [(start, b"[") for start, _ in places]
    for at, mark in sorted(marks, reverse=True):  # one may hold another
        data = data[:at] + mark + data[at:]
    return data.decode("utf-8", "replace") if places else ""


def _compared_with(node: Node) -> Iterator[Node]:
    """What an assertion compares with, and what is thrown for where it differs."""
    if node.type == "call_expression":
        arguments = given(node)
        if _COMPARING.search(_called(node)):
            yield from arguments[1:2] or arguments[:1]
        elif _called(node).lower() in _ASSERTING and arguments:
            yield from _operands(arguments[0], True)
    elif node.type == "if_statement":
        condition = node.child_by_field_name("condition")
        if condition is not None and any(one.type == "throw_statement" for one in walk(node)):
            yield from _operands(condition, False)


def _operands(node: Node, holds: bool) -> Iterator[Node]:
    """The right sides of the comparisons on which it depends that an expression holds, or does not."""
    operator = node.child_by_field_name("operator")
    sign = text(operator) if operator is not None else ""
    if node.type == "binary_expression" and _EQUAL.get(sign) is holds:
        yield node.named_children[-1]
    elif node.type == "parenthesized_expression" or sign in ("&&", "||"):
        for one in node.named_children:
            yield from _operands(one, holds)
    elif node.type == "unary_expression" and sign == "!":
        yield from _operands(node.named_children[-1], not holds)
    elif node.type == "call_expression" and _called(node) in _OF_ALL_JAVASCRIPT:
        for one in given(node):
            body = one.child_by_field_name("body")
            if body is not None:
                yield from _operands(body, holds)


def _called(node: Node) -> str:
    """The last name of what is called: `strictEqual` of `assert.strictEqual`."""
    function = node.child_by_field_name("function")
    return text(function).rpartition(".")[2] if function is not None else ""
