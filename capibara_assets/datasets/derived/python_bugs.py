"""Bugs to inject into Python, as text edits located by the syntax tree."""

import ast
import re
from collections.abc import Iterator, Sequence

from capibara_assets.datasets.code.python_source import Function, Places, called_name, is_literal
from capibara_assets.datasets.derived.edits import RepairEdit
from capibara_assets.datasets.derived.solved import Span
from capibara_assets.executions.parsing import python_tree, walk

_COMPARED = {"<": ("<=", ">"), "<=": ("<",), ">": (">=", "<"), ">=": (">",), "==": ("!=",), "!=": ("==",)}
_COMPUTED = {"+": ("-",), "-": ("+",), "*": ("+", "**"), "/": ("//",), "//": ("/",), "%": ("//",), "**": ("*",)}
_METHODS = {
    "append": ("extend",), "extend": ("append",), "strip": ("rstrip", "lstrip"), "lower": ("upper",),
    "upper": ("lower",), "keys": ("values",), "values": ("keys",), "items": ("values",), "startswith": ("endswith",),
    "endswith": ("startswith",), "isdigit": ("isalpha",), "isalpha": ("isalnum",), "find": ("rfind",),
    "split": ("splitlines",), "union": ("intersection",), "intersection": ("union",), "popleft": ("pop",),
    "mean": ("sum", "median"), "sum": ("mean",), "median": ("mean",), "std": ("var",), "var": ("std",),
    "max": ("min",), "min": ("max",), "argmax": ("argmin",), "argmin": ("argmax",), "idxmax": ("idxmin",),
    "head": ("tail",), "vstack": ("hstack",), "hstack": ("vstack",), "cumsum": ("cumprod",), "count": ("nunique",),
}  # fmt: skip
_FUNCTIONS = {
    "min": ("max",), "max": ("min",), "any": ("all",), "all": ("any",), "sum": ("max",), "sorted": ("list",),
    "floor": ("ceil",), "ceil": ("floor",), "range": ("list",), "set": ("list",),
}  # fmt: skip
_CONVERSIONS = frozenset(
    ("int", "str", "float", "list", "tuple", "set", "sorted", "abs", "len", "round", "dict", "reversed", "enumerate")
)
_STATUS = {200: 201, 201: 200, 204: 200, 400: 404, 401: 403, 403: 401, 404: 400, 409: 400, 422: 400}


_LONGEST_ARGUMENT = 60  # characters; more are data that nobody forgets
_HOLDERS = frozenset(("array", "asarray", "DataFrame", "Series", "tensor"))


def _data(tree: ast.Module) -> Iterator[ast.AST]:
    """The parts of values that are no code to mend: what a cell only writes down (`rows = [1, 2]`), or expects."""
    for node in walk(tree):
        if isinstance(node, ast.Assign) and any(
            "expected" in name.id for name in node.targets if isinstance(name, ast.Name)
        ):
            yield from walk(node.value)
    for node in tree.body:
        if isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
            value = node.value
            if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _HOLDERS and value.args:
                value = value.args[0]
            if isinstance(value, ast.List | ast.Tuple | ast.Dict | ast.Set) and is_literal(value):
                yield from walk(value)


def bugs(code: str, spans: Sequence[Span]) -> list[RepairEdit]:
    """All edits of these kinds inside the spans; none if the code does not parse."""
    tree = python_tree(code)
    if tree is None:
        return []
    found = _Bugs(code, tree)
    return [edit for edit in found.edits() if any(start <= edit.start and edit.end <= end + 1 for start, end in spans)]


class _Bugs:
    def __init__(self, code: str, tree: ast.Module) -> None:
        self._code, self._tree = code, tree
        self._places = Places(code)
        nodes = list(walk(tree))
        self._skipped = {id(part) for node in nodes for skipped in _unchanged(node) for part in walk(skipped)}
        self._modules = {a.asname or a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
        self._data = {id(part) for part in _data(tree)}
        self._alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and node is not tree.body[-1]}
        self._keys = sorted({key for node in nodes for key in _string_keys(node)})

    def edits(self) -> Iterator[RepairEdit]:
        """All edits."""
        for node in walk(self._tree):
            if id(node) in self._skipped:
                continue
            if isinstance(node, ast.expr):
                yield from self._of_expression(node)
            else:
                yield from self._of_statement(node)
            if isinstance(node, Function):
                yield from self._names_in(node)
            if isinstance(body := getattr(node, "body", None), list):
                yield from self._of_block(node, body)

    def _of_expression(self, node: ast.expr) -> Iterator[RepairEdit]:
        match node:
            case ast.Compare(left=left, comparators=[right, *_]):
                yield from self._between("comparison", left, right, _COMPARED)
                yield from self._between("membership", left, right, {"in": ("not in",), "not in": ("in",)})
            case ast.BinOp(left=left, right=right):
                yield from self._between("operator", left, right, _COMPUTED)
                if isinstance(node.op, ast.Add | ast.Sub) and isinstance(right, ast.Constant) and right.value == 1:
                    yield self._put("off_by_one", node, self._text(left))
            case ast.BoolOp(values=[left, right, *_]):
                yield from self._between("boolean", left, right, {"and": ("or",), "or": ("and",)})
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._put("negation", node, self._text(operand))
            case ast.Constant(value=value) if id(node) not in self._data:
                yield from self._constant(node, value)
            case ast.Await(value=value):
                yield self._put("missing_await", node, self._text(value))
            case ast.Subscript(slice=ast.Slice() as cut):
                for bound in (cut.lower, cut.upper):
                    if bound is not None and not isinstance(bound, ast.Constant):
                        yield self._put("off_by_one", bound, f"{self._text(bound)} + 1")
            case ast.Subscript(slice=ast.Constant(value=str(key)) as place):
                yield from (self._put("wrong_key", place, repr(other)) for other in self._keys if other != key)
            case ast.Call():
                yield from self._of_call(node)

    def _leaves_nothing(self, node: ast.Call, rest: ast.expr) -> bool:
        """Whether a call without its method is a module, or a name on a line of its own: nobody leaves that."""
        return isinstance(rest, ast.Name) and (rest.id in self._modules or id(node) in self._alone)

    def _of_call(self, node: ast.Call) -> Iterator[RepairEdit]:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name == "range":
            end = node.args[min(1, len(node.args) - 1)] if node.args else None
            if end is not None and not isinstance(end, ast.Starred):
                yield from (self._put("off_by_one", end, f"{self._text(end)} {sign} 1") for sign in "+-")
        if (
            name in _CONVERSIONS
            and len(node.args) == 1
            and not isinstance(node.args[0], ast.Starred | ast.GeneratorExp)
        ):
            yield self._put("missing_call", node, self._text(node.args[0]))
        if name in _FUNCTIONS:
            yield from (self._put("wrong_function", node.func, other) for other in _FUNCTIONS[name])
        if isinstance(node.func, ast.Attribute):
            after = self._end(node.func)
            for other in _METHODS.get(node.func.attr, ()):
                yield RepairEdit("wrong_method", after - len(node.func.attr), after, other)
            bare = not node.args and not node.keywords and node.func.attr not in ("pop", "keys")
            if bare and not self._leaves_nothing(node, node.func.value):
                yield self._put("missing_call", node, self._text(node.func.value))
        plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        if len(plain) == len(node.args) >= 2:
            first, second = plain[0], plain[1]
            swapped = f"{self._text(second)}, {self._text(first)}"
            yield RepairEdit("swapped_arguments", self._start(first), self._end(second), swapped)
            yield from self._without(self._end(plain[-2]), self._end(plain[-1]))
        for keyword in node.keywords:
            others = [*plain, *(other.value for other in node.keywords if other is not keyword)]
            before = max((self._end(o) for o in others if self._end(o) < self._start(keyword)), default=None)
            if before is not None and keyword.arg is not None:
                yield from self._without(before, self._end(keyword))

    def _without(self, start: int, end: int) -> Iterator[RepairEdit]:
        if end - start <= _LONGEST_ARGUMENT:
            yield RepairEdit("missing_argument", start, end, "")

    def _constant(self, node: ast.Constant, value: object) -> Iterator[RepairEdit]:
        if isinstance(value, bool):
            yield self._put("constant", node, str(not value))
        elif isinstance(value, int) and value in _STATUS and value >= 200:
            yield self._put("status", node, str(_STATUS[value]))
        elif isinstance(value, int) and abs(value) < 1 << 31:
            yield from (self._put("constant", node, str(other)) for other in {value + 1, max(value - 1, 0)} - {value})
        elif isinstance(value, float):
            yield self._put("constant", node, repr(value * 10))
        elif isinstance(value, str) and value in ("", " ", ",", "-", "_"):
            yield self._put("constant", node, repr(" " if value == "" else ""))

    def _of_statement(self, node: ast.AST) -> Iterator[RepairEdit]:
        match node:
            case ast.Return(value=ast.expr() as value):
                begin = self._start(node) + len("return")  # brackets of the value stay
                blanks = self._code[begin : self._start(value)]
                yield RepairEdit("missing_return", self._start(node), begin + len(blanks) - len(blanks.lstrip()), "")
            case ast.AugAssign(target=target, value=value, op=ast.Add() | ast.Sub() | ast.Mult()):
                between = self._code[self._end(target) : self._start(value)]
                sign = "-=" if "+=" in between else "+="
                yield RepairEdit("operator", self._end(target), self._start(value), f" {sign} ")
                if "+=" in between:
                    yield RepairEdit("operator", self._end(target), self._start(value), " = ")
            case ast.If(test=test) if not isinstance(test, ast.Constant | ast.UnaryOp):
                yield self._put("negation", test, f"not ({self._text(test)})")

    def _uses_all(self, statement: ast.ImportFrom) -> bool:
        rest = self._code[: self._start(statement)] + self._code[self._end(statement) :]
        return all(re.search(rf"\b{re.escape(one.asname or one.name)}\b", rest) for one in statement.names)

    def _of_block(self, owner: ast.AST, body: list[ast.stmt]) -> Iterator[RepairEdit]:
        """Statements left out: guards, other single statements, imports; a return one level too deep."""
        for index, statement in enumerate(body):
            start, end = self._line_start(statement), self._end(statement)
            if isinstance(statement, ast.Import | ast.ImportFrom):
                # the error itself names a module, and no error asks for what is not used
                if isinstance(statement, ast.ImportFrom) and self._uses_all(statement):
                    yield RepairEdit("missing_import", start, end + 1, "")
            elif isinstance(owner, ast.Module) or len(body) < 2 or id(statement) in self._skipped:
                continue
            elif isinstance(statement, ast.If) and not statement.orelse and _leaves(statement.body):
                yield RepairEdit("missing_guard", start, end + 1, "")
            elif (
                isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr)
                and statement.lineno == statement.end_lineno
                and not self._names_keys(statement)
            ):
                yield RepairEdit("missing_statement", start, end + 1, "")
            elif isinstance(statement, ast.Return) and isinstance(body[index - 1], ast.For | ast.While) and index:
                inside = body[index - 1].body[0]  # type: ignore[attr-defined]
                indent = " " * inside.col_offset
                yield RepairEdit("wrong_indent", start, end, indent + self._code[self._start(statement) : end])

    def _names_keys(self, statement: ast.stmt) -> bool:
        """Whether a statement is the only place that names the keys of a result: nobody could restore it."""
        value = statement.value if isinstance(statement, ast.Assign) else None
        keys = value.keys if isinstance(value, ast.Dict) else []
        texts = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        return any(len(re.findall(rf"[\"']{re.escape(text)}[\"']", self._code)) < 2 for text in texts)

    def _names_in(self, function: Function) -> Iterator[RepairEdit]:
        """Another variable of the function in place of one that is read."""
        arguments = function.args
        own = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.arg != "self"]
        inside = [part for statement in function.body for part in walk(statement) if isinstance(part, ast.Name)]
        own += [part.id for part in inside if isinstance(part.ctx, ast.Store)]
        names = list(dict.fromkeys(own))
        for part in inside:
            if isinstance(part.ctx, ast.Load) and part.id in names and id(part) not in self._skipped:
                near = names.index(part.id)
                for other in names[max(0, near - 1) : near + 2]:
                    if other != part.id:
                        yield self._put("wrong_variable", part, other)
                if len(part.id) > 3:
                    typed = part.id[:-1] if part.id.endswith("s") else part.id + "s"
                    yield self._put("misspelt_name", part, typed)

    def _between(
        self, kind: str, left: ast.expr, right: ast.expr, others: dict[str, tuple[str, ...]]
    ) -> Iterator[RepairEdit]:
        start, end = self._end(left), self._start(right)
        between = re.search(r"[^\s()\\#]+(?: in)?", self._code[start:end])
        if between is None or "\n" in self._code[start:end]:
            return
        for other in others.get(between[0], ()):
            yield RepairEdit(kind, start + between.start(), start + between.end(), other)

    def _put(self, kind: str, node: ast.expr, text: str) -> RepairEdit:
        return RepairEdit(kind, self._start(node), self._end(node), text)

    def _text(self, node: ast.expr) -> str:
        return self._code[self._start(node) : self._end(node)]

    def _start(self, node: ast.AST) -> int:
        return self._places.at(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def _line_start(self, node: ast.stmt) -> int:
        return self._places.at(node.lineno, 0)

    def _end(self, node: ast.AST) -> int:
        return self._places.at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _unchanged(node: ast.AST) -> Iterator[ast.AST]:
    """Parts that no bug goes into: docstrings, annotations, pieces of f-strings, what is printed."""
    if isinstance(node, ast.JoinedStr):
        yield node
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) == "print":
        yield node  # what else is printed is no other computation
    for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
        if isinstance(annotation, ast.AST):
            yield annotation


def _string_keys(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        yield node.slice.value
