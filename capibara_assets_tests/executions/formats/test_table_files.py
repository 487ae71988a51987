"""Databases and Parquet files as JSON lines: what agents keep in them is read, and nothing of theirs runs."""

import io
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.executions.formats.table_files import is_table_file, table_lines
from capibara_assets.executions.ingest.ingest import read_experience

MOST = 1 << 20
CALL = {"type": "tool_call", "data": {"id": "c1", "name": "bash", "input": json.dumps({"command": "make"})}}
SAID = {"type": "tool_result", "data": {"tool_call_id": "c1", "content": "[1, 2]\nExit code 2", "is_error": False}}


def database(folder: Path, *statements: str, rows: list[tuple[Any, ...]] | None = None, mode: str = "DELETE") -> Path:
    path = folder / "sessions.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, parts)")
    connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows or [])
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


MESSAGES: list[tuple[Any, ...]] = [
    (1, "s1", "user", json.dumps([{"type": "text", "data": {"text": "Build it."}}])),
    (2, "s1", "assistant", json.dumps([CALL])),
    (3, "s1", "tool", json.dumps([SAID]).encode()),  # as bytes, which VS Code's programs write
    (4, "s1", "tool", b"\xff\xfe\x00"),
]


def values(data: bytes) -> list[dict[str, Any]]:
    lines = table_lines(data, MOST)
    assert lines is not None
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_rows_are_objects_and_json_in_them_is_parsed_once(tmp_path: Path, mode: str) -> None:
    data = database(tmp_path, rows=MESSAGES, mode=mode).read_bytes()
    assert is_table_file(data)
    found = values(data)
    assert [row["id"] for row in found] == [1, 2, 3, 4] and {row["table"] for row in found} == {"messages"}
    assert found[2]["parts"] == [SAID] and found[3]["parts"] is None


def test_no_code_of_a_database_runs(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    path = database(
        tmp_path,
        f"CREATE VIEW always AS {endless}",
        "CREATE VIRTUAL TABLE words USING fts5(text)",
        "INSERT INTO words VALUES ('hidden')",
        'CREATE TABLE \'odd " name\' ("select")',
        "INSERT INTO 'odd \" name' VALUES (1.5)",
        rows=MESSAGES[:1],
    )
    found = values(path.read_bytes())
    assert {"always", "words"}.isdisjoint({row["table"] for row in found})
    assert {"table": 'odd " name', "select": 1.5} in found


def test_what_cannot_be_read_or_is_too_large_is_no_log(tmp_path: Path) -> None:
    data = database(tmp_path, rows=MESSAGES * 1 + [(n, "s", "user", "x" * 500) for n in range(5, 200)]).read_bytes()
    assert table_lines(data, 1000) is None
    for cut in (20, 100, 5000, len(data) // 2):
        table_lines(data[:cut], MOST)  # whatever it gives, nothing is raised
    torn = data[:4096] + bytes(len(data) - 4096)
    assert table_lines(torn, MOST) in (None, b"")
    assert table_lines(b"PAR1" + b"\x00" * 50, MOST) is None


def test_parquet_rows_lose_the_fields_of_other_rows() -> None:
    rows = [
        {"id": "t1", "trajectory": [{"role": "user", "content": "[1]", "calls": None}], "tools": '[{"name": "bash"}]'},
        {"id": "t2", "trajectory": [{"role": "tool", "content": None, "calls": ["c"]}], "tools": "{cut"},
    ]
    file = io.BytesIO()
    pl.DataFrame(rows).write_parquet(file)
    first, second = values(file.getvalue())
    assert first == {"id": "t1", "trajectory": [{"role": "user", "content": "[1]"}], "tools": [{"name": "bash"}]}
    assert second == {"id": "t2", "trajectory": [{"role": "tool", "calls": ["c"]}], "tools": "{cut"}


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_an_ingest_reads_sessions_kept_in_tables(tmp_path: Path, kind: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    if kind == "sqlite":
        database(logs, rows=MESSAGES)
    else:
        texts = [(*row[:3], row[3].decode() if isinstance(row[3], bytes) else row[3]) for row in MESSAGES[:3]]
        pl.DataFrame(texts, ["id", "session_id", "role", "parts"], orient="row").write_parquet(logs / "a.parquet")
    (logs / "numbers.parquet").write_bytes(b"")
    pl.DataFrame({"a": [1, 2]}).write_parquet(logs / "numbers.parquet")
    read = read_experience(logs, now=datetime(2030, 1, 1, tzinfo=UTC))
    (run,) = read.executions.to_dicts()
    assert (run["language"], run["code"], run["outcome"]) == ("bash", "make", "error")
    assert run["stdout"] == "[1, 2]"
    kinds = dict(read.files.select("path", "kind").rows())
    assert kinds.pop("numbers.parquet") == "other" and set(kinds.values()) == {"executions"}
    assert not read.quarantine.height


def test_spans_in_a_table_are_a_trace(tmp_path: Path) -> None:
    def span(key: str, kind: str, **columns: Any) -> dict[str, Any]:
        return {
            "name": "bash", "start_time": f"2026-01-02T10:00:0{key}+00:00", "end_time": "2026-01-02T10:00:09+00:00",
            "context.trace_id": "a" * 32, "context.span_id": key * 16, "status_code": "OK", "status_message": "",
            "attributes.openinference.span.kind": kind, "attributes.tool.name": "bash",
            "attributes.tool.parameters": json.dumps({"command": {"type": "string"}}), **columns,
        }  # fmt: skip

    given = {"attributes.input.value": json.dumps({"kwargs": {"command": "make"}})}
    rows = [
        span("1", "TOOL", **given, **{"attributes.output.value": "no rule\nexit_code: 2"}),
        span("2", "TOOL", **given, **{"attributes.output.value": "built"}),
        span("3", "LLM", **given, **{"attributes.output.value": ""}),
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "spans.parquet")
    read = read_experience(tmp_path, now=datetime(2030, 1, 1, tzinfo=UTC))
    found = read.executions.sort("timestamp").to_dicts()
    assert [(run["code"], run["outcome"]) for run in found] == [("make", "error"), ("make", "ok")]
    assert read.summary["known"] == {"span": 1}
