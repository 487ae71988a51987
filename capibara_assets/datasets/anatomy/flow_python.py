"""Data flow of Python cells (see `flow`)."""

import ast
from collections.abc import Iterable, Iterator, Sequence

from capibara_assets.datasets.anatomy import flow
from capibara_assets.datasets.anatomy.flow import NONE, Block, FlowCall, Names, Program, Unit, Value, joined
from capibara_assets.datasets.code import python_source
from capibara_assets.datasets.code.python_source import bindings, names_in, parameters, parse
from capibara_assets.executions.parsing import child_nodes, walk

#: Packages (or ends of their modules' names) that are for tests alone.
_LIBRARIES = frozenset(
    {"unittest", "pytest", "doctest", "nose", "hypothesis", "testing", "mock", "ward", "parameterized"}
)
_EXPECTS_ERROR = frozenset({"raises", "assertRaises", "assertRaisesRegex", "warns", "assertWarns", "assertLogs"})
_SHOWS = frozenset({"print", "display", "pprint", "pp"})
_ENDS = frozenset({"exit", "_exit", "quit", "abort"})
_SAME = frozenset({"isclose", "allclose", "array_equal", "equals", "assertEqual", "approx"})


def program(code: str) -> Program | None:
    """Model the cell's statements; None if it does not parse."""
    tree = parse(code)
    if tree is None:
        return None
    libraries = frozenset(_library_names(tree))
    reader = _Reader(libraries)
    places = python_source.Places(code)
    units = []
    for node in tree.body:
        first = min([(node.lineno, node.col_offset), *((d.lineno, 0) for d in getattr(node, "decorator_list", []))])
        end = places.at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        imports = isinstance(node, (ast.Import, ast.ImportFrom))
        units.append(Unit(places.at(*first), end, tuple(reader.statement(node)), imports))
    return Program(tuple(units), libraries, python_source.BUILTINS)


def _library_names(tree: ast.Module) -> Iterator[str]:
    """Names that the cell imports from test libraries."""
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _LIBRARIES & set(alias.name.split(".")):
                    yield alias.asname or alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            of_library = bool(_LIBRARIES & set((node.module or "").split(".")))
            for alias in node.names:
                if of_library or alias.name in _LIBRARIES:
                    yield alias.asname or alias.name


class _Reader:
    """Reads statements; `libraries` are the names of test libraries in the cell."""

    def __init__(self, libraries: Names) -> None:
        self.libraries = libraries
        self.case_objects: list[str] = []  # `self` of the test cases around
        self._values: dict[ast.expr, Value] = {}

    def block(self, statements: Iterable[ast.stmt]) -> Block:
        return tuple(part for statement in statements for part in self.statement(statement))

    def statement(self, node: ast.stmt) -> Iterator[flow.Statement]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield self.definition(node)
            case ast.Assign(targets=targets, value=value):
                yield from self._assigned(targets, value)
            case ast.AnnAssign(target=target, value=value):
                yield from self._assigned([target], value or target)
            case ast.AugAssign(target=target, value=value):
                whole = joined([self.value(value)], names_in(target))
                yield flow.Bind(frozenset(bindings(target)), whole, frozenset(_roots([target])))
            case ast.Import() | ast.ImportFrom():
                yield flow.Bind(frozenset(bindings(node)), Value())
            case ast.Expr(value=value):
                yield from self._expression(value)
            case ast.Assert(test=test):
                yield flow.Assert(self.value(test))
            case ast.Raise(exc=raised):
                yield flow.Fail(self.value(raised), _named(raised) in ("AssertionError", "SystemExit"))
            case ast.Return(value=value):
                yield flow.Give(self.value(value))
            case ast.If(test=test, body=body, orelse=orelse):
                condition = self.value(test)
                if _is_main_guard(test):
                    yield from self.block(body)
                    return
                yield flow.Branch(condition, (self.block(body), self.block(orelse)))
            case ast.While(test=test, body=body, orelse=orelse):
                yield flow.Branch(self.value(test), (self.block([*body, *orelse]),))
            case ast.For(target=target, iter=items) | ast.AsyncFor(target=target, iter=items):
                names = frozenset(bindings(target)) | frozenset(_roots([target]))
                yield flow.Loop(names, self.value(items), self.block([*node.body, *node.orelse]))
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                yield from self._with(items, body)
            case ast.Try() | ast.TryStar():
                handlers = [part for handler in node.handlers for part in handler.body]
                yield flow.Try(self.block(node.body), self.block(handlers), self.block([*node.orelse, *node.finalbody]))
            case ast.Match(subject=subject, cases=cases):
                bound = frozenset(name for case in cases for name in bindings(case.pattern))
                yield flow.Bind(bound, self.value(subject))
                yield flow.Branch(self.value(subject), tuple(self.block(case.body) for case in cases))
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield flow.Outer(frozenset(names))
            case ast.Delete(targets=targets):
                yield flow.Bind(NONE, Value(), frozenset(_roots(targets)))

    def definition(self, node: python_source.Definition) -> flow.Function:
        if isinstance(node, ast.ClassDef):
            outer = self.values([*node.bases, *node.decorator_list, *(keyword.value for keyword in node.keywords)])
            is_case = any(_root(base) in self.libraries or _named(base) == "TestCase" for base in node.bases)
            if is_case:
                self.case_objects.append("self")
            block = self.block(node.body)
            if is_case:
                self.case_objects.pop()
            return flow.Function(node.name, frozenset({"self"}), block, outer, is_case, is_class=True)
        annotations = [a.annotation for a in parameters(node) if a.annotation is not None]
        defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
        outer = self.values([*defaults, *node.decorator_list, *annotations, *([node.returns] if node.returns else [])])
        is_case = any(_root(decorator) in self.libraries for decorator in node.decorator_list)
        own = frozenset(a.arg for a in parameters(node))
        empty = all(isinstance(part, ast.Pass) or _is_constant(part) for part in node.body)
        return flow.Function(node.name, own, self.block(node.body), outer, is_case, is_empty=empty)

    def _assigned(self, targets: Sequence[ast.expr], value: ast.expr) -> Iterator[flow.Statement]:
        names = frozenset(name for target in targets for name in bindings(target))
        if isinstance(value, ast.Lambda) and len(targets) == 1 and isinstance(targets[0], ast.Name):
            function = self._literal(value)
            yield flow.Function(targets[0].id, function.parameters, function.block, function.outer)
            return
        stores = [
            part for target in targets for part in walk(target) if isinstance(part, (ast.Attribute, ast.Subscript))
        ]
        whole = joined([self.value(value), *(self.value(part) for part in stores)])
        yield flow.Bind(names, whole, frozenset(_roots(stores)))

    def _expression(self, node: ast.expr) -> Iterator[flow.Statement]:
        value = self.value(node)
        call = node.value if isinstance(node, ast.Await) else node
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            yield flow.Give(value)
        elif not isinstance(call, ast.Call):
            yield flow.Do(value)
        elif self._asserts(call):
            yield flow.Assert(value)
        elif _named(call.func) in _SHOWS or ast.unparse(call.func).endswith(("stdout.write", "stderr.write")):
            yield flow.Show(value)
        elif _named(call.func) in _ENDS:
            yield flow.Fail(value, True)
        else:
            changed = {root for each in walk(call) if isinstance(each, ast.Call) for root in _changed(each)}
            yield flow.Bind(NONE, value, frozenset(changed)) if changed else flow.Do(value)

    def _asserts(self, call: ast.Call) -> bool:
        """Whether a call is an assertion of a test library."""
        root, name = _root(call.func), _named(call.func) or ""
        if isinstance(call.func, ast.Name):
            return root in self.libraries and name.startswith("assert")
        ours = root in self.libraries or root in self.case_objects or ".testing." in ast.unparse(call.func)
        return ours and name.lower().startswith(("assert", "fail"))

    def _with(self, items: Sequence[ast.withitem], body: Sequence[ast.stmt]) -> Iterator[flow.Statement]:
        for item in items:
            if item.optional_vars is not None:
                yield flow.Bind(frozenset(bindings(item.optional_vars)), self.value(item.context_expr))
            else:
                yield flow.Do(self.value(item.context_expr))
        calls = [item.context_expr for item in items if isinstance(item.context_expr, ast.Call)]
        ours = {*self.libraries, *self.case_objects}
        if any(_root(call.func) in ours and _named(call.func) in _EXPECTS_ERROR for call in calls):
            yield flow.Assert(
                joined(self.value(part) for part in walk(ast.Module(list(body), [])) if isinstance(part, ast.expr))
            )
        yield from self.block(body)

    def values(self, nodes: Iterable[ast.expr]) -> Value:
        return joined(self.value(node) for node in nodes)

    def value(self, node: ast.expr | None) -> Value:
        """Data flow of an expression."""
        if node is None:
            return Value()
        if node not in self._values:
            self._values[node] = self._value(node)
        return self._values[node]

    def _value(self, node: ast.expr) -> Value:
        names: set[str] = set()
        own: set[str] = set()  # variables of comprehensions
        calls: list[FlowCall] = []
        equals: list[tuple[Value, Value]] = []
        functions: list[flow.Function] = []
        pending: list[ast.AST] = [node]
        while pending:
            part = pending.pop()
            if isinstance(part, ast.Lambda):
                functions.append(self._literal(part))
                names |= names_in(part) - functions[-1].parameters
                continue
            if isinstance(part, ast.comprehension):
                own |= set(bindings(part.target))
            if isinstance(part, ast.Name):
                names.add(part.id)
                continue
            if isinstance(part, (ast.Constant, ast.expr_context)):
                continue
            if isinstance(part, ast.Call):
                calls.append(self._call(part))
                if _named(part.func) in _SAME and len(part.args) > 1:
                    equals.append((self.value(part.args[0]), self.value(part.args[1])))
            elif isinstance(part, ast.Compare):
                sides = [part.left, *part.comparators]
                for left, operator, right in zip(sides, part.ops, sides[1:], strict=False):
                    if isinstance(operator, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
                        equals.append((self.value(left), self.value(right)))
            pending.extend(child_nodes(part))
        return Value(frozenset(names - own), tuple(calls), tuple(equals), tuple(self._truths(node)), tuple(functions))

    def _call(self, node: ast.Call) -> FlowCall:
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        arguments = tuple(map(self.value, given))
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
            arguments += self._call(node.func.value).arguments  # what `a(x)` of `a(x).b(y)` was given, b has too
        return FlowCall(_root(node.func), arguments, isinstance(node.func, ast.Name))

    def _truths(self, node: ast.expr) -> Iterator[FlowCall]:
        match node:
            case ast.Call(func=ast.Name(id="bool" | "all" | "any"), args=[inner]):
                yield from self._truths(inner)
            case ast.Call():
                yield self._call(node)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                yield from self._truths(inner)
            case ast.BoolOp(values=values):
                for each in values:
                    yield from self._truths(each)
            case ast.Compare(left=inner, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=bool())]):
                yield from self._truths(inner)

    def _literal(self, node: ast.Lambda) -> flow.Function:
        effects = tuple(self._expression(node.body))
        gives = not isinstance(effects[0], flow.Show | flow.Assert | flow.Fail)
        block = (flow.Give(self.value(node.body)),) if gives else effects
        return flow.Function(None, frozenset(a.arg for a in parameters(node)), block, self.values(node.args.defaults))


def _root(node: ast.AST | None) -> str | None:
    """The name at the root of `a.b[0].c(1).d`."""
    while True:
        match node:
            case (
                ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Await(value=inner) | ast.Call(func=inner)
            ):
                node = inner
            case ast.Name(id=name):
                return name
            case _:
                return None


def _roots(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The variables that stores into these targets change."""
    for node in nodes:
        if isinstance(node, (ast.Tuple, ast.List)):
            yield from _roots(node.elts)
        elif (root := _root(node)) is not None and isinstance(node, (ast.Attribute, ast.Subscript)):
            yield root


def _changed(call: ast.Call) -> Iterator[str]:
    """The object whose method a statement calls for its effect."""
    if isinstance(call.func, ast.Attribute) and (
        call.func.attr in python_source.CHANGING or not isinstance(call.func.value, ast.Call)
    ):
        root = _root(call.func)
        if root is not None:
            yield root


def _named(node: ast.AST | None) -> str | None:
    """The last name of `a.b.C` or `C(...)`."""
    match node:
        case ast.Call(func=inner):
            return _named(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and "__name__" in names_in(test)
