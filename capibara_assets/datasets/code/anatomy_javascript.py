"""Dissection of a JavaScript cell: leading comment, signatures, body, and the checks at its end."""

import re

from tree_sitter import Node

from capibara_assets.datasets.code.comments import is_statement, leading_comment
from capibara_assets.datasets.code.javascript_source import declared, leaves, parse, text
from capibara_assets.datasets.code.parts import CellParts

_HELPER = re.compile(r"^_?(check|test|compare|assert|verify|expect|is_?equal|deep_?equal|same)", re.IGNORECASE)
_ASSERTION = re.compile(r"\bassert\b|\bassert\.|console\.assert|\bthrow\b|\bexpect\(|deepEqual|deepStrictEqual")
_FUNCTIONS = frozenset({"function_declaration", "generator_function_declaration", "class_declaration"})
_SHOWS = frozenset({"expression_statement", "lexical_declaration", "variable_declaration"})
_VALUES = frozenset({"arrow_function", "function_expression", "class", "function"})


def parts(code: str) -> CellParts | None:
    """The parts of a cell; None when it does not parse."""
    root = parse(code)
    if root.has_error:
        return None
    data = code.encode("utf-8", "replace")
    statements = [node for node in root.named_children if node.type not in ("comment", "empty_statement")]
    kept, peeled = _peel(statements)
    if not kept or not _ASSERTION.search("\n".join(text(node) for node in peeled)):
        kept, peeled = statements, []
    until = peeled[0].start_byte if peeled else len(data)
    shown = _demonstration(statements) or _demonstration(kept)
    defined = min(until, shown[0].start_byte) if shown else until
    body, definitions = (data[:end].decode("utf-8", "replace") for end in (until, defined))
    comment, _ = leading_comment(body, "javascript")
    stated = comment is not None and is_statement(comment)
    if stated:
        body, definitions = (leading_comment(part, "javascript")[1] for part in (body, definitions))
    signature = "\n".join(_header(node) for node in kept if _defined(node) is not None)
    tests = tuple(source for node in peeled for source in _assertions(node))
    return CellParts(comment if stated else None, stated and bool(signature), signature, body, definitions, tests)


def _peel(statements: list[Node]) -> tuple[list[Node], list[Node]]:
    """(the code, the tests after it): everything after the last definition that is no test helper."""
    end = len(statements)
    for index in range(len(statements) - 1, -1, -1):
        name = _defined(statements[index])
        if name is not None and not _HELPER.match(name):
            break
        end = index
    return statements[:end], statements[end:]


def _demonstration(kept: list[Node]) -> list[Node]:
    """The end of a cell that only shows or checks what was defined before, and that nothing before needs; else none.

    It may define small helpers of its own as constants (`const double = (n) => 2 * n`), but no functions or classes.
    """
    first = next((i for i, node in enumerate(kept) if _defined(node) is not None), len(kept))
    for start in range(first + 1, len(kept)):
        before, after = kept[:start], kept[start:]
        if _defined(kept[start]) is None and all(node.type in _SHOWS for node in after):
            given, needs = _words(before), _words(after)
            helpers = {name for node in after for name in declared(node)}
            if given.isdisjoint(helpers) and needs & {_defined(node) for node in before}:
                return after
    return []


def _words(nodes: list[Node]) -> set[str | None]:
    return {text(leaf) for node in nodes for leaf in leaves(node) if leaf.type in ("identifier", "type_identifier")}


def _defined(statement: Node) -> str | None:
    """Name of the function or class that a statement defines; None for every other statement."""
    inner = statement
    if statement.type == "export_statement":
        inner = next((c for c in statement.named_children if c.type in _FUNCTIONS), statement)
    if inner.type in _FUNCTIONS and (name := inner.child_by_field_name("name")) is not None:
        return text(name)
    if inner.type in ("lexical_declaration", "variable_declaration"):
        for declarator in inner.named_children:
            value, name = declarator.child_by_field_name("value"), declarator.child_by_field_name("name")
            if value is not None and value.type in _VALUES and name is not None:
                return text(name)
    return None


def _header(statement: Node) -> str:
    """`function f(a, b)` or `const f = (a, b) =>` as written, up to the body."""
    source = text(statement)
    head = re.split(r"=>|\{", source, maxsplit=1)
    arrow = " =>" if "=>" in source[: len(head[0]) + 2] else ""
    return " ".join(head[0].split()) + arrow


def _assertions(node: Node) -> list[str]:
    """Lines of a test statement that assert something: `console.assert(...)`, `assert(...)`."""
    pending, assertions = [node], []
    while pending:
        current = pending.pop(0)
        if current.type == "expression_statement" and re.match(r"(console\.)?assert\b|expect\(", text(current)):
            assertions.append(text(current))
        else:
            pending = [*current.named_children, *pending]
    return assertions
