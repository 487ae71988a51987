"""What is left in an answer of how it was written: code in comments, variables and branches without a use."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.executions.parsing import walk

COMMENTED_OUT = "its answer holds code that is commented out"
UNREAD = "its answer sets a variable that nothing reads"
IDLE_BRANCH = "its answer has a branch that does nothing"

_COMMENT = re.compile(r"^[ \t]*#[ \t]?(.*)$")
_SCRIPT_COMMENT = re.compile(
    r"^[ \t]*//+[ \t]*(?:return\b.*;|(?:let|const|var)\s[^;]*=.*;|console\.\w+\(.*\);?|[\w$]+\.[\w$.]+\(.*\);)[ \t]*$",
    re.MULTILINE,
)
_FEWEST_LINES = 2  # of comments that could be code: a single one may be a formula
_READS_BY_NAME = re.compile(r"\b(?:locals|globals|vars|eval|exec)\(")
_FUNCTIONS = ("arrow_function", "function_expression", "function_declaration", "method_definition")


def left_over(code: str, language: str) -> str | None:
    """Which leftover makes Python or JavaScript no example to learn from; None if there is none."""
    return _in_python(code) if language == "python" else _in_javascript(code)


def _in_python(code: str) -> str | None:
    tree = python_source.parse(code)
    if tree is None:
        return None
    for is_comment, lines in groupby(map(_COMMENT.match, code.split("\n")), key=lambda match: match is not None):
        found = [_statement(match[1].strip()) for match in lines if match is not None] if is_comment else []
        told = [node for node in found if node is not None]
        if len(told) >= _FEWEST_LINES or any(map(_is_no_formula, told)):
            return COMMENTED_OUT
    if not _READS_BY_NAME.search(code) and set(_set_alone(tree)) - _read(tree):
        return UNREAD
    return IDLE_BRANCH if any(map(_is_idle, walk(tree))) else None


def _statement(comment: str) -> ast.stmt | None:
    """The statement that a comment is, or begins; None for words, names and values."""
    tree = python_source.parse(f"{comment} pass" if comment.endswith(":") else comment)
    node = tree.body[0] if tree is not None and tree.body else None
    return None if isinstance(node, ast.AnnAssign) or (isinstance(node, ast.Expr) and not _is_done(node)) else node


def _is_done(node: ast.Expr) -> bool:
    """Whether an expression is there for what it does: a method's call, or `print`."""
    called = node.value.func if isinstance(node.value, ast.Call) else None
    return isinstance(called, ast.Attribute) or (isinstance(called, ast.Name) and called.id == "print")


def _is_no_formula(node: ast.stmt) -> bool:
    return isinstance(node, ast.Return | ast.Assert | ast.Expr)


def _set_alone(tree: ast.Module) -> Iterator[str]:
    """Names that functions assign, one at a time; a loop's or a pair's may have to be there."""
    for function in walk(tree):
        if not isinstance(function, python_source.Function):
            continue
        fields = {id(one) for part in walk(function) if isinstance(part, ast.ClassDef) for one in part.body}
        for node in walk(function):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and not target.id.startswith("_") and id(node) not in fields:
                    yield target.id


def _read(tree: ast.Module) -> set[str]:
    """Names that code reads or deletes, or that are another scope's."""
    named = {node.id for node in walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    outer = [node.names for node in walk(tree) if isinstance(node, ast.Global | ast.Nonlocal)]
    return named.union(*outer)


def _is_idle(node: ast.AST) -> bool:
    """Whether a branch or loop holds nothing but `pass`; an exception may be let go by."""
    if not isinstance(node, ast.If | ast.For | ast.While):
        return False
    return any(body and all(isinstance(one, ast.Pass) for one in body) for body in (node.body, node.orelse))


def _in_javascript(code: str) -> str | None:
    if _SCRIPT_COMMENT.search(code):
        return COMMENTED_OUT
    nodes = list(javascript_source.walk(javascript_source.parse(code)))
    times = Counter(javascript_source.text(one) for one in nodes if one.type.endswith("identifier"))
    inside = (one for one in nodes if one.type == "variable_declarator" and _is_local(one))
    names = (one.child_by_field_name("name") for one in inside)
    alone = (name for name in names if name is not None and name.type == "identifier")
    return UNREAD if any(times[javascript_source.text(name)] == 1 for name in alone) else None


def _is_local(node: Node) -> bool:
    above = node.parent
    while above is not None and above.type not in _FUNCTIONS:
        above = above.parent
    return above is not None
