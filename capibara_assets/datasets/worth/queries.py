"""Queries unsuitable as answers: unrequested parts, and unstated assumptions."""

import re
from collections.abc import Iterable

from sqlglot import exp

from capibara_assets.datasets.code.queries import sql_texts, statements
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import CODE, ERROR, SCHEMA, SESSION, section, stated
from capibara_assets.datasets.worth.abbreviations import UNEXPLAINED, unexplained
from capibara_assets.datasets.worth.query_sense import (
    ADDS_TEXT,
    AS_TEXT,
    BY_NAME,
    CASED,
    DATES,
    MONTH_FOR_DATE,
    SAYS_NOTHING,
    WITH_NULL,
    WORDS,
    adds_texts,
    compares_as_text,
    compares_cases,
    compares_with_null,
    groups_by_name,
    reckons_with_words,
    says_nothing,
    shows_months_for_dates,
    subtracts_dates,
)

DIALECT = "its query holds a clause that only another dialect or the sorting of NULL explains"
LOOKED_UP = "its query compares with a value that its prompt does not hold: its author had looked it up"
LOOSE = "its query looks for a part of a text that the task quotes whole"
LOOKS = "its answer looks at the tables of a database, and its task asks for rows"
UNSTATED = "its query rounds, cuts off or compares with a number that its prompt does not state"
UNSEEN = "it says where tables are that its prompt does not show"
NEEDLESS = "its repair also changes what its error and its task do not speak of"

_DIALECT = re.compile(  # a collation of a server, or NULL above the largest values
    r"\bCOLLATE\s+(?!NOCASE|BINARY|RTRIM)\w|\bDESC\s+NULLS\s+FIRST\b|"
    r"\bIS\s+NULL\s+THEN\s+1\s+ELSE\s+0\s+END\s+DESC\b",
    re.IGNORECASE,
)
_FLAGGED = re.compile(r"\bNULLS\s+(FIRST|LAST)\b|\bIS\s+NULL\s+THEN\s+\d\s+ELSE\s+\d\s+END\b", re.IGNORECASE)
_DATABASE = re.compile(r"\b(FROM|JOIN)\s+\w+\.\w+", re.IGNORECASE)  # a table by the name of its database
_ON_DIALECT = re.compile(r"\bnulls?\b|\bmissing\b|\bcollat|\bunknown\b|\bcase.?(in)?sensitiv", re.IGNORECASE)
_ON_MISSING = re.compile(rf"{_ON_DIALECT.pattern}|\bzeros?\b|\b0\b|\bnone\b|\bwithout\b|\bCONCAT|\bISNULL|\bNVL", re.I)
_LOOK = re.compile(r"\s*(?:--[^\n]*\n\s*)*(?:show|describe|desc|pragma|use)\b", re.IGNORECASE)
_ON_TABLES = re.compile(r"\b(tables?|columns?|fields?|schema|structure|types?|index(es)?|databases?)\b", re.IGNORECASE)
_ROUNDS = re.compile(r"\bround|digit|decimal|place|precision|nearest|whole|integer|percent\D*\d", re.IGNORECASE)
_CUTS = re.compile(r"\bLIMIT\s+(\d+)|(?:[<>]=?)\s*(\d+(?:\.\d+)?)(?![\d.]*\s*[*/+-])", re.IGNORECASE)
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_QUOTED = re.compile(r"[\"“']([^\"”'\n]{2,60})[\"”']")
_PARTIAL = re.compile(r"\b(contain|includ|like|with the word|substring|part of|mention|starting|ending|similar)", re.I)
_PATTERN = re.compile(r"LIKE\s+(?:LOWER\s*\(\s*)?'%([^'%]+)%'", re.IGNORECASE)
_FORMAT = re.compile(r"(?:%[A-Za-z][-/: .T]?)+(?:01)?")  # of a date
_ADDED = re.compile(r"\b(ROUND|COALESCE|IFNULL)\s*\(")  # in capitals
_ADDED_FOR = {"ROUND": _ROUNDS, "COALESCE": _ON_MISSING, "IFNULL": _ON_MISSING}
_KEY = re.compile(r"^(?:id|ID|Id)$|_(?:id|ID)$|[a-z]I[dD]$")
_STEM = 4  # letters by which forms of a word are known


def unworthy_query(candidate: ExampleCandidate) -> str | None:
    """Why an example with SQL is not worth learning; None if it is."""
    if candidate.kind == "explain" and _claims_tables(candidate):
        return UNSEEN
    if candidate.kind in ("predict", "explain"):
        code, shown = section(candidate.prompt, CODE), section(candidate.prompt, SESSION)
        return _why_senseless(code, shown) if candidate.language == "sql" else None
    if unexplained(candidate.prompt, candidate.answer, candidate.language) is not None:
        return UNEXPLAINED
    if candidate.kind == "repair" and candidate.language != "sql":
        return NEEDLESS if _orders_nulls(candidate) else None
    if (why := _unworthy_clause(candidate)) is not None:
        return why
    if any(_is_looked_up(query, candidate.prompt) for query in sql_texts(candidate.answer, candidate.language)):
        return LOOKED_UP
    return _unsound(candidate)


def _claims_tables(candidate: ExampleCandidate) -> bool:
    """Whether a diagnosis of a missing table says that there is one by another name, which nothing shows."""
    shown = section(candidate.prompt, SCHEMA) or section(candidate.prompt, SESSION)
    return "no such table" in section(candidate.prompt, ERROR) and "`main`" in candidate.answer and not shown


def _why_senseless(query: str, shown: str) -> str | None:
    if says_nothing(query):
        return SAYS_NOTHING
    if reckons_with_words(query, shown):
        return WORDS
    return CASED if compares_cases(query) else AS_TEXT if compares_as_text(query, shown) else None


def _unsound(candidate: ExampleCandidate) -> str | None:
    """Why an answer's queries give something else than they seem to."""
    shown = f"{section(candidate.prompt, SESSION)}\n{section(candidate.prompt, SCHEMA)}"
    task = stated(candidate.prompt)
    for query in sql_texts(candidate.answer, candidate.language):
        if (why := _why_senseless(query, shown)) is not None:
            return why
        if shows_months_for_dates(query, task):
            return MONTH_FOR_DATE
        if subtracts_dates(query):
            return DATES
        if compares_with_null(query):
            return WITH_NULL
        if adds_texts(query):
            return ADDS_TEXT
        if candidate.kind != "repair" and groups_by_name(query, shown, task):
            return BY_NAME
    return None


def _unworthy_clause(candidate: ExampleCandidate) -> str | None:
    asked = candidate.prompt
    if candidate.kind == "repair":
        failing = candidate.failing or ""
        if _orders_nulls(candidate) or _adds_a_function(candidate):
            return NEEDLESS
        if _cuts_a_name(failing, candidate.answer, section(asked, ERROR)):
            return NEEDLESS
        named = "no such table" in asked or "unknown database" in asked
        return NEEDLESS if _DATABASE.search(failing) and not (named or _DATABASE.search(candidate.answer)) else None
    if candidate.language == "sql" and _LOOK.match(candidate.answer) and not _ON_TABLES.search(stated(asked)):
        return LOOKS
    if _DIALECT.search(candidate.answer) and not _ON_DIALECT.search(asked):
        return DIALECT
    if candidate.language == "sql" and _is_unstated(candidate.answer, asked):
        return UNSTATED
    quoted = {text.lower() for text in _QUOTED.findall(stated(asked))}
    if quoted & {text.lower() for text in _PATTERN.findall(candidate.answer)} and not _PARTIAL.search(asked):
        return LOOSE
    return None


def _orders_nulls(candidate: ExampleCandidate) -> bool:
    """Whether a repair also says where NULL is ordered, of which its prompt says nothing."""
    added = _FLAGGED.search(candidate.answer) and not _FLAGGED.search(candidate.failing or "")
    return bool(added) and not _ON_DIALECT.search(candidate.prompt)


def _adds_a_function(candidate: ExampleCandidate) -> bool:
    """Whether a repair also rounds or replaces NULL, of which its prompt says nothing."""
    before, after = (set(_ADDED.findall(code.upper())) for code in (candidate.failing or "", candidate.answer))
    told = f"{stated(candidate.prompt)}\n{section(candidate.prompt, ERROR)}"
    return any(not _ADDED_FOR[name].search(told) for name in after - before)


def _cuts_a_name(failing: str, answer: str, error: str) -> bool:
    """Whether a repair cuts off the name of a column of the result, of which its error says nothing."""
    before, after = (
        [one.named_selects for one in statements(query) if isinstance(one, exp.Select)][-1:]
        for query in (failing, answer)
    )
    pairs = zip(before[0], after[0], strict=False) if before and after and len(before[0]) == len(after[0]) else ()
    return any(new and len(new) < len(old) and old.startswith(new) and old not in error for old, new in pairs)


def _numbers_said(asked: str) -> set[str]:
    """The numbers of a prompt, also those in words."""
    words = {str(value) for value, word in enumerate(_NUMBERS) if re.search(rf"\b{word}\b", asked, re.IGNORECASE)}
    return {*re.findall(r"\d+(?:\.\d+)?", asked), *words}


def _is_looked_up(query: str, asked: str) -> bool:
    """Whether a query asks for a number that the prompt does not hold, or a text of which it holds a word in no form.

    A form is a word with the same beginning: `Asia` of "Asian".
    """
    known = set(re.findall(r"\w+", asked.lower()))
    compared = [c for statement in statements(query) for c in statement.find_all(exp.EQ, exp.NEQ, exp.In, exp.Like)]
    literals = [text.this for one in compared for text in one.find_all(exp.Literal) if text.is_string]
    texts = {text.lower() for text in literals if not _FORMAT.fullmatch(text)}
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    equal = [part for one in compared for part in (one.this, one.args.get("expression"), *one.expressions)]
    numbers = {part.this for part in equal if isinstance(part, exp.Literal) and not part.is_string}
    said = _numbers_said(asked)
    return bool((numbers - {"0", "1"} | _keys(compared)) - said) or any(
        word not in known and (len(word) < _STEM or not any(one.startswith(word[:_STEM]) for one in known))
        for word in words
    )


def _keys(compared: Iterable[exp.Expr]) -> set[str]:
    """The numbers that are compared with a key: whose it is, only the table's rows say."""
    found = set[str]()
    for one in compared:
        parts = [part for part in (one.this, one.args.get("expression"), *one.expressions) if part is not None]
        if any(isinstance(part, exp.Column) and _KEY.search(part.name) for part in parts):
            found |= {part.this for part in parts if isinstance(part, exp.Literal) and not part.is_string}
    return found - {"0"}


def _is_unstated(query: str, asked: str) -> bool:
    """Whether a query rounds, or holds a bound of more than one, of which the prompt says nothing."""
    if "ROUND(" in query.upper() and not _ROUNDS.search(asked):
        return True
    said = _numbers_said(asked)
    bounds = {limit or bound for limit, bound in _CUTS.findall(query)}
    return any(bound not in said for bound in bounds - {"0", "1"})
