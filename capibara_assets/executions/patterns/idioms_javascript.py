"""Idioms of JavaScript code, found in its tree."""

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
_ACTION = re.compile(r"[(`]|=>|await")  # what no call, function or await can do without
_DECLARATIONS = frozenset(("lexical_declaration", "variable_declaration"))
_GLOBAL_NAMES = """console Math JSON Object Array String Number Set Map Promise Error Date RegExp Symbol parseInt
    parseFloat undefined require fetch axios setTimeout setInterval process Buffer URL BigInt Reflect Proxy
    structuredClone"""
_GLOBALS = frozenset(_GLOBAL_NAMES.split())


class _Role(Enum):
    """What a kind of node is to a canonical form."""

    SIGN = auto()  # brackets, operators, keywords
    NAME = auto()
    LITERAL = auto()
    COMMENT = auto()
    TREE = auto()


@cache
def _roles() -> list[tuple[str, _Role]]:
    """Name and role of each kind of node, by its number: asked for its name, a node makes a new string each time."""
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
        return tuple(_Finder(root, code).find())
    except RecursionError:
        return ()


class _Finder:
    """Looks at each node once, parents first."""

    def __init__(self, root: Node, code: str) -> None:
        self._code = code
        self._bytes = None if code.isascii() else code.encode()  # the parser counts bytes
        self._roles = _roles()
        self._flat: Flat[Node] = Flat()
        self._calls: dict[str, list[Node]] = defaultdict(list)  # outside named functions and classes
        self._loop_end = 0
        self._look(root)

    def _look(self, node: Node) -> None:
        """Finds what may be an idiom; what stands around it (data, checks) needs no canonical form."""
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
            self._look(child)

    def _is_function(self, declarator: Node) -> bool:
        value = declarator.child_by_field_name("value")
        return value is not None and value.type in _FUNCTION_VALUES

    def _called(self, call: Node) -> bool:
        """Notes a call outside named scopes; whether it may be an idiom."""
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
        """Writes a tree out as tokens: identifiers are numbered, properties keep their names, comments go."""
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
            if (name := self._text(function)) in _REQUESTS:
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
        for node in self._calls.get(name, ()):
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
