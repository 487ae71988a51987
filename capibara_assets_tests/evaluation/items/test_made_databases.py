"""Databases made for queries whose own are gone: the queries run there, and changed ones show other rows."""

import sqlite3

import pytest

from capibara_assets.evaluation.items.made_databases import made_database

QUESTION = (
    "Write SQL code.\nWhich toys or garden products have two orders or more?\n"
    "Tables: products(id, name, category, price), orders(id, product_id, total, ordered_on, status)"
)


def rows(query: str, reference: str) -> list[tuple[object, ...]]:
    made = made_database(QUESTION, reference)
    assert made is not None
    connection = sqlite3.connect(":memory:")
    connection.executescript(made)
    return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    ("reference", "changed"),
    [
        ("SELECT name FROM products WHERE category IN ('toys', 'garden')", ("'toys', ", "")),
        ("SELECT name, price FROM products WHERE price > 100", (">", "<")),
        ("SELECT name, price FROM products WHERE price >= 100", (">=", ">")),
        ("SELECT product_id, SUM(total) FROM orders GROUP BY product_id", ("SUM", "AVG")),
        ("SELECT strftime('%Y-%m', ordered_on) AS m, COUNT(*) FROM orders GROUP BY m", ("%Y-%m", "%Y")),
        (
            "SELECT p.name FROM products p LEFT JOIN orders o ON o.product_id = p.id WHERE o.id IS NULL",
            ("LEFT", "INNER"),
        ),
        ("SELECT COUNT(*) FROM orders WHERE status = 'late'", ("= 'late'", "<> 'late'")),
        ("SELECT COUNT(COALESCE(total, 1)) FROM orders", ("COALESCE(total, 1)", "total")),
        ("SELECT name FROM products ORDER BY price DESC LIMIT 3", ("DESC", "ASC")),
    ],
)
def test_a_changed_query_shows_other_rows(reference: str, changed: tuple[str, str]) -> None:
    found = rows(reference, reference)
    assert found
    assert sorted(map(repr, rows(reference.replace(*changed), reference))) != sorted(map(repr, found))


def test_the_same_question_makes_the_same_database() -> None:
    query = "SELECT name FROM products WHERE price > 100"
    assert made_database(QUESTION, query) == made_database(QUESTION, query)


def test_quotes_in_literals_stay_text() -> None:
    reference = "SELECT name FROM products WHERE category = 'it''s; DROP TABLE products'"
    assert rows(reference, reference)


@pytest.mark.parametrize(("question", "query"), [("Write SQL code.", "SELECT 1"), (QUESTION, "this is no (query")])
def test_without_tables_or_a_query_there_is_none(question: str, query: str) -> None:
    assert made_database(question, query) is None
