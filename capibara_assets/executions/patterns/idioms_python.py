"""Finds idioms in Python code by its syntax tree."""

import ast
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from capibara_assets.executions.labels.hosted_models import MODEL_ENDPOINTS
from capibara_assets.executions.labels.libraries import HTTP_METHODS, SQL_MAGICS
from capibara_assets.executions.labels.signals import is_sql, leading_text
from capibara_assets.executions.parsing import embedded_sql, first_line, magics, parse_python
from capibara_assets.executions.patterns.forms_python import flatten, without_docstring
from capibara_assets.executions.patterns.idioms import LONGEST, Flat, Idiom, digest, first_sentence
from capibara_assets.executions.patterns.idioms_sql import sql_idioms

_INPUTS = 3
_FRAME_NAMES = """groupby merge pivot pivot_table melt fillna dropna apply agg aggregate sort_values value_counts
    drop_duplicates set_index reset_index rolling resample explode nlargest astype get_dummies crosstab"""
_FRAME_METHODS = frozenset(_FRAME_NAMES.split())
_FRAME_INDEXERS = frozenset({"loc", "iloc"})
_TRAINING = frozenset({"backward", "partial_fit", "train_on_batch"})
_FITTING_NAMES = "fit fit_transform fit_predict cross_val_score cross_validate train_test_split GridSearchCV"
_FITTING = frozenset(_FITTING_NAMES.split())
_TASKS = frozenset(("gather", "wait", "wait_for", "as_completed", "create_task", "run", "to_thread"))
_HTTP_CLIENTS = frozenset(("requests", "httpx", "aiohttp"))
_COMPREHENSIONS: dict[object, str] = {
    ast.ListComp: "list",
    ast.SetComp: "set",
    ast.DictComp: "dict",
    ast.GeneratorExp: "generator",
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = frozenset({*_FUNCTIONS, ast.ClassDef})
_STATEMENTS = frozenset(ast.stmt.__subclasses__())


@lru_cache(maxsize=16_384)
def python_idioms(code: str) -> tuple[Idiom, ...]:
    """Idioms of one cell in the order of the text; none when it does not parse."""
    tree = parse_python(code)
    if tree is None:
        return ()
    queries = [idiom for query in _magic_queries(code) for idiom in sql_idioms(query)] if "%" in code else []
    try:
        return (*queries, *_PythonFinder(code, tree).find())
    except RecursionError:
        return ()  # an expression of thousands of terms is data


def _magic_queries(code: str) -> Iterator[str]:
    """The SQL of `%sql SELECT …` lines and of `%%sql` cells."""
    for name, rest in magics(code):
        if name.lower() not in SQL_MAGICS:
            continue
        if code.lstrip().startswith("%%"):
            yield code.lstrip().partition("\n")[2].strip()
            return
        yield rest


class _PythonFinder:
    """Visits each node once, parents first, and tracks the statement and the loop that enclose it."""

    def __init__(self, code: str, tree: ast.Module) -> None:
        self._lines = code.split("\n")
        self._ascii = code.isascii()
        self._flat: Flat[ast.AST] = flatten(tree)
        self._calls: dict[str, list[int]] = defaultdict(list)
        for i, node in enumerate(self._flat.nodes):
            if type(node) is ast.Call and type(node.func) is ast.Name:
                self._calls[node.func.id].append(i)
        self._statement = 0
        self._loop_end = 0
        self._told: set[tuple[str, int]] = set()  # a statement's chain of methods is one idiom

    def find(self) -> Iterator[Idiom]:
        """Yields the idioms in the order of the text."""
        flat = self._flat
        enclosing: list[int] = []
        i, count = 0, len(flat.nodes)
        while i < count:
            kind: Any = flat.kinds[i]
            if kind in _STATEMENTS:
                while enclosing and flat.last[enclosing[-1]] <= i:
                    enclosing.pop()
                enclosing.append(i)
            read = _READERS.get(kind)
            if read is not None:
                while enclosing and flat.last[enclosing[-1]] <= i:
                    enclosing.pop()
                self._statement = enclosing[-1] if enclosing else 0
                yield from read(self, flat.nodes[i], i)
                if kind is ast.ClassDef:
                    i = flat.last[i]  # its methods belong to it
                    continue
            i += 1

    # --- statements -------------------------------------------------------------------------------------------------

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, i: int) -> Iterator[Idiom]:
        body = without_docstring(node.body)
        if not body or all(isinstance(statement, ast.Assert | ast.Pass) for statement in body):
            return  # a check of other code, or a stub
        asynchronous = isinstance(node, ast.AsyncFunctionDef)
        signature = f"{node.name}({_parameters(node.args)})"
        if node.returns is not None:
            signature += f" -> {ast.unparse(node.returns)}"
        label = "Coroutine" if asynchronous else "Function"
        told = (f"{label} `{signature}`.", first_sentence(_docstring(node)), self._behaviour(node, i))
        what = " ".join(filter(None, told))
        yield self._idiom("async" if asynchronous else "function", node.name, i, what, self._inputs(node.name, i))

    def class_(self, node: ast.ClassDef, i: int) -> Iterator[Idiom]:
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        methods = [item.name for item in node.body if isinstance(item, _FUNCTIONS)]
        what = f"Class `{node.name}({bases})`." if bases else f"Class `{node.name}`."
        listed = f"Methods: {', '.join(methods)}." if methods else ""
        told = " ".join(filter(None, [what, first_sentence(_docstring(node)), listed]))
        yield self._idiom("class", node.name, i, told, self._inputs(node.name, i))

    def loop(self, node: ast.For | ast.While, i: int) -> Iterator[Idiom]:
        if i < self._loop_end:
            return  # part of another
        self._loop_end = self._flat.last[i]
        inside = self._flat.nodes[i : self._loop_end]
        called = {n.func.attr for n in inside if type(n) is ast.Call and type(n.func) is ast.Attribute}
        opening = self._opening(node)
        if called & _TRAINING or {"zero_grad", "step"} <= called:
            yield self._idiom("training_loop", "training loop", i, f"Training loop `{opening}`.")
        else:
            yield self._idiom("loop", opening, i, f"Loop `{opening}`.", literals=False)

    def asynchronous(self, node: ast.AsyncFor | ast.AsyncWith, i: int) -> Iterator[Idiom]:
        opening = ast.unparse(node).split("\n")[0].rstrip(":")[:80]
        yield self._idiom("async", type(node).__name__, i, f"asynchronous {opening}")

    def try_(self, node: ast.Try, i: int) -> Iterator[Idiom]:
        caught = [ast.unparse(handler.type) if handler.type is not None else "everything" for handler in node.handlers]
        name = ", ".join(caught) or "finally"
        what = f"Handles {name}" + (" and cleans up in `finally`." if node.finalbody else ".")
        yield self._idiom("error_handling", name, i, what)

    # --- expressions ------------------------------------------------------------------------------------------------

    def comprehension(self, node: ast.expr, i: int) -> Iterator[Idiom]:
        if self._in_header():
            return
        yield self._expression("comprehension", f"{_COMPREHENSIONS[type(node)]} comprehension", node, i)

    def constant(self, node: ast.Constant, i: int) -> Iterator[Idiom]:
        if type(node.value) is str and not self._in_header() and is_sql(node.value):
            yield from sql_idioms(embedded_sql(node.value))

    def formatted(self, node: ast.JoinedStr, i: int) -> Iterator[Idiom]:
        """A query with values or names put in: each is a name."""
        parts = [part.value if isinstance(part, ast.Constant) else f"x{n}" for n, part in enumerate(node.values)]
        text = "".join(part for part in parts if isinstance(part, str))
        if len(parts) > 1 and not self._in_header() and is_sql(text):
            yield from sql_idioms(embedded_sql(text))

    def call(self, node: ast.Call, i: int) -> Iterator[Idiom]:
        if self._in_header():
            return  # a decorator is no call of its own
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in _FITTING and node.args:
            yield from self._of_statement("training", f"{name}()", "Training statement")
        if not isinstance(function, ast.Attribute):
            return
        if (route := self._service(node, function)) is not None:
            yield self._expression("api_call", route, node, i)
        elif name in _TASKS and isinstance(function.value, ast.Name) and function.value.id == "asyncio":
            yield self._expression("async", f"asyncio.{name}", node, i)
        elif name in _FRAME_METHODS:
            yield from self._of_statement("dataframe", f".{name}()", "Data frame operation")

    def subscript(self, node: ast.Subscript, i: int) -> Iterator[Idiom]:
        if self._in_header():
            return
        if isinstance(node.value, ast.Attribute) and node.value.attr in _FRAME_INDEXERS:
            yield from self._of_statement("dataframe", f".{node.value.attr}[]", "Data frame operation")
        elif isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Compare):
            compared = node.slice.left
            if isinstance(compared, ast.Subscript | ast.Attribute) and ast.dump(compared.value) == ast.dump(node.value):
                yield from self._of_statement("dataframe", "boolean mask", "Data frame operation")

    def _of_statement(self, kind: str, name: str, what: str) -> Iterator[Idiom]:
        if (kind, self._statement) not in self._told:
            self._told.add((kind, self._statement))
            yield self._idiom(kind, name, self._statement, f"{what} `{name}`.", literals=False)

    def _in_header(self) -> bool:
        """Whether an expression belongs to a definition's decorators, defaults or annotations."""
        return self._flat.kinds[self._statement] in _DEFINITIONS

    def _service(self, node: ast.Call, function: ast.Attribute) -> str | None:
        """`POST /items/` for a call of an HTTP client, the dotted call for one of a model's client."""
        owner = function.value
        dotted = f"{owner.attr}.{function.attr}" if isinstance(owner, ast.Attribute) else ""
        if dotted in MODEL_ENDPOINTS:
            return dotted
        if function.attr not in HTTP_METHODS or not node.args:
            return None
        text = leading_text(node.args[0])
        if text is not None and (text.startswith(("http://", "https://")) or (text[:1] == "/" and " " not in text)):
            return f"{function.attr.upper()} {text[:80]}"
        if isinstance(owner, ast.Name) and owner.id in _HTTP_CLIENTS:
            return f"{owner.id}.{function.attr}"
        return None

    # --- making idioms and describing them --------------------------------------------------------------------------

    def _expression(self, kind: str, name: str, node: ast.expr, i: int) -> Idiom:
        form = digest("python", kind, self._flat.form(i, literals=False))
        return Idiom(kind, name, self._text(node)[:LONGEST], form, f"{name[:1].upper()}{name[1:]}.")

    def _idiom(
        self, kind: str, name: str, i: int, what: str, inputs: tuple[str, ...] = (), *, literals: bool = True
    ) -> Idiom:
        node: Any = self._flat.nodes[i]
        text = "\n".join(self._lines[first_line(node) - 1 : node.end_lineno])
        if text[:1] in " \t":
            text = textwrap.dedent(text)
        form = digest("python", kind, self._flat.form(i, literals=literals))
        return Idiom(kind, name, text[:LONGEST], form, what, inputs)

    def _inputs(self, name: str, definition: int) -> tuple[str, ...]:
        """Short calls of a function outside itself, as examples of its inputs."""
        examples: dict[str, None] = {}
        for i in self._calls.get(name, ()):
            if not definition <= i < self._flat.last[definition] and len(examples) < _INPUTS:
                text = " ".join(self._text(self._flat.nodes[i]).split())
                if len(text) <= 80:
                    examples[text] = None
        return tuple(examples)

    def _opening(self, node: ast.For | ast.While) -> str:
        """The first line of a loop, without its body."""
        if isinstance(node, ast.While):
            text = f"while {self._text(node.test)}"
        else:
            text = f"for {self._text(node.target)} in {self._text(node.iter)}"
        return " ".join(text.split())[:80]

    def _behaviour(self, node: ast.FunctionDef | ast.AsyncFunctionDef, i: int) -> str:
        """What a function does in terms of control flow."""
        inside = set(self._flat.kinds[i : self._flat.last[i]])
        recursive = any(i < call < self._flat.last[i] for call in self._calls.get(node.name, ()))
        traits = [
            label
            for label, present in (
                ("loops", ast.For in inside or ast.While in inside),
                ("calls itself", recursive),
                ("builds by comprehension", not inside.isdisjoint(_COMPREHENSIONS)),
                ("yields", ast.Yield in inside or ast.YieldFrom in inside),
                ("raises", ast.Raise in inside),
                ("handles exceptions", ast.Try in inside),
                ("returns nothing", ast.Return not in inside and ast.Yield not in inside),
            )
            if present
        ]
        return f"It {', '.join(traits)}." if traits else ""

    def _text(self, node: Any) -> str:
        """A node's source; `ast` counts columns in UTF-8 bytes."""
        first, last = node.lineno - 1, node.end_lineno - 1
        lines = self._lines[first : last + 1]
        if len(lines) != last - first + 1:
            return ast.unparse(node)  # `ast` ends lines at a lone carriage return, too
        if self._ascii:
            lines[-1] = lines[-1][: node.end_col_offset]
            lines[0] = lines[0][node.col_offset :]
        else:
            lines[-1] = lines[-1].encode()[: node.end_col_offset].decode(errors="replace")
            lines[0] = lines[0].encode()[node.col_offset :].decode(errors="replace")
        return "\n".join(lines)


def _docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str | None:
    """A definition's docstring; its indentation, which takes long to remove, does not matter to its first sentence."""
    text = ast.get_docstring(node, clean=False)
    return ast.get_docstring(node) if text is not None and "\t" in text else text


def _parameters(arguments: ast.arguments) -> str:
    """Parameters as written; plain names, the usual case, without `ast.unparse`, which is slow."""
    more = (arguments.defaults, arguments.kwonlyargs, arguments.posonlyargs, arguments.vararg, arguments.kwarg)
    if not any(more) and not any(argument.annotation for argument in arguments.args):
        return ", ".join(argument.arg for argument in arguments.args)
    return ast.unparse(arguments)


_READERS: dict[object, Callable[[_PythonFinder, Any, int], Iterator[Idiom]]] = {
    ast.FunctionDef: _PythonFinder.function,
    ast.AsyncFunctionDef: _PythonFinder.function,
    ast.ClassDef: _PythonFinder.class_,
    ast.For: _PythonFinder.loop,
    ast.While: _PythonFinder.loop,
    ast.AsyncFor: _PythonFinder.asynchronous,
    ast.AsyncWith: _PythonFinder.asynchronous,
    ast.Try: _PythonFinder.try_,
    ast.Constant: _PythonFinder.constant,
    ast.JoinedStr: _PythonFinder.formatted,
    ast.Call: _PythonFinder.call,
    ast.Subscript: _PythonFinder.subscript,
    **dict.fromkeys(_COMPREHENSIONS, _PythonFinder.comprehension),
}
