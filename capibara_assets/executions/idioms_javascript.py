"""Idioms of JavaScript code, found in its tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from capibara_assets.executions.idioms import LONGEST, Flat, Idiom, digest, first_sentence
from capibara_assets.executions.libraries import HTTP_METHODS
from capibara_assets.executions.parsing import parse_javascript

if TYPE_CHECKING:
    from tree_sitter import Node

_INPUTS = 3
_FUNCTION_VALUES = frozenset(("arrow_function", "function_expression", "generator_function"))
_NAMED_SCOPES = frozenset(("function_declaration", "generator_function_declaration", "class_declaration"))
_ARRAY_METHODS = frozenset(("map", "filter", "reduce", "flatMap", "forEach", "some", "every", "find", "sort"))
_NAMES = frozenset(("identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"))
_LITERALS = frozenset(("string", "number", "regex", "string_fragment", "escape_sequence"))
_DECLARATIONS = frozenset(("lexical_declaration", "variable_declaration"))
_GLOBAL_NAMES = """console Math JSON Object Array String Number Set Map Promise Error Date RegExp Symbol parseInt
    parseFloat undefined require fetch axios setTimeout setInterval process Buffer URL BigInt Reflect Proxy
    structuredClone"""
_GLOBALS = frozenset(_GLOBAL_NAMES.split())


@lru_cache(maxsize=16_384)
def javascript_idioms(code: str) -> tuple[Idiom, ...]:
    """Idioms of one program in the order of the text; none when it does not parse."""
    root = parse_javascript(code).root_node
    if root.has_error:
        return ()
    try:
        return tuple(_Finder(root, code).find())
    except RecursionError:
        return ()


class _Finder:
    """Looks at each node once, parents first."""

    def __init__(self, root: Node, code: str) -> None:
        self._code = code
        self._bytes = None if code.isascii() else code.encode()  # the parser counts bytes
        self._flat: Flat[Node] = Flat()
        self._calls: dict[str, list[int]] = defaultdict(list)  # outside named functions and classes
        self._loop_end = 0
        self._add(root, False)

    def _add(self, node: Node, scoped: bool) -> None:
        """Writes a tree out as tokens: identifiers are numbered, properties keep their names, comments go."""
        kind = node.type
        flat = self._flat
        index = flat.open(node, kind) if kind in _RANGES else -1
        children = node.children
        if kind == "call_expression" and not scoped:
            self._calls[self._text(children[0])].append(index)
        scoped = scoped or kind in _NAMED_SCOPES
        flat.tokens.append(kind)
        for child in children:
            kind = child.type
            if not child.is_named:
                flat.tokens.append(kind)  # `{` is its own kind
            elif kind in _NAMES:
                name = self._text(child)
                if name in _GLOBALS:
                    flat.tokens.append(name)
                else:
                    flat.name(name)
            elif kind in _LITERALS:
                flat.literal(self._text(child), kind)
            elif child.child_count:
                self._add(child, scoped)
            elif kind != "comment":
                flat.tokens.append(self._text(child))
        flat.tokens.append(")")
        if index >= 0:
            flat.close(index)

    def find(self) -> Iterator[Idiom]:
        flat = self._flat
        for i, kind in enumerate(flat.kinds):
            if (read := _READERS.get(kind)) is not None:
                yield from read(self, flat.nodes[i], i)

    # --- kinds of nodes ---------------------------------------------------------------------------------------------

    def function(self, node: Node, i: int) -> Iterator[Idiom]:
        yield self._function(node, node, node, i)

    def declarator(self, node: Node, i: int) -> Iterator[Idiom]:
        """`const f = (x) => …`: a function by another name."""
        value = node.child_by_field_name("value")
        if value is not None and value.type in _FUNCTION_VALUES:
            whole = i - 1  # the declaration; earlier declarators may stand between
            while self._flat.kinds[whole] not in _DECLARATIONS:
                whole -= 1
            yield self._function(node, value, self._flat.nodes[whole], whole)

    def class_(self, node: Node, i: int) -> Iterator[Idiom]:
        name = self._field(node, "name")
        yield self._idiom("class", name, node, i, f"Class `{name}`. {self._comment(node)}".strip())

    def loop(self, node: Node, i: int) -> Iterator[Idiom]:
        if i < self._loop_end:
            return  # part of another
        self._loop_end = self._flat.last[i]
        opening = self._text(node).split("{")[0].strip()[:80]
        yield self._idiom("loop", opening, node, i, f"Loop `{opening}`.", literals=False)

    def try_(self, node: Node, i: int) -> Iterator[Idiom]:
        yield self._idiom("error_handling", "try", node, i, "Handles exceptions with try and catch.")

    def await_(self, node: Node, i: int) -> Iterator[Idiom]:
        yield self._idiom("async", "await", node, i, "Awaits a promise.", literals=False)

    def call(self, node: Node, i: int) -> Iterator[Idiom]:
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None:
            return
        passed = [] if arguments is None else arguments.named_children
        if function.type == "identifier":
            if (name := self._text(function)) in ("fetch", "axios"):
                yield self._idiom("api_call", name, node, i, f"HTTP request by {name}.", literals=False)
        elif function.type == "member_expression":
            method, owner = self._field(function, "property"), self._field(function, "object")
            if method in _ARRAY_METHODS and any(a.type in _FUNCTION_VALUES for a in passed):
                what = f"Array method `.{method}()` with a function."
                yield self._idiom("comprehension", f".{method}()", node, i, what, literals=False)
            elif owner == "Promise":
                what = f"Combines promises by Promise.{method}."
                yield self._idiom("async", f"Promise.{method}", node, i, what, literals=False)
            elif owner == "axios" or (method in HTTP_METHODS and passed and self._is_route(passed[0])):
                what = f"HTTP request or route by {owner[:40]}.{method}."
                yield self._idiom("api_call", f"{owner[:40]}.{method}", node, i, what, literals=False)

    # --- what is told of them ---------------------------------------------------------------------------------------

    def _is_route(self, argument: Node) -> bool:
        return self._text(argument).strip("'\"`").startswith(("/", "http://", "https://"))

    def _function(self, named: Node, function: Node, whole: Node, i: int) -> Idiom:
        name = self._field(named, "name")
        parameters = function.child_by_field_name("parameters") or function.child_by_field_name("parameter")
        asynchronous = any(child.type == "async" for child in function.children)
        signature = f"{name}{self._text(parameters) if parameters is not None else '()'}"
        label = "Asynchronous function" if asynchronous else "Function"
        what = f"{label} `{signature[:120]}`. {self._comment(whole)}".strip()
        return self._idiom("async" if asynchronous else "function", name, whole, i, what, self._inputs(name))

    def _idiom(
        self,
        kind: str,
        name: str,
        node: Node,
        i: int,
        what: str,
        inputs: tuple[str, ...] = (),
        *,
        literals: bool = True,
    ) -> Idiom:
        form = digest("javascript", kind, self._flat.form(i, literals=literals))
        return Idiom(kind, name, self._text(node)[:LONGEST], form, what, inputs)

    def _inputs(self, name: str) -> tuple[str, ...]:
        """Short calls of a function at the top of the program, as examples of its inputs."""
        found: dict[str, None] = {}
        for i in self._calls.get(name, ()):
            node = self._flat.nodes[i]
            if node.end_byte - node.start_byte <= 80 and len(found) < _INPUTS:
                found[self._text(node)] = None
        return tuple(found)

    def _comment(self, node: Node) -> str:
        """First sentence of the comment right before a definition."""
        before = node.prev_named_sibling
        if before is None or before.type != "comment":
            return ""
        text = self._text(before).removeprefix("/**").removeprefix("/*").removeprefix("//").removesuffix("*/")
        return first_sentence(text)

    def _field(self, node: Node, name: str) -> str:
        child = node.child_by_field_name(name)
        return "" if child is None else self._text(child)

    def _text(self, node: Node) -> str:
        if self._bytes is None:
            return self._code[node.start_byte : node.end_byte]
        return self._bytes[node.start_byte : node.end_byte].decode("utf-8", "replace")


_READERS: dict[object, Callable[[_Finder, Node, int], Iterator[Idiom]]] = {
    "function_declaration": _Finder.function,
    "generator_function_declaration": _Finder.function,
    "variable_declarator": _Finder.declarator,
    "class_declaration": _Finder.class_,
    "for_statement": _Finder.loop,
    "for_in_statement": _Finder.loop,
    "while_statement": _Finder.loop,
    "do_statement": _Finder.loop,
    "try_statement": _Finder.try_,
    "await_expression": _Finder.await_,
    "call_expression": _Finder.call,
}
_RANGES = _READERS.keys() | _DECLARATIONS  # nodes that are told apart in the list of tokens
