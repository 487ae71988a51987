"""`unexplained`: tasks for SQL that ask for a metric by letters which neither the prompt nor what all know explains."""

import itertools
import re

from sqlglot import tokenize
from sqlglot.errors import SqlglotError

from benchmarks.datasets.faults.cases import CODE_KINDS, Case
from benchmarks.datasets.faults.python_code import parse
from benchmarks.datasets.faults.queries.schemas import embedded_queries
from benchmarks.datasets.faults.words import STOP, words

_LETTERS = re.compile(r"(?<![\w'\"`%./@#$-])([A-Z]{2,6})s?\b(?!['\"`%@/#-])")
_KNOWN = words(
    """
    ID ISO SQL US USA UK EU UN AM PM UTC GMT CEO CTO CFO HR IT TV PC VIP FAQ GPA GDP USD EUR GBP CSV JSON XML HTML HTTP
    HTTPS API URL IP CPU RAM PDF SKU NA OK PS AI DNA ZIP PIN ATM BMI YTD MTD QTD AKA YYYY MM DD HH SS NB MBA PHD TODO
    AND OR NOT NULL SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT RIGHT INNER OUTER ON AS IN IS LIKE ALL ANY
    CASE WHEN THEN ELSE END DISTINCT UNION EXISTS BETWEEN ASC DESC WITH OVER COUNT SUM AVG MIN MAX RANK ROUND CAST DATE
    TRUE FALSE VIEW TABLE INDEX INSERT UPDATE DELETE CREATE TOP LAG LEAD CTE
    """
)
_SAID = (r"\({0}s?\)", r"\b{0}s?\s*(?:\(|=|:|means\b|stands for|refers? to|is (?:defined|computed|calculated))")


def unexplained(case: Case) -> str | None:
    """The letters that a task for SQL leaves unexplained; None where there are none."""
    if case.kind not in CODE_KINDS:
        return None
    queries = [case.code] if case.language == "sql" else []
    if case.language == "python" and (tree := parse(case.code)) is not None:
        queries = list(embedded_queries(tree))
    asked = next((section.text for section in case.sections if not section.title), "")
    if not queries or asked.upper() == asked:
        return None
    listed = " ".join(s.text for s in case.sections if re.match(r"schema|tables?|files?|columns?", s.title, re.I))
    known = {part.upper() for part in re.findall(r"[A-Za-z]+", listed)} | _identifiers(queries) | _KNOWN
    for found in _LETTERS.finditer(asked):
        letters = found.group(1)
        said = any(re.search(form.format(letters), asked) for form in _SAID)
        if letters not in known and not said and not _spelt(letters, asked.replace(letters, " ")):
            return f"nothing explains {letters}"
    return None


def _identifiers(queries: list[str]) -> set[str]:
    """Parts of the names and texts in queries, in capitals; not of the names that a query gives itself."""
    found: set[str] = set()
    for query in queries:
        try:
            tokens = tokenize(query, read="sqlite")
        except SqlglotError:
            continue
        given = {after.text.lower() for one, after in itertools.pairwise(tokens) if one.token_type.name == "ALIAS"}
        for token in tokens:
            if token.token_type.name in ("VAR", "IDENTIFIER", "STRING") and token.text.lower() not in given:
                found |= {
                    part.upper() for part in re.findall(r"[A-Za-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", token.text))
                }
    return found


def _spelt(letters: str, asked: str) -> bool:
    """Whether words that stand side by side begin with the letters, small words left out or, of three, counted."""
    every = re.findall(r"[a-z]+", asked.lower())
    telling = [word for word in every if word not in STOP and word not in ("per", "each")]
    lists = [telling, every] if len(letters) > 2 else [telling]
    return any(letters.lower() in "".join(word[0] for word in listed) for listed in lists)
