"""Python of examples, read with `ast`: definitions, names, calls; a notebook's magics count as empty statements."""

import ast
import re
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
_MAGIC = re.compile(r"^([ \t]*)(?:[!%]|\?).*$|^([ \t]*)[\w., ]+ = [!%].*$|^[\w.]+\?{1,2}$", re.M)


def parse(code: str) -> ast.Module | None:
    """The tree; None for what is no Python."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    try:
        return ast.parse(_MAGIC.sub(lambda found: f"{found.group(1) or found.group(2) or ''}pass", code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def definitions(body: list[ast.stmt]) -> dict[str, ast.AST]:
    """Functions, classes and named lambdas of a body, also those below `if` and `try`."""
    found: dict[str, ast.AST] = {}
    for statement in body:
        if isinstance(statement, Function | ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
            found |= {target.id: statement.value for target in statement.targets if isinstance(target, ast.Name)}
        elif isinstance(statement, ast.If | ast.Try):
            for part in blocks(statement):
                found |= definitions(part)
    return found


def blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The bodies of a compound statement."""
    for field in ("body", "orelse", "finalbody"):
        if part := getattr(statement, field, None):
            yield part
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def loads(node: ast.AST) -> set[str]:
    """Names that a tree reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def stores(node: ast.AST) -> set[str]:
    """Names that a target or statement binds by assignment."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def imports(tree: ast.AST) -> set[str]:
    """Names that import statements bind."""
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom))
    return {alias.asname or alias.name.split(".")[0] for statement in found for alias in statement.names}


def callee(call: ast.Call) -> str:
    """The last part of the name that is called; empty where it has none."""
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def parameters(function: ast.AST) -> list[str]:
    arguments = getattr(function, "args", None)
    if not isinstance(arguments, ast.arguments):
        return []
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [one.arg for one in every if one is not None]


def is_literal(node: ast.AST) -> bool:
    """Whether an expression is made of constants alone."""
    return not any(isinstance(n, ast.Name | ast.Call | ast.Attribute | ast.Await) for n in ast.walk(node)) or (
        isinstance(node, ast.Call)
        and callee(node)
        in ("set", "frozenset", "dict", "list", "tuple", "array", "Decimal", "Fraction", "approx", "float")
        and all(is_literal(argument) for argument in (*node.args, *(k.value for k in node.keywords)))
    )


def is_empty(body: list[ast.stmt]) -> bool:
    """Whether a body does nothing: pass, dots, a docstring, a bare return."""
    return all(
        isinstance(s, ast.Pass)
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        or (isinstance(s, ast.Return) and (s.value is None or isinstance(s.value, ast.Constant)))
        for s in body
    )


def docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield text
