"""Queries that do not do what their task's words say, or do nothing that is worth writing."""

import re

from sqlglot import exp

from capibara_assets.datasets.code.queries import last_select, statements
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import CODE, SCHEMA, section, stated
from capibara_assets.datasets.schema import CODE_KINDS

BARE_COUNT = "its query counts the rows of one table, and nothing else"
AVERAGED_DATE = "its query adds up or averages a column of dates"
ANY_ROWS = "its query cuts off rows in no order: which stay is chance"
CHECK = "its query checks another's result: of other rows it tells nothing"
UNCUT = "its repair no longer cuts off the rows that the failing query cut off"
ROLLING = "its task asks for whole months or years of the calendar, and its query counts back from now"
CODED = "its query compares a code with a number, of which nothing tells what it means"
UNNAMED = "its query groups by the number of a row, and shows no name of it"
OTHER_END = "its query looks for the other end of the order than its task names"
UNTOLD_KEY = "its query reads keys of JSON that its prompt does not tell"
NOT_DISTINCT = "its task asks for different ones, and its query counts each as often as it occurs"

_JSON_KEYS = re.compile(r"'\$((?:\.\w+|\[[\d#-]+\])+)'")
_DIFFERENT = re.compile(
    r"\b(?:how many|number of|counts?(?: of)?(?: the)?) (?:different|distinct|unique)\b", re.IGNORECASE
)
_LEAST = re.compile(r"\b(youngest|smallest|lowest|least|fewest|minimum|shortest|cheapest|lightest)\b", re.IGNORECASE)
_MOST = re.compile(r"\b(oldest|largest|highest|most|greatest|maximum|longest|heaviest|biggest)\b", re.IGNORECASE)
_CALENDAR = re.compile(r"\bcalendar (?:week|month|quarter|year)", re.IGNORECASE)
_WHOLE = re.compile(r"start of|%Y-%m'|%Y'|%m'", re.IGNORECASE)
_NOW = re.compile(r"'now'", re.IGNORECASE)
_CONDITION = r"(?:(?!\bTHEN\b)[^;])*?"
_CHECKS = re.compile(
    r"\bINSERT\s+INTO\s+[\"`\[]?check_|\bcheck_result\b"
    rf"|\bWHEN\b{_CONDITION}\b(?:COUNT\s*\(|SELECT\b|EXISTS\b){_CONDITION}"
    r"\bTHEN\s+'(?:PASS|FAIL|OK)(?:ED)?'\s+ELSE\s+'(?:PASS|FAIL|NOT OK)(?:ED)?'",
    re.IGNORECASE,
)
_CHECKS_ROWS = re.compile(
    r"\bTHEN\s+'(?:PASS|OK)(?:ED)?'\s+ELSE\s+'(?:FAIL|NOT OK)|\bTHEN\s+'(?:correct|right|match\w*)'\s+ELSE\s+'"
    r"|\b(?:count|row|value|sum|total)s?_ok\b|'missing'\s+AS\b"
    r"|\b(?:want|got|expected|actual|gold)\b(?:\s*\([^()]*\))?\s+AS\s*\("
    r"|\bSELECT\s(?:(?!\bFROM\b)[^;])*?\bCOUNT\s*\([^()]*\)\s*=\s*\d",
    re.IGNORECASE,
)
_TOP = re.compile(r"\bSELECT\s+(?:DISTINCT\s+)?TOP\s*\(?\d", re.IGNORECASE)
_CUTS = re.compile(r"\bLIMIT\b|\bFETCH\b|\bROW_NUMBER\b|\bRANK\b|\b(?:MAX|MIN)\s*\(", re.IGNORECASE)
_OF_CODES = re.compile(r"(?:(?:^|_)(?:type|kind|code|class|category|status|role|mode|gender|sex)|(?:^|_)id)$", re.I)
_ROW_NUMBER = re.compile(r"\bids?\b", re.IGNORECASE)
_DATES = re.compile(r"date|birth|dob|year|time|rank|position|place|since|order", re.IGNORECASE)
_DATE_TYPE = r"\b{name}\b[\"'`]?\s*[|:,]?\s*[\"'`(]*(?:date|datetime|timestamp)\b"


def mismatched(candidate: ExampleCandidate) -> str | None:
    """Why a query that was written for a task does not answer it, or is no work; None otherwise."""
    if candidate.language != "sql":
        return None
    given = section(candidate.prompt, CODE)
    if _CHECKS.search(f"{given}\n{candidate.answer}"):
        return CHECK
    if candidate.kind not in CODE_KINDS:
        return None
    if _CHECKS_ROWS.search(candidate.answer):
        return CHECK
    if _counts_back(candidate):
        return ROLLING
    if candidate.kind != "repair" and _reads_untold_keys(candidate):
        return UNTOLD_KEY
    if _TOP.search(given) and not _CUTS.search(candidate.answer):
        return UNCUT
    tree = last_select(candidate.answer)
    if tree is None:
        return None
    if candidate.kind != "repair" and len(statements(candidate.answer)) == 1 and _is_bare_count(tree):
        return BARE_COUNT
    if candidate.kind != "repair" and tree.args.get("limit") and not tree.args.get("order"):
        return ANY_ROWS
    schema, task = section(candidate.prompt, SCHEMA), stated(candidate.prompt)
    if candidate.kind != "repair" and _DIFFERENT.search(task) and _counts_twice(tree):
        return NOT_DISTINCT
    if candidate.kind != "repair" and _compares_codes(tree, task):
        return CODED
    if candidate.kind != "repair" and _names_nothing(tree, schema) and not _ROW_NUMBER.search(task):
        return UNNAMED
    for node in tree.find_all(exp.Avg, exp.Sum):
        name = re.escape(node.this.name) if isinstance(node.this, exp.Column) else ""
        if name and re.search(_DATE_TYPE.format(name=name), schema, re.IGNORECASE):
            return AVERAGED_DATE
    return OTHER_END if _looks_at_other_end(tree, task) else None


def _reads_untold_keys(candidate: ExampleCandidate) -> bool:
    keys = {key for path in _JSON_KEYS.findall(candidate.answer) for key in re.findall(r"[^\W\d]\w*", path)}
    return any(re.search(rf"\b{key}\b", candidate.prompt, re.IGNORECASE) is None for key in keys)


def _counts_twice(tree: exp.Select) -> bool:
    """Whether the one query that there is counts values, with each of them as often as it occurs."""
    counts = [node for node in tree.find_all(exp.Count) if isinstance(node.this, exp.Column)]
    others = next(tree.find_all(exp.Distinct, exp.Subquery, exp.Union), None)
    return bool(counts) and others is None and len(list(tree.find_all(exp.Select))) == 1


def _counts_back(candidate: ExampleCandidate) -> bool:
    """Whether a task asks for months of the calendar, and a query counts days or months back from now."""
    back = _NOW.search(candidate.answer) and not _WHOLE.search(candidate.answer)
    return bool(back) and _CALENDAR.search(stated(candidate.prompt)) is not None


def _compares_codes(tree: exp.Select, task: str) -> bool:
    """Whether a query compares a type, a status or an id with a number that its task does not hold."""
    pairs = [(node.this, node.expression) for node in tree.find_all(exp.EQ, exp.NEQ)]
    return any(
        isinstance(column, exp.Column)
        and _OF_CODES.search(column.name) is not None
        and isinstance(value, exp.Literal)
        and not value.is_string
        and len(value.name) == 1  # a longer one is looked up (queries.py)
        and re.search(rf"(?<![\w.]){re.escape(value.name)}(?![\w.])", task) is None
        for column, value in pairs
    )


def _names_nothing(tree: exp.Select, schema: str) -> bool:
    """Whether a query groups by `id` alone and shows nothing else of its rows, though their table has names."""
    group = tree.args.get("group")
    by = group.expressions if group is not None else []
    if len(by) != 1 or not isinstance(by[0], exp.Column) or by[0].name.lower() != "id":
        return False
    shown = [column for one in tree.expressions if not one.find(exp.AggFunc) for column in one.find_all(exp.Column)]
    names = rf"\b(?:{re.escape(by[0].table)}_)?name\b"
    return all(column.name.lower() == "id" for column in shown) and re.search(names, schema) is not None


def _is_bare_count(tree: exp.Select) -> bool:
    parts = [tree.args.get(name) for name in ("joins", "where", "group", "having", "distinct", "order")]
    (only,) = tree.expressions if len(tree.expressions) == 1 else (None,)
    counted = only.unalias() if isinstance(only, exp.Expression) else None
    return not any(parts) and isinstance(counted, exp.Count) and isinstance(counted.this, exp.Star)


def _looks_at_other_end(tree: exp.Select, task: str) -> bool:
    """Whether the one extreme that a query looks for is the opposite of the one that its task names.

    Of dates, years and ranks the words say nothing: the youngest was born last.
    """
    least, most = _LEAST.search(task) is not None, _MOST.search(task) is not None
    ends = [(isinstance(node, exp.Min), node.this) for node in tree.find_all(exp.Min, exp.Max)]
    for select in tree.find_all(exp.Select):
        order, limit = select.args.get("order"), select.args.get("limit")
        if order is not None and limit is not None:
            first = order.expressions[0]
            ends.append((not first.args.get("desc"), first.this))
    if least == most or len(ends) != 1:
        return False
    (is_least, column), *_ = ends
    return is_least != least and not _DATES.search(column.sql())
