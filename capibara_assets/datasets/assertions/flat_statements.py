"""Statements of Python tests in one row: loops unrolled, functions that assert in the place of their calls."""

import ast
import copy
from collections.abc import Iterator, Sequence

from capibara_assets.datasets.code.python_source import is_literal

_MOST_COPIES = 256  # statements that a loop of the tests is unrolled to
_UNROLLED = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom)


class Entangled(Exception):
    """Assertions that cannot be replaced by reports; the message says where they are."""


def asserts(node: ast.AST) -> bool:
    """Whether a statement, or one within it, asserts."""
    return any(isinstance(each, ast.Assert) for each in ast.walk(node))


def with_assertions(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements, with `assert not wrong` for `if wrong: raise ...`, also in loops."""
    changed: list[ast.stmt] = []
    for statement in statements:
        match statement:
            case ast.If(test=test, body=[ast.Raise(exc=ast.expr())], orelse=[]):
                statement = ast.copy_location(ast.Assert(ast.UnaryOp(ast.Not(), test), None), statement)
            case ast.For(body=body):
                statement = copy.copy(statement)
                statement.body = with_assertions(body)
        changed.append(statement)
    return changed


def flat(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements with `check(candidate)` in the place of its call, and loops over literals unrolled."""
    checks: dict[str, ast.FunctionDef] = {
        each.name: each for each in statements if isinstance(each, ast.FunctionDef) and asserts(each)
    }
    named = [node.id for each in statements for node in ast.walk(each) if isinstance(node, ast.Name)]
    called = set(named)
    tables = {
        each.targets[0].id: each.value
        for each in statements
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and len(each.targets) == 1
    }
    over = [each.iter.id for each in statements if isinstance(each, ast.For) and isinstance(each.iter, ast.Name)]
    for statement in statements:
        match statement:
            case ast.FunctionDef(name=name) if name in checks:
                if name.startswith("test") and name not in called:  # pytest would find and call it
                    yield from flat(_called(statement, []))
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=arguments, keywords=[])) if name in checks:
                yield from flat(_called(checks[name], arguments))
            case ast.For(orelse=[]) if asserts(statement):
                if isinstance(statement.iter, ast.Name) and (table := tables.get(statement.iter.id)):
                    name = statement.iter.id
                    if named.count(name) == over.count(name) + 1:  # nothing else is done to it
                        statement = ast.For(statement.target, table, statement.body, [])
                yield from flat(_unrolled(statement))
            case ast.Assert(test=ast.BoolOp(op=ast.And(), values=values)):
                for value in values:
                    yield from flat([ast.copy_location(ast.Assert(value, None), statement)])
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if _is_apart(names, values):
                for target, value in zip(names, values, strict=True):
                    yield ast.copy_location(ast.Assign([target], value), statement)
            case _:
                yield statement


def _is_apart(names: Sequence[ast.expr], values: Sequence[ast.expr]) -> bool:
    """Whether `a, b = x, y` is the same as `a = x; b = y`."""
    used = {node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)}
    return len(names) == len(values) and all(isinstance(each, ast.Name) and each.id not in used for each in names)


def _called(function: ast.FunctionDef, arguments: Sequence[ast.expr]) -> list[ast.stmt]:
    """The body of a test function, with its parameters set before."""
    parameters = function.args
    plain = not (parameters.vararg or parameters.kwarg or parameters.kwonlyargs)
    names = [each.arg for each in (*parameters.posonlyargs, *parameters.args)]
    left = parameters.defaults[len(parameters.defaults) - max(len(names) - len(arguments), 0) :]
    arguments = [*arguments, *(each for each in left if is_literal(each))]
    returns = any(isinstance(node, _UNROLLED[2:]) for node in ast.walk(function))
    if function.decorator_list or not plain or len(names) != len(arguments) or returns:
        raise Entangled(f"in {function.name}, which does more than to assert")
    given: list[ast.stmt] = [
        ast.Assign([ast.Name(name, ast.Store())], value) for name, value in zip(names, arguments, strict=True)
    ]
    return given + [node for node in function.body if not isinstance(node, ast.Global | ast.Nonlocal)]


def _unrolled(loop: ast.For) -> list[ast.stmt]:
    """A loop over a literal, one copy of its body for each element."""
    elements: Sequence[ast.expr]
    match loop.iter:
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            elements = elts
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if args and all(_number(a) for a in args):
            numbers = range(*(ast.literal_eval(a) for a in args))
            elements = [ast.Constant(number) for number in numbers[: _MOST_COPIES + 1]]
        case _:
            raise Entangled("in a loop")
    if len(elements) * len(loop.body) > _MOST_COPIES or any(isinstance(n, _UNROLLED) for n in ast.walk(loop)):
        raise Entangled("in a loop")
    copies: list[ast.stmt] = []
    for element in elements:
        copies += [ast.Assign([copy.deepcopy(loop.target)], copy.deepcopy(element)), *copy.deepcopy(loop.body)]
    return copies


def _number(node: ast.expr) -> bool:
    try:
        return type(ast.literal_eval(node)) is int
    except (ValueError, TypeError, SyntaxError):
        return False
