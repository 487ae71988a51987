"""Explanation of a query's clauses in words: remaining rows, groups, and aggregates."""

from collections.abc import Sequence
from typing import Any

from capibara_assets.datasets.derived.query_clauses import QueryWalk, aggregates

_MOST_LISTED, _LONGEST_NUMBER = 8, 9


def clause_lines(walk: QueryWalk, tables: Sequence[list[list[Any]]]) -> tuple[list[str], int] | None:
    """Lines that explain the clauses, and how many clauses have an effect; None if one cannot be explained.

    Args:
        tables: the rows of each query of the walk's clauses, of its aggregates, and of its order.
    """
    lines: list[str] = []
    bites, before, keys = 0, 0, list[list[Any]]()
    aggregated = _aggregates(walk, tables[len(walk.clauses)]) if walk.values else []
    if aggregated is None or not all(tables[: len(walk.clauses)]):
        return None
    for clause, rows in zip(walk.clauses, tables, strict=False):
        names = f"({', '.join(walk.columns[: len(rows[0])])})"
        if clause.sort == "group":
            keys = _different(rows)
            lines.append(f"- `{clause.text}` makes {_counted(len(keys), 'group')}: {_groups(keys, rows)}.")
            lines += aggregated
            bites += 1 < len(keys) < len(rows)
        elif clause.sort == "having":
            gone = [key for key in keys if key not in rows]
            lines.append(
                f"- `{clause.text}` {'drops ' + ', '.join(map(_value, gone)) if gone else 'keeps every group'}."
            )
            keys = [key for key in keys if key in rows]
            bites += bool(gone)
        elif clause.sort == "from":
            lines.append(f"- `{clause.text}` reads {_counted(len(rows))}.")
        elif clause.sort == "join" or len(rows) < before:
            kept = f"keeps {len(rows)} of {before} rows" if clause.sort == "where" else f"leaves {_counted(len(rows))}"
            lines.append(f"- `{clause.text}` {kept} {names}: {', '.join(map(_row, rows))}.")
            bites += 1
        else:
            lines.append(f"- `{clause.text}` keeps every row.")
        before = len(rows)
    grouped = any(clause.sort == "group" for clause in walk.clauses)
    lines += [] if grouped else aggregated
    left = len(keys) if grouped else 1 if walk.values else before
    last = _order_and_limit(walk, tables[-1], left)
    if last is None or not bites + last[1]:
        return None
    lines += last[0]
    return (lines, bites + last[1]) if len(lines) > 2 else None


def _order_and_limit(walk: QueryWalk, values: Sequence[list[Any]], left: int) -> tuple[list[str], int] | None:
    """The lines of ORDER BY and LIMIT, and whether rows are cut off; None for ties, whose order is left open."""
    lines, cut = [], False
    if walk.ordered:
        if len(_different(values)) < len(values):
            return None
        if len(values) > 1:
            lines.append(f"- `{walk.texts['order'][0]}` puts them in the order {', '.join(map(_value, values))}.")
    elif left > 1:
        lines.append("- Without `ORDER BY` the order of these rows is left open.")
    if (limit := walk.tree.args.get("limit")) is not None:
        most = limit.expression.sql("sqlite")
        if not most.isdigit() or walk.tree.args.get("offset") is not None:
            return None
        cut = left > int(most)
        kept = f"keeps the first {'row' if most == '1' else f'{most} rows'} of {left}" if cut else "cuts nothing off"
        lines.append(f"- `{walk.texts['limit'][0]}` {kept}.")
    return lines, int(cut)


def _aggregates(walk: QueryWalk, rows: Sequence[list[Any]]) -> list[str] | None:
    """A line for each group: what the aggregates see of it, and what they make of that; None: not to be told."""
    texts = [each.sql("sqlite") for each in aggregates(walk.tree)]
    width = (len(rows[0]) if rows else len(texts)) - len(texts)
    lines = []
    for key in _different([row[:width] for row in rows]):
        those = [row[width:] for row in rows if row[:width] == key]
        said = [
            _aggregated(text, [row[number] for row in those if row[number] is not None])
            for number, text in enumerate(texts)
        ]
        if None in said:
            return None
        if said:
            lines.append(f"- {'For ' + _value(key) + ': ' if key else ''}{'; '.join(filter(None, said))}.")
    return lines if len(lines) <= _MOST_LISTED else None


def _different(rows: Sequence[list[Any]]) -> list[list[Any]]:
    return [list(row) for row in dict.fromkeys(map(tuple, rows))]


def _aggregated(text: str, values: Sequence[Any]) -> str | None:
    """An aggregate with the values that it sees."""
    name, inner = text.split("(", 1)[0].upper(), text.split("(", 1)[1]
    if name == "COUNT":
        what = (
            "row"
            if inner.startswith("*")
            else "value that is not NULL"
            if len(values) == 1
            else "values that are not NULL"
        )
        return f"`{text}` counts {_counted(len(values)) if what == 'row' else f'{len(values)} {what}'}"
    if not values:
        return f"`{text}` sees no value and is NULL"
    if any(isinstance(value, float) and len(str(value)) > _LONGEST_NUMBER for value in values):
        return None
    if len(values) == 1:
        return f"`{text}` sees {_value(values)} alone"
    shown = ", ".join(_value([value]) for value in values)
    if name in ("MIN", "MAX"):
        if len({isinstance(value, str) for value in values}) > 1:
            return None
        return f"`{text}` of {shown} is {_value([min(values) if name == 'MIN' else max(values)])}"
    if any(isinstance(value, str) for value in values):
        return None
    total = round(sum(values), 6)
    return f"`{text}` adds {shown}: {total}" if name == "SUM" else f"`{text}` of {shown} is {total} / {len(values)}"


def _groups(keys: Sequence[list[Any]], rows: Sequence[list[Any]]) -> str:
    return ", ".join(f"{_value(key)} with {_counted(rows.count(key))}" for key in keys)


def _row(row: Sequence[Any]) -> str:
    return f"({', '.join(_value([value]) for value in row)})"


def _value(key: Sequence[Any]) -> str:
    """The values that a group or an order has in common, as literals of SQL."""
    said = ["NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value) for value in key]
    return said[0] if len(said) == 1 else f"({', '.join(said)})"


def _counted(number: int, what: str = "row") -> str:
    return f"{number} {what}{'s' * (number != 1)}"
