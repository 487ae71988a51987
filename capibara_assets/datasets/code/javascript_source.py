"""JavaScript parsed by tree-sitter: syntax tree, declared names, and the names that a statement needs and binds."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from tree_sitter import Node

from capibara_assets.datasets.code.names import Statement, StatementNames
from capibara_assets.executions.parsing import javascript_tree

_GLOBAL_NAMES = """AggregateError Array ArrayBuffer Atomics BigInt BigInt64Array BigUint64Array Boolean Buffer
DataView Date Error EvalError Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array Intl JSON
Map Math NaN Number Object Promise Proxy RangeError ReferenceError Reflect RegExp Set String Symbol SyntaxError
TextDecoder TextEncoder TypeError URIError URL URLSearchParams Uint16Array Uint32Array Uint8Array WeakMap WeakRef
WeakSet arguments clearImmediate clearInterval clearTimeout console decodeURI decodeURIComponent encodeURI
encodeURIComponent escape eval exports fetch global globalThis isFinite isNaN module parseFloat parseInt performance
process queueMicrotask require setImmediate setInterval setTimeout structuredClone undefined unescape"""
GLOBALS = frozenset(_GLOBAL_NAMES.split())
_CHANGING_METHODS = """add clear delete fill next pop push reverse set shift sort splice unshift write"""
_CHANGING = frozenset(_CHANGING_METHODS.split())
DEFINITIONS = frozenset({"function_declaration", "generator_function_declaration", "class_declaration"})
ASSIGNMENTS = ("assignment_expression", "augmented_assignment_expression", "update_expression")
_SCOPE_NODES = """function_declaration function_expression arrow_function method_definition
generator_function_declaration generator_function class_body statement_block for_statement for_in_statement
catch_clause"""
_SCOPES = frozenset(_SCOPE_NODES.split())
ASSERTION = re.compile(r"(?:console\.)?assert\b|expect\(|require\(['\"](?:node:)?assert(?:/strict)?['\"]\)")
_THROWS = re.compile(r"\{?\s*throw\b[^;]*;?\s*\}?\s*\Z")


@lru_cache(maxsize=4096)
def parse(code: str) -> Node:
    """The root node of the syntax tree (`has_error` when parts do not parse); offsets are in UTF-8 bytes."""
    return javascript_tree(code).root_node


def text(node: Node) -> str:
    """The source text of a node."""
    return (node.text or b"").decode("utf-8", "replace")


def positions(code: str) -> Callable[[int], int]:
    """Converts the parser's positions, in UTF-8 bytes, to positions in the text."""
    data = code.encode("utf-8", "replace")
    return lambda byte: byte if len(data) == len(code) else len(data[:byte].decode("utf-8", "replace"))


def statement_nodes(code: str) -> list[Node]:
    """The syntax trees of the top-level statements."""
    return [node for node in parse(code).named_children if node.type not in ("comment", "empty_statement")]


def without_assertions(code: str) -> str:
    """The program without its top-level assertions and `if (...) throw`; unchanged when it holds nothing else."""
    listed = statement_nodes(code)
    checks = [node for node in listed if _is_check(node)]
    if not checks or len(checks) == len(listed):
        return code
    data = code.encode("utf-8", "replace")
    for node in reversed(checks):
        data = data[: node.start_byte] + data[node.end_byte :]
    return "\n".join(line for line in data.decode("utf-8", "replace").split("\n") if line.strip(" ;"))


def _is_check(node: Node) -> bool:
    if node.type == "expression_statement":
        return ASSERTION.match(text(node)) is not None
    then = node.child_by_field_name("consequence") if node.type == "if_statement" else None
    return then is not None and node.child_by_field_name("alternative") is None and bool(_THROWS.match(text(then)))


def assigned(node: Node) -> Node | None:
    """What one of `ASSIGNMENTS` sets."""
    return node.child_by_field_name("left") or node.child_by_field_name("argument")


def given(call: Node) -> list[Node]:
    """The arguments of a call; none of any other node."""
    arguments = call.child_by_field_name("arguments")
    return arguments.named_children if arguments is not None else []


def leaves(node: Node) -> Iterator[Node]:
    """Tokens in order: leaf nodes, with strings, templates without substitutions, regexes and comments as one."""
    if node.child_count == 0 or node.type in ("string", "regex", "comment"):
        yield node
        return
    for child in node.children:
        yield from leaves(child)


def declared(node: Node) -> Iterator[str]:
    """Every name that is declared anywhere below `node`: variables, parameters, functions, classes, catch bindings."""
    for child in walk(node):
        if child.type in DEFINITIONS or child.type in ("variable_declarator", "function_expression"):
            yield from pattern_names(child.child_by_field_name("name"))
        elif child.type in ("formal_parameters", "for_in_statement", "catch_clause"):
            field = {"for_in_statement": "left", "catch_clause": "parameter"}.get(child.type)
            yield from pattern_names(child.child_by_field_name(field) if field else child)
        elif child.type == "arrow_function":
            yield from pattern_names(child.child_by_field_name("parameter"))


def statements(code: str) -> tuple[Statement, ...]:
    """The top-level statements as written, without comments between them; none when `code` is no JavaScript.

    Names are approximate: one that is declared anywhere inside a statement counts as its own, and what a function's
    body reads may be bound after it.
    """
    root = parse(code)
    if root.has_error:
        return ()
    listed = []
    for node in statement_nodes(code):
        used = {text(part) for part in walk(node) if part.type in ("identifier", "shorthand_property_identifier")}
        used -= set(declared(node)) | GLOBALS
        later = used if node.type in DEFINITIONS else set()
        names = StatementNames(
            frozenset(_top_level(node)), frozenset(_changes(node)), frozenset(used), True, frozenset(later)
        )
        listed.append(Statement(text(node), names))
    return tuple(listed)


def walk(node: Node) -> Iterator[Node]:
    """Every node below `node`, itself first, in the order of the text."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(current.children))


def pattern_names(node: Node | None) -> Iterator[str]:
    if node is None:
        return
    if node.type in ("identifier", "shorthand_property_identifier_pattern"):
        yield text(node)
    elif node.type == "assignment_pattern" or node.type == "object_assignment_pattern":
        yield from pattern_names(node.child_by_field_name("left"))
    elif node.type == "pair_pattern":
        yield from pattern_names(node.child_by_field_name("value"))
    else:
        for child in node.named_children:
            if node.type in ("formal_parameters", "array_pattern", "object_pattern", "rest_pattern"):
                yield from pattern_names(child)


def _top_level(statement: Node) -> Iterator[str]:
    """Names that a top-level statement binds: its declarations (`var` also inside blocks) and bare assignments."""
    pending = [statement]
    while pending:
        node = pending.pop()
        if node.type in DEFINITIONS:
            yield from pattern_names(node.child_by_field_name("name"))
            continue
        if node.type in _SCOPES and node is not statement:
            continue
        if node.type == "variable_declarator":
            yield from pattern_names(node.child_by_field_name("name"))
        elif node.type in ASSIGNMENTS:
            target = assigned(node)
            if target is not None and target.type == "identifier":
                yield text(target)
        pending.extend(node.children)


def _changes(statement: Node) -> Iterator[str]:
    for node in walk(statement):
        if node.type in ASSIGNMENTS:
            yield from _root(assigned(node))
        elif node.type == "call_expression" and (called := node.child_by_field_name("function")) is not None:
            method = called.child_by_field_name("property")
            if method is not None and text(method) in _CHANGING:
                yield from _root(called)
        elif node.type == "expression_statement":
            call = next((child for child in node.named_children if child.type == "call_expression"), None)
            if call is not None:
                yield from _root(call.child_by_field_name("function"))
                for argument in given(call):
                    yield from _root(argument)


def _root(node: Node | None) -> Iterator[str]:
    while node is not None and node.type in ("member_expression", "subscript_expression", "call_expression"):
        node = node.child_by_field_name("object") or node.child_by_field_name("function")
    if node is not None and node.type == "identifier":
        yield text(node)
