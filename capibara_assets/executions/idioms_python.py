"""Idioms of Python code, found in its tree."""

import ast
import textwrap
from collections.abc import Iterator
from functools import lru_cache

from capibara_assets.executions.idioms import Idiom, digest, first_sentence, python_form, without_docstring
from capibara_assets.executions.idioms_sql import sql_idioms
from capibara_assets.executions.libraries import HTTP_METHODS
from capibara_assets.executions.parsing import parse_python
from capibara_assets.executions.signals import is_sql, leading_text

_LONGEST = 6_000  # characters of one idiom; longer ones are programs
_INPUTS = 3
_FRAME_NAMES = """groupby merge pivot pivot_table melt fillna dropna apply agg aggregate sort_values value_counts
    drop_duplicates set_index reset_index rolling resample explode nlargest astype get_dummies crosstab"""
_FRAME_METHODS = frozenset(_FRAME_NAMES.split())
_FRAME_INDEXERS = frozenset({"loc", "iloc"})
_TRAINING = frozenset({"backward", "partial_fit", "train_on_batch"})
_LOOPS = (ast.For, ast.While)
_COMPREHENSIONS: dict[type[ast.AST], str] = {
    ast.ListComp: "list",
    ast.SetComp: "set",
    ast.DictComp: "dict",
    ast.GeneratorExp: "generator",
}


@lru_cache(maxsize=16_384)
def python_idioms(code: str) -> tuple[Idiom, ...]:
    """Idioms of one cell in the order of the text; none when it does not parse."""
    tree = parse_python(code)
    if tree is None:
        return ()
    try:
        return tuple(_Finder(code, tree).find())
    except RecursionError:
        return ()  # an expression of thousands of terms is data


class _Finder:
    def __init__(self, code: str, tree: ast.Module) -> None:
        self._code, self._tree = code, tree
        self._lines = code.split("\n")

    def find(self) -> Iterator[Idiom]:
        yield from self._block(self._tree.body, inside_loop=False)

    def _block(self, body: list[ast.stmt], *, inside_loop: bool) -> Iterator[Idiom]:
        for statement in body:
            yield from self._statement(statement, inside_loop=inside_loop)

    def _statement(self, node: ast.stmt, *, inside_loop: bool) -> Iterator[Idiom]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from self._function(node)
            case ast.ClassDef():
                yield self._class(node)
            case ast.For() | ast.While() if not inside_loop:
                yield self._loop(node)
            case ast.AsyncFor() | ast.AsyncWith():
                yield self._idiom("async", type(node).__name__, node, f"asynchronous {_opening(node)}")
            case ast.Try():
                yield self._try(node)
        if isinstance(node, ast.ClassDef):
            return  # its methods belong to it
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):  # a decorator is no call of its own
            yield from self._expressions(node)
        loop = inside_loop or isinstance(node, _LOOPS)
        for field in ("body", "orelse", "finalbody"):
            yield from self._block(getattr(node, field, []), inside_loop=loop)
        for handler in getattr(node, "handlers", []):
            yield from self._block(handler.body, inside_loop=loop)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Idiom]:
        body = without_docstring(list(node.body))
        if not body or all(isinstance(statement, ast.Assert | ast.Pass) for statement in body):
            return  # a check of other code, or a stub
        asynchronous = isinstance(node, ast.AsyncFunctionDef)
        signature = f"{node.name}({ast.unparse(node.args)})"
        if node.returns is not None:
            signature += f" -> {ast.unparse(node.returns)}"
        what = " ".join(filter(None, [f"{'Coroutine' if asynchronous else 'Function'} `{signature}`.",
                                      first_sentence(ast.get_docstring(node)), _behaviour(node)]))  # fmt: skip
        yield self._idiom("async" if asynchronous else "function", node.name, node, what, self._calls(node.name))

    def _class(self, node: ast.ClassDef) -> Idiom:
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        methods = [item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
        what = f"Class `{node.name}({bases})`." if bases else f"Class `{node.name}`."
        about = first_sentence(ast.get_docstring(node))
        listed = f"Methods: {', '.join(methods)}." if methods else ""
        return self._idiom(
            "class", node.name, node, " ".join(filter(None, [what, about, listed])), self._calls(node.name)
        )

    def _loop(self, node: ast.For | ast.While) -> Idiom:
        called = {n.func.attr for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
        if called & _TRAINING or {"zero_grad", "step"} <= called:
            return self._idiom("training_loop", "training loop", node, f"Training loop `{_opening(node)}`.")
        return self._idiom("loop", _opening(node), node, f"Loop `{_opening(node)}`.", literals=False)

    def _try(self, node: ast.Try) -> Idiom:
        caught = [ast.unparse(handler.type) if handler.type is not None else "everything" for handler in node.handlers]
        name = ", ".join(caught) or "finally"
        what = f"Handles {name}" + (" and cleans up in `finally`." if node.finalbody else ".")
        return self._idiom("error_handling", name, node, what)

    def _expressions(self, statement: ast.stmt) -> Iterator[Idiom]:
        """Idioms of a statement's own expressions (not of the statements in it)."""
        stack: list[ast.AST] = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]
        stack += [item.context_expr for item in getattr(statement, "items", []) if isinstance(item, ast.withitem)]
        framed = False
        while stack:
            node = stack.pop(0)
            stack += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr | ast.keyword)]
            if isinstance(node, ast.expr) and type(node) in _COMPREHENSIONS:
                yield self._expression("comprehension", f"{_COMPREHENSIONS[type(node)]} comprehension", node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_sql(node.value):
                yield from sql_idioms(textwrap.dedent(node.value).strip())
            elif isinstance(node, ast.Call) and (route := _http_call(node)):
                yield self._expression("api_call", route, node)
            elif not framed and (method := _frame_method(node)):
                framed = True  # one chain of methods is one idiom
                yield self._idiom("dataframe", method, statement, f"Data frame operation `{method}`.", literals=False)

    def _expression(self, kind: str, name: str, node: ast.expr) -> Idiom:
        text = ast.get_source_segment(self._code, node) or ast.unparse(node)
        form = digest("python", kind, python_form(node, literals=False))
        return Idiom(kind, name, text[:_LONGEST], form, f"{name[:1].upper()}{name[1:]}.")

    def _idiom(
        self, kind: str, name: str, node: ast.stmt, what: str, inputs: tuple[str, ...] = (), *, literals: bool = True
    ) -> Idiom:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        text = textwrap.dedent("\n".join(self._lines[first - 1 : node.end_lineno]))
        form = digest("python", kind, python_form(node, literals=literals))
        return Idiom(kind, name, text[:_LONGEST], form, what, inputs)

    def _calls(self, name: str) -> tuple[str, ...]:
        """Calls of a function outside itself, as examples of its inputs."""
        found: list[str] = []
        for statement in self._tree.body:
            if getattr(statement, "name", None) == name:
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                    text = ast.unparse(node)
                    if len(text) <= 80 and text not in found:
                        found.append(text)
                    if len(found) == _INPUTS:
                        return tuple(found)
        return tuple(found)


def _opening(node: ast.stmt) -> str:
    """The first line of a compound statement, without its body."""
    match node:
        case ast.For(target=target, iter=source):
            return f"for {ast.unparse(target)} in {ast.unparse(source)}"[:80]
        case ast.While(test=test):
            return f"while {ast.unparse(test)}"[:80]
    return ast.unparse(node).split("\n")[0].rstrip(":")[:80]


def _behaviour(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """What a function does in terms of control flow."""
    inside = [type(child) for child in ast.walk(node)]
    called = [child.func for child in ast.walk(node) if isinstance(child, ast.Call)]
    recursive = any(isinstance(function, ast.Name) and function.id == node.name for function in called)
    traits = [
        label
        for label, present in (
            ("loops", ast.For in inside or ast.While in inside),
            ("calls itself", recursive),
            ("builds by comprehension", any(kind in inside for kind in _COMPREHENSIONS)),
            ("yields", ast.Yield in inside or ast.YieldFrom in inside),
            ("raises", ast.Raise in inside),
            ("handles exceptions", ast.Try in inside),
            ("returns nothing", ast.Return not in inside and ast.Yield not in inside),
        )
        if present
    ]
    return f"It {', '.join(traits)}." if traits else ""


def _http_call(node: ast.Call) -> str | None:
    """`POST /items/` for a call of an HTTP client."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in HTTP_METHODS or not node.args:
        return None
    text = leading_text(node.args[0])
    if text is None or not (text.startswith(("http://", "https://")) or (text.startswith("/") and " " not in text)):
        return None
    return f"{node.func.attr.upper()} {text[:80]}"


def _frame_method(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in _FRAME_METHODS:
            return f".{name}()"
        case ast.Subscript(value=ast.Attribute(attr=name)) if name in _FRAME_INDEXERS:
            return f".{name}[]"
    return None
