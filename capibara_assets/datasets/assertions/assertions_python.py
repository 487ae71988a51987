"""Replace the assertions of Python tests by reports (see `assertions.py`): `assert f(2) == 4` reports `f(2)`."""

import ast
import copy
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from capibara_assets.datasets.assertions.assertions import Assertion, Observed, Operation, Term
from capibara_assets.datasets.assertions.flat_statements import Entangled, asserts, flat, with_assertions
from capibara_assets.datasets.assertions.plain_operands import PLAINER, PlainOperands
from capibara_assets.datasets.assertions.plain_statements import PRELUDE, is_first, is_report, plain_statements
from capibara_assets.datasets.assertions.plain_values import REPORTER
from capibara_assets.datasets.code.python_source import BUILTINS, is_literal, names_in, parse

_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_CALCULATED = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_TYPES = frozenset({"int", "float", "complex", "str", "bytes", "bool", "list", "tuple", "dict", "set", "frozenset"})
_MAKERS = frozenset(
    {"namedtuple", "NamedTuple", "type", "new_class", "make_dataclass", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def observed(
    tests: str, answers: Collection[str], whole: Collection[int] = (), classes: Collection[str] = ()
) -> Observed:
    """Replace the assertions of tests by reports.

    Args:
        tests: code that runs after the answer.
        answers: names that an answer or the cells before it give: what is made with them is reported, never assumed.
        whole: numbers of assertions whose operands cannot be reported (objects of the answer's own classes): of these
            only the truth is asked for.
        classes: names of classes that an answer is asked for; of others, as of those that the tests define, it returns
            no instances, or their plain value is used.
    """
    tree = parse(tests)
    if tree is None:
        return Observed(tests, tests, (), "its tests do not parse")
    answers = set(answers) - _applied(tree, answers)
    ending = ";" if tests.rstrip().endswith(";") else ""
    asked = f"_capibara_asked = {sorted({*classes, *classes_given(tests)})!r}\n"
    before = f"{REPORTER}{PLAINER}{PRELUDE}{asked}"

    def plain(statements: Sequence[ast.stmt]) -> str:
        body = plain_statements(statements, answers)
        return before + ast.unparse(ast.fix_missing_locations(ast.Module(body, []))) + ending

    why_not = ""
    for statements in (with_assertions(tree.body), tree.body):  # what raises by an `if` may also stay as it is
        if not asserts(ast.Module(statements, [])):
            code = tests if is_first(tree) else plain(statements)
            return Observed(code, code, ())
        instrumented = _InstrumentedTests(set(answers), frozenset(whole))
        try:
            for statement in flat(statements):
                instrumented.add(statement)
            code, trusted = plain(instrumented.needed()), plain(instrumented.trusted)
            apart = plain(instrumented.apart) if any(map(is_report, instrumented.apart)) else ""
            return Observed(code, trusted, tuple(instrumented.assertions), None, apart, before)
        except (Entangled, RecursionError) as error:
            why_not = f"its tests assert {error or 'too deep an expression'}"
    return Observed(tests, tests, (), why_not)


def _applied(tree: ast.Module, answers: Collection[str]) -> set[str]:
    """Python's functions, by name, that tests apply to what an answer gives: no answer's own of that name is meant."""
    return {
        each.func.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in BUILTINS
        if _names(each.args) & {*answers} - {each.func.id}
    }


@dataclass
class _InstrumentedTests:
    """The statements of tests with each assertion replaced by reports, collected one statement at a time."""

    dirty: set[str]  # names whose values an answer may have made
    whole: frozenset[int]
    clean: set[str] = field(default_factory=set)  # names of the tests whose values no answer has made
    made: set[str] = field(default_factory=set)  # those of them that a statement gave a value
    lent: set[str] = field(default_factory=set)  # those of them that the answer got, and may have changed
    reads: dict[str, set[str]] = field(default_factory=dict)  # by clean functions
    trusted: list[ast.stmt] = field(default_factory=list)
    untrusted: list[tuple[ast.stmt, frozenset[str]]] = field(default_factory=list)  # with clean names that it binds
    apart: list[ast.stmt] = field(default_factory=list)  # what gives clean values, and their reports
    assertions: list[Assertion] = field(default_factory=list)

    def add(self, statement: ast.stmt) -> None:
        lent = self._lent(statement)
        self._add(statement)
        self.lent = (self.lent | lent) & self.clean

    def _add(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assert(test=test) if self.is_clean(test) and (asked := names_in(test) & self.lent):
                # nothing else is asked of the answer than what it did to these values
                self.clean -= asked
                self._assert(statement)
                self.clean |= asked
            case ast.Assert():
                self._assert(statement)
            case ast.Import() | ast.ImportFrom():
                names = {(each.asname or each.name).partition(".")[0] for each in statement.names}
                self.clean |= names
                self.dirty -= names
                self._both(statement, frozenset())
                self.apart.append(statement)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if self.is_clean(value):
                self.made.add(name)
                self._is_clean_now(name, statement)
            case ast.FunctionDef(name=name, decorator_list=[]) if not asserts(statement) and self._is_of_tests(
                statement
            ):
                self.reads[name] = names_in(statement)
                self._is_clean_now(name, statement)
            case _:
                if asserts(statement):
                    statement = self._reached(statement)
                bound = {
                    node.id
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name) and type(node.ctx) is ast.Store
                }
                named = (getattr(node, "name", None) for node in ast.walk(statement))
                bound |= {each for each in named if isinstance(each, str)}
                bound |= self._handed_over(statement)
                if not isinstance(statement, ast.Expr | ast.Assign):
                    bound |= names_in(statement) & self.clean & self.made  # what the answer makes of them is unknown
                if not bound and isinstance(statement, ast.Expr) and self.is_clean(statement.value):
                    self.apart.append(statement)  # `random.seed(3)`
                self.dirty |= bound
                self.clean -= bound
                self._both(statement, frozenset())

    def needed(self) -> list[ast.stmt]:
        """The statements that run after an answer, without values that only assertions compare with."""
        late: set[str] = set()  # read by functions when they are called, wherever the value was set
        while True:
            kept: list[ast.stmt] = []
            read = set(late)
            for statement, gives in reversed(self.untrusted):
                if not gives or gives & read:
                    kept.append(statement)
                    read |= names_in(statement)
            inner = _names(node for each in kept for node in ast.walk(each) if isinstance(node, _SCOPES))
            if inner <= late:
                return kept[::-1]
            late |= inner

    def is_clean(self, node: ast.expr) -> bool:
        """Whether an expression has the same value whatever the answer is."""
        own = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        for part in ast.walk(node):
            if isinstance(part, ast.comprehension):
                own |= {n.id for n in ast.walk(part.target) if isinstance(n, ast.Name)}
            if isinstance(part, ast.Await | ast.NamedExpr | ast.Yield | ast.YieldFrom):
                return False
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - own
        return self._are_clean(names)

    def _are_clean(self, names: set[str]) -> bool:
        return all(name in self.clean or (name in BUILTINS and name not in self.dirty) for name in names)

    def _handed_over(self, statement: ast.stmt) -> set[str]:
        """Values of the tests that are given to the answer by a call for nothing but what it does to them."""
        match statement:
            case ast.Expr(value=ast.Call() as call):
                return self._lent(call)
        return set()

    def _lent(self, node: ast.AST) -> set[str]:
        """Values of the tests that calls of what is the answer's get."""
        calls = [each for each in ast.walk(node) if isinstance(each, ast.Call) and not self.is_clean(each)]
        given = _names(part for call in calls for part in (*call.args, *(each.value for each in call.keywords)))
        given |= set().union(*(self.reads.get(name, ()) for name in given))
        return given & self.clean & self.made

    def _is_of_tests(self, function: ast.FunctionDef) -> bool:
        """Whether a function of the tests gives the same whatever the answer is: an oracle, a helper."""
        nodes = list(ast.walk(function))
        if any(isinstance(node, ast.Global | ast.Nonlocal | ast.Import | ast.ImportFrom) for node in nodes):
            return False
        own = {node.arg for node in nodes if isinstance(node, ast.arg)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and type(node.ctx) is ast.Store}
        own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        read = {node.id for node in nodes if isinstance(node, ast.Name) and type(node.ctx) is not ast.Store} - own
        return self._are_clean(read)

    def _is_clean_now(self, name: str, statement: ast.stmt) -> None:
        self.clean.add(name)
        self.dirty.discard(name)
        self._both(statement, frozenset({name}))
        self.apart.append(statement)

    def _both(self, statement: ast.stmt, gives: frozenset[str]) -> None:
        self.trusted.append(statement)
        self.untrusted.append((statement, gives))

    def _assert(self, statement: ast.Assert) -> None:
        number = len(self.assertions)
        parts = _AssertionReports(self, number)
        source = ast.unparse(ast.Assert(statement.test, None))
        term = parts.truth(statement.test) if number not in self.whole else parts.report("given", statement.test)
        self.assertions.append(Assertion(source, term))
        for kind, report in parts.reports:
            self.trusted.append(report)
            if kind == "given":
                self.untrusted.append((report, frozenset()))
            else:
                self.apart.append(report)

    def _reached(self, statement: ast.stmt) -> ast.stmt:
        """Replace assertions that a place is never reached (`assert False` after a call) by reports."""
        instrumented = self

        class Never(ast.NodeTransformer):
            def visit_Assert(self, node: ast.Assert) -> ast.stmt:
                if not (isinstance(node.test, ast.Constant) and not node.test.value):
                    raise Entangled(f"within a statement: {ast.unparse(ast.Assert(node.test, None))}")
                number = len(instrumented.assertions)
                instrumented.assertions.append(
                    Assertion(f"never reaches: {ast.unparse(statement)}", Term("value", True), True)
                )
                return _report(number, "g", 0, ast.Constant(True))

        if isinstance(statement, (*_SCOPES, ast.While)):
            raise Entangled("in a function, a class or a loop")
        return Never().visit(copy.deepcopy(statement))  # type: ignore[no-any-return]


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return set().union(*map(names_in, nodes))


def _report(number: int, kind: str, index: int, value: ast.expr) -> ast.Expr:
    place = ast.Constant(f"{number}{kind}{index}")
    return ast.Expr(ast.Call(ast.Name("_capibara_report", ast.Load()), [place, value], []))


@dataclass
class _AssertionReports:
    """The reports that one assertion needs, and its term."""

    instrumented: _InstrumentedTests
    number: int
    reports: list[tuple[Operation, ast.Expr]] = field(default_factory=list)

    def report(self, kind: Operation, node: ast.expr) -> Term:
        index = len(self.reports)
        if kind == "given":
            node = PlainOperands(self.instrumented.is_clean).visit(copy.deepcopy(node))
        self.reports.append((kind, _report(self.number, "g" if kind == "given" else "k", index, node)))
        return Term(kind, index)

    def truth(self, node: ast.expr) -> Term:
        """The term of an expression whose truth is asserted."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Term("not", None, (self.truth(operand),))
            case ast.Compare(left=left, ops=ops, comparators=right) if all(map(_is_comparison, ops, right)):
                names = tuple(type(op).__name__ for op in ops)
                return Term("compare", names, tuple(self.operand(each) for each in (left, *right)))
            case ast.Call(func=ast.Name(id="isinstance"), args=[value, types]) if self._free("isinstance"):
                elements = types.elts if isinstance(types, ast.Tuple) else [types]
                wanted = tuple(each.id for each in elements if isinstance(each, ast.Name) and each.id in _TYPES)
                if len(wanted) == len(elements) and all(map(self._free, wanted)):
                    return Term("isinstance", wanted, (self.operand(value),))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr="isclose"), args=[left, right]):
                if not self.instrumented.is_clean(node.func):
                    return self.operand(node)
                tolerances = {"rel_tol": 1e-9, "abs_tol": 0.0}
                for keyword in node.keywords:
                    if keyword.arg not in tolerances or not is_literal(keyword.value):
                        return self.operand(node)
                    tolerances[keyword.arg] = ast.literal_eval(keyword.value)
                bounds = (Term("value", tolerances["rel_tol"]), Term("value", tolerances["abs_tol"]))
                return Term("call", "isclose", (self.operand(left), self.operand(right), *bounds))
        return self.operand(node)

    def operand(self, node: ast.expr) -> Term:
        """The term of a value: literals and values independent of the answer are not reported, the rest is."""
        if is_literal(node):
            return Term("value", ast.literal_eval(node))
        if self.instrumented.is_clean(node):
            return self.report("known", node)
        match node:
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _CALCULATED) and (
                self.instrumented.is_clean(left) or self.instrumented.is_clean(right)
            ):
                return Term("arithmetic", type(op).__name__, (self.operand(left), self.operand(right)))
            case ast.Call(func=ast.Name(id="abs" | "round" as name), args=[ast.BinOp() as first, *more], keywords=[]):
                if self._free(name):
                    return Term("call", name, tuple(self.operand(each) for each in (first, *more)))
        return self.report("given", node)

    def _free(self, name: str) -> bool:
        return name not in self.instrumented.dirty and name not in self.instrumented.clean


def _is_comparison(operator: ast.cmpop, right: ast.expr) -> bool:
    if isinstance(operator, ast.Is | ast.IsNot):
        return isinstance(right, ast.Constant) and right.value in (None, True, False) and right.value is not math.nan
    return isinstance(operator, _COMPARED)


def names_given(code: str) -> set[str]:
    """Names that a piece of code binds at its top level."""
    tree = parse(code)
    if tree is None:
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(each.asname or each.name).partition(".")[0] for each in node.names}
    return names


def classes_given(code: str) -> set[str]:
    """Names of the classes that a piece of code defines, also by a call (`namedtuple`)."""
    names: set[str] = set()
    for node in ast.walk(parse(code) or ast.Module([], [])):
        match node:
            case ast.ClassDef(name=name):
                names.add(name)
            case ast.Call(
                func=ast.Name(id=maker) | ast.Attribute(attr=maker), args=[ast.Constant(value=str(name)), *_]
            ):
                names |= {name} if maker in _MAKERS else set()
    return names
