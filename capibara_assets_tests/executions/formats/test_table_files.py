"""Databases and Parquet files as JSON lines: what agents keep in them is read, and nothing of theirs runs."""

import gzip
import io
import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

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
    return [json.loads(line) for line in table_lines(data, MOST).splitlines() if line.startswith(b"{")]


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


def test_what_can_be_read_is_and_the_rest_is_told(tmp_path: Path) -> None:
    many = [(n, "s", "user", "x" * 500) for n in range(5, 200)]
    data = database(
        tmp_path, "CREATE TABLE later (a)", "INSERT INTO later VALUES (7)", rows=MESSAGES + many
    ).read_bytes()
    *rows, said = table_lines(data, 3000).splitlines()
    assert 3 < len(rows) < 10 and said == b"not read: more than 3000 bytes of rows"
    torn = data[: 8 * 4096] + bytes(4 * 4096) + data[12 * 4096 :]  # pages in the midst of the messages
    *rows, said = table_lines(torn, MOST).splitlines()
    assert len(rows) > 10 and json.loads(rows[-1]) == {"table": "later", "a": 7}
    assert said.startswith(b"not read: table messages: database disk image is malformed")
    for cut in (16, 20, 100, 5000, len(data) // 2):
        table_lines(data[:cut], MOST)  # whatever it gives, nothing is raised
    assert table_lines(b"PAR1" + bytes(50), MOST).startswith(b"not read: Parquet magic bytes not found")


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE INDEX kinds ON messages (json_extract(parts, '$[0].type'))",
        "CREATE TABLE other (a TEXT CHECK (json_valid(a)))",
        "CREATE TABLE other (a TEXT, b TEXT AS (json_extract(a, '$.b')))",
    ],
)
def test_functions_in_a_schema_hide_no_table(tmp_path: Path, schema: str) -> None:
    data = database(tmp_path, schema, rows=MESSAGES[:2]).read_bytes()
    assert [row["id"] for row in values(data)] == [1, 2]


def test_a_table_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    path = database(tmp_path, rows=MESSAGES[:1])
    connection = sqlite3.connect(path)
    connection.create_function("odd", 1, lambda value: value, deterministic=True)
    connection.execute("CREATE TABLE strange (a TEXT, b TEXT AS (odd(a)))")
    connection.execute("INSERT INTO strange (a) VALUES ('1')")
    connection.commit()
    connection.close()
    assert [row["id"] for row in values(path.read_bytes())[:1]] == [1]


@pytest.mark.parametrize("packed", [zstandard.compress, gzip.compress], ids=["zstd", "gzip"])
def test_what_a_cell_packs_is_read_and_no_more_than_text_can_be(
    tmp_path: Path, packed: Callable[[bytes], bytes]
) -> None:
    text = json.dumps({"messages": [str(number) for number in range(3000)]}).encode()
    cells = [packed(text), packed(text)[:40], packed(b"\xff" * 9), packed(b" " * 30_000_000)]
    rows = [(number, "s", "thread", cell) for number, cell in enumerate(cells)]
    lines = table_lines(database(tmp_path, rows=rows).read_bytes(), 100 * MOST).splitlines()
    shown = [json.loads(line)["parts"] for line in lines]
    assert shown[0] == json.loads(text) and shown[2] is None
    assert len(str(shown[1])) < len(text) and len(shown[3] or "") < 5_000_000


def test_rows_stand_by_their_times_and_large_blobs_stay_out(tmp_path: Path) -> None:
    path = database(
        tmp_path,
        "CREATE TABLE steps (id TEXT PRIMARY KEY, created_at INTEGER, body) WITHOUT ROWID",
        "INSERT INTO steps VALUES ('b', 2, 'second'), ('c', 1, 'first'), ('a', 3, zeroblob(40000000))",
    )
    assert [(row["created_at"], row["body"]) for row in values(path.read_bytes())] == [
        (1, "first"), (2, "second"), (3, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**47], pa.timestamp("s")),
        pa.array([1], pa.timestamp("us", "+05:45")),
        pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32())),
        pa.array([2**30], pa.date32()),
        pa.array([1.5], pa.float64()).fill_null(0),
        pa.array([b"\xff"], pa.binary()),
        pa.array([1], pa.duration("ns")),
    ],
    ids=lambda column: str(column.type),
)
def test_no_kind_of_column_stops_the_reading(column: Any) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(['["a"]']), "odd": column}), file)
    lines = table_lines(file.getvalue(), MOST).splitlines()
    assert json.loads(lines[0])["text"] == ["a"] or lines[-1].startswith(b"not read: ")


def test_rows_that_stand_for_billions_are_not_read() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array(["x"] * 1_000_001)}), file)
    assert table_lines(file.getvalue(), MOST) == b""


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
