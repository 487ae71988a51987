"""Parsers for recorded code: Python by `ast` (IPython magics removed), JavaScript by tree-sitter, SQL by sqlglot."""

from __future__ import annotations

import ast
import gc
import logging
import re
import textwrap
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tree_sitter
    from sqlglot import exp

JAVASCRIPT = frozenset({"javascript", "typescript"})
_PYTHON_CELL_MAGICS = ("time", "timeit", "capture", "prun", "memit", "python", "python3", "py")
_MAGIC_LINE = re.compile(r"^(\s*)(?:[%!?]|[\w.\]\[]+\?{1,2}\s*$)")
_MAGIC_VALUE = re.compile(r"^(\s*+[\w, ]++=\s*+)[!%](?=\w).*$")
_MAGIC = re.compile(r"^\s*+(?:[\w, ]++=\s*+)?%{1,2}(\w+)(.*)$")
_COMMENTS, _SIGN = re.compile(rb"(?:/\*(?:[^*]|\*(?!/))*+\*/[ \t]*+){50,}"), re.compile(rb"[^\n]")
_MAGICS = re.compile(r"^[^\S\n]*+(?:[\w, ]++=\s*+)?%{1,2}\w", re.MULTILINE)
# type_params, which Python 3.12 added to every definition, would give the same code other keys there than in 3.11;
# str is the source text of a t-string's value, in Python 3.14.
_LEAF_NAMES = """ctx op ops id attr kind type_comment type_ignores name module level asname arg is_async simple
    conversion kwd_attrs rest type_params str"""
_LEAF_FIELDS = frozenset(_LEAF_NAMES.split())
_CHILDLESS = (ast.Constant, ast.MatchSingleton, ast.Global, ast.Nonlocal)
_NO_NODES = (ast.operator, ast.boolop, ast.cmpop, ast.unaryop, ast.expr_context)
_MAX_SQL = 20_000  # characters; a longer text is data, not a query
# Levels of a program's tree and of a query's. What walks one by recursion has up to six calls a level, and Python
# allows a thousand: one log line of 500 nested brackets, or of as many texts that `+` joins, would end all datasets.
_DEEPEST, _DEEPEST_QUERY = 100, 200
_GC_THRESHOLDS = 20_000, 50, 100  # allocations and younger collections before a collection of the next generation


# Trees are cached briefly: classification and idiom extraction read the same tree one after the other, but thousands
# of trees would cost gigabytes.
@lru_cache(maxsize=32)
def parse_python(code: str) -> ast.Module | None:
    """The syntax tree of a notebook cell; None when it does not parse even without its magics."""
    tree = python_tree(code)
    if tree is None and ("%" in code or "!" in code or "?" in code):
        tree = python_tree(without_magics(code))
    return tree


def first_line(node: ast.stmt) -> int:
    """The line, from 1, at which a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def without_magics(code: str) -> str:
    """`code` with IPython's magics, shell lines and help lines replaced by `pass`; line numbers stay.

    A cell of another language (`%%bash`, `%%html`) becomes empty.
    """
    lines = code.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        if lines[first][2:].split(maxsplit=1)[:1] not in [[name] for name in _PYTHON_CELL_MAGICS]:
            return ""
        lines[first] = ""
    continued = False
    for i, line in enumerate(lines):
        if continued:
            continued, lines[i] = line.rstrip().endswith("\\"), ""
        elif match := _MAGIC_LINE.match(line):
            continued, lines[i] = line.rstrip().endswith("\\"), match.group(1) + "pass"
        elif match := _MAGIC_VALUE.match(line):
            continued, lines[i] = line.rstrip().endswith("\\"), match.group(1) + "None"
    return "\n".join(lines)


def magics(code: str) -> Iterator[tuple[str, str]]:
    """Yields the IPython magics in a cell: (name without %, the rest of its line)."""
    if "%" not in code or _MAGICS.search(code) is None:
        return
    for line in code.splitlines():
        if match := _MAGIC.match(line):
            yield match.group(1), match.group(2).strip()


def descend(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields a tree's nodes, parents before children, siblings in no particular order; no operators and contexts.

    Several times as fast as `ast.walk`, which visits every field of every node.
    """
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if (children := CHILDREN[type(node)]) is not None:
            for value in children(node):
                if value.__class__ is list:
                    stack.extend(filter(None, value))  # a dict's `**more` has no key
                elif value is not None:
                    stack.append(value)


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree in the order of `ast.walk`, but for operators and contexts; several times as fast."""
    waiting = [tree]
    for node in waiting:
        waiting.extend(child_nodes(node))
        yield node


def child_nodes(node: ast.AST) -> list[Any]:
    """The nodes that `ast.iter_child_nodes` gives, in its order, but for operators and contexts."""
    if (children := _EVERY_CHILD[node.__class__]) is None:
        return []
    found: list[Any] = []
    try:
        for value in children(node):
            if value.__class__ is list:
                found.extend(filter(None, value))
            elif value is not None:
                found.append(value)
    except AttributeError:  # a node that no parser made may lack fields
        return [child for child in ast.iter_child_nodes(node) if not isinstance(child, _NO_NODES)]
    return found


class _Children(dict[type[Any], Callable[[Any], Iterable[Any]] | None]):
    def __init__(self, leaves: Collection[str]) -> None:
        super().__init__()
        self._leaves = leaves

    def __missing__(self, kind: type[Any]) -> Callable[[Any], Iterable[Any]] | None:
        childless = kind in _CHILDLESS or kind is type(None)
        fields = [] if childless else [field for field in kind._fields if field not in self._leaves]
        # two names at least make `attrgetter` return a tuple
        self[kind] = attrgetter(*fields) if len(fields) > 1 else _only(fields[0]) if fields else None
        return self[kind]


def _only(field: str) -> Callable[[Any], tuple[Any]]:
    return lambda node: (getattr(node, field),)


#: Node class -> getter of all fields that hold nodes; None where there are none.
CHILDREN = _Children(_LEAF_FIELDS)
_EVERY_CHILD = _Children(_LEAF_FIELDS - {"type_params"})


@lru_cache(maxsize=32)
def python_nodes(code: str) -> Mapping[type[ast.AST], Sequence[Any]]:
    """A cell's nodes by class, from one cached walk; empty when it does not parse.

    Texts that stand alone as statements (docstrings) are left out: they are no evidence of what code does.
    """
    nodes: defaultdict[type[Any], list[Any]] = defaultdict(list)
    stack: list[Any] = [parse_python(code)]
    while stack:
        node = stack.pop()
        kind = node.__class__
        nodes[kind].append(node)
        if kind is ast.Expr and node.value.__class__ is ast.Constant:
            continue
        if (children := CHILDREN[kind]) is not None:
            for value in children(node):
                if value.__class__ is list:
                    stack += value
                else:
                    stack.append(value)
    nodes.pop(type(None), None)  # from optional fields that are empty
    return nodes


@lru_cache(maxsize=32)
def parse_javascript(code: str) -> tree_sitter.Tree:
    """The syntax tree of a program, `javascript_tree`, of which a few are kept."""
    return javascript_tree(code)


def javascript_tree(code: str) -> tree_sitter.Tree:
    """The syntax tree of a program; `root_node.has_error` where it does not parse or is nested as no program is."""
    tree = _javascript_parser().parse(javascript_bytes(code))
    deep = len(code) > _DEEPEST and _is_deep_javascript(tree)
    return _javascript_parser().parse(b"(") if deep else tree


def _is_deep_javascript(tree: tree_sitter.Tree) -> bool:
    cursor = tree.walk()
    while True:
        if cursor.goto_first_child():
            if cursor.depth > _DEEPEST:
                return True
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return False


def javascript_bytes(code: str) -> bytes:
    """What tree-sitter is given: the program with blanks for long rows of comments, so that offsets stay.

    To see whether a statement ends there, it reads each of such comments to the end of the row: 30,000 take 25 s.
    """
    return _COMMENTS.sub(lambda row: _SIGN.sub(b" ", row[0]), code.encode("utf-8", "replace"))


@lru_cache(maxsize=32)
def parse_sql(code: str) -> list[exp.Expr] | None:
    """The statements of a SQL text; None when no common dialect can read it, or it is nested as no query is."""
    if len(code) > _MAX_SQL:
        return None
    sqlglot = _sqlglot()
    for dialect in ("sqlite", "postgres", "tsql"):
        try:
            statements = [statement for statement in sqlglot.parse(code, read=dialect) if statement is not None]
        except (sqlglot.errors.SqlglotError, RecursionError, ValueError, TypeError):
            continue  # TypeError: the compiled parser's way to say that an operand is missing
        if statements:
            return None if is_deep_query(statements) else statements
    return None


def query_words(code: str) -> frozenset[str]:
    """Names and literals of a SQL text of more than one letter, in lower case; none of what is no text of SQL."""
    sqlglot = _sqlglot()
    words = sqlglot.TokenType.VAR, sqlglot.TokenType.IDENTIFIER, sqlglot.TokenType.STRING, sqlglot.TokenType.NUMBER
    try:
        listed = sqlglot.tokenize(code[:_MAX_SQL], read="sqlite")
    except sqlglot.errors.SqlglotError:
        return frozenset()
    return frozenset(one.text.lower() for one in listed if one.token_type in words and len(one.text) > 1)


def is_deep_query(statements: Iterable[exp.Expr]) -> bool:
    """Whether statements are nested as no query is."""
    return _is_deep(statements, lambda node: node.iter_expressions(), _DEEPEST_QUERY)


def _is_deep(roots: Iterable[Any], children: Callable[[Any], Iterable[Any]], deepest: int = _DEEPEST) -> bool:
    level, depth = list(roots), 0
    while level and depth <= deepest:
        level, depth = [inner for node in level for inner in children(node)], depth + 1
    return bool(level)


def embedded_sql(text: str) -> str:
    """A query from a string literal of another language, without its indentation there."""
    return textwrap.dedent(text).strip()


def is_statementless(tree: ast.Module) -> bool:
    """Whether a cell holds only comments, magics and bare constants."""
    return all(
        isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in tree.body
    )


def python_tree(code: str) -> ast.Module | None:
    """The syntax tree of recorded Python; None when it does not parse or is nested as no program is. Prints no warning.

    Since Python 3.12 an invalid escape, which is frequent in notebooks, is a warning that is shown by default.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None if len(code) > _DEEPEST and _is_deep([tree], child_nodes) else tree


@cache
def _sqlglot() -> types.ModuleType:
    # imported here: 0.1 s, which loading the asset definitions should not pay
    import sqlglot

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of every statement that it reads in part only
    return sqlglot


@cache
def javascript_language() -> tree_sitter.Language:
    """tree-sitter's JavaScript grammar, with the numbers of its kinds of nodes."""
    import tree_sitter
    import tree_sitter_javascript

    return tree_sitter.Language(tree_sitter_javascript.language())


@cache
def _javascript_parser() -> tree_sitter.Parser:
    import tree_sitter

    return tree_sitter.Parser(javascript_language())


@contextmanager
def rare_collections() -> Iterator[None]:
    """Context manager and decorator: collect garbage some thirty times less often inside it.

    Syntax trees are freed by their reference counts; searching everything that is kept (facts, idioms) for cycles
    every 700 objects takes a quarter of the time of reading them. SQL trees have cycles, so collections go on.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
