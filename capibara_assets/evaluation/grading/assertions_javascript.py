"""Replace the assertions of JavaScript tests (`assert.strictEqual(f(2), 3)`) by reports; see `assertions.py`."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from tree_sitter import Node

from capibara_assets.datasets.code.javascript_source import GLOBALS, declared, leaves, parse, text
from capibara_assets.evaluation.grading.assertions import Assertion, Observed, Term

_EQUAL = frozenset({"equal", "strictEqual", "deepEqual", "deepStrictEqual"})
_UNEQUAL = frozenset({"notEqual", "notStrictEqual", "notDeepEqual", "notDeepStrictEqual"})
_TRUE = frozenset({"ok", ""})
_ASSERTS = re.compile(r"\bassert\b|\bexpect\(")
_OPERATORS = {"===": "Eq", "==": "Eq", "!==": "NotEq", "!=": "NotEq"}

_REPORTER = r"""
function _capibara_report(place, value) {
  const tagged = (name, parts) => name + '(' + parts.join(', ') + ')';
  const shown = (value, depth) => {
    if (depth > 100) throw new Error('nested too deeply');
    const more = (each) => shown(each, depth + 1);
    if (value === null || value === undefined || typeof value === 'boolean') return String(value);
    if (typeof value === 'number') return Object.is(value, -0) ? '0' : String(value);
    if (typeof value === 'bigint') return String(value) + 'n';
    if (typeof value === 'string') return JSON.stringify(value);
    if (typeof value !== 'object') return typeof value;
    if (Array.isArray(value)) return '[' + Array.from(value, more).join(', ') + ']';
    const name = value.constructor ? value.constructor.name : 'null';
    if (name === 'Map') return tagged('Map', Array.from(value, ([key, each]) => more(key) + ' => ' + more(each)));
    if (name === 'Set') return tagged('Set', Array.from(value, more));
    if (name === 'Date') return tagged('Date', [String(value.getTime())]);
    if (name === 'RegExp') return tagged('RegExp', [String(value)]);
    if (typeof value.message === 'string' && 'stack' in value) return tagged(value.name, [more(value.message)]);
    const pairs = Object.keys(value).sort().map((key) => JSON.stringify(key) + ': ' + more(value[key]));
    return (name === 'Object' || name === 'null' ? '' : name + ' ') + '{' + pairs.join(', ') + '}';
  };
  const form = value === true || value === false ? ['b', value] : ['r', shown(value, 0)];
  console.log(String.fromCharCode(30) + place + ' ' + JSON.stringify(form) + String.fromCharCode(31));
}
function _capibara_thrown(make) {
  try { make(); } catch (error) {
    return 'throws ' + (error && error.name ? error.name + ': ' + error.message : String(error));
  }
  return 'throws nothing';
}
"""


def observed(tests: str, answers: Collection[str]) -> Observed:
    """Replace the assertions of tests by reports; `answers` are names that an answer or the cells before it define."""
    root = parse(tests)
    if root.has_error:
        return Observed(tests, tests, (), "its tests do not parse")
    statements = [node for node in root.named_children if node.type not in ("comment", "empty_statement")]
    instrumented = _InstrumentedTests(set(answers))
    for node in _flat(statements):
        if not instrumented.add(node):
            where = " ".join(text(node).split())[:80]
            return Observed(tests, tests, (), f"its tests assert within a statement: {where}")
    if not instrumented.assertions:
        return Observed(tests, tests, ())
    return Observed(
        _REPORTER + "\n".join(instrumented.untrusted),
        _REPORTER + "\n".join(instrumented.trusted),
        tuple(instrumented.assertions),
    )


def _flat(statements: list[Node]) -> list[Node]:
    """The statements, with a test function's body (`const testIt = () => {...}`) in the place of its call."""
    checks: dict[str, list[Node]] = {}
    flat: list[Node] = []
    for node in statements:
        name, body = _check(node)
        if name and body is not None:
            checks[name] = [each for each in body.named_children if each.type != "comment"]
            continue
        called = re.fullmatch(r"(\w+)\(\)", text(node).rstrip(";\n "))
        flat += checks[called[1]] if called and called[1] in checks else [node]
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
    return (text(name), body) if _ASSERTS.search(text(body)) else ("", None)


@dataclass
class _InstrumentedTests:
    """The statements of tests with each assertion replaced by reports, collected one statement at a time."""

    dirty: set[str]
    trusted: list[str] = field(default_factory=list)
    untrusted: list[str] = field(default_factory=list)
    assertions: list[Assertion] = field(default_factory=list)

    def add(self, node: Node) -> bool:
        """Add a statement; False where it asserts in a way that cannot be replaced."""
        call = _assertion(node)
        if call is not None:
            return self._assert(node, *call)
        source = text(node)
        if _ASSERTS.search(source) and not re.fullmatch(r"(const|let|var)\s+[^=]+=\s*require\([^)]*\)[.\w]*;?", source):
            return False
        self.dirty.update(declared(node))
        self.trusted.append(source)
        self.untrusted.append(source)
        return True

    def _assert(self, node: Node, method: str, arguments: list[Node]) -> bool:
        number, reports = len(self.assertions), 0
        term: Term

        def operand(source: Node | str, dirty: bool = True) -> Term:
            nonlocal reports
            place = f"{number}{'g' if dirty else 'k'}{reports}"
            said = f"_capibara_report('{place}', {source if isinstance(source, str) else text(source)});"
            self.trusted.append(said)
            if dirty:
                self.untrusted.append(said)
            reports += 1
            return Term("given" if dirty else "known", reports - 1)

        def pair(left: Node, right: Node) -> tuple[Term, ...]:
            return operand(left, not self._is_clean(left)), operand(right, not self._is_clean(right))

        if method in _EQUAL | _UNEQUAL and len(arguments) >= 2:
            term = Term("compare", ("Eq" if method in _EQUAL else "NotEq",), pair(arguments[0], arguments[1]))
        elif method in _TRUE and arguments:
            term = self._truth(arguments[0], operand, pair)
        elif method == "throws" and arguments:
            thrown = f"_capibara_thrown({text(arguments[0])})"
            # what the reference throws is what has to be thrown
            term = Term("compare", ("Eq",), (operand(thrown), operand(thrown, dirty=False)))
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
            return Term("compare", (_OPERATORS[text(operator)],), pair(left, right))
        return operand(f"Boolean({text(node)})")  # type: ignore[no-any-return]

    def _is_clean(self, node: Node) -> bool:
        names = {text(leaf) for leaf in leaves(node) if leaf.type in ("identifier", "shorthand_property_identifier")}
        return all(name in GLOBALS and name not in self.dirty for name in names)


def _assertion(node: Node) -> tuple[str, list[Node]] | None:
    """(method, arguments) of `assert.method(...)`, `assert(...)` or `console.assert(...)`; None for anything else."""
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
