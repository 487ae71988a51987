"""What a script of Codex's code mode asks of its tools: JavaScript with calls such as `tools.exec_command({cmd})`.

Arguments count where the script states them: literals, names and templates of such, `String.raw`, `[..].join(..)`.
What is asked for each item of a stated list (`for .. of`, `map`) is asked once for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from capibara_assets.executions.parsing import javascript_tree

if TYPE_CHECKING:
    from tree_sitter import Node

_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}
_FUNCTIONS = {"arrow_function", "function_expression", "function_declaration", "method_definition"}
_PERHAPS = {
    "if_statement", "ternary_expression", "for_statement", "while_statement", "do_statement", "switch_statement",
    "catch_clause",
}  # fmt: skip
_LEAVES = {"break_statement", "continue_statement", "return_statement", "throw_statement"}
_EACH = ("map", "forEach", "flatMap")
_MOST = 200  # calls that a script is asked for
_DEPTH = 120
_STEPS = 50_000  # nodes that are looked at: loops in loops ask for nothing, often
_SIZE = 1_000_000  # characters that a value has at most


class AskedTool(NamedTuple):
    """A call of a tool in a script.

    `given`: None where it is made as the script runs. `certain`: a script that ends has made the call.
    """

    tool: str
    given: Any
    certain: bool


class _UnstatedError(Exception):
    """A value that is made as the script runs, or more calls than are followed."""


def asked_tools(script: str) -> list[AskedTool]:
    """The calls in the order in which the script makes them; tools that are used in another way have no name."""
    if "tools" not in script:
        return []
    tree = javascript_tree(script)
    data = script.encode("utf-8", "replace")
    found: list[AskedTool] = []
    try:
        if tree.root_node.has_error:
            raise _UnstatedError
        steps = iter(range(_STEPS))
        for asked in _Script(data, _assigned(tree.root_node, data), steps).calls(tree.root_node, {}, True, _DEPTH):
            found.append(asked)
            if len(found) > _MOST:
                raise _UnstatedError
    except _UnstatedError:
        return [AskedTool("", None, False)]
    return found


def _assigned(root: Node, data: bytes) -> set[str]:
    """The names that do not keep their first value."""
    names: set[str] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        stack.extend(node.named_children)
        if node.type in ("assignment_expression", "augmented_assignment_expression", "update_expression"):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            names.update(_names(target, data) if target is not None else ())
    return names


def _names(pattern: Node, data: bytes) -> Iterator[str]:
    stack = [pattern]
    while stack:
        node = stack.pop()
        stack.extend(node.named_children)
        if node.type in ("identifier", "shorthand_property_identifier_pattern"):
            yield data[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _may_leave(node: Node) -> bool:
    """Whether a statement may end the block around it."""
    stack = [node]
    while stack:
        each = stack.pop()
        if each.type in _LEAVES:
            return True
        stack.extend(child for child in each.named_children if child.type not in _FUNCTIONS)
    return False


class _Script(NamedTuple):
    data: bytes
    assigned: set[str]
    steps: Iterator[int]  # those that are left

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def calls(self, node: Node, scope: dict[str, Any], certain: bool, depth: int) -> Iterator[AskedTool]:
        """The calls within a node; names that it declares are added to those that are known."""
        if not depth or next(self.steps, None) is None:
            raise _UnstatedError
        if node.type == "variable_declarator":
            yield from self._inside(node, scope, certain, depth)
            self._declare(node, scope)
        elif b"tools" not in self.data[node.start_byte : node.end_byte] and node.type not in (
            "lexical_declaration",
            "variable_declaration",
        ):
            return
        elif node.type == "identifier" and self.text(node) == "tools":
            yield AskedTool("", None, False)
        elif node.type in ("program", "statement_block"):
            inner = dict(scope)
            for child in node.named_children:
                yield from self.calls(child, inner, certain, depth - 1)
                certain = certain and not _may_leave(child)
        elif node.type == "for_in_statement":
            yield from self._each_of(node, scope, certain, depth)
        elif node.type == "call_expression":
            yield from self._call(node, scope, certain, depth)
        elif node.type in _FUNCTIONS:
            yield from self._inside(node, self._without(node, scope), False, depth)
        else:
            shortened = node.type == "binary_expression" and self._operator(node) in ("&&", "||", "??")
            yield from self._inside(node, scope, certain and node.type not in _PERHAPS and not shortened, depth)

    def _inside(self, node: Node, scope: dict[str, Any], certain: bool, depth: int) -> Iterator[AskedTool]:
        for child in node.named_children:
            yield from self.calls(child, scope, certain, depth - 1)

    def _without(self, function: Node, scope: dict[str, Any]) -> dict[str, Any]:
        given = function.child_by_field_name("parameters") or function.child_by_field_name("parameter")
        hidden = set(_names(given, self.data)) if given is not None else set()
        return {name: value for name, value in scope.items() if name not in hidden}

    def _operator(self, node: Node) -> str:
        sign = node.child_by_field_name("operator")
        return sign.type if sign is not None else ""

    def _declare(self, declarator: Node, scope: dict[str, Any]) -> None:
        name, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        if name is None:
            return
        try:
            self._bind(name, self.value(value, scope, _DEPTH), scope)
        except _UnstatedError:
            for hidden in _names(name, self.data):
                scope.pop(hidden, None)

    def _bind(self, pattern: Node, value: Any, scope: dict[str, Any]) -> None:
        """Give the names of a pattern their parts of a value."""
        parts = pattern.named_children
        if pattern.type == "identifier":
            if (name := self.text(pattern)) in self.assigned:
                raise _UnstatedError
            scope[name] = value
        elif pattern.type == "array_pattern" and isinstance(value, list) and len(parts) <= len(value):
            for part, each in zip(parts, value, strict=False):
                self._bind(part, each, scope)
        elif pattern.type == "object_pattern" and isinstance(value, dict):
            for part in parts:
                name = self.text(part)
                if part.type != "shorthand_property_identifier_pattern" or name not in value or name in self.assigned:
                    raise _UnstatedError
                scope[name] = value[name]
        else:
            raise _UnstatedError

    def _each_of(self, loop: Node, scope: dict[str, Any], certain: bool, depth: int) -> Iterator[AskedTool]:
        """What a loop asks for: once for each item of a stated list."""
        name, listed, body = (loop.child_by_field_name(part) for part in ("left", "right", "body"))
        if name is None or listed is None or body is None or self._operator(loop) != "of":
            yield from self._inside(loop, scope, False, depth)
            return
        yield from self.calls(listed, scope, certain, depth - 1)
        yield from self._for_items(name, listed, body, scope, certain, depth)

    def _for_items(
        self, name: Node, listed: Node, body: Node, scope: dict[str, Any], certain: bool, depth: int
    ) -> Iterator[AskedTool]:
        try:
            items = self.value(listed, scope, _DEPTH)
        except _UnstatedError:
            items = None
        if not isinstance(items, list) or len(items) > _MOST:
            yield from self.calls(body, scope, False, depth - 1)
            return
        for item in items:
            inner = dict(scope)
            try:
                self._bind(name, item, inner)
            except _UnstatedError:
                inner = {known: value for known, value in scope.items() if known not in _names(name, self.data)}
            yield from self.calls(body, inner, certain, depth - 1)
            certain = certain and not _may_leave(body)

    def _call(self, node: Node, scope: dict[str, Any], certain: bool, depth: int) -> Iterator[AskedTool]:
        function, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None or given is None:
            return
        owner, method = (function.child_by_field_name(part) for part in ("object", "property"))
        if function.type == "member_expression" and owner is not None and method is not None:
            if owner.type == "identifier" and self.text(owner) == "tools":
                yield from self._inside(given, scope, certain, depth)
                yield AskedTool(self.text(method), self._given(given, scope), certain)
                return
            first = given.named_children[0] if given.named_children else None
            if self.text(method) in _EACH and first is not None and first.type == "arrow_function":
                yield from self._mapped(owner, first, scope, certain, depth)
                return
        yield from self._inside(node, scope, certain, depth)

    def _mapped(
        self, owner: Node, function: Node, scope: dict[str, Any], certain: bool, depth: int
    ) -> Iterator[AskedTool]:
        """What a function asks for that is called for each item of a list."""
        yield from self.calls(owner, scope, certain, depth - 1)
        named = function.child_by_field_name("parameters") or function.child_by_field_name("parameter")
        names = named.named_children if named is not None and named.type == "formal_parameters" else [named]
        body = function.child_by_field_name("body")
        inner = self._without(function, scope)
        if body is not None and names and names[0] is not None:
            yield from self._for_items(names[0], owner, body, inner, certain, depth)
        elif body is not None:
            yield from self.calls(body, inner, False, depth - 1)

    def _given(self, arguments: Node, scope: dict[str, Any]) -> Any:
        given = [child for child in arguments.named_children if child.type != "comment"]
        try:
            return self.value(given[0], scope, _DEPTH) if given else {}
        except _UnstatedError:
            return None

    def value(self, node: Node | None, scope: dict[str, Any], depth: int) -> Any:
        """The value that an expression states."""
        if node is None or not depth:
            raise _UnstatedError
        match node.type:
            case "string":
                return _unescaped(self.text(node)[1:-1])
            case "template_string":
                return self._template(node, scope, depth, raw=False)
            case "number":
                return _number(self.text(node))
            case "true" | "false":
                return node.type == "true"
            case "null" | "undefined":
                return None
            case "identifier":
                if (name := self.text(node)) in scope:
                    return scope[name]
            case "array":
                return [self.value(item, scope, depth - 1) for item in node.named_children if item.type != "comment"]
            case "object":
                return self._object(node, scope, depth)
            case "parenthesized_expression" if node.named_child_count == 1:
                return self.value(node.named_children[0], scope, depth - 1)
            case "binary_expression" if self._operator(node) == "+":
                return self._sum(node, scope, depth)
            case "call_expression":
                return self._made(node, scope, depth)
        raise _UnstatedError

    def _template(self, node: Node, scope: dict[str, Any], depth: int, raw: bool) -> str:
        parts, begin = [], node.start_byte + 1
        for hole in [child for child in node.named_children if child.type == "template_substitution"]:
            parts.append(self._piece(begin, hole.start_byte, raw))
            inner = hole.named_children[0] if hole.named_child_count else None
            parts.append(_as_text(self.value(inner, scope, depth - 1)))
            begin = hole.end_byte
        return _joined("", [*parts, self._piece(begin, node.end_byte - 1, raw)])

    def _piece(self, begin: int, end: int, raw: bool) -> str:
        text = self.data[begin:end].decode("utf-8", "replace")
        return text if raw else _unescaped(text)

    def _object(self, node: Node, scope: dict[str, Any], depth: int) -> dict[str, Any]:
        """The properties that are stated."""
        found: dict[str, Any] = {}
        for part in node.named_children:
            name = part.child_by_field_name("key") if part.type == "pair" else part
            if part.type == "shorthand_property_identifier":
                if self.text(part) in scope:
                    found[self.text(part)] = scope[self.text(part)]
            elif part.type == "spread_element":
                more = self.value(part.named_children[0], scope, depth - 1)
                found.update(more if isinstance(more, dict) else {})
            elif name is not None and part.type == "pair":
                key = _unescaped(self.text(name)[1:-1]) if name.type == "string" else self.text(name)
                try:
                    found[key] = self.value(part.child_by_field_name("value"), scope, depth - 1)
                except _UnstatedError:
                    found.pop(key, None)
        return found

    def _sum(self, node: Node, scope: dict[str, Any], depth: int) -> str:
        terms: list[Node | None] = []
        left: Node | None = node
        while left is not None and left.type == "binary_expression" and self._operator(left) == "+":
            terms.append(left.child_by_field_name("right"))
            left = left.child_by_field_name("left")
        values = [self.value(term, scope, depth - 1) for term in [left, *reversed(terms)]]
        if not any(isinstance(value, str) for value in values[:2]):
            raise _UnstatedError
        return _joined("", list(map(_as_text, values)))

    def _made(self, node: Node, scope: dict[str, Any], depth: int) -> str:
        """A raw template, or a list that is joined."""
        function, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None or given is None or function.type != "member_expression":
            raise _UnstatedError
        if given.type == "template_string" and self.text(function) == "String.raw":
            return self._template(given, scope, depth, raw=True)
        owner, method = (function.child_by_field_name(part) for part in ("object", "property"))
        if method is None or self.text(method) != "join" or given.type != "arguments":
            raise _UnstatedError
        parts = self.value(owner, scope, depth - 1)
        between = self.value(given.named_children[0], scope, depth - 1) if given.named_children else ","
        if not isinstance(parts, list) or not isinstance(between, str):
            raise _UnstatedError
        return _joined(between, list(map(_as_text, parts)))


def _as_text(value: Any) -> str:
    """A text or whole number within a text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _UnstatedError
    return str(value)


def _joined(between: str, parts: list[str]) -> str:
    """The parts as one text, unless it is larger than any that an agent writes."""
    if sum(map(len, parts)) + len(between) * len(parts) > _SIZE:
        raise _UnstatedError
    return between.join(parts)


def _number(text: str) -> int | float:
    if not re.fullmatch(r"\d{1,15}(?:\.\d{1,15})?", text):
        raise _UnstatedError
    return float(text) if "." in text else int(text)


def _unescaped(text: str) -> str:
    """What the text between a string's quotes says."""
    if "\\" not in text:
        return text
    said = _ESCAPE.sub(_escaped, text)
    return said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escaped(found: re.Match[str]) -> str:
    number = found[1] or found[2] or found[3]
    if number:
        return chr(int(number, 16)) if int(number, 16) <= 0x10FFFF else "\ufffd"
    return _ESCAPED.get(found[4], found[4])
