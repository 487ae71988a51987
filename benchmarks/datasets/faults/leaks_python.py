"""Expectations that Python of an answer holds on what it computes."""

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field

from benchmarks.datasets.faults.cases import told_names
from benchmarks.datasets.faults.python_code import (
    Function,
    blocks,
    callee,
    definitions,
    docstrings,
    imports,
    is_empty,
    is_literal,
    loads,
    parameters,
    parse,
    stores,
)

_CHECKING = re.compile(r"^_?(?:assert|check|verify|expect|test|should|ensure|validate)", re.I)
_COMPARING = re.compile(r"equal|compare|approx|almost|close|same|match|^eq$|^_?is_eq|assert|check|verify|expect", re.I)
_LIBRARIES = frozenset(("unittest", "pytest", "doctest", "nose", "hypothesis", "ward"))
_EXITS = frozenset(("exit", "_exit", "quit", "abort", "fail"))
_GATHERS = frozenset(("print", "append", "all", "add", "bool", "int", "sum", "write", "log", "info", "debug", "error"))
_SAID = re.compile(
    r"^#+\s*(?:-+>|=+>|→|⇒|==\s|expected\b|expects?\b|should\s+(?:be|print|return|give|output|equal)|"
    r"(?:output|prints?|returns?|result|gives|yields)\s*(?::|is\b|->|=)|(?:true|false|none|-?\d[\d.]*|'.*'|\".*\"|[\[({].*[\])}])$)",
    re.I,
)
_EXPECTED = re.compile(r"^#+\s*expected(?:\s+\w+)?\s*[:=]", re.I)


@dataclass
class _Scope:
    """What the driving part of an answer knows.

    Attributes:
        own: functions and classes of the answer, what the prompt asks for, and other names of either.
        asked: those that the prompt names.
        imported: names that the answer imports, which tests of its own may test.
        results: names that hold what they gave, or anything computed.
        given: those of them that own functions gave: what a service answers is no expectation on the solution.
        table: names that hold literals: inputs and expected values.
    """

    own: set[str]
    asked: set[str]
    imported: set[str]
    results: set[str] = field(default_factory=set)
    table: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)

    def is_own(self, node: ast.AST) -> bool:
        return bool(loads(node) & (self.own | self.given))

    def computed(self, node: ast.AST) -> bool:
        return bool(loads(node) & (self.own | self.results))

    def expected(self, node: ast.AST) -> bool:
        """Whether a side of a comparison is known beforehand."""
        names = loads(node) - {"set", "dict", "list", "tuple", "float", "int", "sorted", "str"}
        return is_literal(node) or (bool(names) and names <= self.table)


def leak(code: str, prompt: str) -> str | None:
    """Why the answer holds an expectation on the result of what it was asked for; None when it does not.

    Looked at is the part that drives: statements of the module, also below `if`, loops, `with` and `try`, bodies of
    tests, and of functions without parameters that the module calls. What a solution demands of its own parameters is
    none of them; neither is a result that is only printed.
    """
    tree = parse(code)
    if tree is None:
        line = re.search(r"^(?:assert|raise AssertionError)\b.*\(.*$", code, re.M)
        return f"asserts: {line.group()}" if line else None
    words = told_names(prompt)
    defined = definitions(tree.body)
    asked = {name for found in re.findall(r"\bdef (\w+)|\bclass (\w+)|`(\w+)\(", prompt) for name in found if name}
    scope = _Scope(set(defined) | asked, asked, imports(tree))
    return (
        _drives(tree.body, scope, defined)
        or _harness(defined, scope, words)
        or _inlined(tree, defined, words)
        or _renamed(tree, defined, words)
        or _library(tree, defined, words)
        or _written(tree, code, prompt, scope)
    )


def _drives(body: list[ast.stmt], scope: _Scope, defined: dict[str, ast.AST]) -> str | None:
    for statement in body:
        reason = _statement(statement, scope, defined)
        if reason:
            return reason
    return None


def _statement(statement: ast.stmt, scope: _Scope, defined: dict[str, ast.AST]) -> str | None:
    """The reason of one driving statement; what it binds becomes known."""
    if isinstance(statement, Function):
        # a function that is asked for and takes data may be called test_distinct
        is_test = _is_test(statement) and not (statement.name in scope.asked and parameters(statement))
        if is_test or (not parameters(statement) and statement.name in scope.own and _is_driver(statement)):
            tested = scope.own | (scope.imported if is_test else set())
            own = _Scope(
                tested,
                scope.asked,
                scope.imported,
                set(scope.results),
                scope.table | set(parameters(statement)),
                scope.given,
            )
            return _drives(statement.body, own, defined)
        return None
    if isinstance(statement, ast.ClassDef):
        return _test_class(statement, scope, defined)
    if isinstance(statement, ast.Assert):
        return f"asserts: {_line(statement)}" if _is_expectation(statement.test, scope, defined) else None
    if isinstance(statement, ast.Raise) and "AssertionError" in loads(statement):
        return f"raises AssertionError by itself: {_line(statement)}"
    if isinstance(statement, ast.If | ast.While):
        reason = _condition(statement, scope)
        if reason:
            return reason
    if isinstance(statement, ast.With | ast.AsyncWith):
        for item in statement.items:
            if isinstance(item.context_expr, ast.Call) and callee(item.context_expr) in (
                "raises",
                "warns",
                "assertRaises",
            ):
                return f"expects an exception: {_line(statement)}"
    _bind(statement, scope)
    for part in blocks(statement):
        if reason := _drives(part, scope, defined):
            return reason
    if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return):
        return _expression(statement, scope)
    return None


def _is_expectation(test: ast.expr, scope: _Scope, defined: dict[str, ast.AST]) -> bool:
    """Whether an assertion of the driving part speaks of a result: of what is defined here, or of a value it knows."""
    if not scope.computed(test):
        return False
    if loads(test) & scope.own:
        return True
    return bool(defined) or any(isinstance(n, ast.Compare | ast.Call) for n in ast.walk(test))


def _condition(statement: ast.If | ast.While, scope: _Scope) -> str | None:
    """`if result != expected:` that raises, exits or prints a verdict."""
    test = statement.test
    if not scope.is_own(test):
        return None
    inside = [n for part in (statement.body, statement.orelse) for s in part for n in ast.walk(s)]
    calls = {callee(n) for n in inside if isinstance(n, ast.Call)}
    compared = any(_compares(n, scope) for n in ast.walk(test) if isinstance(n, ast.Compare))
    if any(isinstance(n, ast.Raise) for n in inside) or calls & _EXITS:
        checks_call = any(isinstance(n, ast.Call) and loads(n.func) & scope.own for n in ast.walk(test))
        return f"fails by itself: {_line(statement)}" if compared or checks_call else None
    said = " ".join(str(n.value) for n in inside if isinstance(n, ast.Constant) and isinstance(n.value, str))
    verdict = re.search(
        r"\b(?:pass(?:ed)?|fail(?:ed)?|wrong|incorrect|correct|mismatch|expected|ok|error|success)", said, re.I
    )
    counts = any(isinstance(n, ast.AugAssign) for n in inside)
    return f"judges by itself: {_line(statement)}" if compared and (verdict or counts) else None


def _compares(node: ast.Compare, scope: _Scope) -> bool:
    """Whether a result is compared for equality with what was known beforehand."""
    sides = [node.left, *node.comparators]
    if not any(
        isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.Lt | ast.LtE) for operator in node.ops
    ):
        return False
    computed = [side for side in sides if scope.computed(side)]
    # a case of a table may be given and wanted at once
    return bool(computed) and any(scope.expected(side) for side in sides if side not in computed or len(computed) > 1)


def _expression(statement: ast.stmt, scope: _Scope) -> str | None:
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        name = callee(node)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(statement, ast.Expr) and _CHECKING.match(name) and any(map(scope.computed, arguments)):
            # an own function of that name checks when it is given the result of another, or one itself
            others = loads(ast.Tuple(arguments, ast.Load())) & (scope.own - {name} | scope.results)
            if name not in scope.own or (name not in scope.asked and others):
                return f"checks: {_line(statement)}"
        if name in ("testmod", "run_docstring_examples"):
            return f"runs tests: {_line(statement)}"
        if name in _EXITS and any(_holds_comparison(argument, scope) for argument in arguments):
            return f"exits with a verdict: {_line(statement)}"
        if name in _GATHERS and any(_holds_comparison(argument, scope) for argument in arguments):
            return f"compares with what is expected: {_line(statement)}"
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Eq) and _calls_own(value, scope):
        return f"compares with what is expected: {_line(statement)}" if _compares(value, scope) else None
    return None


def _calls_own(node: ast.AST, scope: _Scope) -> bool:
    return any(isinstance(n, ast.Call) and loads(n.func) & scope.own for n in ast.walk(node))


def _holds_comparison(argument: ast.expr, scope: _Scope) -> bool:
    """Whether an argument is a comparison of an own result with what is expected; filters and masks are not."""
    if isinstance(argument, ast.GeneratorExp | ast.ListComp):
        inner = _Scope(
            scope.own,
            scope.asked,
            scope.imported,
            scope.results,
            scope.table | {name for g in argument.generators for name in stores(g.target)},
            scope.given,
        )
        return _holds_comparison(argument.elt, inner)
    if isinstance(argument, ast.JoinedStr | ast.FormattedValue | ast.BoolOp | ast.UnaryOp | ast.IfExp | ast.Tuple):
        return any(
            _holds_comparison(part, scope) for part in ast.iter_child_nodes(argument) if isinstance(part, ast.expr)
        )
    if isinstance(argument, ast.Call) and callee(argument) in (
        "isclose",
        "allclose",
        "array_equal",
        "equals",
        "isclose",
    ):
        sides = argument.args
        return any(_calls_own(side, scope) for side in sides) and any(map(scope.expected, sides))
    equal = isinstance(argument, ast.Compare) and any(isinstance(o, ast.Eq | ast.NotEq | ast.Is) for o in argument.ops)
    if not (equal and isinstance(argument, ast.Compare) and _compares(argument, scope)):
        return False
    return scope.is_own(argument)


def _bind(statement: ast.stmt, scope: _Scope) -> None:
    """What a statement binds: a table of literals, another name of a function, or a result."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and statement.value is not None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = {name for target in targets for name in stores(target)}
        value = statement.value
        # `frame["share"] = ...` makes something of a frame that the session gave
        scope.results |= {root for target in targets if (root := _root(target)) is not None}
        if is_literal(value):
            scope.table |= names - scope.results
        elif isinstance(value, ast.Name) and value.id in scope.own:
            scope.own |= names
        elif isinstance(value, ast.List | ast.Tuple | ast.Dict) and not scope.computed(value):
            scope.table |= names
        elif not isinstance(value, ast.Lambda):
            scope.results |= names
            scope.given |= names if scope.is_own(value) else set()
            scope.table -= names
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        root = _root(statement.value.func)
        scope.results |= {root} if root is not None and root not in scope.imported else set()
    elif isinstance(statement, ast.For | ast.AsyncFor):
        names = stores(statement.target)
        sources = loads(statement.iter) - {"zip", "enumerate", "sorted", "range", "list", "reversed"}
        (scope.table if is_literal(statement.iter) or sources <= scope.table else scope.results).update(names)
        scope.given |= names if scope.is_own(statement.iter) else set()
        if scope.computed(statement.iter):
            # `for given, wanted in [(f(1), 2)]`: each may be either
            scope.results |= names
            scope.table |= names
    elif isinstance(statement, ast.With | ast.AsyncWith):
        scope.results |= {name for item in statement.items if item.optional_vars for name in stores(item.optional_vars)}


def _root(target: ast.expr) -> str | None:
    """The name whose part is assigned to or called: `frame` of `frame["share"]` and `frame.drop`."""
    if not isinstance(target, ast.Attribute | ast.Subscript):
        return None
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Call):
        target = target.func if isinstance(target, ast.Call) else target.value
    return target.id if isinstance(target, ast.Name) else None


# --- harnesses, libraries, names, words -------------------------------------------------------------------------------


def _is_test(function: Function) -> bool:
    decorated = any("parametrize" in ast.unparse(d) or "pytest" in ast.unparse(d) for d in function.decorator_list)
    return function.name.startswith("test") or decorated


def _is_driver(function: Function) -> bool:
    """Whether a function without parameters drives: it gives nothing back."""
    return not any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function))


def _test_class(node: ast.ClassDef, scope: _Scope, defined: dict[str, ast.AST]) -> str | None:
    if any("TestCase" in ast.unparse(base) for base in node.bases):
        return f"is a test case: class {node.name}"
    if node.name.startswith("Test"):
        for method in node.body:
            if isinstance(method, Function) and _is_test(method):
                tested = scope.own | scope.imported
                own = _Scope(
                    tested,
                    scope.asked,
                    scope.imported,
                    set(scope.results),
                    scope.table | set(parameters(method)[1:]),
                    scope.given,
                )
                if reason := _drives(method.body, own, defined):
                    return reason
    return None


def _harness(defined: dict[str, ast.AST], scope: _Scope, words: set[str]) -> str | None:
    """A function that is given the solution and asserts on what it returns, or such a one left empty."""
    for name, node in defined.items():
        if not isinstance(node, Function) or (name in words and not _CHECKING.match(name)):
            continue
        if is_empty(node.body) and not node.decorator_list and name not in words and len(defined) > 1:
            return f"an empty harness: def {name}"
        given = set(parameters(node))
        for inner in ast.walk(node):
            test = inner.test if isinstance(inner, ast.Assert) else None
            if isinstance(inner, ast.If) and any(isinstance(n, ast.Raise) for s in inner.body for n in ast.walk(s)):
                test = inner.test
            for call in ast.walk(test) if test is not None else ():
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                    continue
                literal = bool(call.args) and all(map(is_literal, call.args))
                if literal and (call.func.id in given or (call.func.id in scope.own and call.func.id != name)):
                    return f"a harness: def {name} asserts on {call.func.id}(...)"
    return None


def _inlined(tree: ast.Module, defined: dict[str, ast.AST], words: set[str]) -> str | None:
    """A function that compares two values for a test and that nothing of the solution uses."""
    helpers = {
        name
        for name, node in defined.items()
        if isinstance(node, Function) and name not in words and _compares_parameters(name, node)
    }
    others = set(defined) - helpers
    if not others:
        return None
    reached = {n for name in others for n in loads(defined[name])} | {
        name for s in tree.body if not isinstance(s, Function | ast.ClassDef) for name in loads(s)
    }
    while grown := {n for name in helpers & reached for n in loads(defined[name])} - reached:
        reached |= grown
    unused = sorted(helpers - reached)
    return f"a comparison that only a test needs: def {unused[0]}" if unused else None


def _compares_parameters(name: str, function: Function) -> bool:
    given = set(parameters(function))
    compared = any(isinstance(n, ast.Compare) and len(loads(n) & given) > 1 for n in ast.walk(function)) or any(
        isinstance(n, ast.Call) and callee(n) in ("isclose", "allclose") for n in ast.walk(function)
    )
    return len(given) > 1 and compared and bool(_COMPARING.search(name))


def _renamed(tree: ast.Module, defined: dict[str, ast.AST], words: set[str]) -> str | None:
    """`candidate = solution`, a name that only a harness asked for."""
    for at, statement in enumerate(tree.body):
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Name)
            and statement.value.id in defined
        ):
            names = stores(statement)
            used = {name for other in (*tree.body[:at], *tree.body[at + 1 :]) for name in loads(other)}
            if names and not names & (words | used):
                return f"another name for a harness: {_line(statement)}"
    return None


def _library(tree: ast.Module, defined: dict[str, ast.AST], words: set[str]) -> str | None:
    """A library of tests that is imported and that no definition uses."""
    used = {name for node in defined.values() for name in loads(node)}
    for statement in tree.body:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        module = statement.module or "" if isinstance(statement, ast.ImportFrom) else ""
        for alias in statement.names:
            top = (module or alias.name).split(".")[0]
            testing = top in _LIBRARIES or (module or alias.name).endswith((".testing", "unittest.mock"))
            if testing and (alias.asname or alias.name.split(".")[0]) not in used and top not in words:
                return f"a library of tests: {_line(statement)}"
    return None


def _written(tree: ast.Module, code: str, prompt: str, scope: _Scope) -> str | None:
    """Expected results in doctests that the prompt does not have, and in comments beside calls."""
    for text in docstrings(tree):
        for line in text.splitlines():
            call = line.strip().removeprefix(">>>").strip()
            if line.strip().startswith(">>>") and call not in prompt and set(re.findall(r"\w+", call)) & scope.own:
                return f"a doctest: {line.strip()}"
    lines = code.splitlines()
    try:
        comments = [t for t in tokenize.generate_tokens(io.StringIO(code).readline) if t.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError):
        return None
    calls = {n.end_lineno for n in ast.walk(tree) if isinstance(n, ast.Call) and loads(n.func) & scope.own}
    tops = {n.end_lineno for n in tree.body if isinstance(n, ast.Expr | ast.Assign)}
    for token in comments:
        row, column = token.start
        if (_EXPECTED.match(token.string) and column == 0) or (row in calls & tops and _SAID.match(token.string)):
            return f"an expected result in a comment: {lines[row - 1].strip()}"
    return None


def _line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:120]
