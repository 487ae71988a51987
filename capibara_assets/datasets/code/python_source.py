"""Parse Python of notebooks (magics removed) into statements, each with the names that it reads and binds."""

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from capibara_assets.datasets.code.names import Statement, StatementNames
from capibara_assets.executions.parsing import child_nodes, first_line, python_tree, walk

_MAGIC = re.compile(r"^(?P<indent>[ \t]*)(?:[%!?]|[A-Za-z_][\w.]*\?{1,2}$).*$", re.MULTILINE)
_ASSIGNED_SHELL = re.compile(r"^(?P<indent>[ \t]*)(?P<target>\w[\w, ]*=)\s*[!%].*$", re.MULTILINE)
_HARMLESS = re.compile(r"^_?(print|display|repr|len|check|test|verify)(_|$|[A-Z0-9])")
_CHANGING_METHODS = """add append appendleft clear commit delete discard execute executemany executescript extend
insert next patch pop popitem popleft post put readline remove reverse rollback rotate send setdefault shuffle sort
step update write"""
CHANGING = frozenset(_CHANGING_METHODS.split())
BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
IPYTHON = frozenset(re.findall(r"\w+", "display get_ipython In Out _ __ ___ _i _ih _oh exit quit"))
"""Names that a notebook's shell gives to every cell."""

_LINE_END = re.compile(r"\r\n?|\n")  # as Python counts lines
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Places:
    """Converts a parser's positions in UTF-8 bytes to positions in the text."""

    def __init__(self, code: str) -> None:
        ends = [match.end() for match in _LINE_END.finditer(code)]
        self._starts = [0, *ends]
        self._lines = [code[start:end] for start, end in zip(self._starts, [*ends, len(code)], strict=True)]

    def at(self, line: int, column: int) -> int:
        """Position of a line (from 1) and a column in bytes; of the line below the last, the end."""
        if line > len(self._lines):
            return self._starts[-1] + len(self._lines[-1])
        text = self._lines[line - 1]
        inside = column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))
        return self._starts[line - 1] + inside


def is_literal(node: ast.expr) -> bool:
    """Whether an expression is a value as it is written."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


@lru_cache(maxsize=8192)
def parse(code: str) -> ast.Module | None:
    """The syntax tree of `code` with its line numbers; None when it does not parse."""
    plain = _ASSIGNED_SHELL.sub(r"\g<indent>\g<target> None", code)
    plain = _MAGIC.sub(r"\g<indent>pass", plain)
    for candidate in (code, plain, plain.lstrip(" ") if plain.startswith(" ") else plain):
        if (tree := python_tree(candidate)) is not None:
            return tree
    return None


def nodes(code: str) -> Iterator[ast.AST]:
    """The nodes of the syntax tree of `code`, in the order of `walk`; none when it does not parse."""
    tree = parse(code)
    return iter(()) if tree is None else walk(tree)


def names_in(node: ast.AST) -> set[str]:
    """Every variable that is named anywhere in a node."""
    return {part.id for part in walk(node) if isinstance(part, ast.Name)}


def called_name(call: ast.Call) -> str:
    """The name that `f(...)` and `a.b.f(...)` call; "" where what is called has none."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def parameters(function: Function | ast.Lambda) -> list[ast.arg]:
    """All parameters, `*args` and `**kwargs` last."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [one for one in every if one is not None]


def docstring_node(node: ast.AST) -> ast.Expr | None:
    """The expression statement that is the docstring of a module, class or function."""
    body = getattr(node, "body", None)
    if isinstance(node, ast.Module | Definition) and body:
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            return first
    return None


def statements(code: str) -> tuple[Statement, ...]:
    """The top-level statements as written, definitions without their docstrings; none when `code` does not parse.

    Statements that share a line are one.
    """
    tree = parse(code)
    if tree is None:
        return ()
    lines = code.split("\n")
    listed = []
    for start, end, those in spans(tree):
        documented = [docstring_node(node) for node in those if isinstance(node, Definition) and len(node.body) > 1]
        cut = _lines(one for one in documented if one is not None) - {start}
        text = "\n".join(lines[number - 1] for number in range(start, end + 1) if number not in cut)
        listed.append(Statement(text, _names(those)))
    return tuple(listed)


def spans(tree: ast.Module) -> list[tuple[int, int, list[ast.stmt]]]:
    """(first line with decorators, last line, nodes) of top-level statements; those that share a line are one."""
    merged: list[tuple[int, int, list[ast.stmt]]] = []
    for node in tree.body:
        start = first_line(node)
        end = node.end_lineno or node.lineno
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], end, [*merged[-1][2], node])
        else:
            merged.append((start, end, [node]))
    return merged


def _lines(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def without_assertions(code: str) -> str:
    """The cell without its top-level `assert` and `if ...: raise`; unchanged when it holds nothing else."""
    tree = parse(code)
    if tree is None or all(map(_is_check, tree.body)):
        return code
    cut = _lines(node for node in tree.body if _is_check(node))
    kept = _lines(node for node in tree.body if not _is_check(node))
    return "\n".join(line for number, line in enumerate(code.split("\n"), 1) if number not in cut - kept)


def _is_check(node: ast.stmt) -> bool:
    match node:
        case ast.Assert() | ast.If(body=[ast.Raise()], orelse=[]):
            return True
    return False


def _names(nodes: Sequence[ast.stmt]) -> StatementNames:
    """Names that statements bind, may change in place, and need from before, in order of execution.

    What a function's body reads has to exist when it is called, so it may also be bound after the function.
    """
    bound: set[str] = set()
    needed: set[str] = set()
    later: set[str] = set()
    for simple in _in_order(nodes):
        now, deferred = _loads(simple)
        needed |= now - bound
        later |= deferred
        bound |= set(bindings(simple))
    changed = {name for node in nodes for name in _changes(node)}
    star = any(isinstance(part, ast.ImportFrom) and part.names[0].name == "*" for node in nodes for part in walk(node))
    imported = {name for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for name in bindings(node)}
    later -= bound | needed | BUILTINS
    needed -= BUILTINS
    return StatementNames(
        frozenset(bound), frozenset(changed), frozenset(needed | later), not star, frozenset(later), frozenset(imported)
    )


def _in_order(statements: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The parts of the statements in order of execution; blocks are opened, branches follow each other."""
    for statement in statements:
        match statement:
            case ast.For() | ast.AsyncFor():
                yield statement.iter
                yield statement.target
                yield from _in_order([*statement.body, *statement.orelse])
            case ast.While() | ast.If():
                yield statement.test
                yield from _in_order([*statement.body, *statement.orelse])
            case ast.With() | ast.AsyncWith():
                for item in statement.items:
                    yield item.context_expr
                    if item.optional_vars is not None:
                        yield item.optional_vars
                yield from _in_order(statement.body)
            case ast.Try() | ast.TryStar():
                yield from _in_order(statement.body)
                for handler in statement.handlers:
                    if handler.name:
                        yield ast.Name(handler.name, ast.Store())
                    if handler.type is not None:
                        yield handler.type
                    yield from _in_order(handler.body)
                yield from _in_order([*statement.orelse, *statement.finalbody])
            case _:
                yield statement


def _loads(whole: ast.AST) -> tuple[set[str], set[str]]:
    """(names read when it runs, names read when the functions it defines are called)."""
    now: set[str] = set()
    later: set[str] = set()

    def visit(node: ast.AST, local: frozenset[str], inside: bool) -> None:
        if isinstance(node, Function | ast.Lambda):
            arguments = node.args
            defaults = [*arguments.defaults, *(default for default in arguments.kw_defaults if default)]
            for outer in [*defaults, *getattr(node, "decorator_list", [])]:
                visit(outer, local, inside)
            for annotation in _annotations(node):
                visit(annotation, local, inside)
            inner = local | _local_names(node)
            for part in node.body if isinstance(node.body, list) else [node.body]:
                visit(part, inner, True)
            return
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            inner = local.union(*(names_in(each.target) for each in node.generators))
            for child in child_nodes(node):
                visit(child, inner, inside)
            return
        if isinstance(node, ast.ClassDef):
            inner = local | {name for child in node.body for name in bindings(child)}
            for outer in [*node.bases, *node.decorator_list, *(keyword.value for keyword in node.keywords)]:
                visit(outer, local, inside)
            for part in node.body:
                visit(part, inner, inside)
            return
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id not in local:
            (later if inside else now).add(node.target.id)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in local:
            (later if inside else now).add(node.id)
        for child in child_nodes(node):
            visit(child, local, inside)

    visit(whole, frozenset(), False)
    return now, later


def _annotations(node: Function | ast.Lambda) -> list[ast.expr]:
    if isinstance(node, ast.Lambda):
        return []
    annotations = [one.annotation for one in parameters(node)]
    return [annotation for annotation in (*annotations, node.returns) if annotation is not None]


def _local_names(node: Function | ast.Lambda) -> frozenset[str]:
    names = {one.arg for one in parameters(node)}
    if isinstance(node, ast.Lambda):
        return frozenset(names)
    outer = {name for part in walk(node) if isinstance(part, ast.Global) for name in part.names}
    names |= {name for part in node.body for name in bindings(part)}
    return frozenset(names - outer)


def bindings(statement: ast.AST) -> Iterator[str]:
    """Names that a statement binds in its own scope (not those inside functions and classes that it defines)."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, Definition):
            yield node.name
            continue
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id
        elif isinstance(node, ast.alias) and node.name != "*":
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        pending.extend(child_nodes(node))


def _changes(statement: ast.stmt) -> Iterator[str]:
    """Names whose objects a statement may change in place: by stores into them, calls for their effect, decorators, and
    mutating methods whose value is used (`last = stack.pop()`).

    `print(x)`, `check(f)` and chained calls (`df.isnull().sum()`) change nothing that they are given.
    """
    for node in walk(statement):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield from base(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            yield from base(node.func)
        elif isinstance(node, Definition):
            for decorator in node.decorator_list:
                inner = decorator.func if isinstance(decorator, ast.Call) else decorator
                if not isinstance(inner, ast.Name):
                    yield from base(inner)
        elif isinstance(node, ast.Expr):
            call = node.value.value if isinstance(node.value, ast.Await) else node.value
            if isinstance(call, ast.Call) and not (isinstance(call.func, ast.Name) and _HARMLESS.match(call.func.id)):
                if not isinstance(call.func, ast.Name):  # a bare call `f(x)` changes nothing of `f`
                    yield from base(call.func)
                for argument in call.args:
                    yield from base(argument)
                yield from _handed_over(call.func)


def _handed_over(called: ast.expr) -> Iterator[str]:
    """Variables whose bound methods a new object is given, which then acts: `Thread(target=server.run).start()`."""
    made = called.value if isinstance(called, ast.Attribute) else called
    if not isinstance(made, ast.Call):
        return
    if called_name(made)[:1].isupper():  # a class, as everybody writes them
        for given in (*made.args, *(keyword.value for keyword in made.keywords)):
            if isinstance(given, ast.Attribute):
                yield from base(given)


def base(node: ast.expr) -> Iterator[str]:
    """The variable at the root of `a.b[c].d`; nothing where a call is in between."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
