"""Dissection of a JavaScript cell: leading comment, signatures, body, and its tests."""

from tree_sitter import Node

from capibara_assets.datasets.anatomy import flow_javascript
from capibara_assets.datasets.anatomy.parts import CellParts, body_test, of_roles, pieces
from capibara_assets.datasets.anatomy.roles import Role, roles
from capibara_assets.datasets.code.comments import is_statement, leading_comment
from capibara_assets.datasets.code.javascript_source import (
    ASSERTION,
    DEFINITIONS,
    declared,
    leaves,
    statement_nodes,
    text,
    walk,
)
from capibara_assets.datasets.code.one_line import in_one_line

_VALUES = frozenset({"arrow_function", "function_expression", "class", "function"})


def parts(code: str) -> CellParts | None:
    """The parts of a cell; None when it does not parse."""
    program = flow_javascript.program(code)
    if program is None:
        return None
    nodes, units, played = statement_nodes(code), program.units, roles(program)
    tested, shown = of_roles(played, Role.TEST), of_roles(played, Role.DEMONSTRATION)
    every = set(range(len(units)))
    body, definitions = (pieces(code, units, every - cut) for cut in (tested, tested | shown))
    test, ran, rest = pieces(code, units, tested), body_test(code, units, tested), pieces(code, units, tested | shown)
    comment, _ = leading_comment(body, "javascript")
    first, _ = leading_comment(code, "javascript")
    if comment is None and first is not None and is_statement(first):  # of the cell, above what its test loads
        comment = first
        test, ran, rest = (_without_head(part, first) for part in (test, ran, rest))
    stated = comment is not None and is_statement(comment)
    if stated:
        body, definitions = (leading_comment(part, "javascript")[1] for part in (body, definitions))
    asked = [node for node, role in zip(nodes, played, strict=True) if role is Role.SOLUTION]
    signature = "\n".join(_header(node) for node in asked if _defined(node) is not None)
    return CellParts(
        comment if stated else None,
        stated and bool(signature),
        signature,
        body,
        definitions,
        _tests([nodes[i] for i in sorted(tested)], test),
        ran,
        rest,
    )


def _without_head(part: str, comment: str) -> str:
    above, below = leading_comment(part, "javascript")
    return below if above == comment else part


def _tests(tested: list[Node], test: str) -> tuple[str, ...]:
    """The assertions one by one if each says all that it needs, else the whole test."""
    assertions = [node for each in tested for node in _assertions(each)]
    own = {name for node in tested for name in declared(node)} - {"assert"}
    if assertions and all(own.isdisjoint(text(leaf) for leaf in leaves(node)) for node in assertions):
        return tuple(text(node) for node in assertions)
    return (test.strip("\n"),) if tested else ()


def _defined(statement: Node) -> str | None:
    """Name of the function or class that a statement defines; None for every other statement."""
    inner = statement
    if statement.type == "export_statement":
        inner = next((c for c in statement.named_children if c.type in DEFINITIONS), statement)
    if inner.type in DEFINITIONS and (name := inner.child_by_field_name("name")) is not None:
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
    inner = next((node for node in walk(statement) if node.type in {*DEFINITIONS, *_VALUES}), None)
    body = inner.child_by_field_name("body") if inner is not None else None
    data = source.encode("utf-8", "replace")
    head = source if body is None else data[: body.start_byte - statement.start_byte].decode("utf-8", "replace")
    return in_one_line(head.strip())


def _assertions(node: Node) -> list[Node]:
    """Statements of a test that assert something: `console.assert(...)`, `assert(...)`."""
    pending, assertions = [node], []
    while pending:
        current = pending.pop(0)
        if current.type == "expression_statement" and ASSERTION.match(text(current)):
            assertions.append(current)
        else:
            pending = [*current.named_children, *pending]
    return assertions
