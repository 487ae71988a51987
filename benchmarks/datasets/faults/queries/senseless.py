"""`senseless`: queries that run and whose text cannot mean anything, or not what it seems to.

- An expression that is the same for every row: a CASE or IIF all of whose branches are equal, COALESCE or NULLIF of one
  thing, a condition twice, bounds that nothing can meet.
- Numbers that are ordered as text: a column of texts that the prompt fills with numbers of several widths, or compares
  with a number, and a part of a date by `strftime`, which has a fixed width, beside another form.
- A month as text where the task wants a date.

`by_name`: rows of a table that is joined by its key, grouped by a name of which two may be equal.
"""

import re
from collections.abc import Iterator

from sqlglot import exp

from benchmarks.datasets.faults.cases import CODE_KINDS, Case
from benchmarks.datasets.faults.python_code import parse
from benchmarks.datasets.faults.queries.schemas import embedded_queries
from benchmarks.datasets.faults.queries.sql_code import statements

_WIDTH = {"%Y": 4, "%j": 3, "%w": 1} | dict.fromkeys(("%m", "%d", "%H", "%M", "%S", "%W"), 2)
_PART = r"strftime\s*\(\s*'(%\w)'\s*,(?:[^()]|\([^()]*\))*\)"
_LITERAL = r"('[^']*'|\d+)"
_PART_COMPARED = re.compile(rf"(?<!cast\()(?<!cast\( ){_PART}\s*(?:=|<>|!=|<=?|>=?)\s*{_LITERAL}", re.I)
_PART_LISTED = re.compile(rf"(?<!cast\(){_PART}\s*(?:not\s+)?(?:in\s*\(|between\s+){_LITERAL}", re.I)
_MONTHS = re.compile(
    r"strftime\s*\(\s*'(?:%Y-)?%m'[^)]*\)+\s+AS\b|select\s+(?:distinct\s+)?strftime\s*\(\s*'(?:%Y-)?%m'", re.I
)
_WANTS_DATE = re.compile(r"\bas (?:a |an |the )?(?:\w+ )?dates?\b|\bin (?:a )?date format\b", re.I)
_FILLED = re.compile(r"INSERT INTO\s+(\w+)[^;]*?VALUES\s*([^;]*)", re.I)
_CREATED = re.compile(r"CREATE TABLE\s+(?:IF NOT EXISTS\s+)?(\w+)\s*\(([^;]*)\)", re.I)
_ROW = re.compile(r"\(((?:'(?:[^']|'')*'|[^()'])*)\)")
_VALUE = re.compile(r"'((?:[^']|'')*)'|([^,\s]+)")
_NAME = re.compile(r"(?:^|_)(?:name|title)$|^(?:sur|last|first|full)name$", re.I)
_TELLING = re.compile(r"(?:id|key|code|symbol|ticker|email|iso|sku|isbn|uuid|number|phone|_no)$", re.I)
_NAMES_ASKED = re.compile(
    r"\b(?:same|each|every|per|by|distinct|different|unique|common) (?:\w+ ){0,2}(?:names?|titles?)\b", re.I
)
_LONE = re.compile(
    r"countr|state|region|continent|categor|genre|language|currenc|department|status|type|tag|role|drug|domain|conference"
)


def senseless(case: Case) -> str | None:
    """What in a query says nothing, or something else than it seems to; None where all makes sense."""
    queries, shown = _queries(case)
    texts = _text_columns(shown)
    task = next((section.text for section in case.sections if not section.title), "")
    for query in queries:
        for tree in statements(query):
            if reason := next(filter(None, map(_idle, tree.walk())), None):
                return reason
            if reason := next(filter(None, (_as_text(node, texts) for node in tree.walk())), None):
                return reason
        for part, value in (*_PART_COMPARED.findall(query), *_PART_LISTED.findall(query)):
            if part in _WIDTH and (value[0] != "'" or len(value) - 2 != _WIDTH[part]):
                return f"a part of a date by {part} is never {value}"
        if case.kind in CODE_KINDS and _WANTS_DATE.search(task) and _MONTHS.search(query):
            return "a month as text where the task wants a date"
    return None


def by_name(case: Case) -> str | None:
    """The name that a query groups by though its table has a key; None where there is none."""
    task = next((section.text for section in case.sections if not section.title), "")
    if case.kind not in ("solve", "apply") or _NAMES_ASKED.search(task):
        return None
    for query in _queries(case)[0]:
        for group in (group for tree in statements(query) for group in tree.find_all(exp.Group)):
            if (name := _loose_name(group)) and not re.search(
                rf"\b{name}\b[^,\n)]*\b(?:UNIQUE|PRIMARY)\b", case.prompt, re.I
            ):
                return f"groups by {name}"
    return None


def _queries(case: Case) -> tuple[list[str], str]:
    """The queries of a case, and what its prompt shows of tables."""
    if case.kind in ("predict", "explain"):
        code = [s.text for s in case.sections if re.fullmatch(r"code|query|```", s.title, re.I)]
        shown = "\n".join(s.text for s in case.sections if s.text not in code)
        return (code if case.language == "sql" else []), shown
    shown = "\n".join(s.text for s in case.sections if not re.match(r"code|query", s.title, re.I))
    if case.language == "sql":
        return [case.code], shown
    tree = parse(case.code) if case.language == "python" and case.kind in ("solve", "apply") else None
    return (list(embedded_queries(tree)) if tree is not None else []), shown


def _idle(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Case):
        results = [branch.args["true"].sql() for branch in node.args["ifs"]]
        default = node.args.get("default")
        if default is not None and {*results, default.sql()} == {default.sql()}:
            return f"every branch is {default.sql()}"
    elif isinstance(node, exp.If) and not isinstance(node.parent, exp.Case):
        yes, no = node.args.get("true"), node.args.get("false")
        if yes is not None and no is not None and yes.sql() == no.sql():
            return f"both branches are {no.sql()}"
    elif isinstance(node, exp.Coalesce | exp.Nullif | exp.Greatest | exp.Least):
        parts = [part.sql() for part in (node.this, node.args.get("expression"), *node.expressions) if part is not None]
        if len(set(parts)) != len(parts):
            return f"one thing twice: {node.sql()[:80]}"
    elif isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        if isinstance(low, exp.Literal) and isinstance(high, exp.Literal) and low.is_string == high.is_string:
            order = [float(low.name), float(high.name)] if not low.is_string else [low.name, high.name]
            if order[0] > order[1] and (not low.is_string or len(low.name) == len(high.name)):  # type: ignore[operator]
                return f"nothing is {node.sql()[:80]}"
    elif isinstance(node, exp.And | exp.Or):
        return _twice(node)
    elif isinstance(node, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
        same = node.this.sql() == node.expression.sql()
        return f"compared with itself: {node.sql()[:80]}" if same and not isinstance(node.this, exp.Literal) else None
    return None


def _twice(node: exp.And | exp.Or) -> str | None:
    if type(node.parent) is type(node):
        return None
    parts = [part.sql() for part in node.flatten()]
    if len(set(parts)) < len(parts):
        return f"a condition twice: {node.sql()[:80]}"
    if isinstance(node, exp.Or):
        return None
    bounds: dict[tuple[str, str], list[float]] = {}
    for part in parts:
        if found := re.fullmatch(r"(.+?) (<|>)=? (-?\d+(?:\.\d+)?)", part):
            bounds.setdefault((found.group(1), found.group(2)), []).append(float(found.group(3)))
    for (of, sign), values in bounds.items():
        if sign == ">" and max(values) > min(bounds.get((of, "<"), [float("inf")])):
            return f"nothing is above and below: {of}"
    return None


def _as_text(node: exp.Expr, texts: dict[str, bool]) -> str | None:
    """Why an order of a column of texts is not that of its numbers.

    Args:
        texts: column -> whether its numbers vary in width.
    """
    if isinstance(node, exp.Ordered | exp.Min | exp.Max) and isinstance(node.this, exp.Column):
        return f"orders {node.this.name} as text" if texts.get(node.this.name.lower()) else None
    if not isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Between):
        return None
    sides = [node.this, *(node.args.get(name) for name in ("expression", "low", "high"))]
    columns = [one.name for one in sides if isinstance(one, exp.Column) and one.name.lower() in texts]
    literals = [one for one in sides if isinstance(one, exp.Literal)]
    short = any(not one.is_string or re.fullmatch(r"[1-9]\d{0,2}|0", one.name) for one in literals)
    wide = any(texts[name.lower()] for name in columns)
    return f"compares {columns[0]} as text" if columns and (wide or short) else None


def _text_columns(shown: str) -> dict[str, bool]:
    """Column of texts -> whether the rows that are shown hold numbers of several widths there, and nothing else."""
    found: dict[str, bool] = {}
    order: dict[str, list[str]] = {}
    for table, inside in _CREATED.findall(shown):
        columns = [column.split() for column in inside.split(",") if column.split()]
        order[table.lower()] = [column[0].strip('"`').lower() for column in columns]
        of_text = [c for c in columns if len(c) > 1 and re.match(r"TEXT|(?:N?VAR)?CHAR|STRING|CLOB", c[1], re.I)]
        found |= {column[0].strip('"`').lower(): False for column in of_text}
    for table, rows in _FILLED.findall(shown):
        columns_of = order.get(table.lower(), [])
        for place, column in enumerate(columns_of):
            listed = [text for row in _ROW.findall(rows) if (text := _nth(row, place)) is not None]
            numbers = bool(listed) and all(re.fullmatch(r"-?\d+(?:\.\d+)?", text) for text in listed)
            if column in found and numbers and len({len(text) for text in listed}) > 1:
                found[column] = True
    return found


def _nth(row: str, place: int) -> str | None:
    values = [quoted or bare for quoted, bare in _VALUE.findall(row)]
    return values[place] if place < len(values) and values[place].upper() != "NULL" else None


def _loose_name(group: exp.Group) -> str | None:
    """A name among the keys of groups whose table is joined by a key of its own, and nothing that tells rows apart."""
    select = group.find_ancestor(exp.Select)
    if select is None:
        return None
    keys = list(_keys(group, select))
    if any(_TELLING.search(key.name) for key in keys):
        return None
    tables = {table.alias_or_name.lower(): table.name.lower() for table in select.find_all(exp.Table)}
    compared = [side for equal in select.find_all(exp.EQ) for side in (equal.left, equal.right)]
    for key in keys:
        table = tables.get(key.table.lower(), "")
        stem = re.sub(r"(?:ies|es|s)$", "", table)
        if not _NAME.search(key.name) or not table or _LONE.search(table):
            continue
        for side in compared:
            if isinstance(side, exp.Column) and side.table.lower() == key.table.lower():
                own = side.name.lower()
                if own in ("id", f"{table[0]}id") or re.fullmatch(
                    rf"{re.escape(stem.rpartition('_')[2])}\w{{0,3}}?_?id", own
                ):
                    return key.name
    return None


def _keys(group: exp.Group, select: exp.Select) -> Iterator[exp.Column]:
    """The columns that rows are grouped by, also by their places and aliases."""
    for key in group.expressions:
        if isinstance(key, exp.Literal) and key.name.isdigit() and 0 < int(key.name) <= len(select.expressions):
            key = select.expressions[int(key.name) - 1].unalias()
        elif isinstance(key, exp.Column) and not key.table:
            key = next((one.unalias() for one in select.expressions if one.alias.lower() == key.name.lower()), key)
        if isinstance(key, exp.Column):
            yield key
