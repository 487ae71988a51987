"""Flattens Python syntax trees into tokens; decides which names are numbered in canonical forms and which stay."""

import ast
import builtins
from collections.abc import Callable, Iterable
from typing import Any

from capibara_assets.executions.labels.libraries import ALIASES
from capibara_assets.executions.parsing import CHILDREN
from capibara_assets.executions.patterns.idioms import Flat

_SHORT_TEXT = 12  # characters
_KEPT = {name: name for name in (*dir(builtins), "self", "cls")}
#: Nodes that idioms are made of or described by, and texts that may be queries.
RANGES = frozenset(ast.stmt.__subclasses__()) | frozenset(
    (
        ast.JoinedStr,
        ast.Call,
        ast.Subscript,
        ast.Yield,
        ast.YieldFrom,
        ast.ListComp,
        ast.SetComp,
        ast.DictComp,
        ast.GeneratorExp,
    )
)
_DEFINITIONS = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def flatten(tree: ast.Module) -> Flat[ast.AST]:
    """Flattens a tree: attributes, keywords, builtins and imported names stay, other names are numbered.

    Attributes of `self` and the methods of a class are numbered, too. Docstrings are dropped.

    Raises:
        RecursionError: an expression of thousands of terms.
    """
    return _Flattener(tree).flat


class _Flattener:
    def __init__(self, tree: ast.Module) -> None:
        self.flat: Flat[ast.AST] = Flat()
        self._known = ALIASES | _imported_names(tree) | _KEPT  # names that are not numbered, and what they stand for
        self._methods: set[ast.AST] = set()
        self._add(tree)

    def _add(self, node: Any) -> None:
        kind = type(node)
        flat = self.flat
        tokens = flat.tokens
        if kind is ast.Name:  # the most frequent by far
            tokens.append("Name")
            name = node.id
            if (known := self._known.get(name)) is None:
                flat.names.append(len(tokens))
                tokens.append(name)
            else:
                tokens.append(known)
            return
        if kind is ast.Constant:
            self._constant(node)
            return
        token, leaves, children, ranged = _PLANS[kind]
        index = flat.open(node, kind) if ranged else -1
        tokens.append(token)
        if leaves is not None:
            leaves(self, node)
        for value in children(node) if children is not None else ():
            if value.__class__ is list:
                tokens.append("(")
                for child in without_docstring(value) if kind in _DEFINITIONS and value is node.body else value:
                    if child is None:
                        tokens.append("-")
                    else:
                        self._add(child)
                tokens.append(")")
            elif value is None:
                tokens.append("-")
            else:
                self._add(value)
        if index >= 0:
            flat.close(index)

    def _constant(self, node: Any) -> None:
        value = node.value
        kind = type(value)
        if kind is not str or len(value) < _SHORT_TEXT:  # longer ones may be queries
            self.flat.literal(repr(value), kind.__name__)
            return
        index = self.flat.open(node, ast.Constant)
        self.flat.literal(repr(value), "str")
        self.flat.close(index)

    # --- tokens of a node beside its children -------------------------------------------------------------------------

    def named(self, name: str | None) -> None:
        if name is None:
            self.flat.tokens.append("-")
        elif (known := self._known.get(name)) is not None:
            self.flat.tokens.append(known)
        else:
            self.flat.name(name)

    def attribute(self, node: ast.Attribute) -> None:
        if type(node.value) is ast.Name and node.value.id in ("self", "cls"):
            self.flat.name(f".{node.attr}")
        else:
            self.flat.tokens.append(node.attr)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node in self._methods and not node.name.startswith("__"):
            self.flat.name(f".{node.name}")
        else:
            self.named(node.name)

    def class_(self, node: ast.ClassDef) -> None:
        self.named(node.name)
        self._methods.update(node.body)

    def operator(self, node: ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.AugAssign) -> None:
        self.flat.tokens.append(type(node.op).__name__)

    def compare(self, node: ast.Compare) -> None:
        self.flat.tokens.extend(type(op).__name__ for op in node.ops)

    def names(self, node: ast.Global | ast.Nonlocal) -> None:
        for name in node.names:
            self.named(name)

    def say(self, *texts: object) -> None:
        self.flat.tokens.extend(map(str, texts))


_LEAVES: dict[type[ast.AST], Callable[[_Flattener, Any], None]] = {
    ast.arg: lambda self, node: self.named(node.arg),
    ast.ExceptHandler: lambda self, node: self.named(node.name),
    ast.MatchAs: lambda self, node: self.named(node.name),
    ast.MatchStar: lambda self, node: self.named(node.name),
    ast.MatchMapping: lambda self, node: self.named(node.rest),
    ast.MatchClass: lambda self, node: self.say(*node.kwd_attrs),
    ast.MatchSingleton: lambda self, node: self.say(node.value),
    ast.keyword: lambda self, node: self.say(node.arg or "**"),
    ast.alias: lambda self, node: self.say(node.name),
    ast.ImportFrom: lambda self, node: self.say("." * (node.level or 0) + (node.module or "")),
    ast.FormattedValue: lambda self, node: self.say(node.conversion),
    ast.comprehension: lambda self, node: self.say(node.is_async),
    ast.Attribute: _Flattener.attribute,
    ast.FunctionDef: _Flattener.function,
    ast.AsyncFunctionDef: _Flattener.function,
    ast.ClassDef: _Flattener.class_,
    ast.BinOp: _Flattener.operator,
    ast.UnaryOp: _Flattener.operator,
    ast.BoolOp: _Flattener.operator,
    ast.AugAssign: _Flattener.operator,
    ast.Compare: _Flattener.compare,
    ast.Global: _Flattener.names,
    ast.Nonlocal: _Flattener.names,
}


_Leaves = Callable[[_Flattener, Any], None]


_Plan = tuple[str, _Leaves | None, Callable[[Any], Iterable[Any]] | None, bool]


class _Plans(dict[type[ast.AST], _Plan]):
    """Node class -> its token, the writer of its own leaves, the getter of its children, and whether it is a range."""

    def __missing__(self, kind: type[ast.AST]) -> _Plan:
        self[kind] = kind.__name__, _LEAVES.get(kind), CHILDREN[kind], kind in RANGES
        return self[kind]


_PLANS = _Plans()


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a definition without its docstring."""
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
    return body


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Name -> what it stands for, of the imports at the top: `np` and `numpy` are one library."""
    return dict(pair for node in tree.body for pair in _bindings(node))


def _bindings(node: ast.stmt) -> Iterable[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name if alias.asname else alias.name.split(".")[0]
            yield alias.asname or top, top
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}"
