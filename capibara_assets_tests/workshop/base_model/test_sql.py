"""The SQL grammar: everything it writes parses, and SQLite runs it."""

import sqlite3
from random import Random

import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from workshop.base_model.sql import sql_exchange, sql_script


@given(st.integers(0, 2**32))
def test_scripts_parse(seed: int) -> None:
    statements = sqlglot.parse(sql_script(Random(seed)), read="sqlite")
    assert len(statements) >= 5


@given(st.integers(0, 2**32))
def test_answers_are_one_statement(seed: int) -> None:
    request, answer = sql_exchange(Random(seed))
    assert request.strip()
    assert len(sqlglot.parse(answer, read="sqlite")) == 1


def test_sqlite_runs_the_scripts() -> None:
    """Names always resolve; what may fail is a constraint or a second object of the same name."""
    rng = Random(4)
    run = 0
    for _ in range(150):
        database = sqlite3.connect(":memory:")
        for statement in sql_script(rng).split(";\n"):
            try:
                database.execute(statement)
                run += 1
            except sqlite3.IntegrityError:
                continue
            except sqlite3.OperationalError as error:
                assert "already exists" in str(error) or "duplicate column" in str(error), statement
        database.close()
    assert run > 1000


def test_constructs_are_covered() -> None:
    rng = Random(6)
    text = "".join(sql_script(rng) for _ in range(200))
    words = (
        "CREATE TABLE",
        "INSERT INTO",
        "LEFT JOIN",
        "GROUP BY",
        "HAVING",
        "WITH ",
        " OVER (",
        "CASE",
        "UPDATE",
        "DELETE FROM",
        "NOT EXISTS",
        "CREATE VIEW",
        "CREATE INDEX",
        "ALTER TABLE",
        "DISTINCT",
        "select ",
    )
    assert [word for word in words if word not in text] == []


def test_same_seed_same_scripts() -> None:
    first, again = Random(3), Random(3)
    scripts = [sql_script(first) for _ in range(100)]
    assert scripts == [sql_script(again) for _ in range(100)]
    assert len(set(scripts)) == 100
