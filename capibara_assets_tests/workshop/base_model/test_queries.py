"""Queries over tables that are shown: the request holds every name that the answer uses, and tells what SQLite says."""

import re
import sqlite3
from random import Random

from workshop.base_model.queries import asked, mended
from workshop.base_model.worlds import draw_world


def test_a_question_shows_the_tables_of_its_query() -> None:
    for seed in range(200):
        request, query = asked(Random(seed))
        for table in re.findall(r"(?:FROM|JOIN|UPDATE) ([a-z_]+)", query):
            named = f"CREATE TABLE {table}" in request or f"CREATE TABLE IF NOT EXISTS {table}" in request
            assert named or f"{table}(id" in request or f"WITH {table} AS" in query


def test_what_is_told_of_a_wrong_query_is_what_the_database_says() -> None:
    differ = errors = 0
    for seed in range(300):
        if (made := mended(Random(seed), "Mend it.", Random(seed).choice)) is None:
            continue
        request, query = made
        _, session, rest = request.split("\n\n", 2)
        wrong, told = re.split(r"\n\n(?=It gives:|\w+Error: )", rest)
        if "CREATE TABLE" not in session or "INSERT" not in session:
            continue
        names, right = _run(session, query)
        try:
            other = _run(session, wrong)
        except sqlite3.Error as error:
            assert told == f"{type(error).__name__}: {error}"
            errors += 1
            continue
        assert other != (names, right)
        gives, should = told.removeprefix("It gives:\n").split("\n\nIt should give:\n")
        assert all(str(cell) in gives for cell in (other[1][0] if other[1] else other[0]))
        assert all(str(cell) in should for cell in (right[0] if right else names))
        differ += 1
    assert differ > 30 and errors > 30


def _run(session: str, query: str) -> tuple[list[str], list[tuple[object, ...]]]:
    """Column names and rows of a query on a database of its own."""
    database = sqlite3.connect(":memory:")
    database.executescript(session)
    cursor = database.execute(query)
    return [column[0] for column in cursor.description or ()], cursor.fetchall()


def test_worlds_differ() -> None:
    assert len({asked(Random(seed)) for seed in range(100)}) > 90 and draw_world(Random(0)) == draw_world(Random(0))
