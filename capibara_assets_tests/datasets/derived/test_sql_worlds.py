"""Databases for queries: the tables that a task states, values that read like their columns, filters that bite."""

import re
import sqlite3

import pytest

from capibara_assets.datasets.code.queries import reads_of
from capibara_assets.datasets.code.stated_tables import stated_tables
from capibara_assets.datasets.derived import sql_worlds
from capibara_assets.datasets.derived.derive import derive
from capibara_assets.datasets.derived.trials import execute
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.domains import Domain
from capibara_assets_tests.datasets.conftest import evidence_of, run

TABLES = "Tables: owners(id, name, city), dogs(id, owner_id, name, breed, born_on, weight)"
FILTERS = [
    "breed = 'boxer'",
    "breed LIKE '%hound%'",
    "name LIKE 'R%'",
    "weight > 31",
    "weight BETWEEN 12 AND 20",
    "born_on >= '2021-05-01'",
    "born_on LIKE '2022-11-%'",
    "strftime('%Y', born_on) = '2020'",
    "breed IN ('boxer', 'poodle') AND weight < 25",
    "weight IS NOT NULL",
    "breed <> 'boxer'",
]


def _rows(world: str, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(":memory:")
    connection.executescript(world)
    return connection.execute(query).fetchall()


def _world(query: str, seed: str = "s", stated: str = "") -> str:
    tree = sql_worlds.parsed(query)
    assert tree is not None
    tables = stated_tables(stated)
    made = sql_worlds.world(tree, sql_worlds.catalogue([tree], [tables]), seed, stated=tables)
    assert made is not None
    return made


@pytest.mark.parametrize("condition", FILTERS)
def test_a_filter_selects_some_rows_and_leaves_some(condition: str) -> None:
    query = f"SELECT id, name FROM dogs WHERE {condition}"
    for seed in "abcd":
        kept = _rows(_world(query, seed, TABLES), query)
        assert 0 < len(kept) < 6, (seed, kept)


@pytest.mark.parametrize(
    "condition",
    [
        'country = "France"',
        'country IN ("France", "Japan")',
        'country LIKE "Fra%"',
        'country BETWEEN "A" AND "Jz"',
        'country != "Peru" AND age >= 30',
    ],
)
def test_a_text_in_double_quotes_is_a_value_and_no_column(condition: str) -> None:
    """MySQL and SQLite take it for one; a column named `france` would make another question of it."""
    query = f"SELECT name FROM singer WHERE {condition}"
    made = _world(query)
    (columns,) = re.findall(r"CREATE TABLE singer \(([^)]*)\)", made)
    named = {name for name in ("name", "country", "age") if name in query}
    assert set(re.sub(r" [A-Z]+", "", columns).split(", ")) == named
    assert _rows(made, query)
    assert reads_of(query, "sql").columns == named


@pytest.mark.parametrize(
    "query",
    [
        'SELECT "Release Date" FROM films WHERE id = 3',
        'SELECT id FROM films WHERE "Release Date" > 2000',
        'SELECT "order" FROM films WHERE id = 3',
        "SELECT `a love of a lifetime` FROM films",
        'SELECT id FROM "select"',
    ],
)
def test_a_query_whose_names_need_quotes_has_no_database(query: str) -> None:
    tree = sql_worlds.parsed(query)
    assert tree is not None
    assert sql_worlds.world(tree, sql_worlds.catalogue([tree]), "s") is None


def test_an_author_who_quotes_names_quotes_names_everywhere() -> None:
    query = 'SELECT "name" FROM "users" WHERE "owner" = "author"'
    assert reads_of(query, "sql").columns == {"name", "owner", "author"}
    made = _world(query)
    assert "author TEXT" in made and "owner TEXT" in made


def test_the_columns_of_a_common_table_are_no_columns_of_the_database() -> None:
    query = (
        "WITH levels(n) AS (VALUES (1), (2)) SELECT n, COUNT(stars) FROM levels JOIN ratings ON stars = n GROUP BY n"
    )
    assert reads_of(query, "sql").columns == {"stars"}


def test_inserted_texts_in_double_quotes_are_no_columns() -> None:
    assert not reads_of('INSERT INTO singer VALUES (1, "Anna"), (2, "Boris")', "sql").columns


def test_tables_are_made_as_they_are_stated() -> None:
    query = "SELECT o.name FROM owners AS o JOIN dogs AS d ON d.owner_id = o.id WHERE d.weight > 20"
    made = re.findall(r"CREATE TABLE (\w+) \(([^)]*)\)", _world(query, stated=TABLES))
    assert [(table, re.sub(r" [A-Z]+", "", columns)) for table, columns in made] == [
        ("owners", "id, name, city"),
        ("dogs", "id, owner_id, name, breed, born_on, weight"),
    ]


def test_rows_refer_to_rows_and_the_same_seed_gives_the_same() -> None:
    query = "SELECT o.name FROM owners AS o WHERE o.id IN (SELECT owner_id FROM dogs WHERE breed = 'boxer')"
    world = _world(query, stated=TABLES)
    assert world == _world(query, stated=TABLES) != _world(query, "t", TABLES)
    assert _rows(world, "SELECT * FROM dogs WHERE owner_id NOT IN (SELECT id FROM owners)") == []
    assert 0 < len(_rows(world, query)) < 6


def test_a_table_has_a_key_of_its_own_whatever_it_is_called() -> None:
    query = "SELECT m.surname, SUM(b.slots) FROM bookings b JOIN members m ON b.memid = m.memid GROUP BY m.memid"
    world = _world(query)
    assert _rows(world, "SELECT COUNT(*) = COUNT(DISTINCT memid), COUNT(*) FROM members") == [(1, 6)]
    assert _rows(world, "SELECT COUNT(*) FROM bookings WHERE memid NOT IN (SELECT memid FROM members)") == [(0,)]
    assert "memid INTEGER" in world
    coded = _world(query.replace("GROUP BY", "WHERE m.memid = 'F60' GROUP BY"))
    assert "'F60'" in coded, "what a query says of a key holds"


def test_a_blank_that_is_joined_is_no_column() -> None:
    found = reads_of('SELECT first || " " || last AS "whole" FROM people WHERE country != "USA"', "sql")
    assert found.columns == {"first", "last", "country"}


def test_values_read_like_their_columns() -> None:
    world = _world("SELECT first_name, city, status, born_on, salary, cargo FROM sailors WHERE language = 'Basque'")
    values = _rows(world, "SELECT first_name, city, status, born_on, salary, cargo, language FROM sailors")
    assert all(isinstance(salary, int) and salary > 999 for _, _, _, _, salary, _, _ in values)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", str(day)) for _, _, _, day, _, _, _ in values)
    assert all(re.fullmatch(r"[A-Z][a-z]+", str(word)) for row in values for word in row[:2])
    assert "Basque" in {row[-1] for row in values} and not any(
        "Basque" in str(v) != "Basque" for r in values for v in r
    )


def test_a_condition_by_itself_is_a_flag() -> None:
    query = "SELECT SUM(CASE WHEN c.graded THEN 4 ELSE 0 END) AS n, SUM(IIF(has_exams, 1, 0)) AS m FROM courses AS c"
    made = _world(query)
    for name in ("graded", "has_exams"):
        values = {value for (value,) in _rows(made, f"SELECT {name} FROM courses")}
        assert values == {0, 1}, name
    assert {v for (v,) in _rows(_world("SELECT is_open FROM shops"), "SELECT is_open FROM shops")} == {0, 1}
    said = "SELECT SUM(CASE WHEN has_exams = 'yes' THEN 1 ELSE 0 END) FROM courses"
    assert ("yes",) in _rows(_world(said), "SELECT has_exams FROM courses")


def test_the_least_and_most_of_an_unknown_column_are_numbers() -> None:
    query = "WITH ends AS (SELECT MIN(d.sbDpLow) AS low, MAX(d.sbDpHigh) AS high FROM d) SELECT high - low FROM ends"
    made = _world(query)
    assert all(isinstance(value, int) for row in _rows(made, "SELECT sbDpLow, sbDpHigh FROM d") for value in row)
    named = _world("SELECT MIN(city), MAX(born_on) FROM d")
    assert all(isinstance(value, str) for row in _rows(named, "SELECT city, born_on FROM d") for value in row)


def test_what_a_call_on_dates_multiplies_is_a_number() -> None:
    world = _world("SELECT datetime(begun, '+' || (slots * 30) || ' minutes') FROM bookings")
    assert all(isinstance(slots, int) for (slots,) in _rows(world, "SELECT slots FROM bookings"))
    assert all(re.match(r"\d{4}-", str(begun)) for (begun,) in _rows(world, "SELECT begun FROM bookings"))
    days = _world("SELECT 24 * (julianday(ended) - julianday(begun)) FROM bookings")
    assert all(re.match(r"\d{4}-", str(ended)) for (ended,) in _rows(days, "SELECT ended FROM bookings"))


def test_names_are_written_as_the_query_writes_them() -> None:
    made = _world("SELECT t.sbTickerSymbol FROM sbTicker AS t WHERE t.SBTICKERSYMBOL <> 'A'")
    assert re.findall(r"CREATE TABLE (\w+) \((\w+)", made) == [("sbTicker", "sbTickerSymbol")]
    assert "INSERT INTO sbTicker VALUES" in made


def test_more_than_one_row_has_the_text_that_is_asked_for() -> None:
    query = "SELECT COUNT(*) FROM dogs WHERE breed = 'boxer' AND name LIKE 'R%'"
    assert all(_rows(_world(query, seed), query)[0][0] > 1 for seed in "abcdef")


def test_units_and_names_in_one_word_are_read_like_others() -> None:
    columns = "weight_kg, custstatus, joindate, custid, velocity"
    world = _world(f"SELECT {columns} FROM riders WHERE place = 'Faro'")
    values = _rows(world, f"SELECT {columns} FROM riders")
    assert "weight_kg INTEGER, custstatus TEXT, joindate TEXT" in world
    assert {status for _, status, *_ in values} <= {"open", "closed", "waiting", "cancelled", "active"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", str(day)) for _, _, day, _, _ in values)
    assert all(re.fullmatch(r"[A-Z]\d0", str(identity)) for *_, identity, _ in values)
    assert all(str(speed).startswith("velocity ") for *_, speed in values)


def test_a_column_is_of_numbers_where_another_query_adds_it_up(recipe: DatasetRecipe) -> None:
    one, other = "SELECT id, toll FROM ferries ORDER BY toll DESC", "SELECT SUM(toll) AS whole FROM ferries"
    trees = [tree for text in (one, other) if (tree := sql_worlds.parsed(text)) is not None]
    made = sql_worlds.world(trees[0], sql_worlds.catalogue(trees), "s")
    assert made is not None and "toll INTEGER" in made
    assert "toll TEXT" in str(sql_worlds.world(trees[0], sql_worlds.catalogue(trees[:1]), "s"))


def test_a_column_holds_what_a_session_created_it_for(recipe: DatasetRecipe) -> None:
    """What a sub-query passes on is used without saying whose it is."""
    query = "SELECT k + 1, after - 1 FROM (SELECT k, LEAD(k) OVER () AS after FROM slips) WHERE after > k + 1"
    tree = sql_worlds.parsed(query)
    assert tree is not None
    for declared, named in (("int", "k INTEGER"), ("REAL", "k INTEGER"), ("varchar(9)", "k TEXT")):
        created = sql_worlds.statements(f"create table slips(k {declared})")
        made = sql_worlds.world(tree, sql_worlds.catalogue([tree], (), created), "s")
        assert made is not None and named in made, declared
    created = sql_worlds.statements("CREATE TABLE slips (sent TEXT, due DATETIME, paid BOOLEAN)")
    known = sql_worlds.catalogue([], (), created)
    assert known == {"slips": {"sent": "text", "due": "date", "paid": "number"}}


def test_numbers_in_quotes_are_numbers_or_as_wide_as_one_another() -> None:
    assert "month INTEGER" in _world("SELECT tons FROM trips WHERE month > '3' ORDER BY month")
    padded = _world("SELECT tons FROM trips WHERE month > '03' ORDER BY month")
    assert "month TEXT" in padded and len(set(re.findall(r"'(\d\d)'", padded))) > 2 and "'month" not in padded


def test_a_repair_shows_one_schema(recipe: DatasetRecipe) -> None:
    task = f"Name the dogs above 31 by weight.\n{TABLES}"
    rows = [run("q", "SELECT name FROM dogs WHERE weight > 31 ORDER BY weight DESC;", task=task, language="sql")]
    few = recipe.model_copy(update={"derived": recipe.derived.model_copy(update={"tried": 1, "bugs": {"order": 1.0}})})
    made = [one for one in derive(Domain.DEBUG, evidence_of(rows), few, execute).candidates if one.kind == "repair"]
    assert made
    for one in made:
        assert "Name the dogs above 31 by weight." in one.prompt and "Tables:" not in one.prompt
        assert "CREATE TABLE dogs (id INTEGER, owner_id INTEGER, name TEXT, breed TEXT, " in one.prompt


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        (
            f"What?\n{TABLES}",
            {"owners": ["id", "name", "city"], "dogs": ["id", "owner_id", "name", "breed", "born_on", "weight"]},
        ),
        ("a(x INT, y VARCHAR(20)); b(z)", {"a": ["x", "y"], "b": ["z"]}),
        ("Implement `pages(items, size)` for me.", {}),
        ("Schema:\nCREATE TABLE a (x INT)", {}),
    ],
)
def test_tables_are_read_where_a_line_lists_nothing_else(text: str, tables: dict[str, list[str]]) -> None:
    assert {table: list(columns) for table, columns in stated_tables(text).items()} == tables
