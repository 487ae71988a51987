"""Tables listed in prose: `Tables: films(id, name), halls(id INTEGER, seats INTEGER)`."""

import re
from collections.abc import Mapping
from typing import Literal

Stated = Mapping[str, Mapping[str, Literal["number", "text", "date"] | None]]
"""Table -> its columns, in order -> what they hold, where a type says so; all in lower case."""

_NAMED = r"[`\"\[]?[A-Za-z_]\w*[`\"\]]?"
_COLUMN = rf"{_NAMED}(?:[ \t]+[A-Za-z]+(?:\(\d+(?:,\s*\d+)?\))?)?(?:[ \t]+(?:PRIMARY KEY|NOT NULL|UNIQUE))*"
_TABLE = rf"(?<!\w){_NAMED}[ \t]*\([ \t]*{_COLUMN}(?:\s*,\s*{_COLUMN})*\s*\)"
_LISTED = re.compile(_TABLE, re.IGNORECASE)
_LINE = re.compile(
    rf"^[ \t]*+(?:[-*][ \t]*+)?(?:(?:database |the )?(?:tables?|schema|relations?)[ \t]*+:[ \t]*+)?{_TABLE}"
    rf"(?:[ \t]*(?:(?:,|;|\band\b)[ \t]*)?{_TABLE})*[ \t]*(?:[.;][ \t]*)?$",
    re.IGNORECASE | re.MULTILINE,
)
_TITLE = re.compile(
    r"^[ \t]*(?:database |the )?(?:tables?|schema|relations?)[ \t]*:[ \t]*\n?", re.IGNORECASE | re.MULTILINE
)
_NUMERIC = re.compile(r"int|real|float|double|num|dec|bool", re.IGNORECASE)
_DATES = re.compile(r"date|time", re.IGNORECASE)


def stated_tables(text: str) -> dict[str, dict[str, Literal["number", "text", "date"] | None]]:
    """The tables on lines that hold nothing else."""
    tables: dict[str, dict[str, Literal["number", "text", "date"] | None]] = {}
    for line in _LINE.findall(text):
        for table in _LISTED.findall(_TITLE.sub("", line)):
            name, _, columns = table.partition("(")
            listed = [column.split() for column in re.sub(r"\(.*?\)", "", columns.rpartition(")")[0]).split(",")]
            tables[_bare(name)] = {_bare(words[0]): _sort(words[1:]) for words in listed}
    return tables


def without_tables(text: str) -> str:
    """The text without the lines that only list tables."""
    return re.sub(r"\n{3,}", "\n\n", _LINE.sub("", text)).strip()


def _sort(words: list[str]) -> Literal["number", "text", "date"] | None:
    if not words:
        return None
    return "number" if _NUMERIC.match(words[0]) else "date" if _DATES.match(words[0]) else "text"


def _bare(name: str) -> str:
    return name.strip(' \t`"[]').lower()
