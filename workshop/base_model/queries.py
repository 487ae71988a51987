"""Queries over tables that the request shows: written from a question, or mended by what a database says of them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from capibara_assets.datasets.derived import sql_bugs
from capibara_assets.datasets.derived.edits import RepairEdit
from workshop.base_model.sql import insert_rows, one_line, sql_statement, table_definition
from workshop.base_model.worlds import Entity, World, draw_world

_STEPS = 200_000  # of SQLite's machine; a query over a dozen rows takes a few hundred
_SHOWN_ROWS = 8


def asked(rng: Random) -> tuple[str, str]:
    """(request, answer): a question with the tables that it is about, and its query."""
    world = draw_world(rng)
    said, query = sql_statement(rng, world)
    request = rng.choice(("Write a SQL query. {0}\n\n{1}", "{0} Answer with SQL.\n{1}", "{1}\n\n{0}", "{0}\n\n{1}"))
    return request.format(said, _tables(rng, world)), query


def mended(rng: Random, request: str, choose: Callable[[Sequence[RepairEdit]], RepairEdit]) -> tuple[str, str] | None:
    """(request, answer): a wrong query with its tables, and what SQLite says of it; None where it cannot be told.

    Args:
        choose: picks one of a query's possible mistakes.
    """
    world = draw_world(rng)
    said, query = sql_statement(rng, world)
    found = sql_bugs.bugs(query)
    if not found:
        return None
    wrong = choose(found).applied(query)
    made = "\n".join((*(_one_table(rng, *each) for each in _entities(world)), *_rows(rng, world)))
    told = _told(rng, made, query, wrong)
    if told is None:
        return None
    session = made if rng.random() < 0.6 else _tables(rng, world)
    return f"{request} {said}\n\n{session}\n\n{wrong}\n\n{told}", query


def _told(rng: Random, made: str, query: str, wrong: str) -> str | None:
    """What SQLite says of the wrong query; None where it says the same of the right one, or refuses that."""
    try:
        expected = result(made, query)
    except sqlite3.Error:  # SQLite has no such statement: nothing to compare with
        return None
    try:
        given = result(made, wrong)
    except sqlite3.Error as error:
        return f"{type(error).__name__}: {error}"
    if given == expected:
        return None
    return f"It gives:\n{_table(rng, given)}\n\nIt should give:\n{_table(rng, expected)}"


def _entities(world: World) -> tuple[tuple[Entity, Entity | None], ...]:
    return (world.parent, None), (world.child, world.parent)


def _tables(rng: Random, world: World) -> str:
    """The tables' columns, as definitions or as a line."""
    if rng.random() < 0.4:
        return "\n".join(_one_table(rng, *each) for each in _entities(world))
    listed = []
    for entity, parent in _entities(world):
        columns = ["id", *([f"{parent.name}_id"] if parent else []), *(field.name for field in entity.fields)]
        listed.append(f"{entity.plural}({', '.join(columns)})")
    return f"{rng.choice(('Tables', 'Schema', 'Given'))}: {', '.join(listed)}"


def _one_table(rng: Random, entity: Entity, parent: Entity | None) -> str:
    made = table_definition(rng, entity, parent).replace("SERIAL", "INTEGER")
    return one_line(made) if rng.random() < 0.5 else made


def _rows(rng: Random, world: World) -> list[str]:
    made = [insert_rows(rng, *each, world) for each in _entities(world)]
    return [one_line(each) if rng.random() < 0.7 else each for each in made]


def result(made: str, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of a query on a fresh database.

    Raises:
        sqlite3.Error: the tables or the query are refused, or it takes too long.
    """
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(made)
        database.set_progress_handler(lambda: 1, _STEPS)
        cursor = database.execute(query)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()
    finally:
        database.close()


def _table(rng: Random, result: tuple[Sequence[str], Sequence[tuple[Any, ...]]]) -> str:
    """Rows as a tool prints them: columns of one width, or parted by a bar."""
    names, rows = result
    if not names:
        return "nothing"
    cells = [list(names), *([str(cell) for cell in row] for row in rows[:_SHOWN_ROWS])]
    if rng.random() < 0.4:
        return "\n".join(" | ".join(row) for row in cells)
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(re.sub(r"\s+$", "", line) for line in lines)
