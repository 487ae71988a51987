"""Expectations that JavaScript of an answer holds on what it computes."""

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from benchmarks.datasets.faults.cases import told_names
from benchmarks.datasets.faults.javascript_code import (
    FUNCTIONS,
    bound_by,
    definitions,
    names,
    parameters,
    parse,
    text,
    walk,
)
from benchmarks.datasets.faults.words import words

_CHECKING = re.compile(
    r"^_?(?:assert|check|verify|expect|should|ensure|test)|^(?:t|tap|chai)\.\w*(?:equal|ok|is|same)", re.I
)
_COMPARING = re.compile(r"equal|compare|approx|almost|close|same|^eq$|assert|check|verify|expect|^_$|lodash", re.I)
_RUNNERS = frozenset(("test", "it", "describe", "suite"))
_LIBRARIES = words("assert chai jest expect should tape ava vitest mocha @jest/globals")
_BLOCKS = frozenset(("statement_block", "else_clause", "catch_clause", "finally_clause"))
_EQUAL = frozenset(("===", "==", "!==", "!="))
_COMPARES = re.compile(
    r"^(?:JSON\.stringify|_?\.?(?:isEqual|deepEqual|isDeepStrictEqual|is|equals?)|util\.\w+|Object\.is)$"
)
_SAID = re.compile(
    r"^(?://|/\*)\s*(?:-+>|=+>|→|⇒|expected\b|should\s+(?:be|print|return|log|equal)|"
    r"(?:output|prints?|logs?|returns?|result)\s*(?::|is\b)|(?:true|false|null|undefined|-?\d[\d.]*|'.*'|\".*\"|[\[{].*[\]}])\s*(?:\*/)?$)",
    re.I,
)
_EXPECTED = re.compile(r"^(?://|/\*)\s*expected(?:\s+\w+)?\s*[:=]", re.I)
_VERDICT = re.compile(r"\b(?:pass(?:ed)?|fail(?:ed)?|wrong|incorrect|correct|mismatch|expected|ok|error)\b", re.I)


@dataclass
class _Scope:
    """What the driving part knows: own functions, names of results, of literals, and of what own functions gave."""

    own: set[str]
    results: set[str] = field(default_factory=set)
    table: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)

    def is_own(self, node: Node) -> bool:
        return bool(names(node) & (self.own | self.given))

    def computed(self, node: Node) -> bool:
        return bool(names(node) & (self.own | self.results))

    def expected(self, node: Node) -> bool:
        inside = names(node) - {"JSON", "undefined", "Object", "Number", "String", "Map", "Set", "NaN", "Infinity"}
        return not inside or inside <= self.table


def leak(code: str, prompt: str) -> str | None:
    """Why the answer holds an expectation on the result of what it was asked for; None when it does not.

    Looked at are the statements that run when the code is loaded, bodies of tests, of functions that are called where
    they stand, and of functions without parameters that return nothing.
    """
    root = parse(code)
    told = told_names(prompt)
    defined = definitions(root)
    asked = {
        name
        for found in re.findall(r"\bfunction (\w+)|\bclass (\w+)|`(\w+)\(|\bconst (\w+) =", prompt)
        for name in found
        if name
    }
    scope = _Scope(set(defined) | asked)
    for node in defined.values():
        if (
            not parameters(node)
            and node.type in FUNCTIONS
            and not any(n.type == "return_statement" for n in walk(node))
        ):
            body = node.child_by_field_name("body")
            if body is not None and (
                reason := _drives(body, _Scope(scope.own, set(scope.results), set(scope.table), set(scope.given)))
            ):
                return reason
    return (
        _drives(root, scope) or _harness(defined, scope, told) or _unused(root, defined, told) or _written(root, scope)
    )


def _drives(body: Node, scope: _Scope) -> str | None:
    for statement in body.named_children:
        if reason := _statement(statement, scope):
            return reason
    return None


def _statement(statement: Node, scope: _Scope) -> str | None:
    kind = statement.type
    if kind in FUNCTIONS or kind in ("class_declaration", "import_statement", "comment", "class"):
        return None
    if kind in ("lexical_declaration", "variable_declaration"):
        for one in statement.named_children:
            name, value = one.child_by_field_name("name"), one.child_by_field_name("value")
            if name is None or value is None or value.type in FUNCTIONS or value.type == "class":
                continue
            if reason := _expression(value, scope):
                return reason
            _bind(name, value, scope)
        return None
    if kind == "throw_statement":
        return f"throws by itself: {_line(statement)}" if "AssertionError" in text(statement) else None
    if kind in ("if_statement", "while_statement") and (reason := _condition(statement, scope)):
        return reason
    if kind == "for_in_statement":
        left, right = statement.child_by_field_name("left"), statement.child_by_field_name("right")
        if left is not None and right is not None:
            (scope.table if scope.expected(right) else scope.results).update(bound_by(left))
            if scope.computed(right):
                scope.table |= bound_by(left)
    if kind == "expression_statement":
        reason = _expression(statement, scope)
        # `cart.total = ...` and `cart.add(...)` make something of what the session gave
        for one in statement.named_children:
            part = one.child_by_field_name("left") or one.child_by_field_name("function")
            while part is not None and part.type in ("member_expression", "subscript_expression"):
                part = part.child_by_field_name("object")
                if (
                    part is not None
                    and part.type == "identifier"
                    and text(part) not in ("console", "process", "module")
                ):
                    scope.results.add(text(part))
                    scope.given.add(text(part))
        return reason
    for part in statement.named_children:
        reason = None
        if part.type in _BLOCKS:
            reason = _drives(part, scope)
        elif part.type.endswith("statement"):
            reason = _statement(part, scope)
        if reason:
            return reason
    return None


def _bind(name: Node, value: Node, scope: _Scope) -> None:
    bound = bound_by(name)
    if value.type == "identifier" and text(value) in scope.own:
        scope.own |= bound
    elif scope.expected(value) and not any(n.type in ("await_expression", "new_expression") for n in walk(value)):
        scope.table |= bound
    else:
        scope.results |= bound
        scope.given |= bound if scope.is_own(value) else set()


def _expression(node: Node, scope: _Scope) -> str | None:
    """Assertions, tests, and comparisons that are shown or gathered."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one.type in ("arrow_function", "function_expression"):
            continue  # entered where it is known what calls it
        if one.type == "call_expression" and (reason := _call(one, scope)):
            return reason
        waiting.extend(one.named_children)
    return None


def _call(call: Node, scope: _Scope) -> str | None:
    function, given = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    if function is None or given is None:
        return None
    name = text(function)
    first, last = name.split(".")[0], name.split(".")[-1]
    arguments = given.named_children
    callbacks = [n for n in arguments if n.type in ("arrow_function", "function_expression")]
    computed = any(map(scope.computed, arguments))
    if (first in _RUNNERS and callbacks) or name in ("describe.each", "test.each", "it.each"):
        return f"is a test: {_line(call)}"
    checking = _CHECKING.match(name) or name == "console.assert" or first in ("assert", "chai", "expect", "should")
    if checking and computed and (first not in scope.own or re.match("(?i)assert|check|verify|expect", first)):
        return f"asserts: {_line(call)}"
    if ".should." in name and scope.computed(function):
        return f"asserts: {_line(call)}"
    if (name.startswith("console.") or last in ("push", "write", "exit", "alert")) and any(
        _is_verdict(n, scope) for n in arguments
    ):
        return f"compares with what is expected: {_line(call)}"
    target = function.named_children[0] if function.type == "parenthesized_expression" else None
    bodies = [target] if target is not None and target.type in ("arrow_function", "function_expression") else []
    if last in ("forEach", "map", "every", "some", "filter", "then", "catch", "finally"):
        bodies += callbacks
    for body in bodies:
        source = function.child_by_field_name("object")
        inner = _Scope(scope.own, set(scope.results), set(scope.table), set(scope.given))
        if source is not None and last != "then":
            if not scope.expected(source):
                inner.results |= set(parameters(body))
            inner.given |= set(parameters(body)) if scope.is_own(source) else set()
            if scope.expected(source) or scope.computed(source):
                inner.table |= set(parameters(body))
        elif last == "then":
            inner.results |= set(parameters(body))
            inner.given |= set(parameters(body)) if scope.is_own(function) else set()
        block = body.child_by_field_name("body")
        if block is not None:
            reason = _drives(block, inner) if block.type == "statement_block" else _expression(block, inner)
            if reason is None and last in ("every", "some") and _is_verdict(block, inner):
                reason = f"compares with what is expected: {_line(call)}"
            if reason:
                return reason
    return None


def _condition(statement: Node, scope: _Scope) -> str | None:
    test = statement.child_by_field_name("condition")
    if test is None or not scope.is_own(test):
        return None
    inside = [n for part in statement.named_children if part != test for n in walk(part)]
    fails = any(n.type == "throw_statement" for n in inside) or any(
        n.type == "call_expression"
        and text(n.child_by_field_name("function")) in ("process.exit", "assert.fail", "fail")
        for n in inside
    )
    compared = any(_compares(n, scope) for n in walk(test))
    negated = any(n.type == "call_expression" and names(n) & scope.own for n in walk(test))
    if fails and (compared or negated):
        return f"fails by itself: {_line(statement)}"
    said = " ".join(text(n) for n in inside if n.type in ("string", "template_string"))
    return f"judges by itself: {_line(statement)}" if compared and _VERDICT.search(said) else None


def _compares(node: Node, scope: _Scope) -> bool:
    """Whether a result is compared with what is known beforehand."""
    if node.type == "binary_expression" and text(node.child_by_field_name("operator")) in _EQUAL:
        sides = [node.child_by_field_name("left"), node.child_by_field_name("right")]
    elif node.type == "call_expression" and _COMPARES.match(text(node.child_by_field_name("function"))):
        given = node.child_by_field_name("arguments")
        sides = list(given.named_children[:2]) if given is not None else []
    else:
        return False
    known = [side for side in sides if side is not None]
    computed = [side for side in known if scope.computed(side)]
    # a case of a table may be given and wanted at once
    return bool(computed) and any(scope.expected(side) for side in known if side not in computed or len(computed) > 1)


def _is_verdict(node: Node, scope: _Scope) -> bool:
    """Whether an expression that is shown is a comparison, or chooses words by one."""
    if node.type in (
        "parenthesized_expression",
        "unary_expression",
        "template_string",
        "template_substitution",
        "ternary_expression",
        "binary_expression",
    ):
        if _compares(node, scope) and names(node) & (scope.own | scope.results):
            return True
        return any(_is_verdict(n, scope) for n in node.named_children)
    return node.type == "call_expression" and _compares(node, scope)


def _harness(defined: dict[str, Node], scope: _Scope, told: set[str]) -> str | None:
    """A function that is given the solution and asserts on what it returns, or such a one left empty."""
    for name, node in defined.items():
        body = node.child_by_field_name("body")
        if name in told or node.type not in FUNCTIONS or body is None:
            continue
        if body.type == "statement_block" and not body.named_children and len(defined) > 1 and _CHECKING.match(name):
            return f"an empty harness: {name}"
        given = set(parameters(node))
        for call in walk(body):
            function = call.child_by_field_name("function") if call.type == "call_expression" else None
            if function is None or not (_CHECKING.match(text(function)) or text(function) == "console.assert"):
                continue
            called = {text(n.child_by_field_name("function")) for n in walk(call) if n.type == "call_expression"}
            if called & given:
                return f"a harness: {name} asserts on {', '.join(sorted(called & given))}(...)"
    return None


def _unused(root: Node, defined: dict[str, Node], told: set[str]) -> str | None:
    """A comparison that only a test needs, a library of tests, another name for a harness: nothing uses them."""
    used: dict[str, set[str]] = {name: names(node) - {name} for name, node in defined.items()}
    driving = {
        name
        for statement in root.named_children
        if statement.type
        in ("expression_statement", "export_statement", "if_statement", "for_statement", "for_in_statement")
        for name in names(statement)
    }
    for name, node in defined.items():
        wanted = name in told or name in driving or any(name in those for other, those in used.items() if other != name)
        compares = any(n.type == "binary_expression" and len(names(n) & set(parameters(node))) > 1 for n in walk(node))
        if (
            not wanted
            and _COMPARING.search(name)
            and len(defined) > 1
            and (compares or node.end_point[0] - node.start_point[0] > 40)
        ):
            return f"a comparison that only a test needs: {name}"
    in_solution = driving | {name for those in used.values() for name in those}
    for statement in root.named_children:
        declared = statement.type in ("lexical_declaration", "variable_declaration")
        for one in statement.named_children if declared else ():
            left, value = one.child_by_field_name("name"), one.child_by_field_name("value")
            if left is None or value is None or bound_by(left) & (told | in_solution):
                continue
            if (found := re.match(r"require\(['\"](?:node:)?([\w@/.-]+)['\"]\)", text(value))) and _is_library(
                found.group(1)
            ):
                return f"a library of tests: {_line(statement)}"
            if value.type == "identifier" and text(value) in defined:
                return f"another name for a harness: {_line(statement)}"
        if statement.type == "import_statement":
            source = text(statement.child_by_field_name("source")).strip("'\"").removeprefix("node:")
            bound = {text(n) for n in walk(statement) if n.type == "identifier"}
            if _is_library(source) and not bound & in_solution:
                return f"a library of tests: {_line(statement)}"
    return None


def _is_library(source: str) -> bool:
    return source in _LIBRARIES or source.split("/")[0] in _LIBRARIES or source == "test"


def _written(root: Node, scope: _Scope) -> str | None:
    """Expected results in comments of the top level beside calls."""
    calls = {n.end_point[0] for n in root.named_children if n.type == "expression_statement" and names(n) & scope.own}
    for comment in root.named_children:
        if comment.type != "comment":
            continue
        beside = comment.start_point[0] in calls and comment.start_point[1] > 0
        if _EXPECTED.match(text(comment)) or (beside and _SAID.match(text(comment))):
            return f"an expected result in a comment: {text(comment)[:100]}"
    return None


def _line(node: Node) -> str:
    return text(node).split("\n")[0][:120]
