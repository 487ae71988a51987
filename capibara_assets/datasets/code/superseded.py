"""Cells that ended well and were not the last word: defined or asked otherwise later, or refuted by an assertion."""

import re
from collections import defaultdict
from collections.abc import Sequence

from capibara_assets.datasets.code.sessions import Row, defined_name, definitions, needed, statements
from capibara_assets.executions.patterns.attempts import HORIZON
from capibara_assets.executions.patterns.similarity import similarity, tokens

_OF_TESTS = re.compile(r"_*(?:test|check|assert|main\b|run\b|expect|verify)", re.IGNORECASE)
_QUERY = re.compile(r"\s*(?:select|with|create\s+(?:temp\w*\s+)?view)\b", re.IGNORECASE)
_RAISES = re.compile(r"\b(?:throw|raise)\b")
_LAMBDA = re.compile(r"^\w+ *= *lambda\b", re.MULTILINE)
_ALIKE = 0.5  # least likeness of a query to another one of the same question


def superseded(session: Sequence[Row]) -> set[str]:
    """Executions that ended well and defined what a later one defines otherwise: their authors went on.

    A cell for another task may define something else under the same name, as may any that defines its own test.
    """
    found: set[str] = set()
    later: dict[str, dict[str | None, set[str]]] = defaultdict(lambda: defaultdict(set))  # name -> task -> definitions
    for row in reversed(session):
        if row["outcome"] != "ok":
            continue
        for name, definition in definitions(row["code"], row["language"]).items():
            if _OF_TESTS.match(name):
                continue
            of, text = later[name], " ".join(definition.split())
            if any(of[task] - {text} for task in ({row["task"], None} if row["task"] else set(of))):
                found.add(row["execution_id"])
            of[row["task"]].add(text)
    return found


def refuted(session: Sequence[Row]) -> set[str]:
    """Executions that ended well and defined what a later check needed that did not hold.

    A check is an assertion, or a statement outside the definitions that raises. One that was asked again in other words
    and held was wrong itself.
    """
    found: set[str] = set()
    for position, row in enumerate(session):
        if row["outcome"] == "error" and _is_check(row):
            defined = _defining(session, position)
            held = (
                _defining(session, later)
                for later in range(position + 1, len(session))
                if session[later]["outcome"] == "ok"
                and similarity(tokens(row["code"]), tokens(session[later]["code"])) >= _ALIKE
            )
            found |= defined.difference(*held)
    return found


def _is_check(row: Row) -> bool:
    """Whether what a cell ended with may be its own verdict on what earlier cells defined."""
    if "Assert" in (row["error_name"] or ""):
        return True
    listed = statements(row["code"], row["language"])
    return any(_RAISES.search(one.text) for one in listed if defined_name(one.text) is None)


def _defining(session: Sequence[Row], position: int) -> set[str]:
    """The earlier cells that define functions or classes which a cell needs."""
    pieces = needed(session, position).pieces
    return {
        piece.row["execution_id"]
        for piece in pieces
        if _LAMBDA.search(piece.text) or definitions(piece.text, piece.row["language"])
    }


def asked_otherwise(session: Sequence[Row]) -> set[str]:
    """Queries that are not the answer to their task: another one for it showed other rows.

    Of two queries much alike the author went on to the later one. Of two that are not, each answers a part of the task,
    or only looks at something. One that states its question itself is an attempt of its own, as the dialects of a
    benchmark are.
    """
    asked = [
        (row["execution_id"], row["task"], _rows(row), tokens(row["code"]))
        for row in session
        if row["language"] == "sql" and row["outcome"] == "ok" and _QUERY.match(row["code"])
    ]
    found: set[str] = set()
    for position, (name, task, rows, words) in enumerate(asked):
        for other, of, shown, others in asked[position + 1 : position + 1 + HORIZON]:
            if of != task or shown == rows or others == words:
                continue
            if similarity(words, others) >= _ALIKE:
                found.add(name)
            elif task is not None:
                found |= {name, other}
    return found


def _rows(row: Row) -> list[list[str]]:
    """The words of the rows that a query showed, without its head and their numbers."""
    return [line.split()[1:] for line in (row["result_text"] or "").split("\n")[1:]]
