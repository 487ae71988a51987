"""Idioms of SQL: the shape of a query, whatever its tables, columns and literals are called."""

from functools import lru_cache

from capibara_assets.executions.idioms import Idiom, Names, digest
from capibara_assets.executions.parsing import parse_sql

_SHAPES = (
    ("With", "with"),
    ("Join", "join"),
    ("Where", "where"),
    ("Group", "group by"),
    ("Having", "having"),
    ("Window", "window function"),
    ("Case", "case"),
    ("Subquery", "subquery"),
    ("Union", "union"),
    ("Order", "order by"),
    ("Limit", "limit"),
)


@lru_cache(maxsize=16_384)
def sql_idioms(code: str) -> tuple[Idiom, ...]:
    """One idiom per statement that reads or writes tables."""
    statements = parse_sql(code)
    if not statements:
        return ()
    from sqlglot import exp  # see parsing.parse_sql

    found = []
    for statement in statements:
        tables = list(dict.fromkeys(table.name for table in statement.find_all(exp.Table) if table.name))
        if not tables:
            continue
        names, form = Names(), [type(statement).__name__]
        for node in statement.walk(bfs=False):
            form.append(type(node).__name__)
            if isinstance(node, exp.Identifier):
                form.append(names[node.name.lower()])
            elif isinstance(node, exp.Literal):
                form.append("text" if node.is_string else "number")
            elif isinstance(node, exp.Anonymous):
                form.append(node.name.lower())
            elif isinstance(node, exp.Join):
                form.append(f"{node.side} {node.kind}")
        shapes = [label for kind, label in _SHAPES if statement.find(getattr(exp, kind)) is not None]
        verb = type(statement).__name__.lower()
        what = f"SQL {verb} over {', '.join(tables[:5])}" + (f" with {', '.join(shapes)}." if shapes else ".")
        text = code if len(statements) == 1 else statement.sql()
        found.append(Idiom("sql_query", f"{verb} {tables[0]}", text, digest("sql", "sql_query", form), what))
    return tuple(found)
