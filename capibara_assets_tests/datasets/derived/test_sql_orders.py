"""Which orders of rows a query settles, seen on a real database."""

import sqlite3

import pytest

from capibara_assets.datasets.derived.sql_orders import tie_break, turned

WORLD = "CREATE TABLE t (name TEXT, size INTEGER); INSERT INTO t VALUES ('b', 2), ('a', 2), ('c', 1);"
SETTLED = [
    "SELECT name, size FROM t ORDER BY size, name",
    "SELECT MAX(size) FROM t",
    "SELECT name FROM t WHERE size = 1",
]
OPEN = [
    "SELECT name, size FROM t ORDER BY size DESC",
    "SELECT name FROM t",
    "SELECT name FROM t ORDER BY size DESC LIMIT 1",
    "SELECT size FROM t WHERE name = (SELECT name FROM t ORDER BY size DESC LIMIT 1)",
    "SELECT name, COUNT(*) AS n FROM t GROUP BY name;",
]


def rows(code: str | None) -> list[tuple[object, ...]]:
    database = sqlite3.connect(":memory:")
    database.executescript(WORLD)
    assert code is not None
    return database.execute(code).fetchall()


@pytest.mark.parametrize("code", SETTLED)
def test_what_is_settled_stays(code: str) -> None:
    assert rows(turned(code, descending=True)) == rows(code) == rows(turned(code, descending=False))


@pytest.mark.parametrize("code", [code for code in OPEN if "= (" not in code])
def test_what_is_open_turns_and_is_settled_by_the_edit(code: str) -> None:
    assert rows(turned(code, descending=True)) != rows(turned(code, descending=False))
    edit = tie_break(code)
    if edit is not None:
        mended = edit.applied(code)
        assert rows(turned(mended, descending=True)) == rows(mended) == rows(turned(mended, descending=False))
    else:
        assert code.endswith("LIMIT 1") is False


def test_a_sub_query_that_keeps_a_part_is_turned() -> None:
    assert "ORDER BY size DESC, 1 DESC LIMIT 1" in str(turned(OPEN[3], descending=True))


def test_a_star_has_no_columns_to_order_by() -> None:
    assert turned("SELECT * FROM t", descending=True) is None and tie_break("SELECT * FROM t") is None
