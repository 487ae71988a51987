"""Dissection of a Python cell: docstring or leading comment, signatures, body, and the assertions at its end."""

import ast
import copy
import inspect
import re

from capibara_assets.datasets.code.comments import clean_lines, is_statement
from capibara_assets.datasets.code.parts import CellParts
from capibara_assets.datasets.code.python_source import Definition, Function, docstring_node, parse

_TEST_NAME = re.compile(r"^_?(check|test|verify)(_|$|[A-Z0-9])")
_MAX_DOCSTRINGS = 4


def parts(code: str) -> CellParts | None:
    """The parts of a cell; None when it does not parse."""
    tree = parse(code)
    if tree is None:
        return None
    lines = code.split("\n")
    kept, peeled = _peel(tree.body)
    if not kept or not any(isinstance(node, ast.Assert) for part in peeled for node in ast.walk(part)):
        kept, peeled = tree.body, []
    tests = _assertions(peeled, lines)
    cut: set[int] = set()
    if peeled:
        first = peeled[0]
        start = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))])
        cut |= set(range(start, len(lines) + 1))
    statement, removed = _docstrings(tree, kept)
    documented = statement is not None
    if statement is None:
        statement, removed = _leading_comment(lines, tree)
    if statement is not None:
        cut |= removed | _blanks_after(removed, lines)
    # a tree from source with blanked magics or a lifted indent has the same lines, so that cutting by line is exact
    body = "\n".join(line for number, line in enumerate(lines, 1) if number not in cut)
    shown = _demonstration(kept)
    if shown:
        cut |= set(range(shown[0].lineno, len(lines) + 1))
    definitions = "\n".join(line for number, line in enumerate(lines, 1) if number not in cut)
    return CellParts(statement, documented, "\n".join(_headers(kept)), body, definitions, tests)


def _peel(statements: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """(the code, the tests after it): asserts, test functions and calls of test functions at the end of the cell."""
    names = {s.name for s in statements if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)) and _is_test(s)}
    end = len(statements)
    while end and _tests(statements[end - 1], names):
        end -= 1
    return statements[:end], statements[end:]


def _demonstration(statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements after the last definition, if they only show or check what was defined; else none."""
    last = max((i for i, statement in enumerate(statements) if isinstance(statement, Definition)), default=-1)
    after = statements[last + 1 :]
    if last < 0 or not after:
        return []
    defined = {statement.name for statement in statements if isinstance(statement, Definition)}
    used = {node.id for statement in after for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return after if defined & used else []


def _is_test(function: Function) -> bool:
    return bool(_TEST_NAME.match(function.name)) and any(isinstance(node, ast.Assert) for node in ast.walk(function))


def _tests(statement: ast.stmt, names: set[str]) -> bool:
    match statement:
        case ast.Assert():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return statement.name in names
        case ast.Expr(value=ast.Call(func=ast.Name(id=called))):
            return called in names
    return False


def _assertions(peeled: list[ast.stmt], lines: list[str]) -> tuple[str, ...]:
    """Sources of the assertions; in `check(candidate)` the candidate gets the name of what is checked."""
    called = {
        statement.value.func.id: [a.id for a in statement.value.args if isinstance(a, ast.Name)]
        for statement in peeled
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
    }
    assertions: list[str] = []
    for statement in peeled:
        renamed: dict[str, str] = {}
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            parameters = [argument.arg for argument in statement.args.args]
            renamed = dict(zip(parameters, called.get(statement.name, []), strict=False))
        for node in ast.walk(statement):
            if isinstance(node, ast.Assert):
                source = inspect.cleandoc("\n".join(lines[node.lineno - 1 : node.end_lineno]))
                for parameter, target in renamed.items():
                    source = re.sub(rf"\b{re.escape(parameter)}\b", target, source)
                assertions.append(source)
    return tuple(assertions)


def _docstrings(tree: ast.Module, kept: list[ast.stmt]) -> tuple[str | None, set[int]]:
    """(the statement in the docstrings, the lines to cut): the module's, else those of its functions and classes."""
    module = docstring_node(tree)
    if module is not None and len(tree.body) > 1:
        text = inspect.cleandoc(_value(module))
        return (text, _lines(module)) if is_statement(text) else (None, set())
    documented = [
        (definition.name, node)
        for definition in kept
        if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and (node := docstring_node(definition)) is not None
        and len(definition.body) > 1
        and node.lineno > definition.lineno
        and definition.body[1].lineno > (node.end_lineno or node.lineno)
        and is_statement(inspect.cleandoc(_value(node)))
    ]
    if not documented or len(documented) > _MAX_DOCSTRINGS:
        return None, set()
    texts = [inspect.cleandoc(_value(node)) for _, node in documented]
    if len(documented) > 1:
        texts = [f"{name}: {text}" for (name, _), text in zip(documented, texts, strict=True)]
    return "\n".join(texts), set().union(*(_lines(node) for _, node in documented))


def _leading_comment(lines: list[str], tree: ast.Module) -> tuple[str | None, set[int]]:
    """The comment block at the top of the cell, or right after its imports."""
    past_imports = next(
        (s.lineno for s in tree.body if not isinstance(s, (ast.Import, ast.ImportFrom))), len(lines) + 1
    )
    last_import = max((s.end_lineno or s.lineno for s in tree.body if s.lineno < past_imports), default=0)
    for start in (1, last_import + 1):
        number = start
        while number <= len(lines) and not lines[number - 1].strip():
            number += 1
        block = []
        while number <= len(lines) and lines[number - 1].lstrip().startswith("#"):
            block.append(number)
            number += 1
        text = clean_lines([lines[n - 1] for n in block], "#")
        if block and is_statement(text):
            return text, set(block)
    return None, set()


def _headers(statements: list[ast.stmt]) -> list[str]:
    """`def f(a, b)` and `class C(Base)`, a class with its methods; normalised spacing, no colon, no decorators."""
    headers = []
    for statement in statements:
        if isinstance(statement, Definition):
            headers.append(_header(statement))
            if isinstance(statement, ast.ClassDef):
                headers += ["    " + _header(method) for method in statement.body if isinstance(method, Function)]
    return headers


def _header(definition: Definition) -> str:
    stub = copy.copy(definition)
    stub.body, stub.decorator_list = [ast.Pass()], []
    return ast.unparse(stub).removesuffix("pass").rstrip().removesuffix(":")


def _blanks_after(removed: set[int], lines: list[str]) -> set[int]:
    """Blank lines right below removed ones."""
    blanks: set[int] = set()
    for number in sorted(removed):
        below = number + 1
        while below <= len(lines) and below not in removed and not lines[below - 1].strip():
            blanks.add(below)
            below += 1
    return blanks


def _value(node: ast.Expr) -> str:
    return str(node.value.value) if isinstance(node.value, ast.Constant) else ""


def _lines(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
