"""SQL sessions: one in-memory SQLite database, one JSON request and one JSON answer a line.

Imported by `replay/python_worker.py`, and a script of its own; imports nothing but the standard library.
"""

import json
import sqlite3
import sys
import time
from typing import Any

MAX_ROWS = 200
Row = tuple[Any, ...]
# In hexadecimal digits: what a statement wrote into the schema itself need not be UTF-8. Of what is there for the
# session alone only triggers, which act on the tables that stay.
_SCHEMA = r"""
SELECT type, hex(lower(name)), hex(sql) FROM main.sqlite_master WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'
UNION ALL SELECT type, hex('temp.' || lower(name)), hex(sql) FROM temp.sqlite_master WHERE type = 'trigger'
"""
_WRITING = (
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE,
    sqlite3.SQLITE_DROP_TABLE,
    sqlite3.SQLITE_DROP_VIEW,
)
_SHADOWING = (sqlite3.SQLITE_CREATE_TEMP_TABLE, sqlite3.SQLITE_CREATE_TEMP_VIEW)


def statements(script: str) -> list[str]:
    """Splits a script into its statements, in order; an incomplete end counts as one.

    `sqlite3.complete_statement` decides, so that semicolons in strings, comments and triggers do not cut.
    """
    complete, rest = [], ""
    for piece in script.split(";"):
        rest += piece + ";"
        if sqlite3.complete_statement(rest):
            complete.append(rest)
            rest = ""
    if rest.strip(" \t\r\n;"):
        complete.append(rest.removesuffix(";"))
    return [statement for statement in complete if statement.strip(" \t\r\n;")]


def table_text(names: list[str], rows: list[Row], exact: bool = False) -> str:
    """Right-aligned columns under their names with a row number in front, as wide as pandas prints a small frame.

    Args:
        exact: real numbers with all their digits, else with six.
    """
    if not rows:
        return f"Empty result\nColumns: [{', '.join(names)}]"
    columns = [[_cell(value, exact) for value in column] for column in zip(*rows, strict=True)]
    first = len(str(len(rows) - 1))
    widths = [
        max(len(name) + _holds_numbers(values), *(len(text) + 1 for text in column))  # pandas sets those names apart
        for name, values, column in zip(names, zip(*rows, strict=True), columns, strict=True)
    ]
    lines = [["", *names], *([str(number), *line] for number, line in enumerate(zip(*columns, strict=True)))]
    return "\n".join(
        " ".join([line[0].ljust(first), *(text.rjust(w) for text, w in zip(line[1:], widths, strict=True))]).rstrip()
        for line in lines
    )


def _holds_numbers(column: Row) -> bool:
    """Whether a column holds numbers, and nothing else but NULL."""
    return {type(value) for value in column} - {type(None)} in ({int}, {float}, {int, float})


def _cell(value: Any, exact: bool) -> str:
    if isinstance(value, float):
        return repr(value) if exact else f"{value:.6g}"
    return str(value)  # NULL is None


def _data(names: list[str], rows: list[Row]) -> dict[str, list[Any]]:
    plain = [tuple(value.hex() if isinstance(value, bytes) else value for value in row) for row in rows]
    return {name: [row[column] for row in plain] for column, name in enumerate(names)}


def _cells(rows: list[Row]) -> list[list[Any]]:
    return [[["blob", value.hex()] if isinstance(value, bytes) else value for value in row] for row in rows]


def watch_changes(connection: sqlite3.Connection) -> set[str]:
    """The tables and views there are that statements change from now on; `temp.NAME`: another is put in its place."""
    there = {name.lower() for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    changed: set[str] = set()

    def noted(action: int, first: str | None, second: str | None, database: str | None, _: str | None) -> int:
        if action in _WRITING and database == "main":
            changed.update({(first or "").lower()} & there)
        elif action == sqlite3.SQLITE_ALTER_TABLE and first == "main":
            changed.update({(second or "").lower()} & there)
        elif action in _SHADOWING:
            changed.update(f"temp.{name}" for name in {(first or "").lower()} & there)
        return sqlite3.SQLITE_OK

    connection.set_authorizer(noted)
    return changed


def schema(connection: sqlite3.Connection) -> dict[str, str]:
    """What a database holds (tables and views by their name, others as `trigger NAME`), and its statement."""
    try:
        rows = connection.execute(_SCHEMA).fetchall()
    except sqlite3.DatabaseError as error:  # a statement wrote into it what SQLite does not read
        return {"the schema": str(error)}
    names = [(kind, bytes.fromhex(name).decode("utf-8", "replace"), text) for kind, name, text in rows]
    return {name if kind in ("table", "view") else f"{kind} {name}": text for kind, name, text in names}


def run(connection: sqlite3.Connection, code: str, timeout_s: float) -> dict[str, Any]:
    """Executes every statement; the last one that returns rows is the result."""
    deadline = time.monotonic() + timeout_s
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    results: list[dict[str, Any]] = []
    stdout: list[str] = []
    try:
        for statement in statements(code):
            cursor = connection.execute(statement)
            if cursor.description is not None:
                names = [column[0] for column in cursor.description]
                rows = cursor.fetchmany(MAX_ROWS)
                more = cursor.fetchone() is not None
                cells = {"columns": len(names), "rows": _cells(rows), "more": more}
                results = [{"text": table_text(names, rows), "data": _data(names, rows), "cells": cells}]
                if more:
                    stdout = [f"only the first {MAX_ROWS} rows are shown\n"]
    except (sqlite3.Error, sqlite3.Warning) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:  # also by what the handler raised
            return {"timeout": True}
        name = type(error).__name__
        failure = {"name": name, "value": str(error), "traceback": f"sqlite3.{name}: {error}\n[SQL: {code}]"}
        return {"results": [], "stdout": [], "stderr": [], "error": failure}
    return {"results": results, "stdout": stdout, "stderr": [], "error": None}


def main() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    for line in sys.stdin:
        request = json.loads(line)
        answer = run(connection, request["code"], request["timeout"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
