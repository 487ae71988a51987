"""Generate a test database for a query whose own is gone: the tables that its question names, deterministic rows.

Sessions that ask a database were often recorded without the cells that made it. What such a query means can still be
tested: two queries that give the same rows on a database made to tell them apart most likely mean the same (Zhong et
al. 2020, arXiv 2010.02840). Columns get values of the kind that the recorded query takes them for, its own literals and
values on both sides of its bounds among them; keys refer to rows that are there, and some rows are referred to by none.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp

_TABLES = re.compile(r"^Tables?: (?P<tables>.+)$", re.MULTILINE)
_TABLE = re.compile(r"(\w+)\(([^()]+)\)")
_DATED = re.compile(r"(_on|_at|date|day|time)$")
_WORDS = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "heath", "iris", "jade", "kelp", "larch")
_FACTS, _DIMENSIONS = 40, 8  # rows of a table that refers to others, and of one that does not
_NUMERIC = (exp.Sum, exp.Avg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Round, exp.Abs, exp.Mod, exp.Cast)
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Like)


@dataclass
class _Column:
    """How a query uses a column: the types and literals it is compared with."""

    numeric: bool = False
    dated: bool = False
    nullable: bool = False
    texts: set[str] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)


def made_database(question: str, query: str) -> str | None:
    """SQL statements that create and fill the tables a question names; None where it names none."""
    line = _TABLES.search(question)
    if line is None:
        return None
    named = _TABLE.findall(line["tables"])
    tables = {name: [column.strip().split()[0] for column in columns.split(",")] for name, columns in named}
    try:
        trees = [tree for tree in sqlglot.parse(query, read="sqlite") if tree is not None]
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None
    if not tables or not trees:
        return None
    columns = _column_uses(trees)
    return "\n".join(statement for name in tables for statement in _filled(name, tables, columns))


def _column_uses(trees: Sequence[exp.Expr]) -> Mapping[str, _Column]:
    """Column by name, as the query uses it."""
    uses: dict[str, _Column] = defaultdict(_Column)
    for tree in trees:
        for node in tree.walk():
            columns = [each for each in node.args.values() if isinstance(each, exp.Column)]
            if isinstance(node, exp.Anonymous | exp.TimeToStr | exp.Func) and _is_dated(node):
                columns += list(node.find_all(exp.Column))
                for column in columns:
                    uses[column.name].dated = True
            if isinstance(node, _NUMERIC):
                for column in columns:
                    uses[column.name].numeric = True
            if isinstance(node, exp.Is | exp.Coalesce):
                for column in columns:
                    uses[column.name].nullable = True
            if isinstance(node, _COMPARED):
                literals = [each for each in node.walk() if isinstance(each, exp.Literal)]
                for column in columns:
                    for literal in literals:
                        _add_literal(uses[column.name], literal)
    return uses


def _is_dated(node: exp.Expr) -> bool:
    name = node.name if isinstance(node, exp.Anonymous) else type(node).__name__
    return name.lower() in ("strftime", "date", "datetime", "julianday", "timetostr", "tsordstodate", "strtotime")


def _add_literal(column: _Column, literal: exp.Literal) -> None:
    if not literal.is_string:
        column.numbers.add(float(literal.this))
    elif re.match(r"\d{4}-\d\d", literal.this):
        column.dated = True
    else:
        column.texts.add(literal.this.replace("%", "").replace("_", "x") or "amber")


def _filled(name: str, tables: Mapping[str, Sequence[str]], columns: Mapping[str, _Column]) -> Iterator[str]:
    """CREATE and INSERT of one table."""
    chosen = random.Random(f"made {name}")  # the table's own, whatever else the question names
    refers = any(column.endswith("_id") for column in tables[name])
    rows = range(1, (_FACTS if refers else _DIMENSIONS) + 1)
    values = {
        column: [_value(column, row, columns.get(column, _Column()), chosen) for row in rows] for column in tables[name]
    }
    yield f"CREATE TABLE {name} ({', '.join(tables[name])});"
    lines = ", ".join(f"({', '.join(_literal(values[c][row - 1]) for c in tables[name])})" for row in rows)
    yield f"INSERT INTO {name} VALUES {lines};"


def _value(column: str, row: int, use: _Column, chosen: random.Random) -> str | float | None:
    if column == "id":
        return row
    if column.endswith("_id"):
        return 1 + int((_DIMENSIONS - 1) * chosen.random() ** 2)  # some by many, some by few, the last by none
    if use.nullable and chosen.random() < 0.2:
        return None
    if use.dated or _DATED.search(column):
        return f"2026-{chosen.randrange(1, 7):02d}-{chosen.randrange(1, 29):02d}"
    if use.texts and not use.numbers:
        return chosen.choice([*sorted(use.texts), *_WORDS[:2]])
    if column == "name":
        return f"{_WORDS[(row * 5) % len(_WORDS)].capitalize()}{row // len(_WORDS) or ''}"
    if use.numbers or use.numeric:
        middle = max(use.numbers, default=100.0)
        return chosen.choice([*sorted(use.numbers), *([round(middle * (0.2 + 1.6 * chosen.random()) * 4) / 4] * 7)])
    return chosen.randrange(4, 360) / 4 if _is_measure(column) else chosen.choice(_WORDS[2:6])


def _is_measure(column: str) -> bool:
    """Names of amounts: a column that is only shown may still be one."""
    return bool(
        re.search(r"(price|cost|total|amount|wage|salary|age|size|acres|hours|minutes|count|points|seats)", column)
    )


def _literal(value: str | float | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
