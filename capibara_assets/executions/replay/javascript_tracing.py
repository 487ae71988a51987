"""JavaScript cells rewritten so that `javascript_tracer.js` sees tests, loops, and calls of top-level functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from capibara_assets.executions.parsing import parse_javascript

if TYPE_CHECKING:
    from tree_sitter import Node

_TRACER = "__capibara"
_TESTED = {"if_statement", "while_statement", "ternary_expression"}
_TURNED = {"for_statement", "for_in_statement"}
_BODIES = {"function_declaration", "generator_function_declaration", "method_definition", "arrow_function"} | {
    "function_expression",
    "generator_function",
}
_FUNCTIONS = {"arrow_function", "function_expression"}
_MODULES = frozenset(  # those that `sandbox/javascript_session.js` allows
    [
        "assert",
        "assert/strict",
        "buffer",
        "crypto",
        "events",
        "path",
        "querystring",
        "stream",
        "string_decoder",
        "timers",
        "timers/promises",
        "url",
        "util",
        "zlib",
    ]
)
_Edit = tuple[int, int, bytes]  # from, to, text in between


def traced_cell(code: str, number: int, turn: int) -> str | None:
    """A cell that runs each top-level statement of `code` under the tracer; None when `code` does not parse."""
    root = parse_javascript(code).root_node
    if root.has_error:
        return None
    source = code.encode("utf-8", "surrogatepass")
    lines = [f"{_TRACER}.cell({number}, {turn});"]
    for statement in root.named_children:
        if statement.type == "comment":
            continue
        lines.append(f"{_TRACER}.at({statement.start_point[0] + 1});")
        text = _rewritten(source, statement)
        declared = statement.type.endswith("function_declaration")  # hoisted, and cannot fail
        lines.append(text if declared else _tried(text))
        for name, parameters in _functions(statement):
            lines.append(_tried(f"{name} = {_TRACER}.wrap({json.dumps(name)}, {json.dumps(parameters)}, {name});"))
    return "\n".join(lines)


def place(node: Node) -> str:
    """Where a node stands: its first line and column, its last line and column, in bytes."""
    (first, begin), (last, end) = node.start_point, node.end_point
    return f"{first + 1}:{begin}:{last + 1}:{end}"


def _tried(text: str) -> str:
    return f"try {{ {text}\n}} catch (failure) {{ {_TRACER}.failed(failure); }}"


def _functions(statement: Node) -> Iterator[tuple[str, list[str]]]:
    """(name, names of parameters) of the functions that a top-level statement defines."""
    if _asserts(statement):
        return  # a function that asserts is a test: what it calls is what counts
    if statement.type == "function_declaration":
        yield _text(statement.child_by_field_name("name")), _parameters(statement)
    elif statement.type in ("lexical_declaration", "variable_declaration"):
        for declarator in statement.named_children:
            value = declarator.child_by_field_name("value")
            name = declarator.child_by_field_name("name")
            if value is not None and value.type in _FUNCTIONS and name is not None and name.type == "identifier":
                yield _text(name), _parameters(value)


def _asserts(node: Node) -> bool:
    if node.type == "call_expression" and "assert" in _text(node.child_by_field_name("function")):
        return True
    return any(_asserts(child) for child in node.named_children)


def _parameters(function: Node) -> list[str]:
    alone = function.child_by_field_name("parameter")
    several = function.child_by_field_name("parameters")
    nodes = [alone] if alone is not None else several.named_children if several is not None else []
    return [_text(node) if node.type == "identifier" else "" for node in nodes if node.type != "comment"]


def _rewritten(source: bytes, statement: Node) -> str:
    """The statement, its declarations made global, its tests and loops counted."""
    edits: list[_Edit] = []
    if statement.type == "lexical_declaration":
        keyword = statement.children[0]
        edits.append((keyword.start_byte, keyword.end_byte, b"var"))
    elif statement.type == "class_declaration":
        name = _text(statement.child_by_field_name("name"))
        edits.append((statement.start_byte, statement.start_byte, f"var {name} = ".encode()))
    edits += _counted(statement)
    out, begin = b"", statement.start_byte
    # what is inserted at one place stands in the order of the tree: outer before inner, at an end inner before outer
    for start, end, text in sorted(edits, key=lambda edit: edit[0]):
        out += source[begin:start] + text
        begin = end
    return (out + source[begin : statement.end_byte]).decode("utf-8", "replace")


def _counted(node: Node, inside: bool = False, returned: bool = False) -> list[_Edit]:
    """Edits that count the tests and turns below a node and note values, in the order in which they stand.

    Args:
        inside: the node stands in a function.
        returned: the node is part of what that function returns.
    """
    if node.type == "call_expression" and (missing := _missing(node)) is not None:
        return [(missing.start_byte, missing.end_byte, f"{_TRACER}.missing".encode())]
    edits: list[_Edit] = []
    condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    inside = inside or node.type in _BODIES
    returned = (returned or node.type == "return_statement") and node.type not in _BODIES
    for child in node.named_children:
        own = _counted(child, inside, returned)
        if child == condition and node.type in _TESTED:
            own = _around(own, child, f"{_TRACER}.t({json.dumps(place(node))}, (", "))")
        elif child == body and node.type in _TURNED:
            turn = f"{_TRACER}.n({json.dumps(place(node))});"
            if child.type == "statement_block":
                own = [(child.start_byte + 1, child.start_byte + 1, turn.encode()), *own]
            else:
                own = _around(own, child, "{" + turn, "}")
        elif inside and is_step(node, child, returned):
            own = _around(own, child, f"{_TRACER}.s({json.dumps(place(child))}, (", "))")
        edits += own
    return edits


def is_step(parent: Node, node: Node, returned: bool) -> bool:
    """Whether a node's value is a step on the way to a result: what a variable begins with, a call in what returns."""
    if parent.type == "variable_declarator":
        return node == parent.child_by_field_name("value") and node.type not in _BODIES
    named = node.child_by_field_name("function")
    plain = named is not None and named.type in ("identifier", "member_expression")
    return returned and parent.type != "return_statement" and node.type == "call_expression" and plain


def _around(edits: list[_Edit], node: Node, before: str, after: str) -> list[_Edit]:
    start, end = node.start_byte, node.end_byte
    if node.type == "parenthesized_expression":
        start, end = start + 1, end - 1
    return [(start, start, before.encode()), *edits, (end, end, after.encode())]


def _missing(call: Node) -> Node | None:
    """The `require` of a call that no session can answer, which the tracer answers in the same way without a thread."""
    function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    if function is None or arguments is None or _text(function) != "require" or arguments.named_child_count != 1:
        return None
    name = arguments.named_children[0]
    bare = _text(name).strip("\"'`").removeprefix("node:")
    return function if name.type == "string" and bare not in _MODULES else None


def _text(node: Node | None) -> str:
    return "" if node is None else (node.text or b"").decode("utf-8", "replace")
