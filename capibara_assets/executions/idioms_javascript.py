"""Idioms of JavaScript code, found in its tree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from capibara_assets.executions.idioms import Idiom, Names, digest, first_sentence
from capibara_assets.executions.parsing import parse_javascript

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST = 6_000
_LOOPS = {"for_statement", "for_in_statement", "while_statement", "do_statement"}
_FUNCTIONS = {"function_declaration", "generator_function_declaration"}
_FUNCTION_VALUES = {"arrow_function", "function_expression", "generator_function"}
_ARRAY_METHODS = {"map", "filter", "reduce", "flatMap", "forEach", "some", "every", "find", "sort"}
_NAMES = {"identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"}
_LITERALS = {"string", "number", "template_string", "regex"}
_GLOBAL_NAMES = """console Math JSON Object Array String Number Set Map Promise Error Date RegExp Symbol parseInt
    parseFloat undefined require"""
_GLOBALS = frozenset(_GLOBAL_NAMES.split())


@lru_cache(maxsize=16_384)
def javascript_idioms(code: str) -> tuple[Idiom, ...]:
    """Idioms of one program in the order of the text; none when it does not parse."""
    root = parse_javascript(code).root_node
    if root.has_error:
        return ()
    try:
        return tuple(_walk(root, code, inside_loop=False))
    except RecursionError:
        return ()


def _walk(node: Node, code: str, *, inside_loop: bool) -> Iterator[Idiom]:
    for child in node.named_children:
        loop = inside_loop
        kind = child.type
        if kind in _FUNCTIONS:
            yield _function(child, child, child, code)
        elif kind == "variable_declarator":
            value = child.child_by_field_name("value")
            if value is not None and value.type in _FUNCTION_VALUES and child.parent is not None:
                yield _function(child, value, child.parent, code)
        elif kind == "class_declaration":
            yield _idiom(
                "class", _field(child, "name"), child, f"Class `{_field(child, 'name')}`. {_comment(child)}".strip()
            )
        elif kind in _LOOPS:
            if not loop:
                opening = _text(child).split("{")[0].strip()[:80]
                yield _idiom("loop", opening, child, f"Loop `{opening}`.", literals=False)
            loop = True
        elif kind == "try_statement":
            yield _idiom("error_handling", "try", child, "Handles exceptions with try and catch.")
        elif kind == "await_expression":
            yield _idiom("async", "await", child, "Awaits a promise.", literals=False)
        elif kind == "call_expression":
            yield from _call(child)
        yield from _walk(child, code, inside_loop=loop)


def _function(named: Node, function: Node, whole: Node, code: str) -> Idiom:
    name = _field(named, "name")
    parameters = function.child_by_field_name("parameters") or function.child_by_field_name("parameter")
    asynchronous = any(child.type == "async" for child in function.children)
    signature = f"{name}{_text(parameters) if parameters is not None else '()'}"
    kind = "async" if asynchronous else "function"
    label = "Asynchronous function" if asynchronous else "Function"
    calls = tuple(dict.fromkeys(_calls(code, name)))[:3]
    return _idiom(kind, name, whole, f"{label} `{signature[:120]}`. {_comment(whole)}".strip(), calls)


def _call(node: Node) -> Iterator[Idiom]:
    function = node.child_by_field_name("function")
    if function is None:
        return
    if function.type == "member_expression":
        method, owner = _field(function, "property"), _field(function, "object")
        arguments = node.child_by_field_name("arguments")
        takes_function = arguments is not None and any(a.type in _FUNCTION_VALUES for a in arguments.named_children)
        if method in _ARRAY_METHODS and takes_function:
            yield _idiom(
                "comprehension", f".{method}()", node, f"Array method `.{method}()` with a function.", literals=False
            )
        elif owner == "axios":
            yield _idiom("api_call", f"axios.{method}", node, f"HTTP request by axios.{method}.", literals=False)
        elif owner == "Promise":
            yield _idiom("async", f"Promise.{method}", node, f"Combines promises by Promise.{method}.", literals=False)
    elif function.type == "identifier" and _text(function) == "fetch":
        yield _idiom("api_call", "fetch", node, "HTTP request by fetch.", literals=False)


def _idiom(
    kind: str, name: str, node: Node, what: str, inputs: tuple[str, ...] = (), *, literals: bool = True
) -> Idiom:
    form = digest("javascript", kind, _form(node, Names(_GLOBALS), literals))
    return Idiom(kind, name, _text(node)[:_LONGEST], form, what, inputs)


def _form(node: Node, names: Names, literals: bool) -> Iterator[str]:
    kind = node.type
    if kind == "comment":
        return
    if kind in _NAMES:
        yield names[_text(node)]
    elif kind in _LITERALS:
        yield _text(node) if literals else kind
    elif node.child_count == 0:
        yield _text(node)
    else:
        yield f"({kind}"
        for child in node.children:
            yield from _form(child, names, literals)
        yield ")"


def _calls(code: str, name: str) -> Iterator[str]:
    """Short calls of a function at the top of the program, as examples of its inputs."""
    stack = list(parse_javascript(code).root_node.named_children)
    while stack:
        node = stack.pop(0)
        if node.type in _FUNCTIONS or node.type == "class_declaration":
            continue
        if node.type == "call_expression" and _field(node, "function") == name and len(_text(node)) <= 80:
            yield _text(node)
        stack += node.named_children


def _comment(node: Node) -> str:
    """First sentence of the comment right before a definition."""
    before = node.prev_named_sibling
    if before is None or before.type != "comment":
        return ""
    return first_sentence(_text(before).removeprefix("/**").removeprefix("/*").removeprefix("//").removesuffix("*/"))


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _field(node: Node, name: str) -> str:
    child = node.child_by_field_name(name)
    return "" if child is None else _text(child)
