"""Small generated databases for queries whose database is unknown, with rows that distinguish queries.

Columns, their types and what ties them together are read from the query by sqlglot; rows hold the query's own constants
beside others, so that conditions are met by some and not by all. The whole database is quoted in the example.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from capibara_assets.datasets.code.quoted_texts import with_texts
from capibara_assets.datasets.code.stated_tables import Stated
from capibara_assets.datasets.derived.sql_values import (
    Column,
    Sort,
    day_of,
    is_counted,
    is_name,
    is_plain,
    is_unheard_of,
    met_by,
    pool,
    sort_by_name,
    sort_by_type,
    words,
    written,
)
from capibara_assets.datasets.worth.query_sense import definitions

_ROWS = 6
_DATE_CALLS = ("strftime", "date", "datetime", "julianday")
_MOST_CONSTANTS, _OTHERS, _LINKED = 3, 3, 4

_SURE = 100  # uses that say otherwise: a declaration counts more
_NOT_STATED: Stated = MappingProxyType({})

Catalogue = Mapping[str, Mapping[str, Sort | None]]
"""Table -> the columns that queries of the domain name there -> what they hold, as far as uses tell."""


def parsed(code: str) -> exp.Query | None:
    """The single query in a cell; None for anything else."""
    try:
        read = [with_texts(one) for one in sqlglot.parse(code, read="sqlite") if one is not None]
    except (SqlglotError, RecursionError):
        return None
    return read[0] if len(read) == 1 and isinstance(read[0], exp.Query) else None


def statements(world: str) -> list[exp.Expr]:
    """The statements of a database, parsed."""
    return [one for one in sqlglot.parse(world, read="sqlite") if one is not None]


def catalogue(
    queries: Sequence[exp.Query], stated: Sequence[Stated] = (), created: Sequence[exp.Expr] = ()
) -> dict[str, dict[str, Sort | None]]:
    """Columns of each table, from where queries leave no doubt, what their tasks state and what sessions created."""
    catalogued: dict[str, dict[str, Sort | None]] = defaultdict(dict)
    for query in queries:
        for column, table in _certain(query):
            catalogued[table].setdefault(column, None)
    for tables in stated:
        for table, columns in tables.items():
            for column in columns:
                catalogued[table].setdefault(column, None)
    votes = defaultdict[tuple[str, str], Counter[Sort]](Counter)
    for table, defined in definitions(created):
        for one in defined:
            catalogued[table].setdefault(one.name.lower(), None)
            kind = one.args.get("kind")
            votes[table, one.name.lower()][sort_by_type(kind.sql() if kind else "", one.name.lower())] += _SURE
    for query in queries:
        for spot, use in (_uses(query, catalogued, {}) or {}).items():
            votes[spot].update([use.sort] if use.sort is not None else [])
    for (table, name), counted in votes.items():
        if name in catalogued[table] and counted:
            catalogued[table][name] = min(counted.items(), key=lambda one: (-one[1], one[0]))[0]
    return catalogued


def world(
    query: exp.Query,
    known: Catalogue,
    seed: str,
    *,
    backwards: bool = False,
    rows: int = _ROWS,
    stated: Stated = _NOT_STATED,
) -> str | None:
    """CREATE and INSERT statements of a database that the query runs on; None where a name is in doubt or needs quotes.

    Args:
        backwards: with the same rows in the opposite order, on which only what a query leaves open depends.
        rows: of each table.
        stated: tables as a task states them: all of these are made, with all their columns in that order.
    """
    uses = _uses(query, known, stated)
    if uses is None:
        return None
    columns: dict[str, dict[str, Column]] = {}
    for table, listed in stated.items():
        columns[table] = {name: uses.get((table, name), Column()) for name in listed}
    for (table, name), column in uses.items():
        columns.setdefault(table, {}).setdefault(name, column)
    for table in _tables(query):
        if not columns.setdefault(table, {}):
            columns[table]["id"] = Column("number")
    if not all(is_plain(name) for table, inside in columns.items() for name in (table, *inside)):
        return None
    for table, inside in columns.items():
        for name, column in inside.items():
            own = stated.get(table, {}).get(name) or known.get(table, {}).get(name)
            column.sort = column.sort or own or sort_by_name(name)
    _number_keys(columns)
    order = list(stated) if stated else sorted(columns)
    drawn = _drawn({table: columns[table] for table in [*order, *sorted(columns.keys() - set(order))]}, seed, rows)
    # as the query writes them: SQLite heads a result as its table does
    written_as = {node.name.lower(): node.name for node in reversed([*query.find_all(exp.Column, exp.Table)])}
    return "\n".join(
        _statements(table, columns[table], values, written_as, backwards) for table, values in drawn.items()
    )


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
    sources: dict[str, str | None] = {}
    scope: exp.Expr | None = select
    while scope is not None:
        for this in [one.this for one in origins(scope)] if isinstance(scope, exp.Select) else []:
            if isinstance(this, exp.Table):
                sources.setdefault(this.alias_or_name.lower(), this.name.lower())
            elif this is not None:
                sources.setdefault(this.alias_or_name.lower(), None)
        scope = scope.find_ancestor(exp.Select)
    return sources


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
        owner = _table_of(column, scope, known)
        if owner is None:
            return None
        if owner in tables:
            place[id(column)] = (owner, column.name.lower())
    return place


def _in_where(column: exp.Column) -> bool:
    return column.find_ancestor(exp.Where) is not None


def _table_of(column: exp.Column, scope: exp.Select, known: Catalogue) -> str | None:
    """The table that a column is of, "" for a sub-query; None where that is in doubt."""
    if column.table:
        sources = _sources(scope)
        return sources[column.table.lower()] or "" if column.table.lower() in sources else None
    listed = [one.this for one in origins(scope)]
    names = [source.name.lower() if isinstance(source, exp.Table) else "" for source in listed]
    if len(names) != 1 and "" not in names:
        names = [name for name in names if column.name.lower() in known.get(name, frozenset())]
    return names[0] if len(names) == 1 else None


def origins(select: exp.Select) -> list[exp.Expr]:
    """FROM and the joins of a SELECT."""
    listed = [select.args.get("from") or select.args.get("from_"), *(select.args.get("joins") or [])]
    return [one for one in listed if one is not None]


def _counted_in(node: exp.Expr | None) -> exp.Expr | None:
    """What arithmetic counts with: without conversions, brackets and guards against zero."""
    while isinstance(node, exp.Cast | exp.Paren | exp.Nullif | exp.Coalesce | exp.AggFunc | exp.Neg):
        node = node.this
    return node


def _uses(query: exp.Query, known: Catalogue, stated: Stated) -> dict[tuple[str, str], Column] | None:
    """(table, column) -> what the query tells of it; None where a column's table is in doubt."""
    tables = _tables(query)
    every = {table: {**known.get(table, {}), **stated.get(table, {})} for table in tables}
    place = _places(query, every, set(tables)) if tables else None
    if place is None:
        return None
    uses = {spot: Column() for spot in place.values()}
    of = {node: uses[spot] for node, spot in place.items()}
    for number, node in enumerate(query.walk()):
        if isinstance(node, exp.EQ):
            _tie(node, of, number + 1)
        if isinstance(node, exp.Predicate):
            _compare(node, of)
        if isinstance(node, exp.Is) and (target := _column(node.this, of)) is not None:
            target.nullable = True
        if isinstance(node, exp.Sum | exp.Avg | exp.Mul | exp.Div | exp.Sub | exp.Add | exp.Mod):
            for side in (node.this, node.args.get("expression")):
                if (target := _column(_counted_in(side), of)) is not None:
                    target.sort = target.sort or "number"
        for flag in filter(None, map(of.get, map(id, _conditions(node)))):
            flag.flag, flag.sort = True, flag.sort or "number"
        if isinstance(node, exp.Func) and not isinstance(node, exp.AggFunc):
            name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
            if name in _DATE_CALLS or "time" in name or "date" in name:
                for part in node.find_all(exp.Column):
                    if id(part) in of and isinstance(part.find_ancestor(exp.Mul, exp.Div, exp.Func), exp.Func):
                        of[id(part)].sort = "date"
    for extreme in map(_counted_in, query.find_all(exp.Min, exp.Max)):
        column = _column(extreme, of)
        if column is not None and column.sort is None and is_unheard_of(str(extreme and extreme.name)):
            column.sort = "number"
    return uses


def _conditions(node: exp.Expr) -> list[exp.Expr]:
    """What a node asks whether it is true: of WHERE, CASE, IIF, NOT, AND and OR."""
    if isinstance(node, exp.Where | exp.If | exp.Not):
        return [node.this]
    return [node.left, node.right] if isinstance(node, exp.And | exp.Or) else []


def _column(node: exp.Expr | None, of: Mapping[int, Column]) -> Column | None:
    """The column that an expression is, or that a function of it takes."""
    while isinstance(node, exp.Func) and node.this is not None and not isinstance(node, exp.AggFunc):
        node = node.this if isinstance(node.this, exp.Expr) else None
    return of.get(id(node)) if isinstance(node, exp.Column) else None


def _tie(node: exp.EQ, of: Mapping[int, Column], number: int) -> None:
    left, right = _column(node.this, of), _column(node.expression, of)
    if left is not None and right is not None:
        left.tie = right.tie = left.tie or right.tie or number
        counted = is_counted(node.this.name) or is_counted(node.expression.name)
        left.sort = right.sort = left.sort or right.sort or ("number" if counted else "text")


def _compare(node: exp.Expr, of: Mapping[int, Column]) -> None:
    """What a comparison with constants says of a column, or of the column that an aggregate takes."""
    sides = [node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high")]
    sides += node.args.get("expressions") or []
    literals = [side for side in sides if isinstance(side, exp.Literal)]
    target, taken = next(((c, side) for side in sides if (c := _column(side, of)) is not None), (None, None))
    if not literals:
        return
    if target is None:
        _compare_aggregate(node, sides, literals[0], of)
        return
    texts = [literal.name for literal in literals]
    called = isinstance(taken, exp.Func) and not isinstance(taken, exp.Lower | exp.Upper)
    dated = all(day_of(text, Random(0)) is not None for text in texts if literals[0].is_string)
    if called and not (literals[0].is_string and dated):
        return
    if isinstance(node, exp.Like | exp.ILike):
        target.likes += texts
        target.sort = target.sort or ("date" if day_of(texts[0].split("%")[0], Random(0)) else "text")
        return
    # of a column of texts `'9'` would come after `'10'`; one of numbers takes both for numbers
    counted = not literals[0].is_string or all(text.isdigit() and str(int(text)) == text for text in texts)
    target.sort = target.sort or ("date" if literals[0].is_string and dated else "number" if counted else "text")
    met, missed = met_by(node, texts, target.sort, turned=isinstance(node.this, exp.Literal))
    target.met += met
    target.missed += missed


def _compare_aggregate(
    node: exp.Expr, sides: Sequence[exp.Expr | None], literal: exp.Literal, of: Mapping[int, Column]
) -> None:
    """A sum, mean or extreme of a column, also by its alias, compared with a number."""
    for side in sides:
        scope = side.find_ancestor(exp.Select) if isinstance(side, exp.Column) else None
        listed = scope.expressions if scope is not None else []
        named = next((one.this for one in listed if side is not None and one.alias and one.alias == side.name), side)
        if isinstance(named, exp.Sum | exp.Avg | exp.Min | exp.Max) and not literal.is_string:
            target = _column(_counted_in(named.this), of)
            if target is not None and target.sort in (None, "number"):
                target.sort = "number"
                part = 0.7 if isinstance(named, exp.Sum) else 1.0  # two rows of it exceed the sum, one does not
                met, missed = met_by(node, [written(round(float(literal.name) * part))], "number", turned=False)
                target.met += met
                target.missed += missed
            return


def _drawn(tables: Mapping[str, Mapping[str, Column]], seed: str, rows: int) -> dict[str, dict[str, list[str]]]:
    """Table -> column -> its values, (rows,). In every table one row meets all that the query asks of its columns.

    Rows that refer to another table's refer to some of these, and the row that meets all to the one that does.
    """
    random = Random(seed)
    few = max(_LINKED, 2 * rows // 3)
    keys = {table: _key(table, inside) for table, inside in tables.items()}
    meets = {table: random.randrange(min(rows, few)) for table in tables}  # the place of that row
    owners = {inside[key].tie: table for table, inside in tables.items() if (key := keys[table]) is not None}
    ties: dict[int, list[str]] = {}
    drawn: dict[str, dict[str, list[str]]] = {}
    for table, inside in tables.items():
        drawn[table] = {}
        for name, column in inside.items():
            target = _referred(name, column, tables, owners)
            if name == keys[table]:
                values = [str(row + 1) for row in range(rows)]
            elif target is not None and target != table and keys[target] is not None:
                linked = [str(row + 1) for row in range(min(rows, few))]
                values = [str(meets[target] + 1), *(random.choice(linked) for _ in range(rows - 1))]
            elif column.tie is not None:
                shared = ties.setdefault(column.tie, pool(table, name, column, random, _LINKED)[:_LINKED])
                values = [random.choice(shared) for _ in range(rows)]
            else:
                values = _filled(table, name, column, random, rows, unique=is_name(name) and keys[table] is not None)
            if name != keys[table]:
                values.insert(meets[table], values.pop(0))
            drawn[table][name] = values
        asked = [name for name, column in inside.items() if column.sort == "text" and (column.met or column.likes)]
        if asked:  # of one row alone there is nothing to group, count or order
            again = random.choice([row for row in range(rows) if row != meets[table]])
            for name in asked:
                drawn[table][name][again] = drawn[table][name][meets[table]]
    return drawn


def _number_keys(tables: Mapping[str, Mapping[str, Column]]) -> None:
    """Make numbers of the keys of tables, and of what is joined with them, where no query says what they hold."""
    every = [column for inside in tables.values() for column in inside.values()]
    for table, inside in tables.items():
        named = next((inside[name] for name in _key_names(table, inside)), None)
        tied = [one for one in every if named is not None and one.tie is not None and one.tie == named.tie]
        joined = [*tied, *([named] if named is not None else [])]
        if not any(one.met or one.likes or one.missed for one in joined):
            for one in joined:
                one.sort = "number"


def _key(table: str, columns: Mapping[str, Column]) -> str | None:
    """The column that numbers a table's rows."""
    return next((name for name in _key_names(table, columns) if columns[name].sort == "number"), None)


def _key_names(table: str, columns: Mapping[str, Column]) -> list[str]:
    """The columns called like a table's key: `id`, `invoice_id`, `invoiceid`, `memid` of `members`."""
    own = (table, table.removesuffix("s"), table.removesuffix("es"), f"{table.removesuffix('ies')}y")
    named = [name for name in ("id", *(f"{one}{joint}id" for one in own for joint in ("_", ""))) if name in columns]
    short = [name for name in columns if name.endswith("id") and len(name) > _LINKED and table.startswith(name[:-2])]
    return list(dict.fromkeys([*named, *short]))


def _referred(
    name: str, column: Column, tables: Mapping[str, Mapping[str, Column]], owners: Mapping[int | None, str]
) -> str | None:
    """The table whose rows a column refers to, by what it is joined with or by its name."""
    if column.tie is not None and column.tie in owners:
        return owners[column.tie]
    if words(name)[-1] != "id":
        return None
    one = "_".join(words(name)[:-1])
    return next((table for table in (one, f"{one}s", f"{one}es", f"{one[:-1]}ies") if table in tables), None)


def _filled(table: str, name: str, column: Column, random: Random, rows: int, *, unique: bool) -> list[str]:
    """Values of a column: first one that meets its conditions, then others, about half of them of its constants."""
    listed = pool(table, name, column, random, rows)
    told = min(len(column.met) + len(column.likes) + len(column.missed), _MOST_CONSTANTS)
    if words(name)[-1] == "id" and not told:
        listed = [str(number + 1) for number in range(_LINKED)]
    constants, others = listed[:told], listed[told:]
    ranged = column.sort != "text" and (not told or column.missed)  # few are equal, so that orders are settled
    if (unique or ranged) and len(listed) >= rows and words(name)[-1] != "id":
        values = [*constants, *others][:rows]
    else:
        some = (others[:_OTHERS] if column.sort == "text" else others) or listed
        values = [*constants, some[0], *(random.choice([*constants, *some]) for _ in range(rows))][:rows]
    first, rest = values[0], values[1:]
    random.shuffle(rest)
    if column.nullable:
        for row in random.sample(range(len(rest)), rows // 3):
            rest[row] = "NULL"
    return [first, *rest]


def _statements(
    table: str,
    columns: Mapping[str, Column],
    listed: Mapping[str, list[str]],
    written_as: Mapping[str, str],
    backwards: bool,
) -> str:
    types = {"number": "INTEGER", "text": "TEXT", "date": "TEXT"}
    real = {name for name, column in columns.items() if column.sort == "number" and any("." in v for v in listed[name])}
    defined = ", ".join(
        f"{written_as.get(name, name)} {'REAL' if name in real else types[column.sort or 'text']}"
        for name, column in columns.items()
    )
    lines = ["(" + ", ".join(values) + ")" for values in zip(*(listed[name] for name in columns), strict=True)]
    rows = ", ".join(reversed(lines) if backwards else lines)
    table = written_as.get(table, table)
    return f"CREATE TABLE {table} ({defined});\nINSERT INTO {table} VALUES {rows};"
