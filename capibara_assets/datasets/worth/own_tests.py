"""Answers that hold a test of what they do: assertions below a `with` or in a function, cases, doctests.

`anatomy` cuts tests that stand beside a solution. What is left here is code that is a test itself, as a failing cell of
tests is, or one that expects results in its middle.
"""

import ast
import re
from collections.abc import Iterator

from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.python_source import called_name, parameters
from capibara_assets.datasets.code.structure import without_comments

HOLDS_TEST = "its answer holds a test of what it does"

_EXPECTS = frozenset(("raises", "warns", "deprecated_call", "assertRaises", "assertRaisesRegex", "assertWarns"))
_ASSERTS = re.compile(r"\bconsole\.assert\(|(?<![\w.$])assert(?:\.\w+)?\(|(?<![\w.$])expect\(")
_THROWS = re.compile(r"^if \(.*\)\s*\{?\s*throw\b", re.MULTILINE)  # at the top: what functions demand is no test
_DOCTEST = re.compile(r"^\s*>>> ", re.MULTILINE)
_OWN = frozenset(("self", "cls", "isinstance", "issubclass", "len", "all", "any", "callable", "type", "hasattr"))


def javascript_holds_test(code: str) -> bool:
    """Whether JavaScript calls an assertion, wherever it does, or throws at its top where something does not hold."""
    plain = without_comments(code, "javascript")
    return _ASSERTS.search(plain) is not None or _THROWS.search(plain) is not None


def holds_test(code: str, *, shown: bool) -> bool:
    """Whether Python code expects results of what it calls; what it demands of its parameters is no such thing.

    Args:
        shown: its doctests stand in the prompt, too, as those of code that is to be mended do.
    """
    tree = python_source.parse(code)
    return tree is not None and (any(_judges(tree, frozenset())) or not (shown or _DOCTEST.search(code) is None))


def _judges(node: ast.AST, demanded: frozenset[str]) -> Iterator[bool]:
    """True for each part of a tree that judges a result.

    Args:
        demanded: the parameters of the functions around it, and the classes and functions of the language.
    """
    for part in ast.iter_child_nodes(node):
        inside = demanded
        match part:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                inside = demanded | {one.arg for one in parameters(part)} | _OWN
            case ast.ClassDef():
                yield any("TestCase" in ast.unparse(base) for base in part.bases)
            case ast.With() | ast.AsyncWith():
                managers = [one.context_expr for one in part.items]
                yield any(isinstance(one, ast.Call) and called_name(one) in _EXPECTS for one in managers)
            case ast.Assert(test=test):
                yield not _demands(test, demanded)
            case ast.Raise(exc=ast.Call() as call):
                yield called_name(call) == "AssertionError"
        yield from _judges(part, inside)


def _demands(test: ast.expr, demanded: frozenset[str]) -> bool:
    """Whether an assertion says what a function demands of its parameters, or what always holds inside it."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot) and not isinstance(test.left, ast.Call):
        return True  # that something is there
    names = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}
    return bool(demanded) and bool(names & demanded) and not _calls_another(test, demanded)


def _calls_another(test: ast.expr, demanded: frozenset[str]) -> bool:
    calls = [one for one in ast.walk(test) if isinstance(one, ast.Call)]
    return any(isinstance(one.func, ast.Name) and one.func.id not in demanded for one in calls)
