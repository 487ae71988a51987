"""The clauses of a query as separate queries: intermediate rows, inputs of aggregates, and sort keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from capibara_assets.datasets.code.one_line import in_one_line
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.derived import sql_worlds
from capibara_assets.datasets.derived.trials import Trial

ROWS = "walked_rows"  # the column in which a clause's rows come as JSON
_AGGREGATES = (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count)
_NOT_FOLLOWED = (exp.Subquery, exp.CTE, exp.Window, exp.SetOperation, exp.Distinct, exp.Exists, exp.Filter)


@dataclass(frozen=True)
class Clause:
    """A clause and the query for its result: `width` columns of the tables, then the computed values."""

    sort: str  # from, join, where, group, having
    text: str
    query: str


@dataclass(frozen=True)
class QueryWalk:
    """A query on one database, with the queries for its clauses."""

    row: Row
    tree: exp.Select
    world: str
    turned: str
    columns: tuple[str, ...]
    clauses: tuple[Clause, ...]
    values: str  # the query of what the aggregates of each row of each group see; "" without aggregates
    ordered: str  # the query of the values that ORDER BY compares, in their order; "" without ORDER BY
    texts: dict[str, list[str]]  # the clauses as they are written

    @property
    def trial(self) -> Trial:
        """The query on both databases, then its clauses, then what its aggregates see."""
        queries = [*(clause.query for clause in self.clauses), *filter(None, (self.values, self.ordered))]
        code = str(self.row["code"])
        return Trial("sql", ((self.world, code), (self.turned, code), *((self.world, each) for each in queries)))


def is_followed(tree: exp.Query) -> bool:
    """Whether a query is one SELECT of tables whose clauses follow one another, with plain aggregates."""
    if not isinstance(tree, exp.Select) or any(tree.find(kind) for kind in _NOT_FOLLOWED):
        return False
    return all(isinstance(each, _AGGREGATES) for each in tree.find_all(exp.AggFunc))


def aggregates(tree: exp.Select) -> list[exp.Expr]:
    """The different aggregates of a query, in the order of their kinds."""
    by_text = {each.sql("sqlite"): each for kind in _AGGREGATES for each in tree.find_all(kind)}
    return list(by_text.values())


def query_walk(row: Row, tree: exp.Select, world: str, turned: str) -> QueryWalk | None:
    """Split a query into the queries of its clauses, on a database and its row-reversed copy; None if not possible."""
    sources = _sources(tree)
    created = {table.this.this.name.lower(): [column.name for column in table.this.expressions]
               for table in sql_worlds.statements(world) if isinstance(table, exp.Create)}  # fmt: skip
    if not sources or any(table not in created for _, table in sources):
        return None
    columns = tuple(f"{alias}.{column}" for alias, table in sources for column in created[table])
    joins = tree.args.get("joins") or []
    if any(join.args.get("using") or not join.args.get("on") for join in joins):
        return None
    texts = _texts(str(row["code"]))
    if len(texts["join"]) != len(joins) or _adds_texts(tree, world):
        return None
    clauses = []
    for count in range(len(joins) + 1):
        bare = _bare(tree, joins[:count])
        listed = [f"{alias}.{column}" for alias, table in sources[: count + 1] for column in created[table]]
        text = texts["join"][count - 1] if count else texts["from"][0]
        clauses.append(Clause("join" if count else "from", text, _json(bare, listed)))
    bare = _bare(tree, joins)
    if any(
        (tree.args.get(name) is not None) != bool(texts[name])
        for name in ("where", "group", "having", "order", "limit")
    ):
        return None
    if (where := tree.args.get("where")) is not None:
        bare.set("where", where.copy())
        clauses.append(Clause("where", texts["where"][0], _json(bare, columns)))
    group, having = tree.args.get("group"), tree.args.get("having")
    keys = _keys(tree)
    if keys is None:
        return None
    made = aggregates(tree)
    values = ""
    if group is not None or made:
        seen = [
            "1" if each.this is None or isinstance(each.this, exp.Star) else each.this.sql("sqlite") for each in made
        ]
        values = _json(bare, [*keys, *seen])
    if group is not None:
        clauses.append(Clause("group", texts["group"][0], _json(bare, keys)))
        if having is not None:
            kept = bare.copy()
            kept.set("group", group.copy())
            kept.set("having", having.copy())
            clauses.append(Clause("having", texts["having"][0], _json(kept, keys)))
    ordered = _ordered(tree)
    if ordered is None:
        return None
    return QueryWalk(row, tree, world, turned, columns, tuple(clauses), values, ordered, texts)


_BEGINNINGS = {
    "FROM": "from",
    "WHERE": "where",
    "GROUP_BY": "group",
    "HAVING": "having",
    "ORDER_BY": "order",
    "LIMIT": "limit",
    "OFFSET": "offset",
    "SEMICOLON": "end",
    **dict.fromkeys(("JOIN", "LEFT", "INNER", "RIGHT", "FULL", "CROSS", "OUTER", "NATURAL"), "join"),
}


def _texts(code: str) -> dict[str, list[str]]:
    """Clause -> its texts as they are written, on one line."""
    texts = defaultdict[str, list[str]](list)
    name, begin, depth = "", 0, 0
    tokens = sqlglot.tokenize(code, read="sqlite")
    for before, token in zip([None, *tokens], tokens, strict=False):
        kind = token.token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        within_join = before is not None and _BEGINNINGS.get(before.token_type.name) == "join" and kind != "JOIN"
        if (
            depth == 0
            and kind in _BEGINNINGS
            and (kind != "JOIN" or not _joins(before))
            and not (within_join and kind == "OUTER")
        ):
            if name:
                texts[name].append(in_one_line(code[begin : token.start].strip()))
            name, begin = _BEGINNINGS[kind], token.start
    if name and name != "end":
        texts[name].append(in_one_line(code[begin:].strip()))
    return texts


def _joins(token: Any) -> bool:
    """Whether a token is a word in front of JOIN."""
    return token is not None and token.token_type.name != "JOIN" and _BEGINNINGS.get(token.token_type.name) == "join"


def _adds_texts(tree: exp.Select, world: str) -> bool:
    """Whether the query calculates with a column that is a text on this database."""
    texts = {column.name.lower() for table in sql_worlds.statements(world) for column in table.find_all(exp.ColumnDef)
             if column.args["kind"].sql() == "TEXT"}  # fmt: skip
    sums = [node for kind in (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Sum, exp.Avg) for node in tree.find_all(kind)]
    return any(column.name.lower() in texts for node in sums for column in node.find_all(exp.Column))


def _ordered(tree: exp.Select) -> str | None:
    """The query of what ORDER BY compares; None where that is not known."""
    order = tree.args.get("order")
    if order is None:
        return ""
    keys = _looked_up([one.this for one in order.expressions], tree)
    if keys is None:
        return None
    whole = tree.copy()
    whole.set("limit", None)
    whole.set(
        "expressions",
        [*whole.expressions, *(exp.maybe_parse(f"{text} AS o{n}", dialect="sqlite") for n, text in enumerate(keys))],
    )
    whole.set("limit", exp.Limit(expression=exp.Literal.number(100)))  # without it the outer query may drop the order
    names = ", ".join(f"o{n}" for n in range(len(keys)))
    return f"SELECT json_group_array(json_array({names})) AS {ROWS} FROM ({whole.sql('sqlite')}) AS walked"


def _sources(tree: exp.Select) -> list[tuple[str, str]]:
    """(alias, table) of FROM and the joins; none where one of them is no table."""
    tables = [one.this for one in sql_worlds.origins(tree)]
    if not tables or any(not isinstance(table, exp.Table) for table in tables):
        return []
    return [(table.alias_or_name, table.name.lower()) for table in tables]


def _bare(tree: exp.Select, joins: Sequence[exp.Expr]) -> exp.Select:
    """FROM and some joins, without the other clauses."""
    bare = tree.copy()
    for clause in ("where", "group", "having", "order", "limit", "offset", "distinct"):
        bare.set(clause, None)
    bare.set("joins", [join.copy() for join in joins])
    return bare


def _json(bare: exp.Select, columns: Sequence[str]) -> str:
    """A query of one value: the rows as JSON."""
    listed = bare.copy()
    listed.set("expressions", [exp.maybe_parse(f"{text} AS c{n}", dialect="sqlite") for n, text in enumerate(columns)])
    names = ", ".join(f"c{n}" for n in range(len(columns)))
    return f"SELECT json_group_array(json_array({names})) AS {ROWS} FROM ({listed.sql('sqlite')}) AS walked"


def _keys(tree: exp.Select) -> list[str] | None:
    """The expressions that rows are grouped by; None where they are not known."""
    group = tree.args.get("group")
    return [] if group is None else _looked_up(group.expressions, tree) or None


def _looked_up(listed: Sequence[exp.Expr], tree: exp.Select) -> list[str] | None:
    """Expressions in SQL, numbers and names of the result looked up there; None where a number is none of its."""
    selected = {each.alias_or_name.lower(): each.unalias() for each in tree.expressions}
    keys = []
    for key in listed:
        if isinstance(key, exp.Literal):
            if not key.name.isdigit() or not 0 < int(key.name) <= len(tree.expressions):
                return None
            key = tree.expressions[int(key.name) - 1].unalias()
        elif isinstance(key, exp.Column) and not key.table and key.name.lower() in selected:
            key = selected[key.name.lower()]
        keys.append(key.sql("sqlite"))
    return keys
