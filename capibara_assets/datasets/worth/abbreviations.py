"""Unexplained abbreviations in SQL tasks, such as a metric TUC that only the author's glossary defined.

A word in capitals is explained where words of the task begin with its letters, where the task says what it stands for,
and where it is a part of a table's or column's name or a value. What every engineer knows is no abbreviation here.
"""

import re
from collections.abc import Iterable

from sqlglot import exp

from capibara_assets.datasets.code.queries import sql_texts, statements
from capibara_assets.datasets.kinds.prompts import FILES, SCHEMA, section, stated

UNEXPLAINED = "its task holds an abbreviation that nothing explains"

_CAPITALS = re.compile(  # or with digits: a rate D7D30
    r"(?<![\w'\"`%.$@#-])(?:[A-Z]{2,6}s?|(?=[A-Z]*\d)[A-Z](?=\w*[A-Z])[A-Z0-9]{3,11})(?![\w'\"`%@#-])"
)
_COMMON_WORDS = """ID IDS ISO US USA UK EU UN AM PM UTC GMT CEO CTO CFO HR IT TV PC VIP FAQ GPA GDP USD EUR GBP SQL CSV
JSON XML HTML HTTP HTTPS API URL IP CPU RAM PDF SKU NA OK PS AI DNA ZIP PIN ATM BMI YTD MTD QTD AKA TODO
NB PHD MBA YYYY YY MM DD HH SS MON TUE WED THU FRI SAT SUN JAN FEB MAR APR JUN JUL AUG SEP OCT NOV DEC"""
_COMMON = frozenset(_COMMON_WORDS.split())
_OF_SQL = """SELECT FROM WHERE AND OR NOT NULL IN IS AS ON BY ASC DESC JOIN LEFT RIGHT INNER OUTER UNION ALL ANY CASE
WHEN THEN ELSE END LIKE LIMIT WITH OVER DATE TIME TEXT TRUE FALSE VIEW TABLE INDEX INT REAL TOP CTE XOR UUID AVG
SUM MIN MAX COUNT ROUND ABS LAG LEAD RANK NTILE IIF IFNULL CAST LOWER UPPER LEN"""
_KEYWORDS = frozenset(_OF_SQL.split())
_SMALL_WORDS = "a an the of in on at to for by and or per with from"
_SMALL = frozenset(_SMALL_WORDS.split())
_SHORTEST = 2
_TOLD = r"\s*(?:\(|=|:|,? ?i\.e\.|, ?(?:that is|or)|is (?:defined|calculated|computed)|means|stands for|refers? to)"


def unexplained(prompt: str, answer: str, language: str) -> str | None:
    """The first abbreviation of a task that nothing explains."""
    task = stated(prompt)
    letters = [letter for letter in task if letter.isalpha()]
    if sum(map(str.isupper, letters)) > len(letters) / 2:
        return None  # it is written in capitals
    known = {*_COMMON, *_KEYWORDS, *_named(prompt, answer, language)}
    unknown = (match for match in _CAPITALS.finditer(task) if match[0].upper() not in known)
    words = (one[0] for one in unknown if one[0].removesuffix("s") not in known)
    return next((word for word in words if not _is_told(word, task)), None)


def _named(prompt: str, answer: str, language: str) -> set[str]:
    """Words in the names of tables and columns, and in values, in capitals; what a query names itself tells nothing."""
    trees = [tree for query in sql_texts(answer, language) for tree in statements(query)]
    own = {alias.alias.lower() for tree in trees for alias in tree.find_all(exp.Alias, exp.CTE)}
    names = [
        node.name for tree in trees for node in tree.find_all(exp.Column, exp.Table) if node.name.lower() not in own
    ]
    values = [node.name for tree in trees for node in tree.find_all(exp.Literal) if node.is_string]
    return _words([*names, *values, section(prompt, SCHEMA), section(prompt, FILES)])


def _words(texts: Iterable[str]) -> set[str]:
    whole = {word for text in texts for word in re.findall(r"\w+", text)}
    parts = {part for word in whole for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", word)}
    return {word.upper() for word in (*whole, *parts)}


def _is_told(abbreviation: str, task: str) -> bool:
    """Whether a task says what an abbreviation stands for, or holds the words whose first letters it is made of."""
    short = abbreviation.removesuffix("s")
    if re.search(rf"\({short}s?\)|(?<!\w){short}s?{_TOLD}", task):
        return True
    words = [word.lower() for word in re.findall(r"[A-Za-z]+", task) if word != abbreviation]
    letters = ["".join(word[0] for word in words if word not in _SMALL)]
    if len(short) > _SHORTEST:  # two letters begin two words of many texts
        letters.append("".join(word[0] for word in words))
    return any(short.lower() in one for one in letters)
