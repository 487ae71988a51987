"""Finds idioms in SQL: the structure of queries and clauses, independent of the names of tables and columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from capibara_assets.executions.parsing import parse_sql
from capibara_assets.executions.patterns.idioms import LONGEST, Idiom, digest

if TYPE_CHECKING:
    from sqlglot import exp

_SHAPES = {
    "With": "with",
    "Join": "join",
    "Where": "where",
    "Group": "group by",
    "Having": "having",
    "Window": "window function",
    "Case": "case",
    "Subquery": "subquery",
    "Union": "union",
    "Order": "order by",
    "Limit": "limit",
}
# clauses that are idioms of their own: a WHERE alone, or a LIMIT, says nothing without its query
_CLAUSES = {
    "CTE": "common table expression",
    "Join": "join",
    "Group": "group by",
    "Having": "having",
    "Window": "window function",
    "Case": "case",
    "Union": "union",
}


@lru_cache(maxsize=16_384)
def sql_idioms(code: str) -> tuple[Idiom, ...]:
    """One idiom per statement that reads or writes tables, and one per clause of it."""
    statements = parse_sql(code)
    return () if statements is None else tuple(_idioms(code, statements))


def _idioms(code: str, statements: list[exp.Expr]) -> Iterator[Idiom]:
    for statement in statements:
        nodes = list(statement.walk(bfs=False))
        kinds = [type(node).__name__ for node in nodes]
        tables = dict.fromkeys(n.name for n, kind in zip(nodes, kinds, strict=True) if kind == "Table" and n.name)
        if not tables:
            continue
        present = set(kinds)
        shapes = [label for kind, label in _SHAPES.items() if kind in present]
        verb = kinds[0].lower()
        what = f"SQL {verb} over {', '.join(list(tables)[:5])}" + (f" with {', '.join(shapes)}." if shapes else ".")
        text = code if len(statements) == 1 else statement.sql()
        form = digest("sql", "sql_query", [kinds[0], *_form(nodes, kinds)])
        yield Idiom("sql_query", f"{verb} {next(iter(tables))}", text[:LONGEST], form, what)
        for node, kind in zip(nodes, kinds, strict=True):
            if (label := _CLAUSES.get(kind)) is not None and node is not statement:
                yield _clause(node, label)


def _clause(clause: exp.Expr, label: str) -> Idiom:
    nodes = list(clause.walk(bfs=False))
    form = digest("sql", "sql_clause", _form(nodes, [type(node).__name__ for node in nodes]))
    return Idiom("sql_clause", label, clause.sql()[:LONGEST], form, f"SQL clause `{label}`.")


def _form(nodes: list[exp.Expr], kinds: list[str]) -> Iterator[str]:
    """Kinds of nodes in the order of the text; identifiers are numbered, literals count by their type."""
    numbers: dict[str, str] = {}
    for node, kind in zip(nodes, kinds, strict=True):
        yield kind
        if kind == "Identifier":
            name = node.name.lower()
            yield numbers.setdefault(name, f"${len(numbers)}")
        elif kind == "Literal":
            yield "text" if node.is_string else "number"
        elif kind == "Anonymous":
            yield node.name.lower()
        elif kind == "Join":
            yield f"{node.args.get('side')} {node.args.get('kind')}"
