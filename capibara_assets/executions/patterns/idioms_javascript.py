"""Finds idioms in JavaScript code by its syntax tree."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from capibara_assets.executions.labels.libraries import HTTP_METHODS
from capibara_assets.executions.parsing import javascript_language, parse_javascript
from capibara_assets.executions.patterns.idioms import LONGEST, Flat, Idiom, digest, first_sentence

if TYPE_CHECKING:
    from tree_sitter import Node

_INPUTS = 3
_FUNCTION_VALUES = frozenset(("arrow_function", "function_expression", "generator_function"))
_NAMED_SCOPES = frozenset(("function_declaration", "generator_function_declaration", "class_declaration"))
_ARRAY_METHODS = frozenset(("map", "filter", "reduce", "flatMap", "forEach", "some", "every", "find", "sort"))
_NAMES = frozenset(("identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"))
_LITERALS = frozenset(("string", "number", "regex", "string_fragment", "escape_sequence"))
_REQUESTS = frozenset(("fetch", "axios"))
_OWNERS = ("Promise", "axios")
_METHODS = _ARRAY_METHODS | HTTP_METHODS
_VALUES = frozenset(("array", "object"))
_ACTION = re.compile(r"[(`]|=>|await")  # every call, function and await contains one of these
_DECLARATIONS = frozenset(("lexical_declaration", "variable_declaration"))
_GLOBAL_NAMES = """console Math JSON Object Array String Number Set Map Promise Error Date RegExp Symbol parseInt
    parseFloat undefined require fetch axios setTimeout setInterval process Buffer URL BigInt Reflect Proxy
    structuredClone"""
_GLOBALS = frozenset(_GLOBAL_NAMES.split())


class _Role(Enum):
    """The role of a kind of node in a canonical form."""

    SIGN = auto()  # brackets, operators, keywords
    NAME = auto()
    LITERAL = auto()
    COMMENT = auto()
    TREE = auto()


@cache
def _roles() -> list[tuple[str, _Role]]:
    """Name and role of each kind of node, by its number; a node's own `type` makes a new string at each access."""
    language = javascript_language()
    kinds = [
        (language.node_kind_for_id(i) or "", language.node_kind_is_named(i)) for i in range(language.node_kind_count)
    ]
    return [(kind, _role(kind) if named else _Role.SIGN) for kind, named in kinds]


def _role(kind: str) -> _Role:
    if kind in _NAMES:
        return _Role.NAME
    if kind in _LITERALS:
        return _Role.LITERAL
    return _Role.COMMENT if kind == "comment" else _Role.TREE


@lru_cache(maxsize=16_384)
def javascript_idioms(code: str) -> tuple[Idiom, ...]:
    """Idioms of one program in the order of the text; none when it does not parse."""
    root = parse_javascript(code).root_node
    if root.has_error:
        return ()
    try:
        return tuple(_JavaScriptFinder(root, code).find())
    except RecursionError:
        return ()


class _JavaScriptFinder:
    """Visits each node once, parents first."""

    def __init__(self, root: Node, code: str) -> None:
        self._code = code
        self._bytes = None if code.isascii() else code.encode()  # the parser counts bytes
        self._roles = _roles()
        self._flat: Flat[Node] = Flat()
        self._calls: dict[str, list[Node]] = defaultdict(list)  # outside named functions and classes
        self._loop_end = 0
        self._collect(root)

    def _collect(self, node: Node) -> None:
        """Collects nodes that may be idioms; the code around them (data, checks) needs no canonical form."""
        roles = self._roles
        for child in node.children:
            kind, role = roles[child.kind_id]
            if role is not _Role.TREE:
                continue
            if kind == "call_expression":
                if self._called(child):
                    self._add(child, False)
                    continue
            elif kind in _DECLARATIONS:
                if any(self._is_function(value) for value in child.named_children):
                    self._add(child, False)
                    continue
            elif kind in _READERS and kind != "variable_declarator":
                self._add(child, False)
                continue
            elif kind in _VALUES and _ACTION.search(self._text(child)) is None:
                continue  # tables of test data are most of many programs
            self._collect(child)

    def _is_function(self, declarator: Node) -> bool:
        value = declarator.child_by_field_name("value")
        return value is not None and value.type in _FUNCTION_VALUES

    def _called(self, call: Node) -> bool:
        """Notes a call outside named scopes; returns whether it may be an idiom."""
        function = call.children[0]
        name = self._text(function)
        self._calls[name].append(call)
        kind = self._roles[function.kind_id][0]
        if kind == "identifier":
            return name in _REQUESTS
        if kind != "member_expression":
            return False
        return name.startswith(_OWNERS) or self._field(function, "property") in _METHODS

    def _add(self, node: Node, scoped: bool) -> None:
        """Flattens a tree into tokens: identifiers are numbered, properties keep their names, comments are dropped."""
        roles, flat = self._roles, self._flat
        tokens = flat.tokens
        kind = roles[node.kind_id][0]
        index = flat.open(node, kind) if kind in _RANGES else -1
        children = node.children
        if kind == "call_expression" and not scoped:
            self._calls[self._text(children[0])].append(node)
        scoped = scoped or kind in _NAMED_SCOPES
        tokens.append(kind)
        for child in children:
            kind, role = roles[child.kind_id]
            if role is _Role.SIGN:
                tokens.append(kind)  # `{` is its own kind
            elif role is _Role.NAME:
                name = self._text(child)
                if name in _GLOBALS:
                    tokens.append(name)
                else:
                    flat.name(name)
            elif role is _Role.LITERAL:
                flat.literal(self._text(child), kind)
            elif child.child_count:
                self._add(child, scoped)
            elif role is not _Role.COMMENT:
                tokens.append(self._text(child))
        tokens.append(")")
        if index >= 0:
            flat.close(index)

    def find(self) -> Iterator[Idiom]:
        """Yields the idioms in the order of the text."""
        flat = self._flat
        for i, kind in enumerate(flat.kinds):
            if (read := _READERS.get(kind)) is not None:
                yield from read(self, flat.nodes[i], i)

    # --- kinds of nodes ---------------------------------------------------------------------------------------------

    def function(self, node: Node, i: int) -> Iterator[Idiom]:
        yield self._function(node, node, i)

    def declarator(self, node: Node, i: int) -> Iterator[Idiom]:
        """`const f = (x) => …`: a function by another name."""
        value = node.child_by_field_name("value")
        if value is not None and value.type in _FUNCTION_VALUES:
            whole = i - 1  # the declaration; earlier declarators may stand between
            while self._flat.kinds[whole] not in _DECLARATIONS:
                whole -= 1
            yield self._function(node, value, whole)

    def class_(self, node: Node, i: int) -> Iterator[Idiom]:
        name = self._field(node, "name")
        yield self._idiom("class", name, i, f"Class `{name}`. {self._comment(node)}".strip())

    def loop(self, node: Node, i: int) -> Iterator[Idiom]:
        if i < self._loop_end:
            return  # part of another
        self._loop_end = self._flat.last[i]
        opening = self._text(node).split("{")[0].strip()[:80]
        yield self._idiom("loop", opening, i, f"Loop `{opening}`.", literals=False)

    def try_(self, node: Node, i: int) -> Iterator[Idiom]:
        yield self._idiom("error_handling", "try", i, "Handles exceptions with try and catch.")

    def await_(self, node: Node, i: int) -> Iterator[Idiom]:
        yield self._idiom("async", "await", i, "Awaits a promise.", literals=False)

    def call(self, node: Node, i: int) -> Iterator[Idiom]:
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None:
            return
        passed = [] if arguments is None else arguments.named_children
        if function.type == "identifier":
            if (name := self._text(function)) in _REQUESTS:
                yield self._idiom("api_call", name, i, f"HTTP request by {name}.", literals=False)
        elif function.type == "member_expression":
            method, owner = self._field(function, "property"), self._field(function, "object")
            if method in _ARRAY_METHODS and any(a.type in _FUNCTION_VALUES for a in passed):
                what = f"Array method `.{method}()` with a function."
                yield self._idiom("comprehension", f".{method}()", i, what, literals=False)
            elif owner == "Promise":
                what = f"Combines promises by Promise.{method}."
                yield self._idiom("async", f"Promise.{method}", i, what, literals=False)
            elif owner == "axios" or (method in HTTP_METHODS and passed and self._is_route(passed[0])):
                what = f"HTTP request or route by {owner[:40]}.{method}."
                yield self._idiom("api_call", f"{owner[:40]}.{method}", i, what, literals=False)

    # --- making idioms and describing them --------------------------------------------------------------------------

    def _is_route(self, argument: Node) -> bool:
        return self._text(argument).strip("'\"`").startswith(("/", "http://", "https://"))

    def _function(self, named: Node, function: Node, i: int) -> Idiom:
        name = self._field(named, "name")
        parameters = function.child_by_field_name("parameters") or function.child_by_field_name("parameter")
        asynchronous = any(child.type == "async" for child in function.children)
        signature = f"{name}{self._text(parameters) if parameters is not None else '()'}"
        label = "Asynchronous function" if asynchronous else "Function"
        what = f"{label} `{signature[:120]}`. {self._comment(self._flat.nodes[i])}".strip()
        return self._idiom("async" if asynchronous else "function", name, i, what, self._inputs(name))

    def _idiom(
        self, kind: str, name: str, i: int, what: str, inputs: tuple[str, ...] = (), *, literals: bool = True
    ) -> Idiom:
        form = digest("javascript", kind, self._flat.form(i, literals=literals))
        return Idiom(kind, name, self._text(self._flat.nodes[i])[:LONGEST], form, what, inputs)

    def _inputs(self, name: str) -> tuple[str, ...]:
        """Short calls of a function at the top of the program, as examples of its inputs."""
        examples: dict[str, None] = {}
        for node in self._calls.get(name, ()):
            if node.end_byte - node.start_byte <= 80 and len(examples) < _INPUTS:
                examples[self._text(node)] = None
        return tuple(examples)

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


_READERS: dict[object, Callable[[_JavaScriptFinder, Node, int], Iterator[Idiom]]] = {
    "function_declaration": _JavaScriptFinder.function,
    "generator_function_declaration": _JavaScriptFinder.function,
    "variable_declarator": _JavaScriptFinder.declarator,
    "class_declaration": _JavaScriptFinder.class_,
    "for_statement": _JavaScriptFinder.loop,
    "for_in_statement": _JavaScriptFinder.loop,
    "while_statement": _JavaScriptFinder.loop,
    "do_statement": _JavaScriptFinder.loop,
    "try_statement": _JavaScriptFinder.try_,
    "await_expression": _JavaScriptFinder.await_,
    "call_expression": _JavaScriptFinder.call,
}
_RANGES = _READERS.keys() | _DECLARATIONS  # nodes that are ranges in the list of tokens
