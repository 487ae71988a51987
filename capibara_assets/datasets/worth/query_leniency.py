"""Queries that run only because SQLite is lenient, or that give something else than they show.

SQLite picks any row for a column that is neither grouped nor aggregated, compares text with numbers, gives NULL for
formats of dates that it does not know, and reads a condition that is the same for every row.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from sqlglot import exp

from capibara_assets.datasets.code.queries import defined, statements
from capibara_assets.datasets.code.structure import tokens
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import CODE, SCHEMA, SESSION, section
from capibara_assets.datasets.schema import CODE_KINDS
from capibara_assets.datasets.worth.query_sense import (
    CALCULATIONS,
    COMPARISONS,
    declared_texts,
    definitions,
    own_keys,
    projected,
)

PICKED = "its query shows a column that is neither grouped nor aggregated: SQLite picks any row's"
FORMATS_NOTHING = "its query formats a date in a way that SQLite does not know, which gives NULL"
SAME_FOR_ALL = "its query compares a number with a subquery that is the same for every row"
UNLIKE = "its query asks which texts are no number by comparing them with one, which is true of all"
NAMED_TWICE = "its query gives two columns of one name, of which the output shows one"
OTHER_TABLE = "its repair reads a table in place of a temporary one, which nothing in its prompt fills"
ADDED = "its repair also adds a statement"
JOINED = "its query calculates with a text: `||` joins before `*` and `+` are computed"
DROPS = "its repair drops a table that its code only emptied or changed"
WHOLE = "its query rounds a quotient of whole numbers, of which SQLite drops the remainder"
SHARE = "its query divides a count by a count: of whole numbers SQLite drops the remainder, which leaves 0 or 1"
NO_DIGITS = "its query rounds to tens or more: SQLite knows no negative number of digits"
REWRITTEN = "its repair is another query, written anew"

_FORMAT = re.compile(r"%(.)")
_KNOWN_FORMATS = frozenset("dfHjJmMsSwWY%eFgGIklpPRTuUV")  # https://www.sqlite.org/lang_datefunc.html
_TEMPORARY = re.compile(r"(?<![\w'\"])##?([A-Za-z_]\w*)")
_KEY = re.compile(r"(?:^|_)id$|[a-z]I[dD]$", re.IGNORECASE)
_LEAST_ALIKE, _FEWEST_TOKENS = 0.35, 12
# what takes many rows, or may: what stands in it is not shown
_OF_ROWS = (exp.AggFunc, exp.Filter, exp.Window, exp.WithinGroup, exp.Subquery, exp.Star, exp.Anonymous)


def lenient(candidate: ExampleCandidate) -> str | None:
    """Why the query of an example means something else than it seems to, or its repair is none; None otherwise."""
    if candidate.language != "sql":
        return None
    code = candidate.answer if candidate.kind in CODE_KINDS else section(candidate.prompt, CODE)
    shown = statements(f"{section(candidate.prompt, SESSION)}\n{section(candidate.prompt, SCHEMA)}")
    trees = statements(code)
    if any(_picks(select, shown) for tree in trees for select in tree.find_all(exp.Select)):
        return PICKED
    if any(_formats_nothing(node) for tree in trees for node in tree.find_all(exp.TimeToStr, exp.Anonymous)):
        return FORMATS_NOTHING
    if any(_is_constant(node) for tree in trees for node in tree.find_all(*COMPARISONS)):
        return SAME_FOR_ALL
    if any(_calculates_with_text(node) for tree in trees for node in tree.find_all(*CALCULATIONS)):
        return JOINED
    texts = declared_texts(shown)
    if any(_is_unlike(node, texts) for tree in trees for node in tree.find_all(exp.NEQ)):
        return UNLIKE
    rounded = [one for tree in trees for one in tree.find_all(exp.Round)] if candidate.kind != "predict" else []
    if any(isinstance(one.args.get("decimals"), exp.Neg) for one in rounded):
        return NO_DIGITS
    if any(map(_drops_remainder, rounded)):
        return WHOLE
    if candidate.kind != "predict" and any(_is_share(one) for tree in trees for one in tree.find_all(exp.Div)):
        return SHARE
    if candidate.kind == "predict" and trees and _names_twice(trees[-1], shown):
        return NAMED_TWICE
    return _no_repair(candidate.failing or "", candidate.answer, shown) if candidate.kind == "repair" else None


def _no_repair(failing: str, answer: str, shown: Sequence[exp.Expr]) -> str | None:
    made = {table.name.lower() for table in defined(statements(answer))}
    temporary = {name.lower() for name in _TEMPORARY.findall(failing)} - made
    if temporary & set(re.findall(r"\w+", answer.lower())) and not _TEMPORARY.search(answer):
        return OTHER_TABLE
    before, after = statements(failing), statements(answer)
    if 0 < len(before) < len(after):
        return ADDED
    if any(isinstance(one, exp.Drop) for one in after) and not re.search(r"\bDROP\b", failing, re.IGNORECASE):
        return DROPS
    old, new = ([one.lower() for one in tokens(code, "sql")] for code in (failing, answer))
    if len(old) < _FEWEST_TOKENS:
        return None
    alike = SequenceMatcher(None, old, new, autojunk=False).ratio()
    return REWRITTEN if alike < _LEAST_ALIKE else None


def _picks(select: exp.Select, shown: Sequence[exp.Expr]) -> bool:
    """Whether a query with groups or aggregates shows a column that its groups do not determine."""
    own = [one.unalias() for one in select.selects]
    group = select.args.get("group")
    aggregates = any(_aggregates(one) for one in own)
    if group is None and not aggregates:
        return False
    grouped = [projected(part, select) for part in (group.expressions if group is not None else ())]
    told = {part.sql().lower() for part in grouped} | {p.name.lower() for p in grouped if isinstance(p, exp.Column)}
    loose = [column for one in own for column in _loose(one, told)]
    if not loose:
        return False
    return group is None or any(not _determined(one, grouped, select, shown) for one in loose)


def _loose(node: exp.Expr, told: set[str]) -> Iterator[exp.Column]:
    """The columns of an expression that are neither grouped by nor aggregated.

    Args:
        told: what a query groups by, and the names of columns among it, in lower case.
    """
    if node.sql().lower() in told or isinstance(node, _OF_ROWS):
        return
    if isinstance(node, exp.Column):
        if not isinstance(node.this, exp.Star) and node.name.lower() not in told:
            yield node
        return
    for part in node.args.values():
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, exp.Expr):
                yield from _loose(each, told)


def _aggregates(node: exp.Expr) -> bool:
    """Whether an expression of a result aggregates the rows of its own query."""
    for one in node.find_all(exp.AggFunc):
        over, inner = one.find_ancestor(exp.Window), one.find_ancestor(exp.Subquery, exp.Select)
        within = inner is not None and any(inner is each for each in node.find_all(exp.Subquery, exp.Select))
        if not within and (over is None or one is not over.this):
            return True
    return False


def _determined(column: exp.Column, grouped: Sequence[exp.Expr], select: exp.Select, shown: Sequence[exp.Expr]) -> bool:
    """Whether a key of a column's table is among the groups, or it cannot be told which table that is."""
    tables = {one.alias_or_name.lower(): one.name.lower() for one in _sources(select)}
    alias = column.table.lower()
    if not alias and len(tables) == 1:
        alias = next(iter(tables))
    keys = [one for one in grouped if isinstance(one, exp.Column)]
    if len(keys) < len(grouped) or not alias or alias not in tables:
        return True
    unique = _unique_columns(tables[alias], shown)
    for key in keys:
        name = key.name.lower()
        if name in unique or name in own_keys(tables[alias]):
            return True
        if _KEY.search(key.name) and not _repeats(tables[alias], name, shown):
            return True
    return not _repeats_any(tables[alias], keys, alias, shown)


def _sources(select: exp.Select) -> Iterator[exp.Table]:
    joins = select.args.get("joins") or []
    for part in (select.args.get("from_") or select.args.get("from"), *joins):
        if part is not None and isinstance(part.this, exp.Table):
            yield part.this


def _unique_columns(table: str, shown: Sequence[exp.Expr]) -> set[str]:
    found = set[str]()
    for tree in shown:
        if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema) and tree.this.this.name.lower() == table:
            for one in tree.this.expressions:
                if isinstance(one, exp.ColumnDef) and re.search(r"\b(?:UNIQUE|PRIMARY)\b", one.sql(), re.IGNORECASE):
                    found.add(one.name.lower())
                elif isinstance(one, exp.PrimaryKey) and len(one.expressions) == 1:
                    found.add(one.expressions[0].name.lower())
    return found


def _values(table: str, column: str, shown: Sequence[exp.Expr]) -> list[str]:
    """The values of a column in the rows that a prompt inserts."""
    names = [one.name.lower() for one in dict(definitions(shown)).get(table, ())]
    if column not in names:
        return []
    place, listed = names.index(column), list[str]()
    for tree in shown:
        target = tree.this.find(exp.Table) if isinstance(tree, exp.Insert) else None
        if target is not None and target.name.lower() == table and isinstance(tree.expression, exp.Values):
            listed += [
                row.expressions[place].sql() for row in tree.expression.expressions if place < len(row.expressions)
            ]
    return listed


def _repeats(table: str, column: str, shown: Sequence[exp.Expr]) -> bool:
    values = _values(table, column, shown)
    return len(set(values)) < len(values)


def _repeats_any(table: str, keys: Sequence[exp.Column], alias: str, shown: Sequence[exp.Expr]) -> bool:
    """Whether the rows that are shown hold a group's value twice; without rows, groups by names are not judged."""
    own = [key.name.lower() for key in keys if key.table.lower() in ("", alias)]
    return not own or any(_repeats(table, name, shown) for name in own)


def _formats_nothing(node: exp.Expr) -> bool:
    text = node.sql(dialect="sqlite")
    found = re.match(r"STRFTIME\('([^']*)'", text, re.IGNORECASE)
    return found is not None and any(letter not in _KNOWN_FORMATS for letter in _FORMAT.findall(found[1]))


def _is_constant(node: exp.Expr) -> bool:
    """Whether a number is compared with a subquery all of whose columns are its own tables'."""
    sides = (node.this, node.expression)
    inner = [side for side in sides if isinstance(side, exp.Subquery)]
    if len(inner) != 1 or not any(isinstance(side, exp.Literal) and not side.is_string for side in sides):
        return False
    own = {table.alias_or_name.lower() for table in inner[0].find_all(exp.Table)}
    columns = list(inner[0].find_all(exp.Column))
    return bool(columns) and all(column.table and column.table.lower() in own for column in columns)


def _is_unlike(node: exp.Expr, texts: set[str]) -> bool:
    sides = (node.this, node.expression)
    number = any(isinstance(side, exp.Literal) and not side.is_string for side in sides)
    return number and any(isinstance(side, exp.Column) and side.name.lower() in texts for side in sides)


def _drops_remainder(node: exp.Round) -> bool:
    """Whether digits are asked for of a quotient of two counts, or of sums of ones and noughts."""
    quotient = _bare(node.this)
    if not isinstance(quotient, exp.Div) or not node.args.get("decimals") or quotient.find(exp.Cast):
        return False
    return _is_whole(quotient.this) and _is_whole(quotient.expression)


def _is_share(node: exp.Div) -> bool:
    return isinstance(_bare(node.expression), exp.Count) and _is_whole(node.this)


def _is_whole(part: exp.Expr) -> bool:
    side = _bare(part)
    if isinstance(side, exp.Sum):
        values = [one for one in side.find_all(exp.Literal) if one.find_ancestor(exp.Predicate, exp.In) is None]
        return isinstance(side.this, exp.Case | exp.If | exp.Predicate | exp.Connector) and all(
            one.this in ("0", "1") for one in values
        )
    return isinstance(side, exp.Count)


def _calculates_with_text(node: exp.Expr) -> bool:
    return any(isinstance(_bare(side), exp.DPipe) for side in (node.this, node.args.get("expression")))


def _bare(node: exp.Expr | None) -> exp.Expr | None:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _names_twice(tree: exp.Expr, shown: Sequence[exp.Expr]) -> bool:
    """Whether two columns of a result have one name, also those that a star stands for."""
    if not isinstance(tree, exp.Select):
        return False
    columns = {table.name.lower(): sorted(table.column_names) for table in defined(shown)}
    sources = [(one.alias_or_name.lower(), columns.get(one.name.lower(), [])) for one in _sources(tree)]
    names: list[str] = []
    for one in tree.selects:
        whole = isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star))
        if not whole:
            names.append(one.alias_or_name.lower())
            continue
        of = one.table.lower() if isinstance(one, exp.Column) else ""
        names += [name for alias, listed in sources if not of or alias == of for name in listed]
    names = [name for name in names if name]
    return len(set(names)) < len(names)
