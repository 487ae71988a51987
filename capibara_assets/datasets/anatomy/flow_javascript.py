"""Data flow of JavaScript cells (see `flow`)."""

from collections.abc import Iterator

from tree_sitter import Node

from capibara_assets.datasets.anatomy import flow
from capibara_assets.datasets.anatomy.flow import NONE, Block, FlowCall, Names, Program, Unit, Value, joined
from capibara_assets.datasets.code.javascript_source import (
    ASSIGNMENTS,
    GLOBALS,
    assigned,
    declared,
    given,
    parse,
    pattern_names,
    positions,
    statement_nodes,
    text,
    walk,
)

#: Modules that are for tests alone, and names that test runners give.
_FOR_TESTS = """assert assert/strict test chai vitest jest @jest/globals mocha tape ava uvu should jasmine"""
_LIBRARIES = frozenset(_FOR_TESTS.split())
_RUNNERS = frozenset(  # what a test runner or an earlier cell gives
    {"describe", "it", "test", "expect", "assert", "beforeEach", "afterEach", "beforeAll", "afterAll", "suite"}
)
_LONGEST_CHAIN = 200  # of calls and members; each step of a longer one would be followed to its root
_FUNCTIONS = frozenset({"function_declaration", "generator_function_declaration"})
_LITERALS = frozenset({"arrow_function", "function_expression", "generator_function", "method_definition"})
_NAMES = frozenset({"identifier", "shorthand_property_identifier", "this"})
_SHOWS = frozenset({"log", "info", "debug", "dir", "table", "error", "warn"})
_EQUAL = frozenset({"==", "===", "!=", "!=="})
_WRAPPERS = frozenset({"parenthesized_expression", "await_expression", "sequence_expression"})


def program(code: str) -> Program | None:
    """Model the cell's statements; None if it does not parse."""
    root = parse(code)
    if root.has_error:
        return None
    libraries = frozenset(_library_names(root))
    reader = _Reader(libraries | (_RUNNERS - set(declared(root))))
    place = positions(code)
    units = tuple(
        Unit(place(node.start_byte), place(node.end_byte), tuple(reader.statement(node)), _required(node) is not None)
        for node in statement_nodes(code)
    )
    return Program(units, reader.libraries, GLOBALS | {"this"})


def _required(node: Node) -> str | None:
    """The module of `const a = require('a')` or `import a from 'a'`; None for every other statement."""
    if node.type == "import_statement":
        source = node.child_by_field_name("source")
        return text(source).strip("'\"`") if source is not None else None
    if node.type not in ("lexical_declaration", "variable_declaration"):
        return None
    value = next((d.child_by_field_name("value") for d in node.named_children if d.type == "variable_declarator"), None)
    while value is not None and value.type == "member_expression":
        value = value.child_by_field_name("object")
    called = value.child_by_field_name("function") if value is not None and value.type == "call_expression" else None
    if value is None or called is None or text(called) != "require":
        return None
    first = next(iter(given(value)), None)
    return text(first).strip("'\"`") if first is not None else None


def _library_names(root: Node) -> Iterator[str]:
    for node in root.named_children:
        module = _required(node)
        if module is not None and module.removeprefix("node:") in _LIBRARIES:
            for part in walk(node):
                if part.type in ("identifier", "shorthand_property_identifier_pattern") and text(part) != "require":
                    yield text(part)


class _Reader:
    """Reads statements; `libraries` are the names of test libraries in the cell."""

    def __init__(self, libraries: Names) -> None:
        self.libraries = libraries
        self._values: dict[int, Value] = {}

    def block(self, node: Node | None) -> Block:
        if node is None:
            return ()
        if node.type in ("statement_block", "class_body", "switch_body"):
            return tuple(part for child in node.named_children for part in self.statement(child))
        return tuple(self.statement(node))

    def statement(self, node: Node) -> Iterator[flow.Statement]:
        kind, field = node.type, node.child_by_field_name
        if kind in _FUNCTIONS or kind == "class_declaration":
            yield self.function(node)
        elif kind in ("lexical_declaration", "variable_declaration"):
            for declarator in node.named_children:
                if declarator.type == "variable_declarator":
                    yield self._declared(declarator)
        elif kind == "expression_statement":
            for child in node.named_children:
                yield from self.expression(child)
        elif kind == "return_statement":
            yield flow.Give(joined(map(self.value, node.named_children)))
        elif kind == "throw_statement":
            yield flow.Fail(joined(map(self.value, node.named_children)), "AssertionError" in text(node))
        elif kind == "if_statement":
            yield flow.Branch(
                self.value(field("condition")), (self.block(field("consequence")), self.block(field("alternative")))
            )
        elif kind in ("while_statement", "do_statement"):
            yield flow.Branch(self.value(field("condition")), (self.block(field("body")),))
        elif kind == "for_statement":
            yield from self.block(field("initializer"))
            yield flow.Branch(self.value(field("condition")), (self.block(field("body")),))
        elif kind == "for_in_statement":
            yield flow.Loop(
                frozenset(pattern_names(field("left"))), self.value(field("right")), self.block(field("body"))
            )
        elif kind == "try_statement":
            handler, last = field("handler"), field("finalizer")
            caught = self.block(handler.child_by_field_name("body")) if handler is not None else ()
            yield flow.Try(
                self.block(field("body")), caught, self.block(last.child_by_field_name("body") if last else None)
            )
        elif kind == "switch_statement":
            cases = [self.block_of(case) for case in (field("body") or node).named_children]
            yield flow.Branch(self.value(field("value")), tuple(cases))
        elif kind in _LITERALS:
            yield self.function(node)
        elif kind in ("field_definition",):
            yield flow.Do(self.value(field("value")))
        elif kind == "import_statement":
            names = frozenset(text(part) for part in walk(node) if part.type == "identifier")
            yield flow.Bind(names, Value())
        else:
            yield from self._nested(node)

    def block_of(self, node: Node) -> Block:
        """The statements of a `case`, or of anything else that holds statements."""
        return tuple(part for child in node.named_children for part in self.statement(child))

    def _nested(self, node: Node) -> Iterator[flow.Statement]:
        if node.type.endswith(("_statement", "_clause", "_block")) or node.type in ("labeled_statement",):
            yield from self.block_of(node)
        elif node.is_named and node.type not in ("comment", "statement_identifier", "property_identifier"):
            yield flow.Do(self.value(node))

    def _declared(self, node: Node) -> flow.Statement:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        names = frozenset(pattern_names(name))
        if value is not None and name is not None and name.type == "identifier" and value.type in (*_LITERALS, "class"):
            function = self.function(value)
            return flow.Function(
                text(name),
                function.parameters,
                function.block,
                function.outer,
                is_class=function.is_class,
                is_empty=function.is_empty,
            )
        return flow.Bind(names, self.value(value))

    def function(self, node: Node) -> flow.Function:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        called = text(name) if name is not None and node.type != "method_definition" else None
        if node.type in ("class_declaration", "class"):
            heritage = next((child for child in node.named_children if child.type == "class_heritage"), None)
            return flow.Function(called, frozenset({"this"}), self.block(body), self.value(heritage), is_class=True)
        parameters = node.child_by_field_name("parameters") or node.child_by_field_name("parameter")
        names = frozenset(pattern_names(parameters))
        if body is not None and body.type != "statement_block":
            effects = tuple(self.expression(body)) if body.type == "call_expression" else ()
            if effects and isinstance(effects[0], flow.Show | flow.Assert | flow.Fail):  # it gives nothing
                return flow.Function(called, names, effects)
            return flow.Function(called, names, (flow.Give(self.value(body)),))
        empty = body is None or not body.named_children
        return flow.Function(called, names, self.block(body), is_empty=empty)

    def expression(self, node: Node) -> Iterator[flow.Statement]:
        """Effect of an expression used as a statement."""
        if node.type in _WRAPPERS:
            for child in node.named_children:
                yield from self.expression(child)
            return
        if node.type in ASSIGNMENTS:
            yield from self._assigned(node)
            return
        if node.type == "ternary_expression":
            blocks = [tuple(self.expression(part)) for part in node.named_children[1:]]
            yield flow.Branch(self.value(node.named_children[0]), tuple(blocks))
            return
        if node.type == "binary_expression" and text(node).count("&&") + text(node).count("||"):
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if right is not None and right.type == "call_expression":
                yield flow.Branch(self.value(left), (tuple(self.expression(right)),))
                return
        if node.type != "call_expression":
            yield flow.Do(self.value(node))
            return
        called = node.child_by_field_name("function")
        while called is not None and called.type == "parenthesized_expression":
            called = called.named_children[0]
        if called is not None and called.type in _LITERALS:  # (() => { ... })()
            yield from self.function(called).block
            return
        yield from self._called(node, called)

    def _called(self, node: Node, called: Node | None) -> Iterator[flow.Statement]:
        value, root = self.value(node), _root(called)
        method = called.child_by_field_name("property") if called is not None else None
        name = text(method) if method is not None else ""
        if root == "console" and name == "assert":
            yield flow.Assert(self._first(node))
        elif (root == "console" and name in _SHOWS) or (root == "process" and name == "write"):
            yield flow.Show(value)
        elif root == "process" and name in ("exit", "abort"):
            yield flow.Fail(value, True)
        elif root in self.libraries and root not in ("describe", "suite", "it", "test"):
            yield flow.Assert(value)
        elif method is not None and root is not None:
            yield flow.Bind(NONE, value, frozenset({root}))
        else:
            yield flow.Do(value)

    def _first(self, node: Node) -> Value:
        return self.value(next(iter(given(node)), None))

    def _assigned(self, node: Node) -> Iterator[flow.Statement]:
        target = assigned(node)
        source = node.child_by_field_name("right")
        whole = self.value(source) if node.type == "assignment_expression" else self.value(node)
        if target is not None and target.type in ("member_expression", "subscript_expression"):
            root = _root(target)
            yield flow.Bind(NONE, joined([whole, self.value(target)]), frozenset({root}) if root else NONE)
        else:
            yield flow.Bind(frozenset(pattern_names(target)), whole)

    def value(self, node: Node | None) -> Value:
        """Data flow of an expression."""
        if node is None:
            return Value()
        if node.id not in self._values:
            self._values[node.id] = self._value(node)
        return self._values[node.id]

    def _value(self, node: Node) -> Value:
        names: set[str] = set()
        calls: list[FlowCall] = []
        equals: list[tuple[Value, Value]] = []
        functions: list[flow.Function] = []
        pending = [node]
        while pending:
            part = pending.pop()
            if part.type in _LITERALS or part.type == "class":
                functions.append(self.function(part))
                names |= {text(each) for each in walk(part) if each.type in _NAMES} - set(declared(part))
                continue
            if part.type in _NAMES:
                names.add(text(part))
            elif part.type in ("call_expression", "new_expression"):
                calls.append(self._call(part))
                if (pair := self._same(part)) is not None:
                    equals.append(pair)
            elif part.type == "binary_expression" and _operator(part) in _EQUAL:
                left, right = part.child_by_field_name("left"), part.child_by_field_name("right")
                equals.append((self.value(left), self.value(right)))
            pending.extend(part.named_children)
        return Value(frozenset(names), tuple(calls), tuple(equals), tuple(self._truths(node)), tuple(functions))

    def _call(self, node: Node) -> FlowCall:
        called = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        arguments = tuple(map(self.value, given(node)))
        inner = called.child_by_field_name("object") if called is not None else None
        if inner is not None and inner.type == "call_expression":  # what `a(x)` of `a(x).b(y)` was given, b has too
            arguments += self._call(inner).arguments
        return FlowCall(_root(called), arguments, called is not None and called.type == "identifier")

    def _same(self, node: Node) -> tuple[Value, Value] | None:
        """Both sides of `Object.is(a, b)` and `a.equals(b)`."""
        called, arguments = node.child_by_field_name("function"), given(node)
        if called is not None and text(called) in ("Object.is", "util.isDeepStrictEqual") and len(arguments) > 1:
            return self.value(arguments[0]), self.value(arguments[1])
        return None

    def _truths(self, node: Node) -> Iterator[FlowCall]:
        if node.type == "call_expression":
            yield self._call(node)
        elif (
            node.type in _WRAPPERS
            or node.type == "unary_expression"
            or (node.type == "binary_expression" and _operator(node) in ("&&", "||"))
        ):
            for child in node.named_children:
                yield from self._truths(child)
        elif node.type == "binary_expression" and _operator(node) in _EQUAL:
            sides = node.named_children
            if any(side.type in ("true", "false") for side in sides):
                for side in sides:
                    yield from self._truths(side)


def _operator(node: Node) -> str:
    operator = node.child_by_field_name("operator")
    return text(operator) if operator is not None else ""


def _root(node: Node | None) -> str | None:
    """The name at the root of `a.b[0].c(1).d`; None of a chain that nobody writes."""
    for _ in range(_LONGEST_CHAIN):
        if node is None:
            return None
        if node.type in _NAMES:
            return text(node)
        if node.type in ("member_expression", "subscript_expression"):
            node = node.child_by_field_name("object")
        elif node.type == "call_expression":
            node = node.child_by_field_name("function")
        elif node.type == "new_expression":
            node = node.child_by_field_name("constructor")
        elif node.type in _WRAPPERS or node.type == "non_null_expression":
            node = node.named_children[0] if node.named_children else None
        else:
            return None
    return None
