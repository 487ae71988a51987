"""Small databases for a query whose own database is gone: its tables and columns, with rows that tell queries apart.

Columns, their types and what ties them together are read from the query by sqlglot; rows hold the query's own constants
beside others, so that conditions are met by some and not by all. The whole database is quoted in the example.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_ROWS = 6
_WORDS = ("Alder", "Birch", "Cedar", "Dunes", "Ember", "Fjord", "Grove", "Heath")
_DATE = re.compile(r"\d{4}-\d\d(-\d\d)?( \d\d:\d\d(:\d\d)?)?")
_DATED = re.compile(r"(date|_on|_at|day|time|month)s?$|^(date|day|created|updated)", re.IGNORECASE)
_COUNTED = re.compile(
    r"(id|count|amount|price|cost|total|number|num|qty|quantity|age|year|score|rating|balance|pages|size|rank|length|"
    r"weight|population|area|salary|income|fee|value|hours|minutes|guests|units|stock|level|points)s?$",
    re.IGNORECASE,
)
_DATE_CALLS = ("strftime", "date", "datetime", "julianday")

Catalogue = Mapping[str, frozenset[str]]  # table -> columns that queries of the domain name there


@dataclass
class _Column:
    sort: str | None = None  # number, text, date
    values: list[str] = field(default_factory=list)  # constants that it is compared with
    nullable: bool = False
    tie: int | None = None  # columns of one tie are joined: they share their values


def parsed(code: str) -> exp.Query | None:
    """The one query that a cell holds; None for anything else."""
    try:
        statements = [one for one in sqlglot.parse(code, read="sqlite") if one is not None]
    except (SqlglotError, RecursionError):
        return None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        return None
    return statements[0]


def statements(world: str) -> list[exp.Expr]:
    """The statements of a database, parsed."""
    return [one for one in sqlglot.parse(world, read="sqlite") if one is not None]


def catalogue(queries: list[exp.Query]) -> dict[str, frozenset[str]]:
    """Columns of each table, from where queries leave no doubt."""
    found: dict[str, set[str]] = defaultdict(set)
    for query in queries:
        for column, table in _certain(query):
            found[table].add(column)
    return {table: frozenset(columns) for table, columns in found.items()}


def world(
    query: exp.Query, known: Catalogue, seed: str, *, backwards: bool = False, rows: int = _ROWS, whole: bool = False
) -> str | None:
    """CREATE and INSERT statements of a database that the query runs on; None where a column's table is in doubt.

    Args:
        backwards: with the same rows in the opposite order, on which only what a query leaves open depends.
        rows: of each table.
        whole: with all columns of its tables that are known, also those that it does not use.
    """
    tables = _tables(query)
    if not tables:
        return None
    columns: dict[str, dict[str, _Column]] = {table: {} for table in tables}
    place = _places(query, known, set(tables))
    if place is None:
        return None
    for table, column in place.values():
        columns[table].setdefault(column, _Column())
    for table in tables if whole else ():
        for column in sorted(known.get(table, ())):
            columns[table].setdefault(column, _Column())
    _read_uses(query, place, columns)
    if any(not inside for inside in columns.values()):
        for table, inside in columns.items():
            if not inside:
                columns[table]["id"] = _Column("number")
    random = Random(seed)
    ties: dict[int, list[str]] = {}
    listed = ((table, inside, _drawn(table, inside, random, ties, rows)) for table, inside in sorted(columns.items()))
    return "\n".join(_statements(table, inside, drawn, backwards) for table, inside, drawn in listed)


def _tables(query: exp.Query) -> list[str]:
    own = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    return list(
        dict.fromkeys(t.name.lower() for t in query.find_all(exp.Table) if t.name and t.name.lower() not in own)
    )


def _certain(query: exp.Query) -> list[tuple[str, str]]:
    """(column, table) of columns that a query qualifies by a table, or that stand in a scope of one table."""
    pairs = []
    real = set(_tables(query))
    for column in query.find_all(exp.Column):
        scope = column.find_ancestor(exp.Select)
        sources = _sources(scope) if scope is not None else {}
        if column.table:
            table = sources.get(column.table.lower())
        else:
            table = next(iter(sources.values())) if len(sources) == 1 and not _is_alias(column) else None
        if table in real and column.name != "*":
            pairs.append((column.name.lower(), str(table)))
    return pairs


def _sources(select: exp.Select) -> dict[str, str | None]:
    """Alias -> table of the sources of one SELECT and of those around it; None for a sub-query."""
    found: dict[str, str | None] = {}
    scope: exp.Expr | None = select
    while scope is not None:
        for this in [one.this for one in _from(scope)] if isinstance(scope, exp.Select) else []:
            if isinstance(this, exp.Table):
                found.setdefault(this.alias_or_name.lower(), this.name.lower())
            elif this is not None:
                found.setdefault(this.alias_or_name.lower(), None)
        scope = scope.find_ancestor(exp.Select)
    return found


def _is_alias(column: exp.Column) -> bool:
    scope = column.find_ancestor(exp.Select)
    aliases = {one.alias.lower() for one in (scope.expressions if scope is not None else ()) if one.alias}
    return column.name.lower() in aliases


def _places(query: exp.Query, known: Catalogue, tables: set[str]) -> dict[int, tuple[str, str]] | None:
    """Column node -> (table, column); None where one is in doubt. Columns of sub-queries have no place."""
    place: dict[int, tuple[str, str]] = {}
    for column in query.find_all(exp.Column):
        scope = column.find_ancestor(exp.Select)
        if scope is None or column.name == "*" or (not column.table and _is_alias(column) and not _in_where(column)):
            continue
        found = _table_of(column, scope, known)
        if found is None:
            return None
        if found in tables:
            place[id(column)] = (found, column.name.lower())
    return place


def _in_where(column: exp.Column) -> bool:
    return column.find_ancestor(exp.Where) is not None


def _table_of(column: exp.Column, scope: exp.Select, known: Catalogue) -> str | None:
    """The table that a column is of, "" for a sub-query; None where that is in doubt."""
    if column.table:
        sources = _sources(scope)
        return sources[column.table.lower()] or "" if column.table.lower() in sources else None
    listed = [one.this for one in _from(scope)]
    names = [source.name.lower() if isinstance(source, exp.Table) else "" for source in listed]
    if len(names) != 1 and "" not in names:
        names = [name for name in names if column.name.lower() in known.get(name, frozenset())]
    return names[0] if len(names) == 1 else None


def _from(select: exp.Select) -> list[exp.Expr]:
    """FROM and the joins of a SELECT."""
    listed = [select.args.get("from") or select.args.get("from_"), *(select.args.get("joins") or [])]
    return [one for one in listed if one is not None]


def _counted_in(node: exp.Expr | None) -> exp.Expr | None:
    """What arithmetic counts with: without conversions, brackets and guards against zero."""
    while isinstance(node, exp.Cast | exp.Paren | exp.Nullif | exp.Coalesce | exp.AggFunc | exp.Neg):
        node = node.this
    return node


def _read_uses(query: exp.Query, place: dict[int, tuple[str, str]], columns: dict[str, dict[str, _Column]]) -> None:
    """What the query tells about its columns: types, constants, NULLs, and which are joined."""
    ties = 0

    def of(node: exp.Expr | None) -> _Column | None:
        inner = node
        while isinstance(inner, exp.Func) and inner.this is not None and not isinstance(inner, exp.AggFunc):
            inner = inner.this if isinstance(inner.this, exp.Expr) else None
        spot = place.get(id(inner)) if isinstance(inner, exp.Column) else None
        return columns[spot[0]][spot[1]] if spot else None

    for node in query.walk():
        if isinstance(node, exp.EQ) and (left := of(node.this)) and (right := of(node.expression)):
            ties += 1
            tie = left.tie or right.tie or ties
            left.tie = right.tie = tie
            counted = _COUNTED.search(node.this.name) or _COUNTED.search(node.expression.name)
            left.sort = right.sort = left.sort or right.sort or ("number" if counted else "text")
        if isinstance(
            node, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Like | exp.ILike | exp.Between | exp.In
        ):
            sides = [node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high")]
            sides += node.args.get("expressions") or []
            target = next((c for c in map(of, sides) if c), None)
            for side in sides:
                if target is not None and isinstance(side, exp.Literal):
                    target.values.append(side.name)
                    sort = ("date" if _DATE.fullmatch(side.name) else "text") if side.is_string else "number"
                    if not (isinstance(node.this, exp.Func) and not isinstance(node.this, exp.Lower | exp.Upper)):
                        target.sort = target.sort or sort
                    else:
                        target.values.pop()
        if isinstance(node, exp.Is) and (target := of(node.this)):
            target.nullable = True
        if isinstance(node, exp.Sum | exp.Avg | exp.Mul | exp.Div | exp.Sub):
            for side in (node.this, node.args.get("expression")):
                if (target := of(_counted_in(side))) is not None:
                    target.sort = target.sort or "number"
        if isinstance(node, exp.Func) and not isinstance(node, exp.AggFunc):
            name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
            if name in _DATE_CALLS or "time" in name or "date" in name:
                for part in node.find_all(exp.Column):
                    if id(part) in place:
                        spot = place[id(part)]
                        columns[spot[0]][spot[1]].sort = "date"


def _drawn(
    table: str, columns: dict[str, _Column], random: Random, ties: dict[int, list[str]], rows: int
) -> dict[str, list[str]]:
    """Column -> its values, (rows,)."""
    return {name: _values(table, name, column, random, ties, rows) for name, column in columns.items()}


def _statements(table: str, columns: dict[str, _Column], listed: dict[str, list[str]], backwards: bool) -> str:
    types = {"number": "INTEGER", "text": "TEXT", "date": "TEXT"}
    sorts = {name: _sort(name, column) for name, column in columns.items()}
    real = {name for name, values in listed.items() if sorts[name] == "number" and any("." in v for v in values)}
    defined = ", ".join(f"{name} {'REAL' if name in real else types[sorts[name]]}" for name in columns)
    lines = ["(" + ", ".join(values) + ")" for values in zip(*listed.values(), strict=True)]
    rows = ", ".join(reversed(lines) if backwards else lines)
    return f"CREATE TABLE {table} ({defined});\nINSERT INTO {table} VALUES {rows};"


def _sort(name: str, column: _Column) -> str:
    if column.sort:
        return column.sort
    if _DATED.search(name):
        return "date"
    return "number" if _COUNTED.search(name) else "text"


def _values(table: str, name: str, column: _Column, random: Random, ties: dict[int, list[str]], rows: int) -> list[str]:
    """SQL literals of one column, one a row; a table's own key is different in every row."""
    sort = _sort(name, column)
    if sort == "number" and name in ("id", f"{table}_id", f"{table.removesuffix('s')}_id"):
        return [str(row + 1) for row in range(rows)]
    if column.tie is not None:
        pool = ties.setdefault(column.tie, _pool(name, sort, column.values, random, few=True))
        return [random.choice(pool) for _ in range(rows)]
    pool = _pool(name, sort, column.values, random, few=False)
    values = [random.choice(pool) for _ in range(rows)]
    if column.nullable:
        for _ in range(rows // 3):
            values[random.randrange(rows)] = "NULL"
    return values


def _pool(name: str, sort: str, constants: list[str], random: Random, *, few: bool) -> list[str]:
    if sort == "number":
        numbers = [float(c) for c in constants if re.fullmatch(r"-?\d+(\.\d+)?", c)]
        made = [value for number in numbers for value in (number, number + 1, max(number - 1, 0), number * 2)]
        near = range(2019, 2025) if "year" in name.lower() else range(2, 90)
        made += [] if few and numbers else [float(n) for n in ((1, 2, 3, 4) if few else random.sample(near, 5))]
        return [str(int(value)) if value == int(value) else str(value) for value in dict.fromkeys(made)]
    if sort == "date":
        dates = [c[:10] for c in constants if _DATE.fullmatch(c) and len(c) >= 10]
        years = sorted({date[:4] for date in dates}) or ["2023"]
        made_dates = [
            *dates,
            *(f"{random.choice(years)}-{random.randint(1, 12):02}-{random.randint(1, 28):02}" for _ in "abcde"),
        ]
        return [f"'{date}'" for date in dict.fromkeys(made_dates)]
    texts = [c.replace("%", "").replace("_", "x") for c in constants]
    words = random.sample(_WORDS, 4)
    made_texts = [*texts, *(f"{words[0]}{t}" for t in texts if len(t) < 8), *words[: 4 if not texts else 2]]
    return ["'" + text.replace("'", "''") + "'" for text in dict.fromkeys(made_texts)]
