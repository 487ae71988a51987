"""Tables and columns that a query reads, and whether a prompt shows them."""

import ast
import re
from collections.abc import Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from benchmarks.datasets.faults.queries.sql_code import statements

_SYSTEM = re.compile(
    r"^(?:sqlite_|pg_|pragma_|information_schema|dual$|sys\.|json_each$|json_tree$|generate_series$|unnest$)", re.I
)
_PSEUDO = frozenset(
    ("rowid", "oid", "_rowid_", "excluded", "value", "key", "current_date", "current_timestamp", "current_time")
)
_AFTER_TABLE = re.compile(
    r"[`'\"\])*]*\s*(?:\(|:|\||\.\w|-|–|—|\n|,?\s*(?:which |that )?(?:has|have|with|contains?|holds?|columns?)\b)",
    re.I,
)


def missing_in_schema(code: str, prompt: str, *, given: str = "") -> str | None:
    """What the prompt lacks of the tables that a query reads: each has to be listed with the columns that are read.

    Args:
        given: a query that is to be mended: of the tables that it names the names of columns suffice.
    """
    trees = statements(code)
    made: set[str] = set()
    added = {
        c.name.lower() for tree in trees for alter in tree.find_all(exp.Alter) for c in alter.find_all(exp.ColumnDef)
    }
    for tree in trees:
        made |= {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        tables = {t.name.lower() for t in tree.find_all(exp.Table)} - made
        tables = {name for name in tables if name and not _SYSTEM.match(name)}
        for table in sorted(tables - _created(tree)):
            if not _word(table, prompt):
                return f"nothing names the table {table}"
            columns = _columns(tree, table) - added
            missing = sorted(column for column in columns if not _word(column, prompt))
            if missing:
                return f"nothing names the column {missing[0]} of {table}"
            if not _word(table, given) and isinstance(tree, exp.Query) and not _lists(table, columns, prompt):
                return f"no schema of the table {table}"
        made |= _created(tree)
    return None


def _created(tree: exp.Expr) -> set[str]:
    """Tables that a statement creates."""
    if isinstance(tree, exp.Create) and (table := tree.this.find(exp.Table)) is not None:
        return {table.name.lower()}
    return set()


def _columns(tree: exp.Expr, table: str) -> set[str]:
    """Columns that are read of a table: qualified by it or its alias, or unqualified where it is the only one."""
    found: set[str] = set()
    defined = {a.alias.lower() for a in tree.find_all(exp.Alias)} | {
        c.name.lower() for t in tree.find_all(exp.TableAlias) for c in t.args.get("columns") or ()
    }
    scopes = traverse_scope(tree) if isinstance(tree, exp.Query) else []
    for scope in scopes:
        own = {
            alias.lower()
            for alias, source in scope.sources.items()
            if isinstance(source, exp.Table) and source.name.lower() == table
        }
        alone = len(scope.sources) == 1 and own
        for column in scope.columns:
            if column.find_ancestor(exp.Select) is not scope.expression or _is_text(column):
                continue  # of a query inside, or a text that MySQL and SQLite take in double quotes
            name = column.name.lower()
            if column.table.lower() in own or (not column.table and alone and name not in defined):
                found.add(name)
    return found - _PSEUDO - {"*"}


def _is_text(column: exp.Column) -> bool:
    """Whether a name in double quotes is what something is compared with."""
    compares = isinstance(column.parent, exp.EQ | exp.NEQ | exp.Like | exp.In) and column.arg_key != "this"
    return compares and not column.table and bool(column.this.args.get("quoted"))


def _word(name: str, prompt: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", prompt, re.I))


def _lists(table: str, columns: set[str], prompt: str) -> bool:
    """Whether columns stand after the table's name: in parentheses, below or behind it."""
    for found in re.finditer(rf"(?<!\w){re.escape(table)}(?!\w)", prompt, re.I):
        rest = prompt[found.end() : found.end() + 3000]
        if not _AFTER_TABLE.match(rest):
            continue
        listed = re.split(r"\n\s*\n|;", rest)[0]
        known = {word.lower() for word in re.findall(r"\w+", listed)}
        if columns <= known and len(re.findall(r"[\w\"`]+", listed)) >= max(1, len(columns)) and re.match(r"\W", rest):
            return True
    # shown by example: what the session created or printed of it
    return bool(columns) and all(
        re.search(rf"(?<!\w){re.escape(table)}[\"`]?\.[\"`]?{re.escape(c)}(?!\w)", prompt, re.I) for c in columns
    )


def embedded_queries(tree: ast.AST) -> Iterator[str]:
    """Strings of Python that are queries."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and re.match(r"\s*(?:SELECT|WITH)\b[\s\S]*\bFROM\b", text, re.I):
            yield text
