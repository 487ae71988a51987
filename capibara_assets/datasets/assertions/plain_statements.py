"""What the statements of Python tests compute and print, as plain values, by Python's own functions.

Assertions are split up (`assertions_python.py`); what stands between them (`same = f(2) == 4`) and tests that print
run in the process of the answer as they are. There an object of the answer's own class could say by a special method
that it is equal, short or a text, and a function of the answer could have the name of one of Python's.
"""

import ast
import builtins
import copy
from collections.abc import Collection, Iterable
from typing import Any

#: Functions whose result a special method of what they get decides.
_DECIDED = frozenset(
    {"abs", "ascii", "bin", "bool", "bytes", "chr", "complex", "divmod", "float", "format", "hash", "hex", "int", "len",
     "max", "min", "oct", "ord", "pow", "print", "range", "repr", "round", "str", "sum"}
)  # fmt: skip
#: Those, and what else the tests mean by such a name, whatever the answer calls its own.
_MEANT = _DECIDED | {
    "all", "any", "bytearray", "callable", "dict", "enumerate", "filter", "frozenset", "getattr", "hasattr",
    "isinstance", "issubclass", "iter", "list", "map", "next", "reversed", "set", "slice", "sorted", "tuple", "type",
    "zip", *(name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, Exception)),
}  # fmt: skip
BUILTINS_NAME = "_capibara_builtins"
PRELUDE = f"import builtins as {BUILTINS_NAME}\n"


def plain_statements(statements: Iterable[ast.stmt], answers: Collection[str]) -> list[ast.stmt]:
    """Statements of tests that compute with plain values, and with Python's functions where they name these.

    Args:
        statements: all that run, with reports in the place of the assertions.
        answers: names that an answer is asked for: where it is a function `sum`, the tests mean the answer's.
    """
    copies = [copy.deepcopy(each) for each in statements]
    meant = _MEANT - set(answers) - {name for each in copies for name in _bound(each)}
    computing, naming = _PlainComputing(), _Named(meant)
    return [naming.visit(each if is_report(each) else computing.visit(each)) for each in copies]


def is_first(tests: ast.Module) -> bool:
    """Whether tests have to be the beginning of their cell."""
    return any(isinstance(each, ast.ImportFrom) and each.module == "__future__" for each in tests.body)


def is_report(statement: ast.stmt) -> bool:
    """Whether a statement reports a value."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="_capibara_report"))):
            return True
    return False


def _bound(statement: ast.stmt) -> Iterable[str]:
    """Names that a statement binds, anywhere in it."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                yield name
            case ast.alias(name=name, asname=asname):
                yield (asname or name).partition(".")[0]
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)):
                yield name


class _Named(ast.NodeTransformer):
    """Takes Python's own function for its name."""

    def __init__(self, meant: Collection[str]) -> None:
        self._meant = meant

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._meant or not isinstance(node.ctx, ast.Load):
            return node
        return ast.Attribute(ast.Name(BUILTINS_NAME, ast.Load()), node.id, ast.Load())


class _PlainComputing(ast.NodeTransformer):
    """Takes the plain value of what is calculated, compared, formatted or printed, and of what a method is called on.

    An object of another class that a method is called on stays: answers may return objects of their own classes.
    """

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        node.left, node.right = _plain(node.left), _plain(node.right)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        node.value = _plain(node.value)
        return node

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> Any:
        self.generic_visit(node)
        if node.value is not None:
            node.value = _plain(node.value, strict=False)
        return node

    visit_AnnAssign = visit_NamedExpr = visit_Assign

    def visit_For(self, node: ast.For | ast.comprehension) -> Any:
        self.generic_visit(node)
        node.iter = _plain(node.iter, strict=False)
        return node

    visit_comprehension = visit_For

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        node.operand = _plain(node.operand, strict=not isinstance(node.op, ast.Not))
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if not all(isinstance(each, ast.Is | ast.IsNot) for each in node.ops):
            node.left, node.comparators = _plain(node.left), [_plain(each) for each in node.comparators]
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        self.generic_visit(node)
        node.value = _plain(node.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = _plain(node.value, strict=False)
        if not isinstance(node.slice, ast.Slice | ast.Tuple):
            node.slice = _plain(node.slice, strict=False)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        strict = isinstance(node.func, ast.Name) and node.func.id in _DECIDED
        if isinstance(node.func, ast.Attribute):
            node.func.value = _plain(node.func.value, strict=False)
        if strict or not isinstance(node.func, ast.Name) or node.func.id in _MEANT:
            node.args = [self._argument(each, strict) for each in node.args]
        return node

    def _argument(self, node: ast.expr, strict: bool) -> ast.expr:
        if isinstance(node, ast.Starred):
            return ast.Starred(_plain(node.value, strict=strict), ast.Load())
        return _plain(node, strict=strict)


def _plain(node: ast.expr, *, strict: bool = True) -> ast.expr:
    """The plain value of an expression; `strict`: an object of another class than is asked for is an error."""
    if isinstance(node, ast.Constant | ast.Lambda | ast.JoinedStr | ast.GeneratorExp | ast.Compare):
        return node
    name = ast.Name("_capibara_plain" if strict else "_capibara_unsaid", ast.Load())
    return ast.Call(name, [node], [])
