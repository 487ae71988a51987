"""Traces in an answer of how it was written: code in comments, variables and branches without a use."""

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
TO_BE_WRITTEN = "its answer holds a comment for whoever writes it"

_COMMENT = re.compile(r"^[ \t]*#[ \t]?(.*)$")
_SCRIPT_COMMENT = re.compile(
    r"^[ \t]*//+[ \t]*(?:return\b.*;|(?:let|const|var)\s[^;]*=.*;|console\.\w+\(.*\);?|[\w$]+\.[\w$.]+\(.*\);)[ \t]*$",
    re.MULTILINE,
)
_TO_BE_WRITTEN = re.compile(
    r"(?:#|//|/\*)[ \t]*(?:(?:(?:add|enter|insert|write|put|place|type)[ ])?"
    r"your[ ](?:\w+[ ])?(?:code|solution|answer|implementation)\b|(?-i:TODO|FIXME|XXX)\b"
    r"|(?:begin|start|end)(?:[ ]of)?(?:[ ](?:the|your))?[ ](?:answer|solution)\b"
    r"|(?:implement|complete)[ ](?:me|this|the[ ]function|here)\b)",
    re.IGNORECASE,
)
_FILLS = frozenset(["append", "add", "extend", "insert", "update"])
_FEWEST_LINES = 2  # of comments that could be code: a single one may be a formula
_READS_BY_NAME = re.compile(r"\b(?:locals|globals|vars|eval|exec)\(")
_FUNCTIONS = ("arrow_function", "function_expression", "function_declaration", "method_definition")


def left_over(code: str, language: str) -> str | None:
    """Which leftover makes Python or JavaScript no example to learn from; None if there is none."""
    if _TO_BE_WRITTEN.search(code):
        return TO_BE_WRITTEN
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
    """Names that code reads or deletes, or that are another scope's; what is only filled is not read."""
    made = _made_here(tree)
    filled = {id(node.value.func.value) for node in walk(tree) if _is_filling(node)}  # type: ignore[attr-defined]
    loads = (node for node in walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store))
    named = {node.id for node in loads if id(node) not in filled or node.id not in made}
    outer = [node.names for node in walk(tree) if isinstance(node, ast.Global | ast.Nonlocal)]
    return named.union(*outer)


def _is_filling(node: ast.AST) -> bool:
    """Whether a statement adds to a collection with a name, and does nothing else with it."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(), attr=method))):
            return method in _FILLS
    return False


def _made_here(tree: ast.Module) -> set[str]:
    """Names whose every assignment makes an empty or written-out collection: nobody else knows it."""
    made, other = set[str](), set[str]()
    for node in walk(tree):
        if isinstance(node, ast.Assign):
            names = {one.id for one in node.targets if isinstance(one, ast.Name)}
            fresh = isinstance(node.value, ast.List | ast.Dict | ast.Set) or (
                isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Name)
                and node.value.func.id in ("list", "dict", "set")
            )
            (made if fresh and len(node.targets) == 1 else other).update(names)
        elif isinstance(node, ast.arg):
            other.add(node.arg)
    return made - other


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
