"""Replace the assertions of JavaScript tests (`assert.strictEqual(f(2), 3)`) by reports; see `assertions.py`."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from capibara_assets.datasets.assertions.assertions import Assertion, Observed, Term
from capibara_assets.datasets.assertions.plain_operands_javascript import (
    PlainOperands,
    classes_given,
    methods_given,
    names_used,
)
from capibara_assets.datasets.assertions.plain_values import Text
from capibara_assets.datasets.assertions.plain_values_javascript import prelude
from capibara_assets.datasets.code.javascript_source import GLOBALS, declared, leaves, parse, text

_EQUAL = frozenset({"equal", "strictEqual", "deepEqual", "deepStrictEqual"})
_UNEQUAL = frozenset({"notEqual", "notStrictEqual", "notDeepEqual", "notDeepStrictEqual"})
_THROWS = "if"
_TRUE = frozenset({"ok", ""})
#: How values are equal: as objects in their parts, by identity and without -0 for 0, or as operators compare.
_HOW = {
    "deepStrictEqual": "deep", "notDeepStrictEqual": "deep", "strictEqual": "is", "notStrictEqual": "is",
    "equal": "loose", "notEqual": "loose",
}  # fmt: skip
_ASSERTS = re.compile(r"\bassert\b|\bexpect\(")
#: Stands first in what an assertion that a call throws compares with each other.
NOTHING_THROWN = Term("value", Text('"throws nothing"'))
_OPERATORS = {"===": "Eq", "==": "Eq", "!==": "NotEq", "!=": "NotEq"}


def observed(tests: str, answers: Collection[str], given: Sequence[str] = ()) -> Observed:
    """Replace the assertions of tests by reports.

    Args:
        tests: code that runs after an answer.
        answers: names that an answer or the cells before it define.
        given: the reference and the cells before it: the classes and methods that an answer is asked for are theirs.
    """
    root = parse(tests)
    if root.has_error:
        return Observed(tests, tests, (), "its tests do not parse")
    statements = [node for node in root.named_children if node.type not in ("comment", "empty_statement")]
    if not statements:
        return Observed(tests, tests, ())
    statements = _flat(statements)
    instrumented = _InstrumentedTests(set(answers), _only_compared(statements, answers))
    for node in statements:
        if not instrumented.add(node):
            where = " ".join(text(node).split())[:80]
            return Observed(tests, tests, (), f"its tests assert within a statement: {where}")
    codes = [tests, *given]
    classes, methods = (set().union(*map(find, codes)) for find in (classes_given, methods_given))
    before = prelude(names_used(root) - {"require"}, classes, methods, reports=bool(instrumented.assertions))
    return Observed(
        before + "\n".join(instrumented.untrusted),
        before + "\n".join(instrumented.trusted),
        tuple(instrumented.assertions),
        None,
        before + "\n".join(instrumented.apart) if instrumented.apart else "",
        before,
    )


def _only_compared(statements: Sequence[Node], answers: Collection[str]) -> set[str]:
    """Constants that no answer has a part in and gets: their names are in no other place than what is compared with."""
    constants = {
        names[0]: node
        for node in statements
        if text(node).startswith("const ") and len(names := [*declared(node)]) == 1
    }
    while True:
        read: set[str] = set()
        for node in statements:
            call = _assertion(node)
            own = [each for each in declared(node) if each in constants]
            if call is not None:
                parts = _operands(*call)
                parts = [each for each in parts if len(parts) < 2 or not _is_clean(each, constants, answers)]
            else:
                parts = [node] if not own or not _is_clean(node, constants, answers) else []
            read |= {name for each in parts for name in names_used(each)}
        if read.isdisjoint(constants):
            return set(constants)
        constants = {name: node for name, node in constants.items() if name not in read}


def _operands(method: str, arguments: list[Node]) -> list[Node]:
    """What an assertion compares with each other, or the one value that it tests."""
    if method in _EQUAL | _UNEQUAL or not arguments:
        return arguments[:2]
    node = arguments[0]
    while node.type in ("parenthesized_expression", "unary_expression"):
        node = node.named_children[-1]
    operator = node.child_by_field_name("operator") if node.type == "binary_expression" else None
    return node.named_children if operator is not None and text(operator) in _OPERATORS else [node]


def _flat(statements: list[Node]) -> list[Node]:
    """The statements, with a test function's body (`const testIt = () => {...}`) in the place of its call."""
    checks: dict[str, list[Node]] = {}
    flat: list[Node] = []
    called = {text(node).rstrip(";\n ") for node in statements}
    for node in statements:
        name, body = _check(node)
        if name and body is not None and (_ASSERTS.search(text(body)) or f"{name}()" in called):
            checks[name] = [each for each in body.named_children if each.type != "comment"]
            continue
        call = re.fullmatch(r"(\w+)\(\)", text(node).rstrip(";\n "))
        flat += checks[call[1]] if call and call[1] in checks else [node]
    return flat


def _check(node: Node) -> tuple[str, Node | None]:
    """(name, body) of a function without parameters that asserts."""
    target: Node | None = node if node.type == "function_declaration" else None
    name = node.child_by_field_name("name")
    if node.type in ("lexical_declaration", "variable_declaration") and len(node.named_children) == 1:
        declarator = node.named_children[0]
        name, target = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
    if target is None or name is None or target.type not in ("function_declaration", "arrow_function"):
        return "", None
    parameters, body = target.child_by_field_name("parameters"), target.child_by_field_name("body")
    if parameters is None or parameters.named_children or body is None or body.type != "statement_block":
        return "", None
    asserts = _ASSERTS.search(text(body)) or any(map(_assertion, body.named_children))
    return (text(name), body) if asserts else ("", None)


@dataclass
class _InstrumentedTests:
    """The statements of tests with each assertion replaced by reports, collected one statement at a time."""

    dirty: set[str]
    clean: set[str]  # constants that nothing but assertions reads
    trusted: list[str] = field(default_factory=list)
    untrusted: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)
    assertions: list[Assertion] = field(default_factory=list)

    def add(self, node: Node) -> bool:
        """Add a statement; False where it asserts in a way that cannot be replaced."""
        call = _assertion(node)
        if call is not None:
            return self._assert(node, *call)
        source = text(node)
        if _ASSERTS.search(source) and not re.fullmatch(r"(const|let|var)\s+[^=]+=\s*require\([^)]*\)[.\w]*;?", source):
            return False
        names = set(declared(node))
        if names and self.clean.issuperset(names):
            self.trusted.append(source)
            self.apart += [] if _ASSERTS.search(source) else [source]
            return True
        self.dirty.update(names)
        required = node.type in ("lexical_declaration", "variable_declaration") and "require(" in source
        self.trusted.append(source if required else self._plain(node))
        self.untrusted.append(self.trusted[-1])
        return True

    def _plain(self, node: Node) -> str:
        return PlainOperands(self.dirty).rewritten(node)

    def _assert(self, node: Node, method: str, arguments: list[Node]) -> bool:
        number, reports = len(self.assertions), 0
        term: Term

        def operand(source: str, dirty: bool = True, how: str = "", apart: bool = True) -> Term:
            nonlocal reports
            place = f"{number}{'g' if dirty else 'k'}{reports}"
            said = f"_capibara_report('{place}', {source}{f', {how!r}' if how else ''});"
            self.trusted.append(said)
            if dirty:
                self.untrusted.append(said)
            elif apart:
                self.apart.append(said)
            reports += 1
            return Term("given" if dirty else "known", reports - 1)

        def pair(left: Node, right: Node, how: str, converts: bool) -> tuple[Term, ...]:
            if converts and "number" in (left.type, right.type):  # `'4.50' == 4.5`
                how = "number"
            return tuple(
                operand(self._plain(each), not _is_clean(each, self.clean, self.dirty), how) for each in (left, right)
            )

        if method in _EQUAL | _UNEQUAL and len(arguments) >= 2:
            operator = "Eq" if method in _EQUAL else "NotEq"
            how = _HOW.get(method, "")
            term = Term("compare", (operator,), pair(arguments[0], arguments[1], how, how == "loose"))
        elif method in _TRUE and arguments:
            term = self._truth(arguments[0], operand, pair)
        elif method == _THROWS:
            term = Term("not", None, (self._truth(arguments[0], operand, pair),))
        elif method == "throws" and arguments:
            thrown = f"_capibara_thrown({self._plain(arguments[0])})"
            # what the reference throws is what has to be thrown
            parts = (NOTHING_THROWN, operand(thrown), operand(thrown, dirty=False, apart=False))
            term = Term("compare", ("NotEq", "Eq"), parts)
        else:
            return False
        self.assertions.append(Assertion(" ".join(text(node).split()), term))
        return True

    def _truth(self, node: Node, operand, pair) -> Term:  # type: ignore[no-untyped-def]
        while node.type == "parenthesized_expression":
            node = node.named_children[0]
        if node.type == "unary_expression" and text(node).startswith("!"):
            return Term("not", None, (self._truth(node.named_children[0], operand, pair),))
        operator = node.child_by_field_name("operator") if node.type == "binary_expression" else None
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if operator is not None and left is not None and right is not None and text(operator) in _OPERATORS:
            sign = text(operator)
            return Term("compare", (_OPERATORS[sign],), pair(left, right, "operator", sign in ("==", "!=")))
        return operand(f"Boolean({self._plain(node)})")  # type: ignore[no-any-return]


def _is_clean(node: Node, clean: Collection[str], dirty: Collection[str]) -> bool:
    """Whether an expression names nothing but what is clean, and JavaScript's own that is not dirty."""
    names = {text(leaf) for leaf in leaves(node) if leaf.type in ("identifier", "shorthand_property_identifier")}
    return all(name in clean or (name in GLOBALS and name not in dirty) for name in names)


def _assertion(node: Node) -> tuple[str, list[Node]] | None:
    """(method, arguments) of `assert.method(...)`, `assert(...)` or `console.assert(...)`, or of an `if` that throws.

    None for anything else.
    """
    condition, body = (node.child_by_field_name(each) for each in ("condition", "consequence"))
    if node.type == "if_statement" and condition is not None and body is not None:
        only = body.named_children[0] if body.type == "statement_block" and body.named_child_count == 1 else body
        is_all = only.type == "throw_statement" and node.child_by_field_name("alternative") is None
        return (_THROWS, [condition]) if is_all else None
    if node.type != "expression_statement" or not node.named_children:
        return None
    call = node.named_children[0]
    function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    if call.type != "call_expression" or function is None or arguments is None:
        return None
    match = re.fullmatch(r"(?:console\.)?assert(?:\.strict)?(?:\.(\w+))?", text(function))
    given = [each for each in arguments.named_children if each.type != "comment"]
    return None if match is None else (match[1] or "", given)


def names_given(code: str) -> set[str]:
    """Names that a piece of code declares at its top level."""
    return {name for node in parse(code).named_children for name in declared(node)}
