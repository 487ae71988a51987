"""Table definitions known from a cell: from its code, or from a database schema that it printed."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from sqlglot import exp

from capibara_assets.datasets.code.listings import Listing, listings, mappings, records
from capibara_assets.datasets.code.python_source import called_name, names_in, parse
from capibara_assets.datasets.code.queries import QueryTable, defined, merged, sql_texts, statements
from capibara_assets.executions.parsing import walk

_DDL = re.compile(r"\bCREATE\s+(?:TEMP\w*\s+|VIRTUAL\s+)?TABLE\b", re.IGNORECASE)
_NAME_KEYS = ("column_name", "name", "column", "field", "col_name")
_TYPE_KEYS = ("data_type", "type", "column_type", "dtype")
_TABLE_KEYS = ("table_name", "tbl_name", "relname")
_PSQL_TITLE = re.compile(r"(?:Table|View)\s+\"(?:\w+\.)?(\w+)\"")
_WORD = re.compile(r"[A-Za-z_]\w*")
_OPEN = re.compile(r"\([^()]*\Z")
_ASKED = re.compile(
    r"(?:table_x?info|get_columns)[\s(=]{0,20}['\"`]?(\w+)|^[ \t]{0,20}\\d\+?\s{1,20}(?:\w+\.)?(\w+)|"
    r"\b(?:describe|desc|show\s{1,20}columns\s{1,20}(?:from|in)|summarize)\s{1,20}(?:table\s{1,20})?(?:\w+\.)?[`\"]?(\w+)|"
    r"\btable_name\s{0,20}=\s{0,20}'(\w+)'",
    re.IGNORECASE | re.MULTILINE,
)
_ASKS = re.compile(
    r"table_x?info|information_schema|sqlite_(?:master|schema)|get_columns|inspect|schema|\bcols|columns", re.I
)
_INFO_LINE = re.compile(r"^[^\S\n]*\d+\s+(\S.*?)\s{2,}(?:\d+ non-null\s+)?(\w[\w\[\], ]*)$", re.MULTILINE)
_DTYPE_LINE = re.compile(r"^(\S.*?)\s{2,}([a-z]\w*(?:\[[^\]]*\])?)$", re.MULTILINE)
_INDEX = re.compile(r"Index\((\[.*?\])", re.DOTALL)
_SQL_TYPES = {"Integer", "BigInteger", "String", "Text", "Float", "Numeric", "Boolean", "Date", "DateTime", "JSON"}


def tables_told(code: str, language: str, output: str, ok: bool) -> tuple[QueryTable, ...]:
    """The tables that a cell defines or prints, one entry each, with their known columns.

    Args:
        output: what the cell printed or showed.
        ok: whether it ended well: the definitions of one that failed may not have been executed.
    """
    return _told(code, language, output, ok)


@lru_cache(maxsize=8192)
def _told(code: str, language: str, output: str, ok: bool) -> tuple[QueryTable, ...]:
    tables: list[QueryTable] = []
    if ok:
        for text in sql_texts(code, language):
            tables += defined(statements(text))
        if language == "python" and (tree := parse(code)) is not None:
            tables += [*_models(tree), *_frames(tree)]
    if output.strip():
        tables += [*_printed_definitions(output), *_printed_columns(code, language, output)]
    by_name: dict[str, list[QueryTable]] = {}
    for table in tables:
        if table.name and table.columns:
            by_name.setdefault(table.name.lower(), []).append(table)
    return tuple(merged(several) for several in by_name.values())


def _printed_definitions(output: str) -> Iterator[QueryTable]:
    """Every CREATE TABLE that stands whole in a text, also inside a quoted string or a table's cell."""
    text = output.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", " ").replace("\\'", "'")
    for match in _DDL.finditer(text):
        end = balanced(text, match.end())
        if end is not None:
            for table in defined(statements(text[match.start() : end])):
                yield table._replace(definition=text[match.start() : end])


def balanced(text: str, start: int) -> int | None:
    """The end of the first pair of parentheses from `start`; None where it does not close, or is not near."""
    opening = text.find("(", start)
    if opening < 0 or opening - start > 200:
        return None
    depth, quote = 0, ""
    for i in range(opening, min(len(text), opening + 20_000)):
        char = text[i]
        if quote:
            quote = "" if char == quote else quote
        elif char in '"`':
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth == 0:
                return i + 1
    return None


def _printed_columns(code: str, language: str, output: str) -> Iterator[QueryTable]:
    """Tables by listings of their columns: table_info, DESCRIBE, \\d, information_schema, a data frame's views."""
    asked = [next(group for group in match.groups() if group) for match in _ASKED.finditer(code)]
    only = asked[0] if len({name.lower() for name in asked}) == 1 else None
    for listing in [*listings(output), *records(output)]:
        yield from _listed(listing, only)
        if (name := _whole_table(code, language)) is not None and listing.whole and not _is_schema(listing):
            yield QueryTable(name, listing.header)
    if _ASKS.search(code):
        yield from (QueryTable(name, columns) for name, columns in mappings(output))
    if (frame := _frame_shown(code, language)) is not None:
        name, view = frame
        if view == "columns" and (match := _INDEX.search(output)) is not None:
            yield QueryTable(name, tuple(re.findall(r"'((?:[^'\\]|\\.)*)'", match.group(1))))
        elif view in ("info", "dtypes"):
            pattern = _INFO_LINE if view == "info" else _DTYPE_LINE
            yield QueryTable(
                name, tuple(f"{m[1]} {m[2]}" for m in pattern.finditer(output) if m[1] not in ("dtype:", "#"))
            )
        elif view in ("head", "tail", "sample", "") and (shown := next(listings(output), None)) and shown.whole:
            yield QueryTable(name, shown.header)


def _is_schema(listing: Listing) -> bool:
    lowered = {name.lower() for name in listing.header}
    return bool(lowered & set(_NAME_KEYS)) and bool(lowered & {*_TYPE_KEYS, *_TABLE_KEYS})


def _listed(listing: Listing, only: str | None) -> Iterator[QueryTable]:
    """The tables whose columns a listing has as its rows."""
    lowered = [name.lower() for name in listing.header]
    if not _is_schema(listing):
        return
    of = {key: lowered.index(key) for key in (*_NAME_KEYS, *_TYPE_KEYS, *_TABLE_KEYS) if key in lowered}
    name_at = next(of[key] for key in _NAME_KEYS if key in of)
    type_at = next((of[key] for key in _TYPE_KEYS if key in of), None)
    table_at = next((of[key] for key in _TABLE_KEYS if key in of), None)
    titled = _PSQL_TITLE.search(listing.title)
    words = _WORD.findall(listing.title)
    title = titled.group(1) if titled else only or (words[-1] if words else None)
    columns: dict[str, list[str]] = {}
    for row in listing.rows:
        table = row[table_at] if table_at is not None and len(row) > table_at else title
        if table and len(row) > name_at and row[name_at]:
            kind = row[type_at] if type_at is not None and len(row) > type_at else ""
            kind = _OPEN.sub("", kind)  # `DECIMAL(10, 2)` is cut at its blank where columns are told apart by blanks
            columns.setdefault(table, []).append(f"{row[name_at]} {kind}".strip())
    for table, listed in columns.items():
        if not listing.cut:
            yield QueryTable(table, tuple(listed))


def _whole_table(code: str, language: str) -> str | None:
    """The table of a cell whose only query is `SELECT * FROM table` (with WHERE, ORDER BY or LIMIT); else None."""
    parsed = [s for text in sql_texts(code, language) for s in statements(text)]
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Select):
        return None
    select = parsed[0]
    starred = len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star)
    tables = list(select.find_all(exp.Table))
    return tables[0].name if starred and len(tables) == 1 and not select.args.get("joins") else None


def _models(tree: ast.Module) -> Iterator[QueryTable]:
    """Tables declared as classes with `__tablename__`, or as `QueryTable("name", metadata, Column("a", …), …)`."""
    for node in walk(tree):
        if isinstance(node, ast.ClassDef):
            name, columns = None, []
            for part in node.body:
                target = part.targets[0] if isinstance(part, ast.Assign) else getattr(part, "target", None)
                value = getattr(part, "value", None)
                if not isinstance(target, ast.Name):
                    continue
                if target.id == "__tablename__" and isinstance(value, ast.Constant):
                    name = str(value.value)
                elif isinstance(value, ast.Call) and called_name(value) in (
                    "Column",
                    "mapped_column",
                    "Field",
                ):
                    columns.append(_model_column(target.id, value))
                elif isinstance(part, ast.AnnAssign) and "Mapped" in ast.unparse(part.annotation) and value is None:
                    columns.append(target.id)
            if name:
                yield QueryTable(name, tuple(columns))
        elif isinstance(node, ast.Call) and called_name(node) == "Table" and node.args:
            first = node.args[0]
            parts = [a for a in node.args[1:] if isinstance(a, ast.Call) and called_name(a) == "Column" and a.args]
            if isinstance(first, ast.Constant) and parts:
                named = [(a.args[0].value, a) for a in parts if isinstance(a.args[0], ast.Constant)]
                yield QueryTable(str(first.value), tuple(_model_column(str(n), a) for n, a in named))


def _model_column(name: str, call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        name = first.value  # Column("name", Type): the name in the database
    kinds = {name for each in call.args for name in names_in(each)} & _SQL_TYPES
    return f"{name} {min(kinds)}" if kinds else name


def _frames(tree: ast.Module) -> Iterator[QueryTable]:
    """Data frames made of literals: as tables of their variable's name, and of the name that `to_sql` gives them."""
    known: dict[str, tuple[str, ...]] = {}
    for node in walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called_name(node.value) == "DataFrame":
            columns = _literal_columns(node.value)
            for target in node.targets:
                if isinstance(target, ast.Name) and columns:
                    known[target.id] = columns
                    yield QueryTable(target.id, columns)
    for node in walk(tree):
        if (
            isinstance(node, ast.Call)
            and called_name(node) in ("to_sql", "register")
            and isinstance(node.func, ast.Attribute)
        ):
            name = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "name"), None)
            owner = node.func.value if called_name(node) == "to_sql" else node.args[1] if len(node.args) > 1 else None
            columns = known.get(owner.id, ()) if isinstance(owner, ast.Name) else ()
            if isinstance(owner, ast.Call) and called_name(owner) == "DataFrame":
                columns = _literal_columns(owner)
            if isinstance(name, ast.Constant) and columns:
                yield QueryTable(str(name.value), columns)


def _literal_columns(call: ast.Call) -> tuple[str, ...]:
    named = next((k.value for k in call.keywords if k.arg in ("columns", "schema")), None)
    data = call.args[0] if call.args else None
    if isinstance(data, ast.List) and data.elts:
        data = data.elts[0]  # one object a row
    nodes: list[ast.expr | None] = []
    if isinstance(named, ast.List | ast.Tuple):
        nodes = [*named.elts]
    elif isinstance(data, ast.Dict):
        nodes = [*data.keys]
    return tuple(str(node.value) for node in nodes if isinstance(node, ast.Constant))


def _frame_shown(code: str, language: str) -> tuple[str, str] | None:
    """(variable, view) where a cell's last statement shows a data frame: `df.head()`, `print(df.dtypes)`, `df`."""
    tree = parse(code) if language == "python" else None
    if tree is None or not tree.body or not isinstance(last := tree.body[-1], ast.Expr):
        return None
    node = last.value
    if isinstance(node, ast.Call) and called_name(node) in ("print", "display") and len(node.args) == 1:
        node = node.args[0]
    shown = node.func if isinstance(node, ast.Call) else node
    view = ""
    if isinstance(shown, ast.Attribute):
        node, view = shown.value, shown.attr
    return (node.id, view) if isinstance(node, ast.Name) else None
