"""Queries that only SQLite's leniency lets run, and repairs that are none: each class with a sound neighbour."""

import pytest

from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.schema import Kind
from capibara_assets.datasets.worth import query_leniency as found
from capibara_assets_tests.datasets.worth.test_worth import candidate, unworthy

SHOPS = (
    "CREATE TABLE shops (id INTEGER PRIMARY KEY, name TEXT, town TEXT, size TEXT);\n"
    "CREATE TABLE sales (id INTEGER, shop_id INTEGER, tons INTEGER);\n"
    "CREATE TABLE staff (shop INTEGER, name TEXT, since TEXT);\n"
    "INSERT INTO staff VALUES (1, 'Ann', '2024-01-02'), (1, 'Bo', '2024-01-02'), (2, 'Cy', '2024-02-03');"
)
QUESTION = "How is it with the shops, their sales and their staff?"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT name, MAX(since) FROM staff", found.PICKED),
        ("SELECT name, since FROM staff WHERE since = (SELECT MAX(since) FROM staff)", None),
        ("SELECT name, COUNT(*) FROM staff GROUP BY shop", found.PICKED),
        ("SELECT shop, pay / hours AS rate FROM staff GROUP BY shop", found.PICKED),
        ("SELECT UPPER(name) AS n, MAX(pay) FROM staff GROUP BY shop", found.PICKED),
        ("SELECT UPPER(shop) AS s, SUM(pay) / SUM(hours) FROM staff GROUP BY shop", None),
        ("SELECT shop, COUNT(pay) FILTER (WHERE hours > 3) FROM staff GROUP BY shop", None),
        ("SELECT SUBSTR(since, 1, 4) || '-' AS y, COUNT(*) FROM staff GROUP BY SUBSTR(since, 1, 4)", None),
        ("SELECT shop, COUNT(*) FROM staff GROUP BY shop", None),
        ("SELECT shop AS place, COUNT(*) FROM staff GROUP BY place", None),
        ("SELECT shop, COUNT(*) FROM staff GROUP BY 1", None),
        ("SELECT s.name, s.town, SUM(a.tons) FROM shops s JOIN sales a ON a.shop_id = s.id GROUP BY s.id", None),
        ("SELECT s.name, SUM(a.tons) FROM shops s JOIN sales a ON a.shop_id = s.id GROUP BY s.name", None),
        ("SELECT name, RANK() OVER (ORDER BY since) FROM staff", None),
        ("SELECT name, SUM(1) OVER (PARTITION BY shop) FROM staff", None),
        ("SELECT name, (SELECT COUNT(*) FROM sales a WHERE a.shop_id = s.id) FROM shops s", None),
        ("SELECT STRFTIME('%A', since), COUNT(*) FROM staff GROUP BY STRFTIME('%A', since)", found.FORMATS_NOTHING),
        ("SELECT STRFTIME('%w', since), COUNT(*) FROM staff GROUP BY STRFTIME('%w', since)", None),
        ("SELECT name FROM shops s WHERE 2 <= (SELECT COUNT(a.id) FROM sales a WHERE a.tons > 0)", found.SAME_FOR_ALL),
        ("SELECT name FROM shops s WHERE 0 < (SELECT COUNT(a.id) FROM sales a WHERE a.shop_id = s.id)", None),
        ("SELECT name FROM shops WHERE size != 0", found.UNLIKE),
        ("SELECT ROUND(SUM(tons <> 1) / COUNT(*), 2) FROM sales", found.WHOLE),
        ("SELECT ROUND(SUM(CASE WHEN tons > 5 THEN 1 ELSE 0 END) / COUNT(*), 2) FROM sales", found.WHOLE),
        ("SELECT ROUND(COUNT(tons) / (COUNT(*)), 1) FROM sales", found.WHOLE),
        ("SELECT SUM(tons > 3 AND tons < 9) / COUNT(*) AS share FROM sales", found.SHARE),
        ("SELECT COUNT(tons) / COUNT(*) * 100 FROM sales", found.SHARE),
        ("SELECT 100 * COUNT(tons) / COUNT(*), SUM(tons) / COUNT(*) FROM sales", None),
        ("SELECT ROUND(COUNT(tons) * 1.0 / COUNT(*), 1) FROM sales", None),
        ("SELECT ROUND(100.0 * SUM(tons <> 1) / COUNT(*), 2) FROM sales", None),
        ("SELECT ROUND(CAST(COUNT(tons) AS REAL) / COUNT(*), 1) FROM sales", None),
        ("SELECT COUNT(tons) / COUNT(*) FROM sales", found.SHARE),
        ("SELECT name, ROUND(size, -3) FROM shops", found.NO_DIGITS),
        ("SELECT name, ROUND(size / 1000.0, 0) * 1000 FROM shops", None),
        ("SELECT tons * 100 || ' kg' FROM sales", found.JOINED),
        ("SELECT (tons * 100) || ' kg' FROM sales", None),
        ("SELECT name FROM shops WHERE size != '0'", None),
        ("SELECT shop_id FROM sales WHERE tons <> 0", None),
    ],
)  # fmt: skip
def test_a_query_means_what_it_seems_to(query: str, why: str | None) -> None:
    asked = prompts.solve("sql", QUESTION, "", [], [SHOPS])
    assert found.lenient(candidate("solve", query, asked, "sql")) == why


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT a.shop, b.shop FROM staff a JOIN staff b ON a.name < b.name", found.NAMED_TWICE),
        ("SELECT a.shop AS one, b.shop AS other FROM staff a JOIN staff b ON a.name < b.name", None),
        ("SELECT * FROM shops s JOIN sales a ON a.shop_id = s.id", found.NAMED_TWICE),
        ("SELECT s.name, a.* FROM shops s JOIN sales a ON a.shop_id = s.id", None),
        ("SELECT name, MAX(since) FROM staff", found.PICKED),
    ],
)
def test_an_output_shows_every_column(query: str, why: str | None) -> None:
    asked = prompts.predict("sql", query, [SHOPS])
    assert unworthy(candidate("predict", "x", asked, "sql")) == why


FAILING = "SELECT name, town FROM shops WHERE sise = 'L' ORDER BY name DESC"
SOUND = FAILING.replace("sise", "size")


@pytest.mark.parametrize(
    ("failing", "answer", "why"),
    [
        (FAILING, SOUND, None),
        (FAILING, SOUND + "; SELECT * FROM sales", found.ADDED),
        (FAILING.replace("shops", "#shops"), SOUND, found.OTHER_TABLE),
        (
            FAILING.replace("shops", "#shops"),
            "CREATE TEMP TABLE shops AS SELECT 'a' AS name, 'b' AS town, 'L' AS size;\n" + SOUND,
            found.ADDED,
        ),
        (FAILING, "WITH t AS (SELECT shop_id, SUM(tons) AS s FROM sales GROUP BY shop_id) SELECT s FROM t",
         found.REWRITTEN),
        ("TRUNCATE TABLE staff", "DROP TABLE staff", found.DROPS),
        ("TRUNCATE TABLE staff", "DELETE FROM staff", None),
        ("SELECT name FROM shop", "SELECT name, town FROM shops WHERE id > 1 AND town <> 'x'", None),
    ],
)  # fmt: skip
def test_a_repair_mends_the_query_that_failed(failing: str, answer: str, why: str | None) -> None:
    asked = prompts.repair("sql", QUESTION, failing, "OperationalError: no such column: sise", [SHOPS])
    assert found.lenient(candidate("repair", answer, asked, "sql", failing=failing)) == why


@pytest.mark.parametrize("kind", ["solve", "repair", "predict"])
def test_what_does_not_parse_is_not_judged(kind: Kind) -> None:
    assert found.lenient(candidate(kind, "SELECT FROM WHERE (", "Write SQL code.", "sql")) is None
