"""Cells that ended well and were not the last word: defined or asked otherwise later, or refuted by an assertion."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from capibara_assets.datasets.code.comments import asks_for, is_remark, leading_comment, unlabelled, without_asides
from capibara_assets.datasets.code.sessions import Row, defined_name, definitions, needed, statements
from capibara_assets.executions.patterns.attempts import HORIZON
from capibara_assets.executions.patterns.similarity import similarity, tokens

_OF_TESTS = re.compile(r"_*(?:test|check|assert|main\b|run\b|expect|verify)", re.IGNORECASE)
_QUERY = re.compile(r"\s*(?:select|with|create\s+(?:temp\w*\s+)?view)\b", re.IGNORECASE)
_RAISES = re.compile(r"\b(?:throw|raise)\b")
_LAMBDA = re.compile(r"^\w+ *= *lambda\b", re.MULTILINE)
_GOES_ON = re.compile(r"\W*(?:and|also|now|then|next|plus)\b", re.IGNORECASE)  # asks for more
_CHECKS = re.compile(r"\W*(?:check|verify|compare|sanity|diff|rows that differ)\w*\b", re.IGNORECASE)  # of an answer
_SPACES = re.compile(r"\s+")
_RATHER_ALIKE = 0.35  # of one without words
_MUCH_ALIKE = 0.65  # of one below words that neither ask nor remark
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
            found |= {cell for _, cell in defined.difference(*held)}
    return found


def _is_check(row: Row) -> bool:
    """Whether what a cell ended with may be its own verdict on what earlier cells defined."""
    if "Assert" in (row["error_name"] or ""):
        return True
    listed = statements(row["code"], row["language"])
    return any(_RAISES.search(one.text) for one in listed if defined_name(one.text) is None)


def _defining(session: Sequence[Row], position: int) -> set[tuple[str, str]]:
    """(what a cell needs of functions and classes, the last cell before it that defines it)."""
    return set(
        {
            name: str(piece.row["execution_id"])
            for piece in needed(session, position).pieces
            for name in [*definitions(piece.text, piece.row["language"]), *_LAMBDA.findall(piece.text)]
        }.items()
    )


def asked_otherwise(session: Sequence[Row]) -> set[str]:
    """Queries that are not the answer to their task: another one for it showed other rows.

    Of two queries much alike the author went on to the later one. Of two that are not, each answers a part of the task,
    or only looks at something. One that states its question itself is an attempt of its own, as the dialects of a
    benchmark are.
    """
    queries = [
        (row["execution_id"], row["task"], _rows(row), tokens(row["code"]))
        for row in session
        if row["language"] == "sql" and row["outcome"] == "ok" and _QUERY.match(row["code"])
    ]
    found: set[str] = set()
    for position, (name, task, rows, words) in enumerate(queries):
        for other, of, shown, others in queries[position + 1 : position + 1 + HORIZON]:
            if of != task or shown == rows or others == words:
                continue
            if similarity(words, others) >= _ALIKE:
                found.add(name)
            elif task is not None:
                found |= {name, other}
    return found.union(row["execution_id"] for one in asked(session) for row in one.former)


class TriedQuestion(NamedTuple):
    """A question above a query, and the queries by which its author answered it, in order."""

    question: str
    queries: tuple[Row, ...]
    doubted: bool  # another query with a remark follows: the author was not done

    @property
    def answer(self) -> Row | None:
        """The last query, if it ran and its author left it at that."""
        return None if self.doubted or self.queries[-1]["outcome"] != "ok" else self.queries[-1]

    @property
    def former(self) -> list[Row]:
        """The queries that ran and are not the answer, or might not be.

        Another one showed other rows, or has a remark above it that says why the one before was not right.
        """
        ran, answer = [row for row in self.queries if row["outcome"] == "ok"], self.answer
        if answer is None:
            return ran
        others = [row for row in ran if _query(row)[1] != _query(answer)[1]]
        remark, _ = _query(answer)
        if remark and not _same_question(self.question, unlabelled(remark)):
            return others
        return [row for row in others if _rows(row) != _rows(answer)]


def asked(session: Sequence[Row]) -> list[TriedQuestion]:
    """The questions that comments ask in a session without recorded tasks.

    A query below the same question is another try at it, as is one much like the last, below a remark or nothing. One
    that is not like it, below a remark, shows that the author was not content, and may answer anything.
    """
    found: list[TriedQuestion] = []
    tries: list[Row] = []
    question = text = ""

    def close(doubted: bool) -> None:
        if tries:
            found.append(TriedQuestion(question, tuple(tries), doubted))
        tries.clear()

    for row in session:
        comment, query = _query(row)
        if row["language"] != "sql" or row["task"] or not _QUERY.match(query) or _CHECKS.match(comment):
            continue
        told = unlabelled(comment)
        if asks_for(told, query, "sql"):
            if not (tries and _same_question(question, told)):
                close(doubted=False)
                question = told
        else:
            alike = similarity(tokens(text), tokens(query)) if tries else 0.0
            asks_more = _GOES_ON.match(comment) is not None
            noted = is_remark(comment) and not asks_more
            if (comment and not noted) or alike < _ALIKE:
                least = _MUCH_ALIKE if comment else _RATHER_ALIKE
                close(doubted=noted or (not asks_more and alike >= least))
                continue
        tries.append(row)
        text = query
    close(doubted=False)
    return found


def _query(row: Row) -> tuple[str, str]:
    """The comment above a query, "" where there is none, and the query."""
    comment, query = leading_comment(row["code"], "sql")
    return comment or "", query


def _same_question(one: str, other: str) -> bool:
    """Whether two comments ask the same, one of them perhaps with a remark behind it."""
    told = (_SPACES.sub(" ", without_asides(text)).strip(" .?").lower() for text in (one, other))
    shorter, longer = sorted(told, key=len)
    return longer.startswith(shorter)


def _rows(row: Row) -> list[list[str]]:
    """The words of the rows that a query showed, without its head and their numbers."""
    return [line.split()[1:] for line in (row["result_text"] or "").split("\n")[1:]]
