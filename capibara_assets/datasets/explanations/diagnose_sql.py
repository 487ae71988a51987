"""Causes of SQLite errors in queries of other dialects: PostgreSQL and T-SQL terms, and SQLite's equivalents."""

import re

from capibara_assets.datasets.code.edits import CodeEdit
from capibara_assets.datasets.code.sessions import Row

_POSTGRES, _TSQL = "PostgreSQL", "T-SQL"
#: Function -> (whose it is, what it does). https://www.postgresql.org/docs/current/functions.html,
#: https://learn.microsoft.com/en-us/sql/t-sql/functions/functions, https://www.sqlite.org/lang_corefunc.html
_FUNCTIONS = {
    "DATE_TRUNC": (_POSTGRES, "cuts a time stamp off below a unit"),
    "TO_CHAR": (_POSTGRES, "formats a date or a number as text"),
    "TO_DATE": (_POSTGRES, "reads a date out of text by a format"),
    "TO_TIMESTAMP": (_POSTGRES, "reads a time stamp out of text by a format, or out of seconds"),
    "DATE_PART": (_POSTGRES, "takes one field, such as the year, out of a date"),
    "AGE": (_POSTGRES, "gives the interval between two time stamps"),
    "NOW": (_POSTGRES, "gives the current time stamp"),
    "STRING_AGG": (_POSTGRES, "joins the texts of a group"),
    "ARRAY_AGG": (_POSTGRES, "gathers the values of a group into an array"),
    "GREATEST": (_POSTGRES, "gives the largest of its arguments"),
    "LEAST": (_POSTGRES, "gives the smallest of its arguments"),
    "YEAR": (_TSQL, "takes the year out of a date"),
    "MONTH": (_TSQL, "takes the month out of a date"),
    "DAY": (_TSQL, "takes the day of the month out of a date"),
    "LEN": (_TSQL, "gives the length of a text"),
    "ISNULL": (_TSQL, "gives its second argument where the first is NULL"),
    "GETDATE": (_TSQL, "gives the current date and time"),
    "DATEADD": (_TSQL, "adds a number of units to a date"),
    "DATEDIFF": (_TSQL, "counts the units between two dates"),
    "DATEPART": (_TSQL, "takes one field out of a date"),
    "CHARINDEX": (_TSQL, "finds a text in another one"),
    "STDEV": (_TSQL, "gives the standard deviation of a group"),
}
_CALL = re.compile(r"\b([A-Za-z_]+)\s*\(")
_LONGEST = 160


def query_cause(pair: Row, changes: list[CodeEdit]) -> list[str] | None:
    """Cause of SQLite's error and the equivalent syntax, in sentences; None if unknown."""
    error = pair["error_value"] or ""
    if any(not change.before or max(len(change.before), len(change.after)) > _LONGEST for change in changes):
        return None
    if re.search(r'near "ILIKE": syntax error', error, re.IGNORECASE):
        return _ilike(changes)
    if (table := re.search(r"no such table: (\w+)\.(\w+)", error)) is not None:
        return _prefix(changes, table[1], table[2], pair["fixed_code"])
    function = re.search(r"no such function: (\w+)", error)
    column = re.search(r"no such column: (\w+)", error)
    if len(changes) == 1 and (function is not None or column is not None):
        return _function(changes[0], function and function[1], column and column[1])
    return None


def _ilike(changes: list[CodeEdit]) -> list[str] | None:
    if any(
        not each.before[0].isalpha() or "ilike" not in each.before.lower() or " like " not in each.after.lower()
        for each in changes
    ):
        return None
    return [
        "`ILIKE` is PostgreSQL's `LIKE` without regard to case. SQLite's grammar has no such word, so the parser stops "
        "there, before any table is read.",
        *(f"`{each.before}` has to be `{each.after}`." for each in changes),
        "`LOWER` on both sides makes the comparison ignore case; SQLite's `LIKE` already does so for ASCII letters."
        if all("lower(" in each.after.lower() for each in changes)
        else "SQLite's `LIKE` ignores the case of ASCII letters by itself.",
    ]


def _prefix(changes: list[CodeEdit], schema: str, table: str, fixed: str) -> list[str] | None:
    mended = re.search(rf"\b(?:FROM|JOIN)\s+{table}\b(?:\s+AS\s+\w+)?", fixed, re.IGNORECASE)
    if mended is None or any(each.before.strip() != f"{schema}." or each.after for each in changes):
        return None
    return [
        f"SQLite reads `{schema}.{table}` as the table `{table}` of a database attached under the name `{schema}`. "
        "None is: SQLite has no schemas inside a database, and the tables stand in `main`.",
        f"The prefix `{schema}.` has to go: `{' '.join(mended[0].split())}` finds the table.",
    ]


def _function(change: CodeEdit, missing: str | None, column: str | None) -> list[str] | None:
    """Cause for a function that SQLite lacks, or whose unit argument it reads as a column."""
    called = [name.upper() for name in _CALL.findall(change.before)]
    name = missing.upper() if missing is not None else next((each for each in called if each in _FUNCTIONS), "")
    if name not in _FUNCTIONS or name not in called or name in map(str.upper, _CALL.findall(change.after)):
        return None
    if name == "DATEDIFF" and column is None:
        return None  # with two arguments it is MySQL's, which counts nights and no hours
    if "ROUND" in map(str.upper, _CALL.findall(change.after)) and "ROUND" not in called:
        return None  # it also rounds, which the error does not ask for
    whose, does = _FUNCTIONS[name]
    said = f"`{name}` is a function of {whose}: it {does}. SQLite has none of this name"
    if column is not None:
        if not re.search(rf"\b{name}\s*\(\s*{column}\b", change.before, re.IGNORECASE):
            return None
        said += f", and resolves the arguments first: it takes the word `{column}` for a column, and no table has one"
    return [f"{said}.", f"`{change.before}` has to be `{change.after}`."]
