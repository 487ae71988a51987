"""Damaged files of every container: what stands before the damage is read, and the damage is told."""

import gzip
import io
import json
import sqlite3
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from capibara_assets.executions.formats.agents.runs import LogDocument
from capibara_assets.executions.formats.archives import members
from capibara_assets.executions.formats.strict_json import closed_json
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets_tests.executions.conftest import envelope

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OWN = [{"command": f"make {n}", "exit_code": 0, "stdout": "done"} for n in range(40)]
TURNS = [
    {"role": "user", "content": "List them."},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "a"},
    {"role": "assistant", "content": "There is one. " * 9},
]  # fmt: skip


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def enveloped() -> list[dict[str, Any]]:
    return [envelope(execution_id=f"e{n}", code=f"print({n})") for n in range(4)]


def database(rows: list[dict[str, Any]]) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE runs ({', '.join(rows[0])})")
    texts = [[value if isinstance(value, int) else json.dumps(value) if isinstance(value, dict) else value
              for value in row.values()] for row in rows]  # fmt: skip
    connection.executemany(f"INSERT INTO runs VALUES ({', '.join('?' * len(rows[0]))})", texts)
    connection.commit()
    return bytes(connection.serialize())


def parquet(rows: list[dict[str, Any]]) -> bytes:
    pl.DataFrame(rows).write_parquet(file := io.BytesIO())
    return file.getvalue()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", method) as pack:
        for name, data in members.items():
            pack.writestr(name, data)
    return file.getvalue()


def without_checksum(data: bytes) -> bytes:
    packed = bytearray(gzip.compress(data))
    packed[-6] ^= 1
    return bytes(packed)


class Told(dict[str, Any]):
    def __init__(self, folder: Path, name: str, data: bytes) -> None:
        (folder / name).write_bytes(data)
        read = read_experience(folder, now=NOW)
        super().__init__(
            executions=len(read.executions),
            reasons=sorted(set(read.quarantine["reason"].to_list())),
            pending=int(read.files["pending"].sum()),
        )


@pytest.mark.parametrize(
    ("data", "executions", "reasons"),
    [
        (without_checksum(jsonl(enveloped())), 4, ["invalid_gzip"]),
        (database(OWN)[:100], 0, ["invalid_json"]),
        (parquet(OWN)[:-9], 0, ["invalid_json"]),
        (zipped({"a.jsonl": jsonl(OWN[:2]), "b.jsonl": jsonl(OWN[2:4])})[:-30], 4, ["damaged_archive"]),
        (zipped({"a.jsonl": jsonl(OWN[:2])}, zipfile.ZIP_STORED)[:-30], 2, ["damaged_archive"]),
        (zipped({"a.jsonl": jsonl(OWN[:4])})[:100], 3, ["damaged_archive", "damaged_member", "invalid_json"]),
        (b'command,exit_code,stdout\nls,0,a\nls,0,b\nls,0,c\nls,0,"open\nls,0,d\n', 4, ["damaged_part"]),
    ],
    ids=["gzip's checksum", "database", "Parquet", "zip's end", "stored", "half a zip", "a quote left open"],
)  # fmt: skip
def test_what_stands_before_the_damage_is_read_and_the_damage_is_told(
    data: bytes, executions: int, reasons: list[str], tmp_path: Path
) -> None:
    assert Told(tmp_path, "log", data) == {"executions": executions, "reasons": reasons, "pending": 0}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("document", [enveloped, lambda: TURNS], ids=["envelopes", "an agent's turns"])
def test_a_document_that_is_cut_waits_for_its_rest(
    document: Callable[[], Any], indent: int | None, tmp_path: Path
) -> None:
    text = json.dumps(document(), indent=indent)
    assert Told(tmp_path, "log", text[:-90].encode()) == {"executions": 0, "reasons": [], "pending": 1}
    whole = Told(tmp_path, "log", text.encode())
    assert whole["executions"] and not whole["pending"]


def test_documents_that_are_no_logs_wait_for_nothing(tmp_path: Path) -> None:
    settings = json.dumps({"command": "serve", "args": ["--port", "80"], "env": {}}).encode()[:-3]
    assert Told(tmp_path, "settings.json", settings) == {"executions": 0, "reasons": [], "pending": 0}


@pytest.mark.parametrize(
    "data",
    [
        database(enveloped()),
        yaml.safe_dump(enveloped()).encode(),
        yaml.safe_dump_all(enveloped()).encode(),
        zipped({"a.jsonl": jsonl(enveloped()).decode().encode("utf-16")}, zipfile.ZIP_STORED),
        zipped({"a.jsonl": jsonl(enveloped()).decode().encode("utf-32")}, zipfile.ZIP_STORED),
    ],
    ids=["rows of a database", "YAML", "documents of YAML", "UTF-16 in a zip", "UTF-32 in a zip"],
)
def test_envelopes_are_read_from_any_container(data: bytes, tmp_path: Path) -> None:
    assert Told(tmp_path, "log", data) == {"executions": 4, "reasons": [], "pending": 0}


def test_lines_of_envelopes_in_a_database_are_no_lines_of_the_file(tmp_path: Path) -> None:
    rows = [{"n": n, "line": json.dumps(one)} for n, one in enumerate(enveloped())]
    assert Told(tmp_path, "log", database(rows))["reasons"] == ["missing:sandbox_id"]


def test_a_day_that_there_is_not_costs_nothing(tmp_path: Path) -> None:
    text = yaml.safe_dump(OWN[:4]).replace("- command", "- at: 2026-13-45\n  command", 1)
    assert Told(tmp_path, "log.yaml", text.encode()) == {"executions": 4, "reasons": [], "pending": 0}


@pytest.mark.parametrize("head", ["sep=;\n", "# exported\n\n", "\n\n"])
@pytest.mark.parametrize("delimiter", [";", "|", ","])
def test_what_stands_above_a_tables_head_is_no_part_of_it(head: str, delimiter: str, tmp_path: Path) -> None:
    table = "command;exit_code;stdout\n" + "ls -la;0;abc\n" * 3
    data = (head + table).replace(";", delimiter).encode()
    assert Told(tmp_path, "log.csv", data)["executions"] == 3


DOCUMENT = json.dumps({"a": [1, {"b": 'x"y,{', "c": [True, None, -1.5e3]}], "d": {"e": []}, "f": "\\", "g": "é"})


@pytest.mark.parametrize("end", range(1, len(DOCUMENT)))
def test_json_that_is_cut_anywhere_is_closed(end: int) -> None:
    closed = closed_json(DOCUMENT[:end].encode())
    assert closed is not None
    assert isinstance(json.loads(closed), dict)


@pytest.mark.parametrize("text", [DOCUMENT, DOCUMENT + DOCUMENT[:9], "text", '{"a": x, "b": "' + "y" * 40 + '"}', ""])
def test_what_is_whole_or_damaged_elsewhere_is_not_closed(text: str) -> None:
    assert closed_json(text.encode()) is None


def test_json_within_a_json_string_is_what_the_string_says(tmp_path: Path) -> None:
    twice = json.dumps(json.dumps({"nodes": OWN[:3], "good_nodes": OWN[:1]})).encode()
    assert Told(tmp_path, "journal.json", twice)["executions"] == 4
    assert Told(tmp_path, "journal.json", b'"{not json"')["executions"] == 0


@pytest.mark.parametrize(
    "hostile",
    [
        lambda n: b"[" * n + b"," * n,
        lambda n: b'{"a": "' + b'\\"' * n,
        lambda n: b'["' + b'","' * n,
        lambda n: b"[" * n + b"]" * (n - 1),
    ],
)
def test_json_that_is_cut_is_closed_in_linear_time(hostile: Callable[[int], bytes]) -> None:
    def seconds(times: int) -> float:
        began = time.process_time()
        closed_json(hostile(times))
        return time.process_time() - began

    seconds(1000)
    assert seconds(200_000) < max(0.3, 30 * seconds(20_000))


def test_many_members_without_a_list_and_many_objects_on_a_line_cost_linear_time() -> None:
    def seconds(times: int) -> float:
        data = zipped({f"{n}.jsonl": b"x" for n in range(times)})
        began = time.process_time()
        assert len(list(members(data[:-30]))) > times
        document = LogDocument(b'{"a": 1}\n' + b'{"a": 2} ' * (20 * times))
        assert len(document.lines) == 20 * times + 1
        return time.process_time() - began

    seconds(100)
    assert seconds(5000) < max(0.5, 30 * seconds(500))
