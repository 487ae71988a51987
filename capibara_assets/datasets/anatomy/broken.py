"""Deliberately broken answers: a test that one of them passes proves nothing."""

import ast

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.executions.parsing import JAVASCRIPT

_BODIES = frozenset(
    {
        "function_declaration",
        "generator_function_declaration",
        "function_expression",
        "method_definition",
        "arrow_function",
    }
)


def broken(code: str, language: str, *, raising: bool) -> str:
    """Replace the bodies of functions and methods by `raise` or by nothing; "" if there are none."""
    if language == "python":
        return _python(code, _RAISES if raising else [ast.Return(ast.Constant(None))])
    return _javascript(code, raising) if language in JAVASCRIPT else ""


_RAISES: list[ast.stmt] = list(ast.parse("raise RuntimeError('broken')").body)


class _Replaced(ast.NodeTransformer):
    """Replaces the body of every function and method that is not inside another; lambdas give None."""

    def __init__(self, body: list[ast.stmt]) -> None:
        self.body = body
        self.count = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.count += 1
        return ast.FunctionDef(**{**vars(node), "body": self.body})

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        self.count += 1
        return ast.AsyncFunctionDef(**{**vars(node), "body": self.body})

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        if not isinstance(node.value, ast.Lambda):
            return node
        self.count += 1
        return ast.Assign(node.targets, ast.Lambda(node.value.args, ast.Constant(None)))


def _python(code: str, body: list[ast.stmt]) -> str:
    tree = python_source.parse(code)
    if tree is None:
        return ""
    replaced = _Replaced(body)
    # a copy: the trees of `parse` are shared
    changed = replaced.visit(ast.parse(ast.unparse(tree)))
    return ast.unparse(ast.fix_missing_locations(changed)) if replaced.count else ""


def _javascript(code: str, raising: bool) -> str:
    root = javascript_source.parse(code)
    if root.has_error:
        return ""
    data = code.encode("utf-8", "replace")
    cuts: list[tuple[int, int, bytes]] = []
    pending: list[Node] = [root]
    while pending:
        node = pending.pop()
        body = node.child_by_field_name("body") if node.type in _BODIES else None
        if body is not None:
            block = b"{ throw new Error('broken'); }" if raising else b"{}"
            given = b"(() => { throw new Error('broken'); })()" if raising else b"undefined"
            cuts.append((body.start_byte, body.end_byte, block if body.type == "statement_block" else given))
        else:
            pending.extend(node.named_children)
    for start, end, by in sorted(cuts, reverse=True):
        data = data[:start] + by + data[end:]
    return data.decode("utf-8", "replace") if cuts else ""
