"""Whether a query determines the order of its rows, tested by breaking ties in both directions.

An engine is free to return tied rows, and rows that nothing orders, in any order, whatever it does on one database.
"""

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from capibara_assets.datasets.derived.edits import RepairEdit

_BY_PLACE = (exp.RowNumber, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)


def turned(code: str, *, descending: bool) -> str | None:
    """The query with ties broken by all columns, and unordered rows sorted; None for a star or unknown form.

    Sub-queries that keep a part of their rows are treated alike.
    """
    tree = _parsed(code)
    if tree is None:
        return None
    for query in [tree, *(one for one in tree.find_all(exp.Select) if one is not tree and one.args.get("limit"))]:
        width = len(query.selects)
        if not width or query.is_star:
            return None
        places = [exp.Ordered(this=exp.Literal.number(n + 1), desc=descending) for n in range(width)]
        order = query.args.get("order")
        query.set("order", exp.Order(expressions=[*(order.expressions if order is not None else []), *places]))
    return tree.sql(dialect="sqlite")


def windows_turned(code: str, *, descending: bool) -> str | None:
    """The query on one table with the ties of its windows broken by the order of its rows, where places tell.

    None for any other query. Rows that tie are together in a window by values (RANGE), whatever their order.
    """
    tree = _parsed(code)
    if tree is None or len(list(tree.find_all(exp.Table))) != 1:
        return None
    windows = [one for one in tree.find_all(exp.Window) if one.args.get("order") is not None and _is_by_place(one)]
    for one in windows:
        one.args["order"].append("expressions", exp.Ordered(this=exp.column("rowid"), desc=descending))
    return tree.sql(dialect="sqlite") if windows else None


def _is_by_place(window: exp.Window) -> bool:
    """Whether a window takes rows by their places; one with a name is judged by its own frame alone."""
    frame = window.args.get("spec")
    rows = frame is not None and str(frame.args.get("kind") or "").upper() == "ROWS"
    return rows or (frame is None and isinstance(window.this, _BY_PLACE))


def is_ordered(code: str) -> bool:
    """Whether a query says in which order its rows come."""
    tree = _parsed(code)
    return tree is not None and tree.args.get("order") is not None


def tie_break(code: str) -> RepairEdit | None:
    """The edit that adds the remaining columns to ORDER BY; None if it cannot be placed."""
    tree = _parsed(code)
    if tree is None or tree.is_star or not all(one.alias_or_name for one in tree.selects):
        return None
    tokens = sqlglot.tokenize(code, read="sqlite")
    depth, limit = 0, None
    for token in tokens:
        depth += {"L_PAREN": 1, "R_PAREN": -1}.get(token.token_type.name, 0)
        if token.token_type.name == "LIMIT" and depth == 0:
            limit = token
    last = [token for token in tokens if token.token_type.name != "SEMICOLON"][-1]
    order = tree.args.get("order")
    sorted_by = (
        {one.this.name.lower() for one in order.expressions if isinstance(one.this, exp.Column)} if order else set()
    )
    names = [one.alias_or_name for one in tree.selects if one.alias_or_name.lower() not in sorted_by]
    if not names or len(set(names)) < len(names):
        return None
    text = f"{', ' if order else ' ORDER BY '}{', '.join(names)}"
    at = last.end + 1 if limit is None else limit.start
    return RepairEdit("ties", at, at, text if limit is None else f"{text.strip() if not order else text} ")


def _parsed(code: str) -> exp.Query | None:
    try:
        tree = sqlglot.parse_one(code, read="sqlite")
    except (SqlglotError, RecursionError):
        return None
    return tree if isinstance(tree, exp.Query) else None
