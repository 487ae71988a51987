"""A grammar that writes varied SQL scripts (SQLite/PostgreSQL common subset) for pre-training."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from workshop.base_model.worlds import Entity, Field, World, draw_world

_TYPES = {"text": "TEXT", "int": "INTEGER", "real": "REAL", "date": "DATE", "bool": "BOOLEAN", "choice": "TEXT"}
_AGGREGATES = (("AVG", "average"), ("SUM", "total"), ("MAX", "highest"), ("MIN", "lowest"))
_JOIN_WORDS = ("JOIN", "JOIN", "INNER JOIN", "LEFT JOIN")

#: A statement with the sentence that describes it.
Described = tuple[str, str]


def _literal(rng: Random, field: Field, world: World) -> str:
    match field.kind:
        case "text":
            words = world.names if field.name in ("name", "owner") else (*world.names, *world.labels)
            return f"'{rng.choice(words)}'"
        case "int":
            return str(rng.randint(1, rng.choice((10, 100, 2025))))
        case "real":
            return f"{rng.uniform(1, rng.choice((10, 100, 1000))):.{rng.choice((1, 2, 2))}f}"
        case "date":
            return f"'{rng.randint(2015, 2025)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}'"
        case "bool":
            return rng.choice(("TRUE", "FALSE"))
        case "choice":
            return f"'{rng.choice(field.choices)}'"


def _key(entity: Entity) -> str:
    return f"{entity.name}_id"


def _words(field: Field) -> str:
    return field.name.replace("_", " ")


def _condition(rng: Random, entity: Entity, world: World, prefix: str = "") -> Described:
    """A boolean SQL expression over ``entity`` and how one says it."""
    field = rng.choice(entity.fields)
    column = prefix + field.name
    match field.kind:
        case "int" | "real":
            form = rng.randrange(4)
            if form == 0:
                low, high = sorted((_literal(rng, field, world), _literal(rng, field, world)), key=float)
                return f"{column} BETWEEN {low} AND {high}", f"{_words(field)} between {low} and {high}"
            sign, said = ((">", "above"), ("<", "below"), (">=", "at least"))[form - 1]
            value = _literal(rng, field, world)
            return f"{column} {sign} {value}", f"{_words(field)} {said} {value}"
        case "date":
            value = _literal(rng, field, world)
            sign, said = rng.choice(((">=", "since"), ("<", "before")))
            return f"{column} {sign} {value}", f"{_words(field)} {said} {value[1:-1]}"
        case "bool":
            return rng.choice(((column, _words(field)), (f"NOT {column}", f"not {_words(field)}")))
        case "choice":
            if rng.random() < 0.3:
                pair = rng.sample(field.choices, 2)
                listed = ", ".join(f"'{value}'" for value in pair)
                return f"{column} IN ({listed})", f"{_words(field)} {pair[0]} or {pair[1]}"
            value = _literal(rng, field, world)
            return f"{column} = {value}", f"{_words(field)} {value[1:-1]}"
        case "text":
            form = rng.randrange(3)
            if form == 0:
                letter = rng.choice("ABCDEJLMNPRST")
                return f"{column} LIKE '{letter}%'", f"a {_words(field)} starting with {letter}"
            if form == 1:
                return f"{column} IS NOT NULL", f"a known {_words(field)}"
            value = _literal(rng, field, world)
            return f"{column} = {value}", f"{_words(field)} {value[1:-1]}"


def table_definition(rng: Random, entity: Entity, parent: Entity | None) -> str:
    """``CREATE TABLE`` of an entity, with a key to its parent where it has one."""
    key = rng.choice(("id INTEGER PRIMARY KEY", "id INTEGER PRIMARY KEY", "id SERIAL PRIMARY KEY"))
    lines = [key]
    if parent is not None:
        lines.append(f"{_key(parent)} INTEGER NOT NULL REFERENCES {parent.plural}(id)")
    for field in entity.fields:
        extra = ""
        if field.name == "name" or rng.random() < 0.2:
            extra = " NOT NULL"
        elif field.kind in ("int", "real") and rng.random() < 0.2:
            extra = rng.choice((" DEFAULT 0", f" CHECK ({field.name} >= 0)"))
        elif field.name in ("email", "code"):
            extra = " UNIQUE"
        lines.append(f"{field.name} {_TYPES[field.kind]}{extra}")
    maybe = rng.choice(("", "", "IF NOT EXISTS "))
    body = ",\n".join(f"  {line}" for line in lines)
    return f"CREATE TABLE {maybe}{entity.plural} (\n{body}\n);"


def insert_rows(rng: Random, entity: Entity, parent: Entity | None, world: World) -> str:
    """``INSERT`` of one to five rows."""
    columns = [*([_key(parent)] if parent else []), *(field.name for field in entity.fields)]
    rows = []
    for index in range(rng.randint(1, 5)):
        cells = [str(rng.randint(1, 4))] if parent else []
        for field in entity.fields:
            cells.append(f"'{world.names[index]}'" if field.name == "name" else _literal(rng, field, world))
        rows.append(f"({', '.join(cells)})")
    if rng.random() < 0.3:
        return "\n".join(f"INSERT INTO {entity.plural} ({', '.join(columns)}) VALUES {row};" for row in rows)
    return f"INSERT INTO {entity.plural} ({', '.join(columns)}) VALUES\n" + ",\n".join(f"  {r}" for r in rows) + ";"


def _simple(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    columns = rng.sample([f.name for f in entity.fields], rng.randint(1, min(3, len(entity.fields))))
    condition, said = _condition(rng, entity, world)
    order = rng.choice(entity.fields)
    direction = rng.choice(("", " DESC", " ASC"))
    tail = f"\nORDER BY {order.name}{direction}" if rng.random() < 0.6 else ""
    limit = f"\nLIMIT {rng.choice((1, 3, 5, 10, 20))}" if tail and rng.random() < 0.5 else ""
    star = rng.choice((", ".join(columns), ", ".join(columns), "*"))
    sql = f"SELECT {star}\nFROM {entity.plural}\nWHERE {condition}{tail}{limit};"
    return f"List the {entity.plural} with {said}.", sql


def _two_conditions(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    (first, said_first), (second, said_second) = (_condition(rng, entity, world) for _ in range(2))
    word = rng.choice(("AND", "OR"))
    sql = f"SELECT name\nFROM {entity.plural}\nWHERE {first}\n  {word} {second};"
    return f"Names of {entity.plural} with {said_first} {word.lower()} {said_second}.", sql


def _count(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    condition, said = _condition(rng, entity, world)
    alias = rng.choice((f" AS {entity.name}_count", " AS total", ""))
    return (
        f"How many {entity.plural} have {said}?",
        f"SELECT COUNT(*){alias}\nFROM {entity.plural}\nWHERE {condition};",
    )


def _group(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    group = rng.choice(entity.of_kind("choice", "text", "int", "bool"))
    number = rng.choice(entity.of_kind("real"))
    function, said = rng.choice(_AGGREGATES)
    alias = f"{said}_{number.name}"
    expression = f"{function}({number.name})"
    if function == "AVG" and rng.random() < 0.4:
        expression = f"ROUND({expression}, {rng.choice((1, 2))})"
    having = f"\nHAVING COUNT(*) {rng.choice(('>', '>='))} {rng.randint(1, 10)}" if rng.random() < 0.4 else ""
    order = f"\nORDER BY {rng.choice((alias, group.name))}{rng.choice(('', ' DESC'))}" if rng.random() < 0.6 else ""
    count = rng.choice(("", ", COUNT(*) AS n"))
    sql = (
        f"SELECT {group.name}{count}, {expression} AS {alias}\nFROM {entity.plural}\n"
        f"GROUP BY {group.name}{having}{order};"
    )
    return f"The {said} {_words(number)} of {entity.plural} per {_words(group)}.", sql


def _aliases(rng: Random, parent: Entity, child: Entity) -> tuple[str, str]:
    p, c = parent.plural[0], child.plural[0]
    if p == c:
        p, c = parent.plural[:2], child.plural[:2]
    if p == c or rng.random() < 0.2 or {p, c} & {"do", "in", "is", "as", "or", "on", "to", "by", "no"}:
        return parent.plural, child.plural
    return p, c


def _from_join(rng: Random, world: World, p: str, c: str, join: str) -> str:
    parent, child = world.parent, world.child
    left = parent.plural if p == parent.plural else f"{parent.plural} {rng.choice(('', 'AS '))}{p}"
    right = child.plural if c == child.plural else f"{child.plural} {rng.choice(('', 'AS '))}{c}"
    if rng.random() < 0.4 and join != "LEFT JOIN":
        return f"FROM {right}\n{join} {left} ON {p}.id = {c}.{_key(parent)}"
    return f"FROM {left}\n{join} {right} ON {c}.{_key(parent)} = {p}.id"


def _join(rng: Random, world: World) -> Described:
    parent, child = world.parent, world.child
    p, c = _aliases(rng, parent, child)
    condition, said = _condition(rng, child, world, f"{c}.")
    field = rng.choice(child.fields)
    columns = f"{p}.name, {c}.{field.name}" if field.name != "name" else f"{p}.name AS {parent.name}, {c}.name"
    order = f"\nORDER BY {p}.name" if rng.random() < 0.5 else ""
    sql = f"SELECT {columns}\n{_from_join(rng, world, p, c, rng.choice(_JOIN_WORDS[:3]))}\nWHERE {condition}{order};"
    return f"Each {child.name} with {said} and the name of its {parent.name}.", sql


def _join_group(rng: Random, world: World) -> Described:
    parent, child = world.parent, world.child
    p, c = _aliases(rng, parent, child)
    number = rng.choice(child.of_kind("real"))
    form = rng.randrange(2)
    if form == 0:
        expression, alias, said = f"COUNT({c}.id)", f"{child.name}_count", f"The number of {child.plural}"
    else:
        function, word = rng.choice(_AGGREGATES)
        expression, alias = f"{function}({c}.{number.name})", f"{word}_{number.name}"
        said = f"The {word} {_words(number)} of the {child.plural}"
        if function == "SUM" and rng.random() < 0.4:
            expression = f"COALESCE({expression}, 0)"
    having = f"\nHAVING COUNT({c}.id) > {rng.randint(1, 9)}" if rng.random() < 0.3 else ""
    order = f"\nORDER BY {alias} DESC" if rng.random() < 0.6 else ""
    limit = f"\nLIMIT {rng.choice((1, 3, 5, 10))}" if order and rng.random() < 0.4 else ""
    sql = (
        f"SELECT {p}.name, {expression} AS {alias}\n{_from_join(rng, world, p, c, rng.choice(_JOIN_WORDS))}\n"
        f"GROUP BY {rng.choice((f'{p}.id, {p}.name', f'{p}.name'))}{having}{order}{limit};"
    )
    return f"{said} of each {parent.name}.", sql


def _missing(rng: Random, world: World) -> Described:
    parent, child = world.parent, world.child
    p, c = _aliases(rng, parent, child)
    form = rng.randrange(3)
    if form == 0:
        sql = f"SELECT {p}.name\n{_from_join(rng, world, p, c, 'LEFT JOIN')}\nWHERE {c}.id IS NULL;"
    elif form == 1:
        sql = (
            f"SELECT name\nFROM {parent.plural}\nWHERE id NOT IN (\n  SELECT {_key(parent)}\n  FROM {child.plural}\n);"
        )
    else:
        sql = (
            f"SELECT name\nFROM {parent.plural}\nWHERE NOT EXISTS (\n  SELECT 1\n  FROM {child.plural}\n"
            f"  WHERE {child.plural}.{_key(parent)} = {parent.plural}.id\n);"
        )
    return f"Find the {parent.plural} without any {child.name}.", sql


def _above_average(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    number = rng.choice(entity.of_kind("real"))
    sign, said = rng.choice(((">", "above"), ("<", "below")))
    sql = (
        f"SELECT name, {number.name}\nFROM {entity.plural}\n"
        f"WHERE {number.name} {sign} (SELECT AVG({number.name}) FROM {entity.plural});"
    )
    return f"{entity.plural.capitalize()} whose {_words(number)} is {said} the average.", sql


def _cte(rng: Random, world: World) -> Described:
    parent, child = world.parent, world.child
    number = rng.choice(child.of_kind("real"))
    function, word = rng.choice(_AGGREGATES)
    name = rng.choice((f"{parent.name}_totals", "totals", "summary", f"per_{parent.name}"))
    alias = f"{word}_{number.name}"
    sql = (
        f"WITH {name} AS (\n  SELECT {_key(parent)}, {function}({number.name}) AS {alias}\n  FROM {child.plural}\n"
        f"  GROUP BY {_key(parent)}\n)\nSELECT {parent.plural}.name, {name}.{alias}\nFROM {name}\n"
        f"JOIN {parent.plural} ON {parent.plural}.id = {name}.{_key(parent)}\n"
    )
    if rng.random() < 0.5:
        sql += f"WHERE {name}.{alias} > (SELECT AVG({alias}) FROM {name});"
    else:
        sql += f"ORDER BY {name}.{alias} DESC\nLIMIT {rng.choice((1, 3, 5, 10))};"
    return f"Compare the {word} {_words(number)} of the {child.plural} of each {parent.name}.", sql


def _window(rng: Random, world: World) -> Described:
    parent, child = world.parent, world.child
    number = rng.choice(child.of_kind("real"))
    form = rng.randrange(4)
    if form == 0:
        function = rng.choice(("RANK", "ROW_NUMBER", "DENSE_RANK"))
        return f"Rank the {child.plural} of each {parent.name} by {_words(number)}.", (
            f"SELECT name, {number.name},\n       {function}() OVER (PARTITION BY {_key(parent)} "
            f"ORDER BY {number.name} DESC) AS position\nFROM {child.plural};"
        )
    if form == 1:
        return f"A running total of {_words(number)} over the {child.plural}.", (
            f"SELECT id, {number.name},\n       SUM({number.name}) OVER (ORDER BY id) AS running_total\n"
            f"FROM {child.plural}\nORDER BY id;"
        )
    if form == 2:
        shift, said = rng.choice((("LAG", "previous"), ("LEAD", "next")))
        return f"Each {child.name} beside the {said} {_words(number)}.", (
            f"SELECT id, {number.name}, {shift}({number.name}) OVER (ORDER BY id) AS {said}_{number.name}\n"
            f"FROM {child.plural};"
        )
    return f"The top {child.name} of each {parent.name} by {_words(number)}.", (
        f"WITH ranked AS (\n  SELECT *, ROW_NUMBER() OVER (PARTITION BY {_key(parent)} ORDER BY {number.name} DESC) "
        f"AS rn\n  FROM {child.plural}\n)\nSELECT name, {number.name}\nFROM ranked\nWHERE rn <= {rng.randint(1, 3)};"
    )


def _case(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    number = rng.choice(entity.of_kind("real"))
    low, high = sorted(rng.sample(range(5, 500, 5), 2))
    words = rng.choice((("low", "medium", "high"), ("small", "normal", "large"), ("cheap", "fair", "expensive")))
    return f"Sort the {entity.plural} into bands of {_words(number)}.", (
        f"SELECT name,\n  CASE\n    WHEN {number.name} < {low} THEN '{words[0]}'\n    WHEN {number.name} < {high} "
        f"THEN '{words[1]}'\n    ELSE '{words[2]}'\n  END AS band\nFROM {entity.plural};"
    )


def _distinct(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    field = rng.choice(entity.of_kind("choice", "text", "int"))
    return f"All different values of {_words(field)} among the {entity.plural}.", (
        f"SELECT DISTINCT {field.name}\nFROM {entity.plural}\nORDER BY {field.name};"
    )


def _update(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    number = rng.choice(entity.of_kind("real"))
    condition, said = _condition(rng, entity, world)
    change, verb = rng.choice(
        (
            (f"{number.name} * 1.{rng.choice(('05', '1', '2', '25'))}", "Raise"),
            (f"{number.name} * 0.{rng.choice(('9', '8', '75'))}", "Lower"),
            (f"{number.name} + {rng.randint(1, 50)}", "Increase"),
            ("0", "Reset"),
        )
    )
    return f"{verb} the {_words(number)} of {entity.plural} with {said}.", (
        f"UPDATE {entity.plural}\nSET {number.name} = {change}\nWHERE {condition};"
    )


def _delete(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    condition, said = _condition(rng, entity, world)
    return f"Delete the {entity.plural} with {said}.", f"DELETE FROM {entity.plural}\nWHERE {condition};"


def _alter(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    field = rng.choice(entity.fields)
    if rng.random() < 0.5:
        return f"Index the {entity.plural} by {_words(field)}.", (
            f"CREATE INDEX idx_{entity.plural}_{field.name} ON {entity.plural} ({field.name});"
        )
    extra = rng.choice(("notes TEXT", "tags TEXT", "version INTEGER DEFAULT 1", "checked BOOLEAN DEFAULT FALSE"))
    return f"Add {extra.split()[0]} to the {entity.plural}.", f"ALTER TABLE {entity.plural} ADD COLUMN {extra};"


def _view(rng: Random, world: World) -> Described:
    entity = rng.choice((world.parent, world.child))
    condition, said = _condition(rng, entity, world)
    return f"A view of the {entity.plural} with {said}.", (
        f"CREATE VIEW {rng.choice(('selected', 'current', 'filtered', 'chosen'))}_{entity.plural} AS\nSELECT *\n"
        f"FROM {entity.plural}\nWHERE {condition};"
    )


_STATEMENTS: tuple[Callable[[Random, World], Described], ...] = (
    _simple, _simple, _two_conditions, _count, _group, _group, _join, _join, _join_group, _join_group, _missing,
    _above_average, _cte, _window, _window, _case, _distinct, _update, _delete, _alter, _view,
)  # fmt: skip


def _lower_keywords(sql: str) -> str:
    """Lower everything outside quotes; identifiers are lower case already."""
    parts = re.split(r"('[^']*')", sql)
    return "".join(part if part.startswith("'") else part.lower() for part in parts)


def one_line(sql: str) -> str:
    """A statement without its line breaks."""
    return re.sub(r"\s*\n\s*", " ", sql)


def sql_statement(rng: Random, world: World) -> Described:
    """A (description, statement) pair about ``world`` in a random layout and keyword case."""
    described, sql = rng.choice(_STATEMENTS)(rng, world)
    if rng.random() < 0.2:
        sql = one_line(sql)
    return described, sql


def sql_script(rng: Random) -> str:
    """A script: tables of one world, some rows, then three to eight commented statements."""
    world = draw_world(rng)
    parts = [table_definition(rng, world.parent, None), table_definition(rng, world.child, world.parent)]
    if rng.random() < 0.7:
        parts += [insert_rows(rng, world.parent, None, world), insert_rows(rng, world.child, world.parent, world)]
    commented = rng.random() < 0.7
    for _ in range(rng.randint(3, 8)):
        described, sql = sql_statement(rng, world)
        parts.append(f"-- {described}\n{sql}" if commented else sql)
    script = "\n\n".join(parts) + "\n"
    if rng.random() < 0.25:
        lines = (line if line.startswith("--") else _lower_keywords(line) for line in script.splitlines())
        script = "\n".join(lines) + "\n"
    return script


def sql_exchange(rng: Random) -> tuple[str, str]:
    """A (request, answer) pair: the schema and a question, and the SQL that answers it."""
    world = draw_world(rng)
    described, sql = sql_statement(rng, world)
    form = rng.randrange(3)
    if form == 0:
        return f"Write a SQL query. {described}", sql
    if form == 1:
        tables = f"{table_definition(rng, world.parent, None)}\n{table_definition(rng, world.child, world.parent)}"
        return f"{tables}\n\n{described}", sql
    return f"-- {described}", sql
