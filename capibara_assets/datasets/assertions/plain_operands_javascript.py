"""Rewrites JavaScript tests: what they convert, print and call methods of is a value of the language's kinds."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from capibara_assets.datasets.code.javascript_source import GLOBALS, given, parse, text, walk

_CONVERTING = frozenset(
    {"+", "-", "*", "/", "%", "**", "<", ">", "<=", ">=", "==", "!=", "&", "|", "^", "<<", ">>", ">>>"}
)
_SIGNS = frozenset({"+", "-", "~"})
#: Of these and of their methods the arguments are converted; of other built-in ones they are only read.
_CONVERTERS = frozenset(
    {"BigInt", "Date", "JSON", "Math", "Number", "String", "console", "isFinite", "isNaN", "parseFloat", "parseInt"}
)
_LITERALS = frozenset(
    {"number", "string", "true", "false", "null", "undefined", "regex", "arrow_function", "function_expression",
     "super", "this", "import", "class", "generator_function", "sequence_expression", "new_expression"}
)  # fmt: skip
_CLASSES = frozenset({"class_declaration", "class"})
_OF_NODE = frozenset({"Buffer", "URL", "URLSearchParams"})  # written in JavaScript, so that they look like an answer's
_INSPECT = "nodejs.util.inspect.custom"
_PLAIN, _UNSAID = "_capibara_plain(", "_capibara_unsaid("


def names_used(node: Node) -> set[str]:
    """Names of variables and properties in a piece of code."""
    kinds = ("identifier", "property_identifier", "shorthand_property_identifier")
    return {text(each) for each in walk(node) if each.type in kinds}


def classes_given(code: str) -> set[str]:
    """Names of the classes of a piece of code: those that it defines or makes, and Node's own that it uses."""
    root = parse(code)
    defined = {
        text(name) for each in walk(root) if each.type in _CLASSES and (name := each.child_by_field_name("name"))
    }
    made = {text(name) for each in walk(root) if (name := each.child_by_field_name("constructor"))}
    return defined | (made - GLOBALS) | (names_used(root) & _OF_NODE)


def methods_given(code: str) -> set[str]:
    """Names of the methods that a piece of code defines: in classes and objects, and by assigning to a property."""
    names = {name for node in walk(parse(code)) for name in _method(node)}
    return names | {_INSPECT for name in names if name.endswith("inspect.custom")}


def _method(node: Node) -> Iterator[str]:
    key: Node | None = None
    if node.type in ("method_definition", "field_definition"):
        key = node.child_by_field_name("name") or node.child_by_field_name("property")
    elif node.type == "pair":
        key = node.child_by_field_name("key")
    elif node.type == "assignment_expression":
        left = node.child_by_field_name("left")
        key = None if left is None else left.child_by_field_name("property") or left.child_by_field_name("index")
    elif node.type == "call_expression" and text(node).startswith(
        ("Object.defineProperty(", "Reflect.defineProperty(")
    ):
        key = arguments[1] if len(arguments := given(node)) > 1 else None
    if key is not None:
        yield text(key).strip("[]'\"`#")


def _is_short_cut(node: Node) -> bool:
    """Whether what follows a piece of code may be skipped with it (`a?.b` in `a?.b.c`)."""
    return node.type in ("member_expression", "subscript_expression", "call_expression") and "?." in text(node)


@dataclass
class PlainOperands:
    """Rewrites pieces of tests; `dirty`: names of built-in objects that the tests or the answer define anew."""

    dirty: Collection[str]
    _edits: list[tuple[int, int, int, str]] = field(default_factory=list)

    def rewritten(self, node: Node) -> str:
        """The text of a node with its operands as plain values; what a statement alone gives is shown."""
        self._edits = []
        self._visit(node, 0)
        if node.type == "expression_statement" and node.named_children[0].type != "string":
            self._wrap(node.named_children[0], -1, _PLAIN)
        source, start = (node.text or b""), node.start_byte
        for place, _, _, inserted in sorted(self._edits, reverse=True):
            source = source[: place - start] + inserted.encode() + source[place - start :]
        return source.decode("utf-8", "replace")

    def _wrap(self, node: Node | None, depth: int, how: str) -> None:
        if node is None or node.type in _LITERALS or self._is_built_in(node) or _is_short_cut(node):
            return
        # at one place, what ends is written before what begins, and the inner ends first
        self._edits.append((node.start_byte, 1, depth, how))
        self._edits.append((node.end_byte, 0, -depth, ")"))

    def _is_built_in(self, node: Node) -> bool:
        return node.type == "identifier" and text(node) in GLOBALS and text(node) not in self.dirty

    def _visit(self, node: Node, depth: int) -> None:
        skipped: Node | None = None
        operator = node.child_by_field_name("operator")
        sign = "" if operator is None else text(operator)
        match node.type:
            case "binary_expression" if sign in _CONVERTING:
                self._wrap(node.child_by_field_name("left"), depth, _PLAIN)
                self._wrap(node.child_by_field_name("right"), depth, _PLAIN)
            case "unary_expression" if sign in _SIGNS:
                self._wrap(node.child_by_field_name("argument"), depth, _PLAIN)
            case "augmented_assignment_expression" if sign.removesuffix("=") in _CONVERTING:
                self._wrap(node.child_by_field_name("right"), depth, _PLAIN)
            case "template_substitution":
                self._wrap(node.named_children[0], depth, _PLAIN)
            case "subscript_expression":
                self._wrap(node.child_by_field_name("object"), depth, _UNSAID)
                self._wrap(node.child_by_field_name("index"), depth, _PLAIN)
            case "member_expression":
                self._wrap(node.child_by_field_name("object"), depth, _UNSAID)
            case "call_expression":
                self._call(node.child_by_field_name("function"), node.child_by_field_name("arguments"), depth)
            case "new_expression":
                skipped = node.child_by_field_name("constructor")
                self._call(skipped, node.child_by_field_name("arguments"), depth)
            case "spread_element":
                self._wrap(node.named_children[0], depth, _UNSAID)
            case "for_in_statement":
                self._wrap(node.child_by_field_name("right"), depth, _UNSAID)
            case "variable_declarator":
                self._wrap(node.child_by_field_name("value"), depth, _UNSAID)
        for child in node.children:
            if skipped is None or child.id != skipped.id:
                self._visit(child, depth + 1)

    def _call(self, function: Node | None, arguments: Node | None, depth: int) -> None:
        """The arguments of a built-in function, or of a text's method."""
        if function is None or arguments is None or arguments.type != "arguments":
            return
        root = function.child_by_field_name("object") or function
        if root.type in ("string", "template_string") or (self._is_built_in(root) and text(root) in _CONVERTERS):
            how = _PLAIN
        elif self._is_built_in(root):
            how = _UNSAID
        else:
            return
        for each in arguments.named_children:
            if each.type != "comment":
                self._wrap(each.named_children[0] if each.type == "spread_element" else each, depth + 1, how)
