"""Tests with other expected values: an answer that passes one defeats tests, whatever values it gives.

An object that equals everything, a changed `valueOf`, an assertion or an error display that was replaced: all of them
pass with any value, and an answer that computes what is asked for with none but the right one.
"""

import ast
import re
from collections.abc import Iterator

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.javascript_source import walk
from capibara_assets.datasets.code.structure import JAVASCRIPT

_REACHING = re.compile(
    r"__\w+__|\b(?:class|sys|builtins|ctypes|gc|inspect|unittest|pytest|importlib|signal|threading|atexit|warnings|mock"
    r"|exec|eval|compile|globals|locals|vars|setattr|type|super|assert\w*|AssertionError|get_ipython|IPython|InteractiveShell"
    r"|valueOf|toString|toJSON|Symbol|Proxy|Reflect|prototype|process|require|import|globalThis|global|Function|Error"
    r"|Object\.(?:define\w+|assign|setPrototypeOf|is)|console|get|set|on)\b"
)
_LITERALS = frozenset({"number", "string", "true", "false", "null", "undefined", "array", "object", "template_string"})
_STATED = frozenset(
    {*_LITERALS, "pair", "unary_expression", "property_identifier", "string_fragment", "escape_sequence"}
)
_COMPARING = re.compile(r"(?i)equal|^(?:is_?)?same|^tobe$")
_ASSERTING = re.compile(r"(?i)^(?:assert\w*|ok)$")


def reaches_beyond(answer: str) -> bool:
    """Whether an answer names anything by which code can defeat a test; one that names nothing need not be tried."""
    return _REACHING.search(answer) is not None


def altered(test: str, language: str) -> str:
    """The test with each stated expected value wrapped in a list; "" if it compares nothing with a stated value."""
    if language == "python":
        return _python(test)
    return _javascript(test) if language in JAVASCRIPT else ""


class _Altered(ast.NodeTransformer):
    """Alters what `assert` and calls such as `assertEqual` compare with, and what raises where it differs."""

    def __init__(self) -> None:
        self.count = 0
        self.compared: tuple[type[ast.cmpop], ...] = ()

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.test = self._within((ast.Eq, ast.Is), node.test)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        if any(isinstance(one, ast.Raise) for one in node.body):
            node.test = self._within((ast.NotEq, ast.IsNot), node.test)
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        return node if isinstance(node.op, ast.Not) else self.generic_visit(node)  # other values would hold there

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if self.compared and all(isinstance(op, self.compared) for op in node.ops):
            node.left, *node.comparators = map(self._other, (node.left, *node.comparators))
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if _COMPARING.search(name) and len(node.args) > 1:
            node.args = [node.args[0], self._other(node.args[1]), *node.args[2:]]
        return self.generic_visit(node)

    def _within(self, compared: tuple[type[ast.cmpop], ...], node: ast.expr) -> ast.expr:
        before, self.compared = self.compared, compared
        changed: ast.expr = self.visit(node)
        self.compared = before
        return changed

    def _other(self, node: ast.expr) -> ast.expr:
        try:
            ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return node
        self.count += 1
        return ast.List([node, ast.Constant("altered")], ast.Load())


def _python(test: str) -> str:
    tree = python_source.parse(test)
    if tree is None:
        return ""
    changing = _Altered()
    changed = changing.visit(ast.parse(ast.unparse(tree)))  # a copy: the trees of `parse` are shared
    return ast.unparse(ast.fix_missing_locations(changed)) if changing.count else ""


def _javascript(test: str) -> str:
    root = javascript_source.parse(test)
    if root.has_error:
        return ""
    data = test.encode("utf-8", "replace")
    stated = {(one.start_byte, one.end_byte) for one in _compared_with(root) if _is_stated(one)}
    for start, end in sorted(stated, reverse=True):
        data = data[:start] + b"[" + data[start:end] + b", 'altered']" + data[end:]
    return data.decode("utf-8", "replace") if stated else ""


def _compared_with(root: Node) -> Iterator[Node]:
    """What assertions compare with, and what is thrown for where it differs."""
    pending: list[tuple[Node, tuple[str, ...]]] = [(root, ())]
    while pending:
        node, compared = pending.pop()
        if node.type == "unary_expression" and (node.text or b"").startswith(b"!"):
            continue  # other values would hold there
        if node.type == "binary_expression":
            operator = node.child_by_field_name("operator")
            if operator is not None and operator.type in compared:
                yield from node.named_children
        elif node.type == "call_expression":
            arguments = node.child_by_field_name("arguments")
            given = arguments.named_children if arguments is not None else []
            if _COMPARING.search(_called(node)):
                yield from given[1:2] or given
            elif _ASSERTING.search(_called(node)):
                compared = "==", "==="
        elif node.type == "if_statement":
            condition = node.child_by_field_name("condition")
            if condition is not None and any(one.type == "throw_statement" for one in walk(node)):
                pending.append((condition, ("!=", "!==")))
        pending.extend((one, compared) for one in node.named_children)


def _called(node: Node) -> str:
    """The last name of what is called: `strictEqual` of `assert.strictEqual`."""
    function = node.child_by_field_name("function")
    text = (function.text or b"").decode("utf-8", "replace") if function is not None else ""
    return text.rpartition(".")[2]


def _is_stated(node: Node) -> bool:
    """Whether it is a value that is written out, with nothing computed in it."""
    pending = [node]
    while pending:
        one = pending.pop()
        if one.type not in _STATED:
            return False
        pending.extend(one.named_children)
    return True
