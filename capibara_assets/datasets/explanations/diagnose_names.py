"""Causes of undefined names: a missing import, or a different spelling."""

import ast
import builtins
import re
from typing import NamedTuple

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.one_line import in_one_line
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.executions.parsing import walk

_UNBOUND = re.compile(r"name '(\w+)' is not defined")


class NameCause(NamedTuple):
    """Why a name is not defined, in sentences, and the corrected line that reads it."""

    sentences: list[str]
    mended: str


def name_cause(pair: Row, failing: str, fixed: str) -> NameCause | None:
    """Cause and remedy of an undefined name in Python; None for other failures."""
    match = _UNBOUND.match(pair["error_value"] or "")
    if pair["language"] != "python" or pair["error_name"] != "NameError" or match is None:
        return None
    name, old, new = match[1], python_source.parse(failing), python_source.parse(fixed)
    if old is None or new is None or hasattr(builtins, name):
        return None
    used = _use(old, name, failing)
    if used is None or name in _bound(old):
        return None
    line, function = used
    if (imported := _import_of(new, name, fixed)) is not None:
        said = [
            f"`{line}` uses `{name}`, which nothing in this code imports.",
            f"Python looks a name up when the line runs: `{function}` can be defined all the same, and fails when a "
            "call gets to this line.",
            f"The code needs `{imported}`.",
        ]
        return NameCause(said, line)
    meant = sorted(_loads(new) - _loads(old))
    binding = _binding(old, meant[0], failing, function) if len(meant) == 1 else None
    if binding is None:
        return None
    said = [
        f"`{line}` reads `{name}`, which nothing binds: it is no parameter or variable of `{function}`, nothing "
        f"outside defines it, and Python has no built-in of this name.",
        f"`{meant[0]}` is meant, {binding}.",
    ]
    return NameCause(said, re.sub(rf"\b{name}\b", meant[0], line))


def _bound(tree: ast.AST) -> set[str]:
    bound = {node.id for node in walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.name for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return bound | {
        (alias.asname or alias.name).split(".")[0]
        for node in walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def _loads(tree: ast.AST) -> set[str]:
    names = [node for node in walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return {node.id for node in names} & (_bound(tree) | set(dir(builtins)))


def _use(tree: ast.Module, name: str, code: str) -> tuple[str, str] | None:
    """(line, function) of the only use of a name."""
    uses = [
        (node.lineno, function.name)
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
        for node in walk(function)
        if isinstance(node, ast.Name) and node.id == name
    ]
    if len({line for line, _ in uses}) != 1:
        return None
    return code.split("\n")[uses[0][0] - 1].strip(), uses[0][1]


def _import_of(tree: ast.AST, name: str, code: str) -> str | None:
    for node in walk(tree):
        names = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
        if any((alias.asname or alias.name).split(".")[0] == name for alias in names):
            return in_one_line(ast.get_source_segment(code, node) or "")
    return None


def _binding(tree: ast.Module, name: str, code: str, function: str) -> str | None:
    """Where a function binds a name."""
    if hasattr(builtins, name) and name not in _bound(tree):
        return "which Python has built in"
    for node in walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name != function:
            continue
        if name in [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]:
            return f"the parameter of `{function}`" if len(node.args.args) == 1 else f"a parameter of `{function}`"
        inside = [each for part in walk(node) if isinstance(part, ast.comprehension) for each in walk(part.target)]
        if any(isinstance(each, ast.Name) and each.id == name for each in inside):
            return "which the comprehension binds"
        for inner in walk(node):
            if isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Store):
                return f"which `{code.split(chr(10))[inner.lineno - 1].strip()}` binds"
    return None
