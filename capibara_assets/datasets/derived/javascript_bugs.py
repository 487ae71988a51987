"""Bugs to inject into JavaScript, as text edits located by the syntax tree."""

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from capibara_assets.datasets.code.javascript_source import declared, parse, positions, text, walk
from capibara_assets.datasets.derived.edits import RepairEdit
from capibara_assets.datasets.derived.solved import Span

_COMPARED = {
    "<": ("<=", ">"), "<=": ("<",), ">": (">=", "<"), ">=": (">",), "===": ("!==",), "!==": ("===",),
    "==": ("!=",), "!=": ("==",),
}  # fmt: skip
_COMPUTED = {"+": ("-",), "-": ("+",), "*": ("+",), "/": ("*",), "%": ("/",), "**": ("*",)}
_LOGICAL = {"&&": ("||",), "||": ("&&",), "??": ("||",)}
_METHODS = {
    "push": ("unshift",), "pop": ("shift",), "shift": ("pop",), "unshift": ("push",), "slice": ("splice",),
    "map": ("forEach", "filter"), "filter": ("map", "find"), "find": ("filter",), "some": ("every",),
    "every": ("some",), "indexOf": ("lastIndexOf",), "toUpperCase": ("toLowerCase",), "keys": ("values",),
    "toLowerCase": ("toUpperCase",), "startsWith": ("endsWith",), "endsWith": ("startsWith",), "values": ("keys",),
    "max": ("min",), "min": ("max",), "floor": ("ceil",), "ceil": ("floor",), "round": ("floor",),
    "trim": ("trimEnd",), "entries": ("values",), "has": ("get",), "concat": ("push",), "all": ("race",),
    "replaceAll": ("replace",), "test": ("exec",), "reduce": ("map",), "charAt": ("charCodeAt",),
}  # fmt: skip
_CONVERSIONS = frozenset({"Number", "String", "parseInt", "parseFloat", "Boolean", "BigInt"})
_COMPUTES = frozenset(
    (
        "identifier",
        "shorthand_property_identifier",
        "this",
        "call_expression",
        "new_expression",
        "function_expression",
        "arrow_function",
        "class",
    )
)
_ENDS = frozenset({"return_statement", "throw_statement", "continue_statement", "break_statement"})


def bugs(code: str, spans: Sequence[Span]) -> list[RepairEdit]:
    """All edits of these kinds inside the spans, but in what is printed; none if the code does not parse."""
    root = parse(code)
    if root.has_error:
        return []
    edits, at = list(_Bugs(code).edits(root)), positions(code)
    printed = [(at(node.start_byte), at(node.end_byte)) for node in walk(root) if _is_print(node)]
    data = [(at(node.start_byte), at(node.end_byte)) for node in root.named_children if _is_data(node)]
    edits = [edit for edit in edits if edit.kind != "constant" or not any(a <= edit.start < b for a, b in data)]
    inside = [edit for edit in edits if any(start <= edit.start and edit.end <= end for start, end in spans)]
    return [edit for edit in inside if not any(edit.start < end and start < edit.end for start, end in printed)]


def _is_data(statement: Node) -> bool:
    """Whether a statement only writes values down: changed, they are other data and no bug."""
    if statement.type in ("lexical_declaration", "variable_declaration"):
        values = [node.child_by_field_name("value") for node in statement.named_children]
    else:
        values = [statement if statement.type == "expression_statement" else None]
    return all(value is not None and not any(node.type in _COMPUTES for node in walk(value)) for value in values)


class _Bugs:
    def __init__(self, code: str) -> None:
        self._code, self._at = code, positions(code)

    def edits(self, root: Node) -> Iterator[RepairEdit]:
        """All edits."""
        for node in walk(root):
            yield from self._of(node)

    def _of(self, node: Node) -> Iterator[RepairEdit]:
        match node.type:
            case "binary_expression":
                yield from self._of_binary(node)
            case "number":
                yield from self._of_number(node)
            case "true" | "false":
                yield self._put("constant", node, "false" if node.type == "true" else "true")
            case "string" if text(node)[1:-1] in ("", " ", ",", "-"):
                quote = text(node)[0]
                yield self._put("constant", node, f"{quote}{' ' if text(node) == quote * 2 else ''}{quote}")
            case "unary_expression" if text(node).startswith("!"):
                yield self._put("negation", node, text(node)[1:])
            case "await_expression":
                yield self._put("missing_await", node, text(node).removeprefix("await").lstrip())
            case "return_statement" if node.named_children:
                yield RepairEdit(
                    "missing_return", self._at(node.start_byte), self._at(node.named_children[0].start_byte), ""
                )
            case "call_expression":
                yield from self._of_call(node)
            case "update_expression":
                now = text(node)
                other = now.replace("++", "--") if "++" in now else now.replace("--", "++")
                yield self._put("operator", node, other)
            case "augmented_assignment_expression":
                sign = node.child_by_field_name("operator")
                if sign is not None and text(sign) in ("+=", "-=", "*="):
                    yield self._put("operator", sign, "-=" if text(sign) == "+=" else "+=")
                    yield self._put("operator", sign, "=")
            case "if_statement":
                yield from self._of_if(node)
            case "arguments":
                yield from self._of_arguments(node)
            case "statement_block":
                yield from self._of_block(node)
            case "function_declaration" | "arrow_function" | "function_expression" | "method_definition":
                yield from self._names_in(node)
            case "subscript_expression":
                index = node.child_by_field_name("index")
                if index is not None and index.type in ("identifier", "binary_expression"):
                    yield self._put("off_by_one", index, f"{text(index)} + 1")

    def _of_binary(self, node: Node) -> Iterator[RepairEdit]:
        sign, left, right = (node.child_by_field_name(field) for field in ("operator", "left", "right"))
        if sign is None or left is None or right is None:
            return
        for kind, others in (("comparison", _COMPARED), ("operator", _COMPUTED), ("boolean", _LOGICAL)):
            yield from (self._put(kind, sign, other) for other in others.get(text(sign), ()))
        if text(sign) in "+-" and text(right) == "1":
            yield self._put("off_by_one", node, text(left))
        if text(sign) in ("<", "<=") and right.type != "number":
            yield self._put("off_by_one", right, f"{text(right)} - 1")

    def _of_number(self, node: Node) -> Iterator[RepairEdit]:
        if text(node).isdigit() and len(text(node)) < 10:
            value = int(text(node))
            yield from (self._put("constant", node, str(other)) for other in (value + 1, value - 1) if other >= 0)

    def _of_call(self, node: Node) -> Iterator[RepairEdit]:
        called, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if called is None or given is None:
            return
        if called.type == "identifier" and text(called) in _CONVERSIONS and len(given.named_children) == 1:
            yield self._put("missing_call", node, text(given.named_children[0]))
        if called.type == "member_expression":
            method, of = called.child_by_field_name("property"), called.child_by_field_name("object")
            if method is not None and of is not None:
                yield from (self._put("wrong_method", method, o) for o in _METHODS.get(text(method), ()))
                if not given.named_children or text(method) in ("sort", "reverse", "map", "filter", "slice"):
                    yield self._put("missing_call", node, text(of))

    def _of_arguments(self, node: Node) -> Iterator[RepairEdit]:
        given = [child for child in node.named_children if child.type not in ("comment", "spread_element")]
        if len(given) >= 2 and len(given) == len(node.named_children):
            first, second, last = given[0], given[1], given[-1]
            swapped = f"{text(second)}, {text(first)}"
            yield RepairEdit("swapped_arguments", self._at(first.start_byte), self._at(second.end_byte), swapped)
            yield RepairEdit("missing_argument", self._at(given[-2].end_byte), self._at(last.end_byte), "")

    def _of_if(self, node: Node) -> Iterator[RepairEdit]:
        test, then = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
        if test is not None and not text(test).startswith("(!"):
            yield self._put("negation", test, f"(!{text(test)})")
        if then is not None and node.child_by_field_name("alternative") is None:
            inside = then.named_children if then.type == "statement_block" else [then]
            if (
                inside
                and inside[-1].type in _ENDS
                and node.parent is not None
                and node.parent.type == "statement_block"
            ):
                yield self._without("missing_guard", node)

    def _of_block(self, node: Node) -> Iterator[RepairEdit]:
        inside = [child for child in node.named_children if child.type != "comment"]
        for child in inside if len(inside) > 1 else ():
            if child.type == "expression_statement" and child.start_point[0] == child.end_point[0]:
                yield self._without("missing_statement", child)

    def _without(self, kind: str, node: Node) -> RepairEdit:
        """The statement left out, with its line where it stands alone there."""
        start, end = self._at(node.start_byte), self._at(node.end_byte)
        line = self._code.rfind("\n", 0, start) + 1
        if not self._code[line:start].strip() and self._code[end : end + 1] == "\n":
            return RepairEdit(kind, line, end + 1, "")
        return RepairEdit(kind, start, end, "")

    def _names_in(self, function: Node) -> Iterator[RepairEdit]:
        """Another variable of the function in place of one that is read."""
        names = list(dict.fromkeys(declared(function)))
        body = function.child_by_field_name("body")
        for node in walk(body) if body is not None else ():
            if node.type != "identifier" or text(node) not in names or _is_declaration(node):
                continue
            near = names.index(text(node))
            for other in names[max(0, near - 1) : near + 2]:
                if other != text(node):
                    yield self._put("wrong_variable", node, other)
            if len(text(node)) > 3:
                name = text(node)
                yield self._put("misspelt_name", node, name[:-1] if name.endswith("s") else name + "s")

    def _put(self, kind: str, node: Node, by: str) -> RepairEdit:
        return RepairEdit(kind, self._at(node.start_byte), self._at(node.end_byte), by)


def _is_declaration(node: Node) -> bool:
    parent = node.parent
    if parent is None:
        return False
    if parent.type in ("variable_declarator", "function_declaration"):
        named = parent.child_by_field_name("name")
        return named is not None and named.start_byte == node.start_byte
    return parent.type in ("formal_parameters", "assignment_expression") and parent.named_children[0] == node


def _is_print(node: Node) -> bool:
    return node.type == "expression_statement" and text(node).startswith(("console.log(", "console.error("))
