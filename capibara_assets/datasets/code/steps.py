"""Steps of a cell's functions by position, matching the tracers of `executions/replay`, and their sub-expressions."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tree_sitter import Node

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.one_line import in_one_line
from capibara_assets.executions.parsing import JAVASCRIPT, child_nodes, walk
from capibara_assets.executions.replay import javascript_tracing, python_instrument

Sort = Literal[
    "assign", "augment", "do", "return", "if", "while", "for", "break", "continue", "raise", "catch", "choice"
]


@dataclass(frozen=True)
class Part:
    """A sub-expression: its kind, its position in the code (bytes), and its operands.

    Attributes:
        sort: name, call, index, attribute, comprehension, generator, choice, constant or other.
        loose: a negative number in its place needs brackets.
        function: of a call the name that is called, without its receiver.
    """

    place: str
    sort: str
    text: str
    span: tuple[int, int]
    parts: tuple["Part", ...] = ()
    loose: bool = True
    function: str = ""

    def inside(self) -> Iterator["Part"]:
        """The operands, in order of evaluation."""
        for part in self.parts:
            yield from part.inside()
            yield part


@dataclass(frozen=True)
class Step:
    """A statement of a function, or the test or iterable of a compound one.

    Attributes:
        text: the statement, of a compound one its head, on one line.
        value: the expression that is evaluated.
        targets: the names that it assigns.
        otherwise: of `if` what follows where it is false: elif, else or "".
        span: line and column of the first character, and after the last one.
    """

    sort: Sort
    text: str
    line: int
    span: tuple[tuple[int, int], tuple[int, int]]
    value: Part | None = None
    targets: tuple[str, ...] = ()
    otherwise: str = ""

    def holds(self, place: str) -> bool:
        """Whether another place stands inside this statement."""
        first, begin, last, end = map(int, place.split(":"))
        return self.span[0] <= (first, begin) and (last, end) <= self.span[1]


@lru_cache(maxsize=1024)
def steps(code: str, language: str) -> dict[str, Step]:
    """Place -> step; none where the code does not parse."""
    if language == "python":
        tree = python_source.parse(code)
        return {} if tree is None else dict(_Python(code).steps(tree))
    if language in JAVASCRIPT:
        return dict(_javascript(javascript_source.parse(code)))
    return {}


def _span(place: str) -> tuple[tuple[int, int], tuple[int, int]]:
    first, begin, last, end = map(int, place.split(":"))
    return (first, begin), (last, end)


class _Python:
    """Steps of Python, told from its syntax tree."""

    def __init__(self, code: str) -> None:
        self.source = code.encode("utf-8", "surrogatepass")
        self.begins = [0]
        for line in self.source.split(b"\n"):
            self.begins.append(self.begins[-1] + len(line) + 1)

    def steps(self, tree: ast.AST) -> Iterator[tuple[str, Step]]:
        for node in walk(tree):
            if (made := self._step(node)) is not None:
                yield python_instrument.place(node), made

    def _step(self, node: ast.AST) -> Step | None:
        match node:
            case ast.If():
                below = node.orelse
                chained = len(below) == 1 and isinstance(below[0], ast.If)
                elif_ = chained and self._text(below[0]).startswith("elif")
                return self._made(
                    "if", node, node.test, node.test, otherwise="elif" if elif_ else "else" if below else ""
                )
            case ast.While():
                return None if node.orelse else self._made("while", node, node.test, node.test)
            case ast.For():
                return None if node.orelse else self._made("for", node, node.iter, node.target, node.iter)
            case ast.Assign(targets=[target]):
                return self._made("assign", node, node.value, node, targets=_bound(target))
            case ast.Assign():
                return None
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._made("assign", node, value, node, targets=_bound(target))
            case ast.AugAssign(target=target):
                return self._made("augment", node, node.value, node, targets=_bound(target))
            case ast.Expr():
                return self._made("do", node, node.value, node)
            case ast.Delete():
                return self._made("do", node, None, node)
            case ast.Return():
                return self._made("return", node, node.value, node)
            case ast.Raise():
                return self._made("raise", node, node.exc, node)
            case ast.Break():
                return self._made("break", node, None, node)
            case ast.Continue():
                return self._made("continue", node, None, node)
            case ast.ExceptHandler():
                head = "except" if node.type is None else f"except {self._text(node.type)}"
                return Step("catch", head, node.lineno, _span(python_instrument.place(node)))
            case ast.IfExp():
                return self._made("choice", node, node.test, node.test)
        return None

    def _made(
        self,
        sort: Sort,
        node: ast.AST,
        value: ast.expr | None,
        *shown: ast.AST,
        targets: tuple[str, ...] = (),
        otherwise: str = "",
    ) -> Step:
        at = python_instrument.place(node)
        text = " in ".join(self._text(each) for each in shown)
        part = None if value is None else self._part(value)
        return Step(sort, text.removesuffix(";"), node.lineno, _span(at), part, targets, otherwise)  # type: ignore[attr-defined]

    def _offsets(self, node: ast.AST) -> tuple[int, int]:
        (first, begin), (last, end) = _span(python_instrument.place(node))
        return self.begins[first - 1] + begin, self.begins[last - 1] + end

    def _text(self, node: ast.AST) -> str:
        start, end = self._offsets(node)
        return in_one_line(self.source[start:end].decode("utf-8", "replace"))

    def _part(self, node: ast.expr, loose: bool = False) -> Part:
        sort, function, below = "other", "", [each for each in child_nodes(node) if isinstance(each, ast.expr)]
        match node:
            case ast.Constant():
                sort = "constant"
            case ast.Name():
                sort = "name"
            case ast.Attribute():
                sort = "attribute"
            case ast.Subscript():
                sort = "index"
            case ast.IfExp():
                sort, below = "choice", [node.test, node.body, node.orelse]
            case ast.GeneratorExp():
                sort, below = "generator", [node.generators[0].iter]
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                sort, below = "comprehension", [node.generators[0].iter]
            case ast.Lambda() | ast.JoinedStr():
                below = []
            case ast.Call(func=called):
                sort = "call"
                function = python_source.called_name(node)
                arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
                below = [*([called.value] if isinstance(called, ast.Attribute) else []), *arguments]
        inner = isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.Attribute | ast.Subscript)
        parts = tuple(self._part(each, inner) for each in below)
        place = python_instrument.place(node)
        return Part(place, sort, self._text(node), self._offsets(node), parts, loose, function)


def _bound(target: ast.AST) -> tuple[str, ...]:
    """The names that a target binds; none where it changes a part of something."""
    if isinstance(target, ast.Name):
        return (target.id,)
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(name for each in target.elts for name in _bound(each))
    return _bound(target.value) if isinstance(target, ast.Starred) else ()


_SORTS: dict[str, Sort] = {
    "return_statement": "return",
    "throw_statement": "raise",
    "break_statement": "break",
    "continue_statement": "continue",
    "if_statement": "if",
    "while_statement": "while",
    "ternary_expression": "choice",
}
_PARTS = {
    "identifier": "name",
    "call_expression": "call",
    "new_expression": "call",
    "subscript_expression": "index",
    "member_expression": "attribute",
    "ternary_expression": "choice",
    "number": "constant",
    "string": "constant",
    "true": "constant",
    "false": "constant",
    "null": "constant",
}


def _javascript(root: Node) -> Iterator[tuple[str, Step]]:
    """Steps of JavaScript, told from its syntax tree."""
    pending = [root]
    while pending:
        node = pending.pop()
        pending += node.named_children
        if (made := _javascript_step(node)) is not None:
            yield javascript_tracing.place(node), made


def _javascript_step(node: Node) -> Step | None:
    place = javascript_tracing.place(node)

    def made(sort: Sort, text: Node, value: Node | None, targets: tuple[str, ...] = (), otherwise: str = "") -> Step:
        part = None if value is None else _javascript_part(value)
        said = _line(text).removesuffix(";")
        said = said[1:-1].strip() if text.type == "parenthesized_expression" else said
        return Step(sort, said, node.start_point[0] + 1, _span(place), part, targets, otherwise)

    condition = node.child_by_field_name("condition")
    match node.type:
        case "if_statement" | "while_statement" | "ternary_expression" if condition is not None:
            alternative = node.child_by_field_name("alternative")
            chained = alternative is not None and any(child.type == "if_statement" for child in alternative.children)
            otherwise = "" if alternative is None else "elif" if chained else "else"
            return made(_SORTS[node.type], condition, condition, otherwise=otherwise)
        case "for_statement" if condition is not None:
            return made("for", condition, condition)
        case "for_in_statement":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left is not None and right is not None:
                step = made("for", right, right)
                word = "of" if any(child.type == "of" for child in node.children) else "in"
                return Step(step.sort, f"{_line(left)} {word} {_line(right)}", step.line, step.span, step.value)
        case "return_statement" | "throw_statement":
            values = [child for child in node.named_children if child.type != "comment"]
            return made(_SORTS[node.type], node, values[0] if values else None)
        case "break_statement" | "continue_statement":
            return made(_SORTS[node.type], node, None)
        case "lexical_declaration" | "variable_declaration":
            declarators = [child for child in node.named_children if child.type == "variable_declarator"]
            begun = [child.child_by_field_name("value") for child in declarators]
            names = tuple(name for child in declarators for name in _names(child.child_by_field_name("name")))
            return made("assign", node, begun[0] if len(begun) == 1 else None, names)
        case "expression_statement":
            inner = node.named_children[0]
            left, right = inner.child_by_field_name("left"), inner.child_by_field_name("right")
            if inner.type == "assignment_expression":
                return made("assign", node, right, _names(left))
            if inner.type == "augmented_assignment_expression":
                return made("augment", node, right, _names(left))
            if inner.type == "update_expression":
                return made("augment", node, None, _names(inner.child_by_field_name("argument")))
            return made("do", node, inner)
        case "statement_block" if node.parent is not None and node.parent.type == "catch_clause":
            return Step("catch", "catch", node.start_point[0] + 1, _span(place))
        case "arrow_function":
            body = node.child_by_field_name("body")
            if body is not None and body.type != "statement_block":
                return made("return", body, body)
    return None


def _names(target: Node | None) -> tuple[str, ...]:
    if target is None:
        return ()
    if target.type in ("identifier", "shorthand_property_identifier_pattern"):
        return (_line(target),)
    if target.type in ("array_pattern", "object_pattern"):
        return tuple(name for child in target.named_children for name in _names(child))
    return ()


def _javascript_part(node: Node, loose: bool = False) -> Part:
    while node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    sort = _PARTS.get(node.type, "other")
    below = [] if node.type.endswith(("function", "function_expression")) else javascript_tracing.noted_parts(node)
    flat: list[Node] = []
    for child in below:
        flat += list(child.named_children) if child.type == "arguments" else [child]
    called = node.child_by_field_name("function") or node.child_by_field_name("constructor")
    if called is not None and called.type == "member_expression":
        called = called.child_by_field_name("property")
    inner = node.type in ("binary_expression", "unary_expression", "member_expression", "subscript_expression")
    return Part(
        javascript_tracing.place(node),
        sort,
        _line(node),
        (node.start_byte, node.end_byte),
        tuple(_javascript_part(each, inner) for each in flat if each.type != "comment"),
        loose,
        "" if called is None else _line(called),
    )


def _line(node: Node) -> str:
    return in_one_line(javascript_source.text(node))
