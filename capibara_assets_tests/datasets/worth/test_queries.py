"""Queries that are no answer to learn, each with a sound neighbour."""

import pytest

from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.schema import Kind
from capibara_assets.datasets.worth.abbreviations import UNEXPLAINED, unexplained
from capibara_assets.datasets.worth.queries import LOOKED_UP, NEEDLESS, UNSEEN, unworthy_query
from capibara_assets.datasets.worth.query_sense import (
    ADDS_TEXT,
    AS_TEXT,
    BY_NAME,
    CASED,
    DATES,
    MONTH_FOR_DATE,
    SAYS_NOTHING,
    WITH_NULL,
    WORDS,
    groups_by_name,
    says_nothing,
)
from capibara_assets.datasets.worth.query_tasks import NOT_DISTINCT, ROLLING, UNTOLD_KEY, mismatched
from capibara_assets.datasets.worth.worth import unworthy

SHOPS = "shops(id INT, name TEXT, town TEXT)\nsales(id INT, shop_id INT, amount INT, day TEXT)"


def asked(task: str, schema: str = SHOPS) -> str:
    return prompts.solve("sql", task, "", [], [], prompts.Shown(schema=schema))


def why(query: str, task: str, kind: Kind = "solve", schema: str = SHOPS) -> str | None:
    return unworthy_query(ExampleCandidate(kind, "sql", asked(task, schema), query, ("e",), "", 0.0, 1.0))


def shown(query: str, world: str) -> str | None:
    prompt = prompts.predict("sql", query, [world])
    return unworthy_query(ExampleCandidate("predict", "sql", prompt, "", ("e",), "", 0.0, 1.0))


@pytest.mark.parametrize(
    ("task", "query", "letters"),
    [
        ("What is the TUC of the past month?", "SELECT COUNT(*) AS TUC FROM sales", "TUC"),
        ("What is the average AMB by town? Return the balance.", "SELECT AVG(amount) AS amb FROM sales", "AMB"),
        ("Return name, sales and SR of each shop.", "SELECT name, RANK() OVER (ORDER BY town) AS sr FROM shops", "SR"),
        ("What are the PMCS and PMAT of new shops?", "SELECT 1 AS pmcs, 2 AS pmat FROM shops", "PMCS"),
        ("What is the D7D30PIR of each town?", "SELECT town, SUM(amount) FROM sales GROUP BY town", "D7D30PIR"),
        ("What is the D7D30PIR, i.e. the ratio of both?", "SELECT SUM(amount) FROM sales", None),
        ("Shops of zone B2 in 2024Q1?", "SELECT name FROM shops WHERE town = 'B2'", None),
        ("What is the ACP, the average closing price, per town?", "SELECT AVG(amount) FROM sales", None),
        ("What is the NSV (sales less returns)?", "SELECT SUM(amount) FROM sales", None),
        ("Give the net value (NV) per shop.", "SELECT SUM(amount) FROM sales", None),
        ("How many shops of the USA have an ID above 3?", "SELECT COUNT(*) FROM shops WHERE id > 3", None),
        ("Lowest price of `VTI`, and of 'ABC'.", "SELECT MIN(amount) FROM sales", None),
        ("Which shops lie in NYC?", "SELECT name FROM shops WHERE town = 'NYC'", None),
        ("What is the PASI of day 100?", "SELECT AVG(day100_pasi) FROM outcomes", None),
        ("SELECT ALL SHOPS OF THE TOWN XQR", "SELECT name FROM shops", None),
    ],
)
def test_abbreviations_are_explained_or_the_example_is_left_out(task: str, query: str, letters: str | None) -> None:
    assert unexplained(asked(task), query, "sql") == letters
    assert (why(query, task) == UNEXPLAINED) == (letters is not None)
    pandas = f"frame = pd.read_sql_query({query!r}, conn)"
    assert unexplained(asked(task), pandas, "python") == letters


@pytest.mark.parametrize(
    ("task", "query", "looked_up"),
    [
        ("Sales of the shop in Ghent", "SELECT amount FROM sales WHERE shop_id = 1", True),
        ("Sales of the shop in Ghent", "SELECT amount FROM sales WHERE shop_id IN (1)", True),
        ("Sales of shop 1", "SELECT amount FROM sales WHERE shop_id = 1", False),
        ("Sales of one unit", "SELECT id FROM sales WHERE amount = 1", False),
        ("Sales of no shop", "SELECT amount FROM sales WHERE shop_id = 0", False),
    ],
)
def test_a_key_is_told_by_the_task_or_was_looked_up(task: str, query: str, looked_up: bool) -> None:
    assert (why(query, task) == LOOKED_UP) == looked_up


@pytest.mark.parametrize(
    ("idle", "sound"),
    [
        ("CASE WHEN a > 2 THEN 1 ELSE 1 END", "CASE WHEN a > 2 THEN 1 ELSE 0 END"),
        ("CASE a WHEN 1 THEN 'x' WHEN 2 THEN 'x' ELSE 'x' END", "CASE a WHEN 1 THEN 'x' ELSE 'y' END"),
        ("IIF(a > 2, b, b)", "IIF(a > 2, b, a)"),
        ("COALESCE(a, a)", "COALESCE(a, b)"),
        ("NULLIF(a, a)", "NULLIF(a, 0)"),
        ("a = a", "a = b"),
        ("LOWER(LOWER(a))", "LOWER(TRIM(a))"),
        ("a BETWEEN 7 AND 3", "a BETWEEN 3 AND 7"),
        ("a > 7 AND a < 3", "a > 3 AND a < 7"),
        ("a > 7 AND b < 3 AND a > 7", "a > 7 AND b < 3"),
    ],
)
def test_an_expression_that_says_nothing(idle: str, sound: str) -> None:
    query = "SELECT {} AS c FROM t WHERE 1 = 1"
    assert says_nothing(query.format(idle)) and not says_nothing(query.format(sound))
    world = "CREATE TABLE t (a INTEGER, b INTEGER);\nINSERT INTO t VALUES (1, 2), (3, 4);"
    assert shown(query.format(idle), world) == SAYS_NOTHING and shown(query.format(sound), world) is None


@pytest.mark.parametrize(
    ("query", "idle"),
    [
        ("SELECT COUNT(*) AS n FROM (SELECT COUNT(a) FROM t)", True),
        ("SELECT COUNT(*) FROM (SELECT MAX(a), MIN(a) FROM t WHERE b > 1) AS x", True),
        ("SELECT COUNT(*) FROM (SELECT COUNT(a) FROM t GROUP BY b)", False),
        ("SELECT COUNT(*) FROM (SELECT a FROM t)", False),
        ("SELECT MAX(n) FROM (SELECT COUNT(a) AS n FROM t)", False),
    ],
)
def test_the_one_row_of_an_aggregate_is_counted(query: str, idle: bool) -> None:
    assert says_nothing(query) is idle


WORLD = "CREATE TABLE trips (month TEXT, tons INTEGER);\nINSERT INTO trips VALUES {};"
WIDE, PADDED = WORLD.format("('3', 4), ('11', 6)"), WORLD.format("('03', 4), ('11', 6)")


@pytest.mark.parametrize(
    ("query", "world", "wrong"),
    [
        ("SELECT month FROM trips ORDER BY month", WIDE, True),
        ("SELECT month FROM trips ORDER BY month", PADDED, False),
        ("SELECT month FROM trips ORDER BY CAST(month AS INTEGER)", WIDE, False),
        ("SELECT MAX(month) FROM trips", WIDE, True),
        ("SELECT tons FROM trips WHERE month = '3'", WIDE, False),
        ("SELECT tons FROM trips WHERE month > '3'", WIDE, True),
        ("SELECT tons FROM trips WHERE month > '03'", PADDED, False),
        ("SELECT tons FROM trips WHERE month >= 3 ORDER BY tons", PADDED, True),
        ("SELECT tons FROM trips ORDER BY tons", WIDE, False),
        ("SELECT tons FROM trips WHERE strftime('%m', day) = 3", WIDE, True),
        ("SELECT tons FROM trips WHERE strftime('%m', day) IN ('3', '11')", WIDE, True),
        ("SELECT tons FROM trips WHERE strftime('%m', day) = '03'", WIDE, False),
        ("SELECT tons FROM trips WHERE CAST(strftime('%m', day) AS INTEGER) = 3", WIDE, False),
        ("SELECT tons FROM trips WHERE strftime('%Y', day) BETWEEN '2022' AND '2023'", WIDE, False),
    ],
)
def test_numbers_that_are_stored_as_text_have_no_order(query: str, world: str, wrong: bool) -> None:
    assert shown(query, world) == (AS_TEXT if wrong else None)
    schema = world.split("\n")[0] if ">" in query else world
    solved = why(query, "Which tons of 3, 03, 11, 2022 and 2023?", schema=schema)
    assert (solved == AS_TEXT) == wrong


def test_a_date_is_no_month() -> None:
    task, query = (
        "How many sales per month (as a date)?",
        "SELECT strftime('{}', day) AS m, COUNT(*) FROM sales GROUP BY 1",
    )
    assert why(query.format("%Y-%m"), task) == MONTH_FOR_DATE
    assert why(query.format("%Y-%m-01"), task) is None
    assert why(query.format("%Y-%m"), "How many sales per month?") is None


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("SELECT tag + 1 FROM slips", True),
        ("SELECT MAX(amount) - tag FROM slips GROUP BY tag", True),
        ("SELECT amount + 1, note * 2 FROM slips", False),
        ("SELECT tag || 1 FROM slips", False),
        ("SELECT LENGTH(tag) + 1 FROM slips", False),
    ],
)
def test_texts_that_are_no_numbers_are_not_reckoned_with(query: str, wrong: bool) -> None:
    rows = "('a1', 5, '7'), ('b', 6, '8')"
    world = f"CREATE TABLE slips (tag TEXT, amount INTEGER, note TEXT);\nINSERT INTO slips VALUES {rows};"
    assert shown(query, world) == (WORDS if wrong else None)


@pytest.mark.parametrize(
    ("group", "task", "wrong"),
    [
        ("s.name", "Sum the sales of each shop.", True),
        ("1", "Sum the sales of each shop.", True),
        ("shop", "Sum the sales of each shop.", True),
        ("s.name, s.town", "Sum the sales of each shop.", True),
        ("s.id, s.name", "Sum the sales of each shop.", False),
        ("x.shop_id, s.name", "Sum the sales of each shop.", False),
        ("s.town", "Sum the sales of each town.", False),
        ("s.name", "Sum the sales of shops with the same name.", False),
        ("s.name", "Sum the sales per shop name.", False),
    ],
)
def test_rows_are_told_apart_by_their_key_not_by_a_name(group: str, task: str, wrong: bool) -> None:
    query = f"SELECT s.name AS shop, SUM(x.amount) FROM sales AS x JOIN shops AS s ON s.id = x.shop_id GROUP BY {group}"
    assert why(query, task) == (BY_NAME if wrong else None)
    assert why(query, task, kind="repair") is None
    assert not groups_by_name(query, SHOPS.replace("name TEXT", "name TEXT UNIQUE"), task)


def test_a_name_of_one_of_each_is_a_key() -> None:
    query = "SELECT c.name, COUNT(*) FROM shops s JOIN {0} c ON c.id = s.{0}_id GROUP BY c.name"
    assert not groups_by_name(query.format("country"), "", "Count the shops of each country.")
    assert groups_by_name(query.format("owner"), "", "Count the shops of each owner.")


@pytest.mark.parametrize(
    ("query", "subtracts"),
    [
        ("SELECT AVG(p.paid_at - s.sale_date) FROM sales s JOIN payments p ON s.id = p.sale_id", True),
        ("SELECT id, MIN(t.tx_datetime) - c.joindate FROM c JOIN t ON c.id = t.c_id GROUP BY id", True),
        ("SELECT (MAX(end_ts)) - begin_ts FROM visits GROUP BY begin_ts", True),
        ("SELECT julianday(paid_at) - julianday(sale_date) FROM sales", False),
        ("SELECT strftime('%s', end_ts) - strftime('%s', begin_ts) FROM visits", False),
        ("SELECT amount - update_count FROM sales", False),
        ("SELECT sale_date - 1 FROM sales", False),
    ],
)
def test_dates_are_subtracted_as_days(query: str, subtracts: bool) -> None:
    assert (why(query, "How many days lie between them?") == DATES) == subtracts


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("SELECT id FROM shops WHERE LOWER(name) LIKE 'J%'", True),
        ("SELECT id FROM shops WHERE LOWER(name) IN ('jo', 'Ann')", True),
        ("SELECT id FROM shops WHERE 'jo' = UPPER(name)", True),
        ("SELECT id FROM shops WHERE LOWER(name) LIKE 'j%'", False),
        ("SELECT id FROM shops WHERE UPPER(name) = 'JO'", False),
        ("SELECT id FROM shops WHERE name LIKE 'J%'", False),
    ],
)
def test_small_letters_are_compared_with_small_letters(query: str, wrong: bool) -> None:
    assert (why(query, "Which shops are named jo, Jo, ann or Ann, or begin with j?") == CASED) is wrong


@pytest.mark.parametrize(
    ("query", "adds"),
    [
        ("SELECT datetime(day, amount * 30 + ' minutes') FROM sales", True),
        ("SELECT name + ', ' + town FROM shops", True),
        ("SELECT datetime(day, amount * 30 || ' minutes') FROM sales", False),
        ("SELECT amount + '5' FROM sales", False),
    ],
)
def test_texts_are_joined_and_not_added(query: str, adds: bool) -> None:
    assert (why(query, "When does each end, and what is it called?") == ADDS_TEXT) is adds


def mended(failing: str, answer: str, error: str = "no such column: day", language: str = "sql") -> str | None:
    prompt = prompts.repair(language, "How long does a sale take?", failing, f"OperationalError: {error}", [])
    return unworthy_query(ExampleCandidate("repair", language, prompt, answer, ("e",), "", 0.0, 1.0, failing=failing))


@pytest.mark.parametrize("written", ["{}", "rows = conn.execute('{}').fetchall()"])
def test_a_repair_does_not_say_where_null_is_ordered(written: str) -> None:
    language = "sql" if written == "{}" else "python"
    query = "SELECT name FROM {} ORDER BY {}town DESC"
    failing, plain = written.format(query.format("db.shops", "")), written.format(query.format("shops", ""))
    ranked = written.format(query.format("shops", "CASE WHEN town IS NULL THEN 1 ELSE 0 END DESC, "))
    error = "no such table: db.shops"
    assert mended(failing, ranked, error, language) == NEEDLESS
    assert mended(failing, plain, error, language) is None
    assert mended(ranked.replace("shops", "db.shops"), ranked, error, language) is None  # its author wanted it


@pytest.mark.parametrize(
    ("amount", "error", "needless"),
    [
        ("ROUND(amount, 2)", "no such column: total", True),
        ("COALESCE(amount, 0)", "no such column: total", True),
        ("amount", "no such column: total", False),
        ("IFNULL(amount, 0)", "no such function: ISNULL", False),
    ],
)
def test_a_repair_neither_rounds_nor_replaces_null_unasked(amount: str, error: str, needless: bool) -> None:
    failing = "SELECT shop_id, total FROM sales"
    assert (mended(failing, f"SELECT shop_id, {amount} FROM sales", error) == NEEDLESS) is needless
    assert (
        mended(f"SELECT shop_id, {amount.replace('amount', 'total')} FROM sales", f"SELECT {amount} FROM sales", error)
        is None
    )


def test_a_repair_cuts_off_no_name_of_a_column_unless_the_error_is_of_it() -> None:
    failing, rest = (
        "SELECT DATEDIFF(day, a, b) AS days_taken FROM sales",
        "julianday(b) - julianday(a) AS {} FROM sales",
    )
    assert mended(failing, "SELECT " + rest.format("days_take")) == NEEDLESS
    assert mended(failing, "SELECT " + rest.format("DAYS_TAKEN")) is None
    assert mended(failing, "SELECT " + rest.format("days"), "ambiguous column name: days_taken") is None
    assert mended(failing, "SELECT id, " + rest.format("days")) is None
    assert mended(failing, "SELECT " + rest.format("duration")) is None  # written anew


def test_what_python_asks_a_database_for_is_told_by_the_prompt() -> None:
    def asks(town: str) -> str | None:
        code = f"pd.read_sql_query(\"SELECT SUM(amount) FROM sales WHERE town = '{town}'\", conn)"
        prompt = prompts.solve("python", 'What are the sales of "California"?', "", [], [], prompts.Shown(schema=SHOPS))
        return unworthy_query(ExampleCandidate("solve", "python", prompt, code, ("e",), "", 0.0, 1.0))

    assert asks("CA") == LOOKED_UP and asks("California") is None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ROUND(100 * SUM(CASE WHEN distance =/ COUNT(*), 0) AS p FROM t GROUP BY a;",
        "SELECT COUNT(*) FROM r WHERE CAST(r.year AS .year AS TEXT) || '-' || CASE r.month WHEN 'May' THEN '05'",
        "SELECT a FROM t WHERE b BETWEEN AND 3 GROUP BY",
    ],
)
def test_a_query_that_breaks_off_is_judged_by_what_is_whole(query: str) -> None:
    for kind in ("solve", "repair", "predict"):
        asked = f"Fix this SQL code.\n\nCode:\n{query}"
        one = ExampleCandidate(kind, "sql", asked, query, ("e",), "", 0.0, 1.0, failing=query)  # type: ignore[arg-type]
        unworthy(one, 3)
    assert not says_nothing(query)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT name FROM shops WHERE town <> NULL ORDER BY name", WITH_NULL),
        ("UPDATE shops SET town = 'Rye' WHERE town = NULL", WITH_NULL),
        ("SELECT name FROM shops JOIN sales ON shops.id = sales.shop_id AND sales.day != NULL", WITH_NULL),
        ("SELECT name FROM shops WHERE town IS NOT NULL", None),
        ("UPDATE shops SET town = NULL WHERE id = 3", None),
    ],
)
def test_a_comparison_with_null_answers_nothing(query: str, found: str | None) -> None:
    assert why(query, "Select the shops with a known town, and set unknown towns of shop 3 to Rye.") == found


@pytest.mark.parametrize(
    ("task", "since", "rolling"),
    [
        ("Sales of the past 6 calendar months", "DATE('now', '-6 months')", True),
        ("Sales of the past 6 calendar months", "DATE('now', 'start of month', '-6 months')", False),
        ("Sales of the past 6 months", "DATE('now', '-6 months')", False),
    ],
)
def test_months_of_the_calendar_do_not_roll(task: str, since: str, rolling: bool) -> None:
    query = f"SELECT SUM(amount) FROM sales WHERE day >= {since}"
    one = ExampleCandidate("solve", "sql", asked(task), query, ("e",), "", 0.0, 1.0)
    assert (mismatched(one) == ROLLING) == rolling


def test_a_diagnosis_names_no_table_that_nothing_shows() -> None:
    answer = "The query names `shop.sales`. The tables stand in `main`, so that `FROM sales` finds it."
    error = "OperationalError: no such table: shop.sales"
    bare = prompts.repair("sql", "", "SELECT id FROM shop.sales", error, [])
    shown = prompts.repair("sql", "", "SELECT id FROM shop.sales", error, ["CREATE TABLE sales (id INT)"])
    found = [
        unworthy_query(ExampleCandidate("explain", "sql", prompt, answer, ("e",), "", 0.0, 1.0))
        for prompt in (bare, shown)
    ]
    assert found == [UNSEEN, None]


@pytest.mark.parametrize(
    ("task", "query", "why"),
    [
        ("How many shops carry each tag?", "SELECT j.value FROM shops, json_each(town, '$.tags') j", UNTOLD_KEY),
        ("How many have each of their `labels`?", "SELECT j.value FROM shops, json_each(town, '$.labels') j", None),
        ("How many different towns per name?", "SELECT name, COUNT(town) FROM shops GROUP BY name", NOT_DISTINCT),
        ("How many different towns per name?", "SELECT name, COUNT(DISTINCT town) FROM shops GROUP BY name", None),
        ("How does the number of shops vary across different towns?",
         "SELECT town, COUNT(id) FROM shops GROUP BY town", None),
    ],
)  # fmt: skip
def test_what_a_query_reads_and_counts_is_what_its_task_tells(task: str, query: str, why: str | None) -> None:
    assert mismatched(ExampleCandidate("solve", "sql", asked(task), query, ("e",), "", 0.0, 1.0)) == why
