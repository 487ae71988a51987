"""JavaScript cells rewritten so that `javascript_tracer.js` sees each step of the calls of top-level functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from capibara_assets.executions.parsing import parse_javascript
from capibara_assets.executions.replay.replay import MODULES

if TYPE_CHECKING:
    from tree_sitter import Node

_TRACER = "__capibara"
_ARGUMENTS = re.compile(r"\barguments\b")
_MANY = 20  # arguments that are noted of a function that takes any number
_FUNCTIONS = {"arrow_function", "function_expression"}
_LOOPS = {"for_statement", "for_in_statement", "while_statement"}
_SIMPLE = {"expression_statement", "lexical_declaration", "variable_declaration"}
#: What a walk cannot follow: code that runs later or somewhere else, and jumps across loops.
_NOT_FOLLOWED = {
    *("function_declaration", "generator_function_declaration", "class_declaration", "class", "generator_function"),
    *("await_expression", "yield_expression", "labeled_statement", "do_statement", "switch_statement"),
    *("with_statement", "sequence_expression"),
}
_NOTED = {"identifier", "member_expression", "subscript_expression", "call_expression", "new_expression"}
_PARTS = {
    *("binary_expression", "unary_expression", "parenthesized_expression", "ternary_expression", "array", "object"),
    *("pair", "arguments", "spread_element", *_NOTED),
}
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
        for name, parameters, followed in _functions(statement):
            told = ", ".join(map(json.dumps, (name, parameters)))
            lines.append(_tried(f"{name} = {_TRACER}.wrap({told}, {name}, {json.dumps(followed)});"))
    return "\n".join(lines)


def place(node: Node) -> str:
    """Where a node stands: its first line and column, its last line and column, in bytes."""
    (first, begin), (last, end) = node.start_point, node.end_point
    return f"{first + 1}:{begin}:{last + 1}:{end}"


def _tried(text: str) -> str:
    return f"try {{ {text}\n}} catch (failure) {{ {_TRACER}.failed(failure); }}"


def _functions(statement: Node) -> Iterator[tuple[str, list[str], bool]]:
    """(name, names of parameters, whether its steps are noted) of the functions that a top-level statement defines."""
    if _asserts(statement):
        return  # a function that asserts is a test: what it calls is what counts
    for function in _defined(statement):
        named = function if function.type == "function_declaration" else function.parent
        name = None if named is None else named.child_by_field_name("name")
        body = function.child_by_field_name("body")
        if name is not None and body is not None and name.type == "identifier":
            yield _text(name), _parameters(function), is_followed(body)


def _asserts(node: Node) -> bool:
    if node.type == "call_expression" and "assert" in _text(node.child_by_field_name("function")):
        return True
    return any(_asserts(child) for child in node.named_children)


def _parameters(function: Node) -> list[str]:
    """The names of the arguments that a function can tell from each other, "" for others; more are not noted.

    `map` and the like give every function three.
    """
    alone = function.child_by_field_name("parameter")
    several = function.child_by_field_name("parameters")
    nodes = [alone] if alone is not None else several.named_children if several is not None else []
    names = [_text(node) if node.type == "identifier" else "" for node in nodes if node.type != "comment"]
    takes_all = any(node.type == "rest_pattern" for node in nodes) or _ARGUMENTS.search(_text(function))
    return [*names, *([""] * _MANY)] if takes_all else names


def _rewritten(source: bytes, statement: Node) -> str:
    """The statement, its declarations made global, and the steps of its functions noted."""
    edits: list[_Edit] = []
    if statement.type == "lexical_declaration":
        keyword = statement.children[0]
        edits.append((keyword.start_byte, keyword.end_byte, b"var"))
    elif statement.type == "class_declaration":
        name = _text(statement.child_by_field_name("name"))
        edits.append((statement.start_byte, statement.start_byte, f"var {name} = ".encode()))
    bodies = [body for body in _bodies(statement) if is_followed(body)]
    edits += [edit for body in bodies for edit in _steps(body)] if bodies else list(_elsewhere(statement))
    out, begin = b"", statement.start_byte
    # what is inserted at one place stands in the order of the tree: outer before inner, at an end inner before outer
    for start, end, text in sorted(edits, key=lambda edit: edit[0]):
        out += source[begin:start] + text
        begin = end
    return (out + source[begin : statement.end_byte]).decode("utf-8", "replace")


def _elsewhere(node: Node) -> Iterator[_Edit]:
    """The edits of what is not followed: calls of `require` that no session can answer."""
    if node.type == "call_expression" and (missing := _missing(node)) is not None:
        yield missing.start_byte, missing.end_byte, f"{_TRACER}.missing".encode()
    else:
        for child in node.named_children:
            yield from _elsewhere(child)


def _bodies(statement: Node) -> Iterator[Node]:
    """The bodies of the functions that a top-level statement defines."""
    for function in _defined(statement):
        if (body := function.child_by_field_name("body")) is not None:
            yield body


def _defined(statement: Node) -> Iterator[Node]:
    if statement.type == "function_declaration":
        yield statement
    elif statement.type in ("lexical_declaration", "variable_declaration"):
        for declarator in statement.named_children:
            value = declarator.child_by_field_name("value")
            if value is not None and value.type in _FUNCTIONS:
                yield value


def is_followed(body: Node) -> bool:
    """Whether the steps of a function can be noted."""
    asynchronous = body.parent is not None and any(child.type == "async" for child in body.parent.children)
    return not asynchronous and not any(node.type in _NOT_FOLLOWED for node in _inside(body))


def _inside(node: Node) -> Iterator[Node]:
    yield node
    for child in node.named_children:
        yield from _inside(child)


def _steps(node: Node) -> list[_Edit]:
    """Edits that note the steps below a node, in the order in which they stand."""
    if node.type not in ("statement_block", "else_clause") and node.parent is not None and _is_body(node):
        inner = _steps_of(node)
        return [(node.start_byte, node.start_byte, b"{"), *inner, (node.end_byte, node.end_byte, b"}")]
    return _steps_of(node)


def _is_body(node: Node) -> bool:
    """Whether a statement stands alone below `if` or a loop, where nothing can be added after it."""
    parent = node.parent
    if parent is None or not node.type.endswith("statement"):
        return False
    return parent.type == "else_clause" or node in (
        parent.child_by_field_name("consequence"),
        parent.child_by_field_name("body"),
    )


def _steps_of(node: Node) -> list[_Edit]:
    kind, at = node.type, json.dumps(place(node))
    if kind in _SIMPLE:
        values = [child.child_by_field_name("value") for child in node.named_children]
        parts = values if kind != "expression_statement" else [_assigned(node.named_children[0])]
        edits = [edit for part in parts if part is not None for edit in operands(part)]
        return [*edits, (node.end_byte, node.end_byte, f";{_TRACER}.r({at}, {_names(node)});".encode())]
    if kind in ("return_statement", "throw_statement"):
        given = [child for child in node.named_children if child.type != "comment"]
        hook = "v" if kind == "return_statement" else "o"
        return _around(operands(given[0]), given[0], f"{_TRACER}.{hook}({at}, (", "))") if given else []
    if kind in ("break_statement", "continue_statement"):
        return [(node.start_byte, node.start_byte, f"{_TRACER}.j({at});".encode())]
    if kind not in ("if_statement", *_LOOPS):
        found = [edit for child in node.named_children for edit in _steps(child)]
        above = node.parent
        if above is not None and above.type in _FUNCTIONS and kind != "statement_block":  # `x => x + 1`
            return _around(operands(node), node, f"{_TRACER}.v({json.dumps(place(above))}, (", "))")
        if above is not None and above.type == "catch_clause" and kind == "statement_block":
            found.insert(0, (node.start_byte + 1, node.start_byte + 1, f"{_TRACER}.c({at});".encode()))
        return found
    edits = []
    for child in node.named_children:
        if child == node.child_by_field_name("condition") and child.type != "empty_statement":
            test: Node = child.named_children[0] if child.type == "expression_statement" else child
            edits += _around(operands(test), test, f"{_TRACER}.t({at}, (", "))")
        elif child == node.child_by_field_name("right"):
            edits += _around(operands(child), child, f"{_TRACER}.l({at}, (", "))")
        elif child == node.child_by_field_name("body") and kind != "while_statement":
            turn = f"{_TRACER}.n({at}, {_bound(node)});".encode()
            own = _steps_of(child)
            if child.type == "statement_block":
                edits += [(child.start_byte + 1, child.start_byte + 1, turn), *own]
            else:
                edits += [
                    (child.start_byte, child.start_byte, b"{" + turn),
                    *own,
                    (child.end_byte, child.end_byte, b"}"),
                ]
        elif child.type.endswith(("statement", "block", "clause")) and child != node.child_by_field_name("initializer"):
            edits += _steps(child)
    return edits


def _bound(loop: Node) -> str:
    """A getter of each variable that the head of a loop binds."""
    head = loop.child_by_field_name("left") or loop.child_by_field_name("initializer")
    if head is None:
        return "{}"
    inner = head.named_children[0] if head.type == "expression_statement" else head
    declared = [child.child_by_field_name("name") for child in inner.named_children]
    targets = [each for each in declared if each is not None] or [inner.child_by_field_name("left") or inner]
    return _getters(targets)


def _assigned(expression: Node) -> Node | None:
    """The part of an expression statement that is evaluated: the right side of an assignment."""
    if expression.type in ("assignment_expression", "augmented_assignment_expression"):
        return expression.child_by_field_name("right")
    return None if expression.type == "update_expression" else expression


def _names(node: Node) -> str:
    """A getter of each variable that a statement names."""
    return _getters([node])


def _getters(nodes: Sequence[Node]) -> str:
    kinds = ("identifier", "shorthand_property_identifier_pattern")
    names = sorted({_text(each) for node in nodes for each in _outside(node) if each.type in kinds})
    return "{" + ", ".join(f"{json.dumps(name)}: () => {name}" for name in names) + "}"


def _outside(node: Node) -> Iterator[Node]:
    """The nodes below a node that stand in no function of their own."""
    yield node
    if node.type not in _FUNCTIONS:
        for child in node.named_children:
            yield from _outside(child)


def operands(node: Node) -> list[_Edit]:
    """Edits that note what the parts of an expression are."""
    if node.type == "call_expression" and (missing := _missing(node)) is not None:
        return [(missing.start_byte, missing.end_byte, f"{_TRACER}.missing".encode())]
    if node.type not in _PARTS:
        return []
    edits = [edit for child in noted_parts(node) for edit in operands(child)]
    if node.type == "ternary_expression":
        test = node.child_by_field_name("condition")
        if test is not None:
            own = _around(operands(test), test, f"{_TRACER}.q({json.dumps(place(node))}, (", "))")
            edits = [*own, *(edit for child in noted_parts(node) if child != test for edit in operands(child))]
    if node.type not in _NOTED or (node.type == "identifier" and _text(node) == "undefined"):
        return edits
    return _around(edits, node, f"{_TRACER}.o({json.dumps(place(node))}, ", ")")


def noted_parts(node: Node) -> list[Node]:
    """The parts of an expression whose values are noted before its own: of a call its receiver and arguments."""
    match node.type:
        case "identifier":
            return []
        case "unary_expression" if _text(node).startswith(("typeof", "delete")):
            return []
        case "member_expression":
            return [part for part in [node.child_by_field_name("object")] if part is not None]
        case "pair":
            return [part for part in [node.child_by_field_name("value")] if part is not None]
        case "call_expression" | "new_expression":
            function = node.child_by_field_name("function")
            receiver = [] if function is None or function.type != "member_expression" else noted_parts(function)
            arguments = node.child_by_field_name("arguments")
            return [*receiver, *([arguments] if arguments is not None and arguments.type == "arguments" else [])]
    return node.named_children


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
    return function if name.type == "string" and bare not in MODULES else None


def _text(node: Node | None) -> str:
    return "" if node is None else (node.text or b"").decode("utf-8", "replace")
