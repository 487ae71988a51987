"""Size of the work that code does: counted decisions, loops, operations and calls."""

import ast
import re
from collections.abc import Iterator

from capibara_assets.datasets.code import javascript_source, python_source

TRIVIAL = "there is hardly anything to do"

_BUILTIN, _METHOD, _LOOP = 2, 3, 2  # steps of a call and a loop: to know a method is to know something
_PYTHON_STEPS = (
    ast.If, ast.IfExp, ast.For, ast.While, ast.comprehension, ast.Lambda, ast.Try, ast.With, ast.AsyncWith, ast.Match,
    ast.BinOp, ast.BoolOp, ast.Compare, ast.AugAssign, ast.Call, ast.Subscript, ast.Raise, ast.Yield, ast.ClassDef,
    ast.FormattedValue, ast.Starred, ast.keyword,
)  # fmt: skip
_IN_JAVASCRIPT = """if_statement ternary_expression for_statement for_in_statement while_statement do_statement
switch_case binary_expression augmented_assignment_expression update_expression call_expression
new_expression subscript_expression arrow_function function_expression try_statement
throw_statement class_declaration template_substitution spread_element unary_expression regex"""
_JAVASCRIPT_STEPS = frozenset(_IN_JAVASCRIPT.split())
_SHOWS = re.compile(r"^(print|console\.log|repr|str|JSON\.stringify)\b")
_WRITES_DOWN = re.compile(r"\.(?:zeros|ones|eye|identity)$")  # data as it stands in the code
_NESTED = r"[^()\n]*(?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)[^()\n]*)*"
_CALL = re.compile(rf"\s*(?:(?:print|console\.log)\(\s*)?[\w$]+\({_NESTED}\)\s*\)?;?\s*$")


def steps(code: str, language: str) -> int:
    """Number of decisions, loops, operations, calls and their options in code.

    Its own functions and printing do not count, nor do decorators but for their options.
    """
    if language == "python":
        tree = python_source.parse(code)
        return 99 if tree is None else sum(_counts(node, tree) for node in _evaluated(tree))
    root = javascript_source.parse(code)
    own = set(javascript_source.declared(root))
    count = 0
    for node in javascript_source.walk(root):
        if node.type not in _JAVASCRIPT_STEPS:
            continue
        if node.type == "call_expression":
            called = node.child_by_field_name("function")
            name = javascript_source.text(called) if called is not None else ""
            count += 0 if name in own or _SHOWS.match(name) else _weight(name, "Math.")
        elif node.type in ("arrow_function", "function_expression"):
            parent = node.parent
            count += parent is None or parent.type != "variable_declarator"
        else:
            count += node.type.startswith(("for", "while", "do"))
            count += node.type != "unary_expression" or javascript_source.text(node)[:1] == "!"
    return count


def _weight(name: str, arithmetic: str) -> int:
    return 1 if name.startswith(arithmetic) else _METHOD if "." in name else _BUILTIN


def _evaluated(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node but annotations, and of decorators their options: what stands in these does nothing by itself."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field, value in ast.iter_fields(node):
            inner = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]
            if field == "decorator_list":
                pending += [keyword for one in inner if isinstance(one, ast.Call) for keyword in one.keywords]
            elif field not in ("annotation", "returns"):
                pending += inner


def _counts(node: ast.AST, tree: ast.Module) -> int:
    if not isinstance(node, _PYTHON_STEPS):
        return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    if isinstance(node, ast.Call):
        own = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        name = ast.unparse(node.func)
        return 0 if name in own or _SHOWS.match(name) or _WRITES_DOWN.search(name) else _weight(name, "math.")
    return _LOOP if isinstance(node, ast.For | ast.While | ast.comprehension) else 1


def is_call(code: str) -> bool:
    """Whether code is one call of something that is defined elsewhere, perhaps printed."""
    return _CALL.match(code) is not None
