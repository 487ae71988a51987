"""Dissection of a Python cell: docstring or leading comment, signatures, body, and its tests."""

import ast
import copy
import inspect
import re
from collections.abc import Collection
from itertools import accumulate

from capibara_assets.datasets.anatomy import flow_python
from capibara_assets.datasets.anatomy.parts import CellParts, body_test, of_roles, pieces
from capibara_assets.datasets.anatomy.roles import Role, roles
from capibara_assets.datasets.code.comments import clean_lines, is_statement
from capibara_assets.datasets.code.python_source import Definition, Function, docstring_node, names_in, parse
from capibara_assets.executions.parsing import walk

_MAX_DOCSTRINGS = 4


def parts(code: str) -> CellParts | None:
    """The parts of a cell; None when it does not parse."""
    tree, program = parse(code), flow_python.program(code)
    if tree is None or program is None:
        return None
    lines, units = code.split("\n"), program.units
    played = roles(program)
    asked = [node for node, role in zip(tree.body, played, strict=True) if role is Role.SOLUTION]
    statement, removed = _docstrings(tree, asked)
    documented = statement is not None
    if statement is None:
        statement, removed = _leading_comment(lines, tree)
    cut = removed | _blanks_after(removed, lines) if statement is not None else set()
    # a tree from source with blanked magics or a lifted indent has the same lines, so that cutting by line is exact
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    without = [(starts[number - 1], min(starts[number], len(code))) for number in sorted(cut)]
    tested, shown = of_roles(played, Role.TEST), of_roles(played, Role.DEMONSTRATION)
    every = set(range(len(units)))
    test = pieces(code, units, tested)
    return CellParts(
        statement,
        documented,
        "\n".join(_headers(asked)),
        pieces(code, units, every - tested, without),
        pieces(code, units, every - tested - shown, without),
        _tests([tree.body[i] for i in sorted(tested)], lines, test),
        _run(body_test(code, units, tested), tree, tested),
        _run(pieces(code, units, tested | shown, without), tree, tested),
    )


def with_calls(test: str) -> str:
    """Tests in Python with calls of those that only a test runner would have found; as it is if it does not parse."""
    tree = parse(test)
    return test if tree is None else _run(test, tree, range(len(tree.body)))


def _run(test: str, tree: ast.Module, tested: Collection[int]) -> str:
    """The test with calls of its functions and cases that only a test runner would have found."""
    read = names_in(tree)
    calls = []
    for node in (tree.body[i] for i in sorted(tested)):
        if isinstance(node, ast.ClassDef) and node.name not in read and node.bases and "main" not in test:
            loaded = f"unittest.defaultTestLoader.loadTestsFromTestCase({node.name})"
            calls.append(f"assert unittest.TextTestRunner().run({loaded}).wasSuccessful()")
        elif (
            isinstance(node, ast.FunctionDef) and node.name not in read and not (node.args.args or node.decorator_list)
        ):
            calls.append(f"{node.name}()")
    return "\n\n".join([test.strip("\n"), "\n".join(calls)]) if calls else test


def _tests(tested: list[ast.stmt], lines: list[str], test: str) -> tuple[str, ...]:
    """The assertions one by one if each says all that it needs, else the whole test."""
    assertions = _assertions(tested, lines)
    own = {name for node in tested if not isinstance(node, ast.Import | ast.ImportFrom) for name in _stored(node)}
    read = [names_in(tree) for a in assertions if (tree := parse(a))]
    if assertions and all(own.isdisjoint(names) for names in read):
        return assertions
    judged = [node for node in tested if not isinstance(node, (ast.Import, ast.ImportFrom))]
    return (test.strip("\n"),) if judged else ()


def _stored(node: ast.stmt) -> set[str]:
    """Every name that is bound anywhere in a statement."""
    named = {part.name for part in walk(node) if isinstance(part, Definition)}
    return named | {p.id for p in walk(node) if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store)}


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
        if isinstance(statement, Function):
            parameters = [argument.arg for argument in statement.args.args]
            renamed = dict(zip(parameters, called.get(statement.name, []), strict=False))
        for node in walk(statement):
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
        if isinstance(definition, Definition)
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
