"""Explanations of SQL queries: how the clauses of a query made the rows that were recorded of it.

Every statement about the rows is checked on the rows before it is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.kinds.behaviour import listed
from capibara_assets.executions.parsing import parse_sql

if TYPE_CHECKING:
    from sqlglot import exp

_MOST_RESULT, _MOST_NAMED = 1200, 4
_NAME = re.compile(r"\S+")
_NO_ROWS = re.compile(r"Empty (?:result|DataFrame)\s+Columns: \[(?P<names>[^\]]*)\]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$")
_NULLS = frozenset({"None", "NULL", "NaN", "nan", "<NA>", "NaT"})


@dataclass(frozen=True)
class ResultTable:
    """A recorded result: names of its columns, and its rows as texts."""

    names: list[str]
    rows: list[list[str]]

    def column(self, name: str) -> list[str] | None:
        """The values of the only column of this name."""
        return [row[self.names.index(name)] for row in self.rows] if self.names.count(name) == 1 else None


def query_explanation(row: Row) -> tuple[str, list[str]] | None:
    """(what the prompt asks, sentences) for a query whose result was recorded; None: nothing to say of it."""
    result = (row["result_text"] or "").strip("\n")
    statements = parse_sql(row["code"])
    if not result or len(result) > _MOST_RESULT or not statements:
        return None
    query = statements[-1]
    if type(query).__name__ not in ("Select", "Union", "Except", "Intersect"):
        return None
    if (shown := result_table(result, list(_expressions(query)))) is None:
        return None
    sentences = [said for part in (_rows, _order, _limit, _values) for said in part(query, shown)]
    grouped, beyond = _keys(query, shown), [said for part in (_limit, _values) for said in part(query, shown)]
    if len(sentences) < 2 or not (grouped or beyond):  # rows in their order: their listing says it
        return None
    return f"Say how its result comes about.\n\nResult:\n{result}", sentences


def result_table(text: str, names: Sequence[str] = ()) -> ResultTable | None:
    """A printed table read by the ends of its right-aligned columns; None where it is not whole.

    Args:
        names: of its columns, where they are known; else they hold no spaces.
    """
    if (empty := _NO_ROWS.match(text)) is not None:
        return ResultTable([name.strip() for name in empty["names"].split(",")], [])
    header, *lines = text.split("\n")
    known = (
        re.fullmatch(r"\s*" + r"\s+".join(f"({re.escape(name)})" for name in names) + r"\s*", header) if names else None
    )
    spans = [known.span(i + 1) for i in range(len(names))] if known else [m.span() for m in _NAME.finditer(header)]
    ends = [end for _, end in spans]
    rows = []
    if not ends:
        return None
    for number, line in enumerate(lines):
        index, _, rest = line.partition(" ")
        if index != str(number) or len(line) > ends[-1] or not rest:
            return None
        begin, cells = len(index), []
        for end in ends:
            cells.append(line[begin:end].strip())
            begin = end
        rows.append(cells)
    return ResultTable([header[begin:end] for begin, end in spans], rows) if rows else None


def _expressions(query: exp.Expr) -> dict[str, exp.Expr]:
    """Name of a result's column -> what it selects; none for stars and for unions."""
    listed = query.args.get("expressions") or []
    return {each.alias_or_name: each for each in listed if type(each).__name__ != "Star"}


def _rows(query: exp.Expr, shown: ResultTable) -> Iterator[str]:
    """How many rows there are, and what each stands for."""
    count, group = len(shown.rows), query.args.get("group")
    filters = [
        name for name, key in (("joins", "joins"), ("WHERE", "where"), ("HAVING", "having")) if query.args.get(key)
    ]
    if not count:
        if filters:
            yield f"The result has no rows: nothing is left after {listed(filters)}."
        return
    aggregates = [name for name, each in _expressions(query).items() if _is_aggregate(each)]
    if group is None and aggregates and count == 1 and len(aggregates) == len(shown.names):
        values = [f"`{name}` is {shown.rows[0][i]}" for i, name in enumerate(shown.names)]
        source = f"the rows that pass {listed(filters)}" if filters else "all rows"
        yield f"The aggregates put {source} together into one row: {listed(values)}."
        return
    keys = _keys(query, shown)
    if keys and len(set(zip(*keys.values(), strict=True))) == count:
        of_each = listed([f"`{name}`" for name in keys])
        some = [" / ".join(values) for values in zip(*keys.values(), strict=True)]
        more = f" and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
        yield f"`GROUP BY` gives one row for each {of_each}: {_counted(count)}, {', '.join(some[:_MOST_NAMED])}{more}."
    else:
        unlike = " different" if query.args.get("distinct") and _all_differ(shown) else ""
        first = ", ".join(f"`{name}` {value}" for name, value in zip(shown.names, shown.rows[0], strict=True))
        after = f" after {listed(filters)}" if filters else ""
        many = f"is 1{unlike} row" if count == 1 else f"are {count}{unlike} rows"
        yield f"There {many}{after}, {'the first ' * (count > 1)}with {first}."


def _keys(query: exp.Expr, shown: ResultTable) -> dict[str, list[str]]:
    """The grouped columns that are part of the result, if all are: name -> values."""
    group, selected = query.args.get("group"), _expressions(query)
    found: dict[str, list[str]] = {}
    for key in group.expressions if group is not None else ():
        text = key.sql().lower()
        names = [n for n, e in selected.items() if text in (e.sql().lower(), e.unalias().sql().lower(), n.lower())]
        values = shown.column(names[0]) if names else None
        if values is None:
            return {}
        found[names[0]] = values
    return found


def _order(query: exp.Expr, shown: ResultTable) -> Iterator[str]:
    """From which value to which the rows go, where they do."""
    order = query.args.get("order")
    if order is None or len(shown.rows) < 2:
        return
    first = order.expressions[0]
    text, selected = first.this.sql().lower(), _expressions(query)
    names = [n for n, e in selected.items() if text in (n.lower(), e.unalias().sql().lower(), e.alias_or_name.lower())]
    values = shown.column(names[0]) if names else None
    if values is None or _NULLS & set(values) or values[0] == values[-1]:
        return
    key = _key_of(values)
    keyed, down = [key(value) for value in values], bool(first.args.get("desc"))
    if keyed == sorted(keyed, reverse=down):
        way = "down to" if down else "up to"
        yield f"`ORDER BY` puts them by `{names[0]}`, from {values[0]} {way} {values[-1]}."


def _limit(query: exp.Expr, shown: ResultTable) -> Iterator[str]:
    limit = query.args.get("limit")
    most = limit.expression.sql() if limit is not None and limit.expression is not None else ""
    if most.isdigit() and len(shown.rows) == int(most):
        yield f"`LIMIT {most}` ends the list after {_counted(int(most))}."
    elif most.isdigit() and len(shown.rows) < int(most):
        yield f"`LIMIT {most}` cuts nothing off, since there are only {len(shown.rows)}."


def _values(query: exp.Expr, shown: ResultTable) -> Iterator[str]:
    """Least and largest of computed columns, and how many values are missing."""
    selected, count = _expressions(query), len(shown.rows)
    labels = next(
        (values for name in shown.names if (values := shown.column(name)) and not any(map(_NUMBER.match, values))), None
    )
    ordered = " ".join(_order(query, shown))
    for name in shown.names:
        values = shown.column(name)
        if values is None or count < 2 or f"by `{name}`" in ordered:
            continue
        if missing := sum(value in _NULLS for value in values):
            yield f"`{name}` is missing in {missing} of {count} rows."
        elif name in selected and _is_aggregate(selected[name]) and all(map(_NUMBER.match, values)):
            low, high = min(values, key=float), max(values, key=float)
            what = f"`{name}`, the `{selected[name].unalias().sql()}` of each group,"
            if low == high:
                yield f"{what} is {low} in all {count} rows."
            elif labels is not None and values.count(low) == values.count(high) == 1:
                at = [labels[values.index(value)] for value in (low, high)]
                yield f"{what} lies between {low} ({at[0]}) and {high} ({at[1]})."
            else:
                yield f"{what} lies between {low} and {high}."


def _is_aggregate(node: exp.Expr) -> bool:
    kinds = {base.__name__ for part in node.walk() for base in type(part).__mro__}
    return "AggFunc" in kinds and not {"Window", "Subquery", "Select"} & kinds


def _all_differ(shown: ResultTable) -> bool:
    return len({tuple(row) for row in shown.rows}) == len(shown.rows)


def _key_of(values: list[str]) -> Callable[[str], float | str]:
    return float if all(map(_NUMBER.match, values)) else str


def _counted(number: int) -> str:
    return f"{number} row{'s' * (number != 1)}"
