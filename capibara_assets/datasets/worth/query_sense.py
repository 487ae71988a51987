"""Semantic faults of queries that run: meaningless or misleading, judged by syntax tree and shown tables."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sqlglot import exp

from capibara_assets.datasets.code.queries import statements

SAYS_NOTHING = "its query holds an expression that says nothing, such as a CASE whose branches are equal"
CASED = "its query compares text in small letters with capitals, or the other way round"
AS_TEXT = "its query orders or compares numbers that are stored as text"
MONTH_FOR_DATE = "its task asks for a date, and its query gives a month as text"
BY_NAME = "its query groups by a name that need not be unique, and the table has a key"
WITH_NULL = "its query compares a value with NULL, which is true of no row"
ADDS_TEXT = "its query adds a text with +, which makes a number of it"
DATES = "its query subtracts dates: SQLite, which stores them as text, gives years"

WORDS = "its query reckons with texts that are no numbers, which SQLite takes for zero or for their first digits"

CALCULATIONS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_RANGED = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_UP, _DOWN = (exp.GT, exp.GTE), (exp.LT, exp.LTE)
_FORMAT = re.compile(r"STRFTIME\('([^']*)'", re.IGNORECASE)
_WIDTHS = {"%m": 2, "%d": 2, "%H": 2, "%M": 2, "%S": 2, "%W": 2, "%Y": 4, "%j": 3, "%w": 1}
_AS_DATE = re.compile(r"\bas (?:a |an |the )?(?:\w+ )?dates?\b|\bin (?:a )?date format\b", re.IGNORECASE)
_DIGITS = re.compile(r"-?\d+(?:\.\d+)?")
_TEXT_TYPE = re.compile(r"TEXT|CHAR|STRING|CLOB", re.IGNORECASE)
_SHORT = 3  # digits: of more, such as years, all are as wide
_NAME = re.compile(r"(?:^|_)(?:name|title)$|^(?:sur|last|first|full)name$")
_DATE = re.compile(r"(?:date|datetime|timestamp|_ts|_at)$", re.IGNORECASE)
_KEY = re.compile(r"(?:^|_)(?:id|key|code|symbol|ticker|email|iso|sku|isbn|uuid|number|no|phone)$|[a-z]id$")
_BY_NAME = re.compile(
    r"\b(?:same|each|every|per|by|distinct|different|unique|common)\s+(?:\w+\s+){0,2}(?:names?|titles?)\b", re.I
)
_ALONE = """country state region continent category genre language currency department status type tag role drug domain
conference"""
_ONE_OF_EACH = frozenset(_ALONE.split())  # of which no two have one name


def says_nothing(query: str) -> bool:
    """Whether a query has an expression independent of the rows, or a condition that no row can meet."""
    return any(_is_idle(node) for tree in statements(query) for node in tree.walk())


def _is_idle(node: exp.Expr) -> bool:
    match node:
        case exp.Case() if node.args.get("default") is not None:
            return _equal([*(branch.args.get("true") for branch in node.args["ifs"]), node.args["default"]])
        case exp.If() if node.args.get("false") is not None and not isinstance(node.parent, exp.Case):
            return _equal([node.args.get("true"), node.args.get("false")])
        case exp.Coalesce():
            listed = [one.sql() for one in (node.this, *node.expressions)]
            return len(set(listed)) < len(listed)
        case exp.Lower() | exp.Upper() | exp.Trim() | exp.Abs():
            return isinstance(node.this, type(node))
        case exp.Nullif():
            return _equal([node.this, node.expression])
        case exp.Between():
            return _is_void(node.args.get("low"), node.args.get("high"))
        case exp.Select():
            return _counts_one_row(node)
        case exp.And() | exp.Or() if not isinstance(node.parent, type(node)):
            parts = list(node.flatten())
            told = {part.sql() for part in parts}
            return len(told) < len(parts) or (isinstance(node, exp.And) and _excludes(parts))
    return (
        isinstance(node, COMPARISONS)
        and not isinstance(node.this, exp.Literal)
        and _equal([node.this, node.expression])
    )


def _counts_one_row(node: exp.Select) -> bool:
    """Whether the rows of an aggregate are counted, which is one without groups."""
    given = node.args.get("from_") or node.args.get("from")
    source = given.this if given is not None else None
    inner = source.this if isinstance(source, exp.Subquery) else None
    if not isinstance(inner, exp.Select) or inner.args.get("group") or len(node.expressions) != 1:
        return False
    counts = isinstance(node.expressions[0].unalias(), exp.Count) and isinstance(
        node.expressions[0].unalias().this, exp.Star
    )
    return counts and all(isinstance(one.unalias(), exp.AggFunc) for one in inner.expressions)


def compares_with_null(query: str) -> bool:
    """Whether a condition compares by `= NULL` or `<> NULL`."""
    found = (node for tree in statements(query) for node in tree.find_all(exp.EQ, exp.NEQ))
    conditions = (node for node in found if node.find_ancestor(exp.Where, exp.Having, exp.Join) is not None)
    return any(isinstance(side, exp.Null) for node in conditions for side in (node.this, node.expression))


def adds_texts(query: str) -> bool:
    """Whether a query adds a literal text that holds no number, which other dialects join with `+`."""
    found = (node for tree in statements(query) for node in tree.find_all(exp.Add))
    sides = (side for node in found for side in (node.this, node.expression))
    return any(_is_quoted(side) and not _DIGITS.match(side.name.strip()) for side in sides)


def compares_cases(query: str) -> bool:
    """Whether a query compares `LOWER(..)` with a text that has capitals, or `UPPER(..)` with one that has none."""
    return any(
        (isinstance(side, exp.Lower) and text != text.lower()) or (isinstance(side, exp.Upper) and text != text.upper())
        for tree in statements(query)
        for node in tree.find_all(exp.EQ, exp.NEQ, exp.Like, exp.In)
        for side in (node.this, node.args.get("expression"))
        for text in (one.name for one in (node.this, node.args.get("expression"), *node.expressions) if _is_quoted(one))
    )


def _is_quoted(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _equal(parts: Sequence[exp.Expr | None]) -> bool:
    return len({None if part is None else part.sql() for part in parts}) == 1


def _is_void(low: exp.Expr | None, high: exp.Expr | None) -> bool:
    if not isinstance(low, exp.Literal) or not isinstance(high, exp.Literal):
        return False
    if low.is_string:
        return high.is_string and len(low.name) == len(high.name) and low.name > high.name
    return not high.is_string and float(low.name) > float(high.name)


def _excludes(parts: Sequence[exp.Expr]) -> bool:
    """Whether no value can be above one bound and below the other."""
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    for part in parts:
        bound = part.args.get("expression")
        if isinstance(part, _UP + _DOWN) and isinstance(bound, exp.Literal) and not bound.is_string:
            of, value = part.this.sql(), float(bound.name)
            if isinstance(part, _UP):
                low[of] = max(low.get(of, value), value)
            else:
                high[of] = min(high.get(of, value), value)
    return any(of in high and value > high[of] for of, value in low.items())


def compares_as_text(query: str, shown: str) -> bool:
    """Whether a query orders numbers as text, or compares a date part with an impossible format.

    Args:
        shown: the tables of the prompt, as they are defined and filled there.
    """
    tables = statements(shown)
    listed, declared = _text_numbers(tables), declared_texts(tables)
    for tree in statements(query):
        if any(_is_never_written(node) for node in tree.find_all(*COMPARISONS, exp.In, exp.Between)):
            return True
        if any(_of(side, listed) for side in _ordered(tree)):
            return True
        if any(_is_unpadded(node, declared) for node in tree.find_all(*_RANGED)):
            return True
    return False


def _sides(node: exp.Expr) -> list[exp.Expr]:
    named = [node.this, *(node.args.get(name) for name in ("expression", "low", "high")), *node.expressions]
    return [side for side in named if isinstance(side, exp.Expr)]


def _is_never_written(node: exp.Expr) -> bool:
    """Whether a part of a date (text of a fixed width, as `strftime` gives it) is compared with another form."""
    sides = _sides(node)
    formats = [match[1] for side in sides if (match := _FORMAT.match(side.sql(dialect="sqlite")))]
    width = _WIDTHS.get(formats[0]) if len(formats) == 1 else None
    literals = [side for side in sides if isinstance(side, exp.Literal)]
    return width is not None and any(not one.is_string or len(one.name) != width for one in literals)


def _ordered(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The expressions whose order counts."""
    for node in tree.find_all(*_RANGED, exp.Ordered, exp.Min, exp.Max):
        yield from _sides(node)


def _of(side: exp.Expr, columns: set[str]) -> bool:
    return isinstance(side, exp.Column) and side.name.lower() in columns


def _is_unpadded(node: exp.Expr, declared: set[str]) -> bool:
    """Whether a column of texts is compared by order with a number, or with the text of one that may be wider."""
    sides = _sides(node)
    literals = [side for side in sides if isinstance(side, exp.Literal)]
    return any(_of(side, declared) for side in sides) and any(
        not one.is_string or (one.name.isdigit() and len(one.name) <= _SHORT and one.name[:1] != "0")
        for one in literals
    )


def definitions(tables: Sequence[exp.Expr]) -> Iterator[tuple[str, list[exp.ColumnDef]]]:
    """The tables that statements create, in lower case, each with its columns."""
    for tree in tables:
        if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema):
            yield tree.this.this.name.lower(), [one for one in tree.this.expressions if isinstance(one, exp.ColumnDef)]


def _is_text(column: exp.ColumnDef) -> bool:
    kind = column.args.get("kind")
    return kind is not None and _TEXT_TYPE.search(kind.sql()) is not None


def declared_texts(tables: Sequence[exp.Expr]) -> set[str]:
    """The columns that statements define as texts, in lower case."""
    return {one.name.lower() for _, columns in definitions(tables) for one in columns if _is_text(one)}


def _text_values(tables: Sequence[exp.Expr]) -> dict[str, list[str]]:
    """The literals that are inserted into columns of texts, by their names in lower case."""
    values: dict[str, list[str]] = defaultdict(list)
    created = dict(definitions(tables))
    for tree in tables:
        if not isinstance(tree, exp.Insert) or not isinstance(tree.expression, exp.Values):
            continue
        table = tree.this.find(exp.Table)
        for row in tree.expression.expressions:
            for column, value in zip(
                created.get(table.name.lower() if table else "", ()), row.expressions, strict=False
            ):
                if _is_text(column) and isinstance(value, exp.Literal):
                    values[column.name.lower()].append(value.name)
    return values


def _text_numbers(tables: Sequence[exp.Expr]) -> set[str]:
    """The columns of texts all of whose values are numbers of different widths."""
    return {
        name
        for name, texts in _text_values(tables).items()
        if all(map(_DIGITS.fullmatch, texts)) and len(set(map(len, texts))) > 1
    }


def reckons_with_words(query: str, shown: str) -> bool:
    """Whether a query adds, subtracts, multiplies or divides a column of texts that hold no numbers.

    Args:
        shown: the tables of the prompt, as they are defined and filled there.
    """
    values = _text_values(statements(shown))
    words = {name for name, texts in values.items() if not any(map(_DIGITS.fullmatch, texts))}
    reckoned = (node for tree in statements(query) for node in tree.find_all(*CALCULATIONS))
    return bool(words) and any(_of(side, words) for node in reckoned for side in (node.this, node.expression))


def shows_months_for_dates(query: str, task: str) -> bool:
    """Whether a task asks for a date and the query shows a part of one, such as `2026-03`."""
    if not _AS_DATE.search(task):
        return False
    shown = [
        one.unalias() for tree in statements(query) for select in tree.find_all(exp.Select) for one in select.selects
    ]
    formats = [match[1] for one in shown if (match := _FORMAT.match(one.sql(dialect="sqlite")))]
    return any("%m" in form and "%d" not in form and not re.search(r"\d$", form) for form in formats)


def subtracts_dates(query: str) -> bool:
    """Whether a query takes one column of dates, or its first or last, from another as it is."""
    return any(
        _is_date(node.this) and _is_date(node.expression)
        for tree in statements(query)
        for node in tree.find_all(exp.Sub)
    )


def _is_date(side: exp.Expr) -> bool:
    while isinstance(side, exp.Paren | exp.Min | exp.Max):
        side = side.this
    return isinstance(side, exp.Column) and _DATE.search(side.name) is not None


def groups_by_name(query: str, shown: str, task: str) -> bool:
    """Whether a query groups rows by name alone, though it joins their table by its key.

    Args:
        shown: the tables of the prompt; a column that is unique there, or that the task asks to group by, is none.
    """
    if _BY_NAME.search(task):
        return False
    return any(_merges_names(select, shown) for tree in statements(query) for select in tree.find_all(exp.Select))


def _merges_names(select: exp.Select, shown: str) -> bool:
    group = select.args.get("group")
    columns = [projected(part, select) for part in (group.expressions if group is not None else ())]
    named = [one for one in columns if isinstance(one, exp.Column) and _NAME.search(one.name.lower())]
    if not named or any(isinstance(one, exp.Column) and _KEY.search(one.name.lower()) for one in columns):
        return False
    tables = {one.alias_or_name.lower(): one.name.lower() for one in select.find_all(exp.Table)}
    joined = [
        side for one in select.find_all(exp.EQ) for side in (one.this, one.expression) if isinstance(side, exp.Column)
    ]
    for column in named:
        alias = column.table.lower()
        table = tables.get(alias, "")
        unique = re.search(rf"\b{re.escape(column.name)}\b[^,\n)]*\b(?:UNIQUE|PRIMARY)\b", shown, re.IGNORECASE)
        keyed = any(side.table.lower() == alias and side.name.lower() in own_keys(table) for side in joined)
        if table and keyed and not unique and not _singulars(table) & _ONE_OF_EACH:
            return True
    return False


def projected(part: exp.Expr, select: exp.Select) -> exp.Expr:
    """What GROUP BY names: a column, by its place or its alias, too."""
    if isinstance(part, exp.Literal) and not part.is_string and 0 < int(part.name) <= len(select.selects):
        return select.selects[int(part.name) - 1].unalias()
    aliases = {one.alias.lower(): one.unalias() for one in select.selects if one.alias}
    bare = isinstance(part, exp.Column) and not part.table
    return aliases.get(part.name.lower(), part) if bare else part


def _singulars(table: str) -> set[str]:
    forms = {table, table.removesuffix("s"), table.removesuffix("es"), re.sub(r"ies$", "y", table)}
    return {form.rpartition("_")[2] for form in forms} | forms


def own_keys(table: str) -> set[str]:
    """The names that the key of a table goes by, after the table's name."""
    listed = _singulars(table)
    return {"id", f"{table[:1]}id", *(f"{one}_id" for one in listed), *(f"{one}id" for one in listed)}
