"""Archives of logs: members are read as files of their own, and what is damaged or too large is told."""

import gzip
import io
import json
import tarfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard

from capibara_assets.executions.formats import archives
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets_tests.executions.conftest import envelope, executed, line
from capibara_assets_tests.executions.formats.agents.general import shapes
from capibara_assets_tests.executions.formats.test_notebooks import code, notebook, shown

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OWN = b'{"session_id": "s", "command": "make", "output": "done", "exit_code": 0, "timestamp": "2026-10-01T10:00:00Z"}\n'
MEMBERS = {"b/goose.jsonl": shapes.goose(), "a/kimi.jsonl": shapes.kimi(), "notes.txt": b"nothing\r\nhere\r\n"}


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, data in members.items():
            pack.writestr(name, data)
    return file.getvalue()


def taped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tape:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tape.addfile(entry, io.BytesIO(data))
    return file.getvalue()


def codes(folder: Path) -> list[tuple[str, str]]:
    return sorted(read_experience(folder, now=NOW).executions.select("code", "outcome").rows())


@pytest.mark.parametrize("name", ["logs.zip", "logs.tar", "logs.tar.gz"])
def test_members_are_read_as_files_of_their_own(tmp_path: Path, name: str) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for path, data in MEMBERS.items():
        (plain / path).parent.mkdir(parents=True, exist_ok=True)
        (plain / path).write_bytes(data)
    packed.mkdir()
    data = zipped(MEMBERS) if name.endswith("zip") else taped(MEMBERS)
    (packed / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert len(codes(plain)) > 3
    assert codes(packed) == codes(plain)
    assert sorted(path.name for path in packed.iterdir()) == [name]


def test_an_archive_without_logs_is_named_as_none(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"notes.txt": b"nothing", "b.zip": zipped(MEMBERS)}))
    assert dict(read_experience(tmp_path, now=NOW).files.select("path", "kind").rows()) == {"a.zip": "other"}


def test_a_damaged_member_and_one_that_is_too_large_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST", 10_000)
    data = zipped({"a.jsonl": json.dumps({"a": 1}).encode() * 5, "b.jsonl": b"x" * 20_000, **MEMBERS})
    begin = data.index(b"a.jsonl") + len(b"a.jsonl")
    (tmp_path / "a.zip").write_bytes(data[:begin] + b"\xff\xff\xff" + data[begin + 3 :])
    read = read_experience(tmp_path, now=NOW)
    assert read.executions.height > 3
    reasons = dict(read.quarantine.select("reason", "detail").rows())
    assert "a.jsonl" in reasons["damaged_member"] and "b.jsonl" in reasons["member_too_large"]


def test_a_log_in_an_archive_and_beside_it_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "goose.jsonl").write_bytes(shapes.goose())
    alone = codes(tmp_path)
    (tmp_path / "a.zip").write_bytes(zipped({"goose.jsonl": shapes.goose(), "copy/goose.jsonl": shapes.goose()}))
    (tmp_path / "a.tar").write_bytes(taped({"goose.jsonl": shapes.goose()}))
    assert codes(tmp_path) == alone


@pytest.mark.parametrize(
    "member",
    [
        gzip.compress(OWN),
        zstandard.compress(OWN),
        gzip.compress(OWN)[:-8] + b"\0" * 8,
        b"session_id,command,output,exit_code\ns,make,done,0\n",
        b"session_id: s\ncommand: make\noutput: done\nexit_code: 0\n",
    ],
)
def test_packed_members_tables_and_yaml_are_read(tmp_path: Path, member: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"log": member, **MEMBERS}))
    assert ("make", "ok") in codes(tmp_path)


def test_whole_lines_before_the_damage_of_a_member_are_read(tmp_path: Path) -> None:
    lines = [line(envelope(f"print({n})", execution_id=f"e{n}", execution=executed("x" * 99))) for n in range(2000)]
    data = zipped({"day.jsonl": b"\xef\xbb\xbf" + b"\n".join([*lines, b""])})
    place = data.index(b"PK\x01\x02") - 60
    (tmp_path / "a.zip").write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
    read = read_experience(tmp_path, now=NOW)
    assert 1000 < read.executions.height < 2000
    assert "print(0)" in read.executions["code"].to_list()
    assert {*read.quarantine["reason"]} == {"damaged_member", "invalid_json"}


def test_lines_of_ours_and_notebooks_in_an_archive_are_read(tmp_path: Path) -> None:
    lines = [line(envelope(f"print({n})", execution_id=f"e{n}", execution=executed(f"{n}\n"))) for n in range(3)]
    own = b"\n".join([*lines, b'{"torn', b""])
    told = json.dumps(notebook(code("x = 1\nx", shown("1")))).encode()
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "a.zip", "w", kind) as pack:
            pack.writestr("day.jsonl", own)
            pack.writestr("a.ipynb", told)
        read = read_experience(tmp_path, now=NOW)
        assert sorted(read.executions["code"].to_list()) == ["print(0)", "print(1)", "print(2)", "x = 1\nx"]
        [(reason, detail)] = read.quarantine.select("reason", "detail").rows()
        assert reason == "invalid_json" and detail.startswith("day.jsonl line 4: ")


def test_the_cut_last_line_of_a_member_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"log.jsonl": OWN + OWN[:40]}))
    read = read_experience(tmp_path, now=NOW)
    assert read.executions.height == 1
    assert read.quarantine["reason"].to_list() == ["invalid_json"]


@pytest.mark.parametrize("cut", [False, True])
def test_members_before_the_damage_of_a_tar_are_read(tmp_path: Path, cut: bool) -> None:
    data = taped({"a.jsonl": OWN, "b.jsonl": shapes.goose(), "c.jsonl": shapes.kimi()})
    second = data.index(b"b.jsonl")
    (tmp_path / "a.tar").write_bytes(data[: second + 700] if cut else data[:second] + b"?" + data[second + 1 :])
    read = read_experience(tmp_path, now=NOW)
    assert codes(tmp_path) == [("make", "ok")]
    assert read.quarantine.filter(reason="damaged_archive").height == 1


def test_members_beyond_the_limit_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_MEMBERS", 2)
    (tmp_path / "a.zip").write_bytes(zipped(MEMBERS))
    read = read_experience(tmp_path, now=NOW)
    assert read.executions.height > 3
    [(reason, detail)] = read.quarantine.select("reason", "detail").rows()
    assert reason == "too_many_members" and "1 of 3, from notes.txt" in detail


def test_an_encrypted_member_is_told_of_an_archive_without_others(tmp_path: Path) -> None:
    data = bytearray(zipped({"goose.jsonl": shapes.goose()}))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(header) + flags] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    read = read_experience(tmp_path, now=NOW)
    [(reason, detail)] = read.quarantine.select("reason", "detail").rows()
    assert reason == "encrypted_member" and "goose.jsonl" in detail


def test_what_a_member_says_of_its_size_bounds_it(tmp_path: Path) -> None:
    data = zipped({**MEMBERS, "bomb.jsonl": b"{" * (1 << 20)})
    place = data.rindex((1 << 20).to_bytes(4, "little"))
    (tmp_path / "a.zip").write_bytes(data[:place] + (100).to_bytes(4, "little") + data[place + 4 :])
    assert read_experience(tmp_path, now=NOW).executions.height > 3
