"""Changed inputs: literals of a text replaced by others of the same type, and calls recorded in tests."""

import ast
import re
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source
from capibara_assets.datasets.code.python_source import Places, is_literal
from capibara_assets.datasets.derived.edits import RepairEdit
from capibara_assets.datasets.derived.solved import Span
from capibara_assets.executions.parsing import python_tree, walk

_PLAIN = re.compile(r"[^\\{}%<>$]{1,40}")
_NUMBER = re.compile(r"\d+")
_LONGEST_CALL = 300
_ARITHMETIC = (ast.BinOp, ast.UnaryOp)  # with 0 instead of 1 a formula is another one, or none
_NAMING = frozenset(("columns", "index", "names"))


def changes(code: str, language: str, span: Span) -> list[RepairEdit]:
    """Edits of the literals inside a span: numbers, strings and list elements, but not keys."""
    edits = _python_changes(code) if language == "python" else _javascript_changes(code)
    return [edit for edit in edits if span[0] <= edit.start and edit.end <= span[1]]


def _python_changes(code: str) -> Iterator[RepairEdit]:
    tree = python_tree(code)
    if tree is None:
        return
    places = Places(code)
    kept = {id(part) for node in walk(tree) for part in _python_kept(node)}
    operands = {id(part) for node in walk(tree) if isinstance(node, _ARITHMETIC) for part in ast.iter_child_nodes(node)}
    for node in walk(tree):
        if isinstance(node, ast.Constant | ast.List | ast.Tuple) and id(node) not in kept:
            start, end = (places.at(line, column) for line, column in _ends(node))
            if isinstance(node, ast.Constant):
                changed = (other for other in others(node.value) if other != "0" or id(node) not in operands)
                yield from (RepairEdit("value", start, end, other) for other in changed)
            elif isinstance(getattr(node, "ctx", None), ast.Load) and len(node.elts) >= 3 and not _is_record(node.elts):
                spans = [tuple(places.at(line, column) for line, column in _ends(item)) for item in node.elts]
                yield from _reordered([(a, b) for a, b in spans], code)


def _ends(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)


def _is_record(items: Sequence[ast.expr]) -> bool:
    """Whether items are constants of several types, each the value of another column: no list to be reordered."""
    return len({type(item.value) for item in items if isinstance(item, ast.Constant)}) > 1


def _python_kept(node: ast.AST) -> Iterator[ast.AST]:
    """Literals that are no input: keys, docstrings, pieces of f-strings, separators and names of options."""
    match node:
        case ast.Dict(keys=keys):
            yield from (key for key in keys if key is not None)
        case ast.JoinedStr():
            yield from walk(node)
        case ast.Expr(value=ast.Constant() as text):
            yield text
        case ast.Subscript(slice=key):
            yield from walk(key)
        case ast.Call(func=ast.Name(id="print"), keywords=keywords):
            yield from (part for keyword in keywords for part in walk(keyword))
        case ast.keyword(arg=name, value=value) if name in _NAMING:
            yield from walk(value)
        case ast.Assign(targets=[ast.Attribute(attr=name)], value=value) if name in _NAMING:
            yield from walk(value)
        case ast.Assert():
            yield from walk(node)


def others(value: object) -> Iterator[str]:
    """Literals of the same type with values near the given one."""
    if isinstance(value, bool) or value is None or isinstance(value, bytes | complex):
        return
    if isinstance(value, int):
        if abs(value) < 10**6:
            yield from (str(other) for other in {value + 1, value + 3, max(value - 1, 0) if value >= 0 else value - 2})
    elif isinstance(value, float):
        yield from (repr(round(value + step, 6)) for step in (0.5, 1.25))
    elif isinstance(value, str) and _PLAIN.fullmatch(value):
        if number := _NUMBER.search(value):
            other = str(int(number[0]) + 1).zfill(len(number[0]))
            yield repr(value[: number.start()] + other + value[number.end() :])
        elif len(value) >= 3 and value.isalpha() and not value.isupper():  # "POST" is a word that others know
            yield repr(value[1:] + value[0])
            yield repr(value[:-1])


def _reordered(items: list[Span], code: str) -> Iterator[RepairEdit]:
    """A list with its last element first, and without its last element."""
    texts = [code[start:end] for start, end in items]
    if len(set(texts)) > 1 and sum(map(len, texts)) <= _LONGEST_CALL:
        start, end = items[0][0], items[-1][1]
        yield RepairEdit("order", start, end, ", ".join([texts[-1], *texts[:-1]]))
        yield RepairEdit("length", start, end, ", ".join(texts[:-1]))


def _javascript_changes(code: str) -> Iterator[RepairEdit]:
    root, at = javascript_source.parse(code), javascript_source.positions(code)
    for node in javascript_source.walk(root) if not root.has_error else ():
        source = javascript_source.text(node)
        if _is_key(node):
            continue
        if node.type == "number" and source.isdigit() and len(source) < 7:
            operand = node.parent is not None and node.parent.type in ("binary_expression", "unary_expression")
            changed = (other for other in others(int(source)) if other != "0" or not operand)
            yield from (RepairEdit("value", at(node.start_byte), at(node.end_byte), other) for other in changed)
        elif node.type == "string" and not _required(node):
            for other in others(source[1:-1]):
                yield RepairEdit("value", at(node.start_byte), at(node.end_byte), other)
        elif (
            node.type == "array"
            and len(node.named_children) >= 3
            and not {"number", "string"} <= {item.type for item in node.named_children}
        ):
            yield from _reordered([(at(c.start_byte), at(c.end_byte)) for c in node.named_children], code)


def _is_key(node: Node) -> bool:
    parent = node.parent
    if parent is None or parent.type not in ("pair", "subscript_expression"):
        return False
    return (parent.child_by_field_name("key") or parent.child_by_field_name("index")) == node


def _required(node: Node) -> bool:
    call = node.parent.parent if node.parent is not None else None
    return call is not None and javascript_source.text(call).startswith("require")


def recorded_calls(code: str, language: str, functions: set[str]) -> list[str]:
    """Calls of these functions with literal arguments only, as written in assertions.

    In Python a test function's parameter stands for what it is called with: `check(candidate)`, then `check(f)`.
    """
    calls = _python_calls(code, functions) if language == "python" else _javascript_calls(code, functions)
    return [call for call in dict.fromkeys(calls) if len(call) <= _LONGEST_CALL]


def _python_calls(code: str, functions: set[str]) -> Iterator[str]:
    tree = python_tree(code)
    if tree is None:
        return
    stands_for = {name: name for name in functions}
    tests = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id=called), args=[ast.Name(id=given)])) if given in functions:
                if called in tests and tests[called].args.args:
                    stands_for[tests[called].args.args[0].arg] = given
    for checked in walk(tree):
        if isinstance(checked, ast.Assert):
            for part in walk(checked.test):
                if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in stands_for:
                    values = [*part.args, *(keyword.value for keyword in part.keywords)]
                    if values and all(map(is_literal, values)):
                        yield stands_for[part.func.id] + ast.unparse(part)[len(part.func.id) :]


_LITERAL_NODES = """number string array object pair true false null unary_expression property_identifier
string_fragment escape_sequence arguments"""
_LITERALS = frozenset(_LITERAL_NODES.split())


def _javascript_calls(code: str, functions: set[str]) -> Iterator[str]:
    root = javascript_source.parse(code)
    for node in javascript_source.walk(root) if not root.has_error else ():
        called, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if called is None or given is None or javascript_source.text(called) not in functions:
            continue
        if given.named_children and _all_literal(given):
            yield javascript_source.text(node)


def _all_literal(node: Node) -> bool:
    return node.type in _LITERALS and all(map(_all_literal, node.named_children))
