"""From folders to tables: the known answers of the damaged files, exactly once, and the real collection."""

import gzip
import itertools
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.ingest import Ingest, ingest, read_experience
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.storage.records import frame_digest, problems
from capibara_assets_tests.executions.conftest import NOW, envelope, executed, line

DAMAGED = (
    "empty.jsonl",
    "blank_lines.jsonl",
    "truncated_line.jsonl",
    "truncated_middle.jsonl",
    "not_utf8.jsonl",
    "utf8_bom.jsonl",
    "utf16.jsonl",
    "crlf.jsonl",
    "giant_line.jsonl",
    "deep_nesting.jsonl",
    "missing_fields.jsonl",
    "wrong_types.jsonl",
    "nan_numbers.jsonl",
    "number_limits.jsonl",
    "duplicate_ids.jsonl",
    "duplicate_keys.jsonl",
    "future_timestamps.jsonl",
    "nul_and_control.jsonl",
    "unknown_language.jsonl",
    "js_sdk_shape.jsonl",
    "truncated.jsonl.gz",
    "not_gzip.jsonl.gz",
    "fake_secrets.jsonl",
)
OTHERS = ("playbook_bad_lines.txt", "playbook_truncated.json", "playbook_wrong_types.json", "playbook_orphans.json")


def outcomes(ingest: Ingest, path: Path) -> dict[str, Any]:
    """What became of each line of the only file, in the words of expected.json."""
    ended: dict[str, Any] = {str(row["source_line"]): "kept" for row in ingest.executions.iter_rows(named=True)}
    for row in ingest.quarantine.iter_rows(named=True):
        ended["file" if row["line"] == 0 else str(row["line"])] = {"quarantined": row["reason"]}
    (log,) = ingest.files.filter(pl.col("path") == path.name).iter_rows(named=True)
    if log["pending"]:
        ended[str(log["lines"])] = "pending"
    return ended


def expected_outcomes(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The same from expected.json, without the remarks behind a verdict; ignored and duplicate lines are counted."""
    wanted: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            wanted[key] = value
        elif value.split(",")[0].split(":")[0].split()[0] in ("kept", "pending"):
            wanted[key] = value.split(",")[0].split(":")[0].split()[0]
    return wanted


@pytest.mark.parametrize("name", DAMAGED)
def test_each_line_of_a_damaged_file_ends_as_known(shared_data: Path, tmp_path: Path, name: str) -> None:
    bad = shared_data / "experience" / "bad"
    document = json.loads((bad / "expected.json").read_text())[name]
    shutil.copy(bad / name, tmp_path)
    ingest = read_experience(tmp_path, now=NOW)
    ended = outcomes(ingest, bad / name)
    (log,) = ingest.files.iter_rows(named=True)
    if name == "fake_secrets.jsonl":
        # its last seven lines stand there twice
        assert (log["kept"], log["quarantined"]) == (log["lines"] - log["duplicates"], 0)
        return
    if name == "truncated.jsonl.gz":
        assert ended == {**{str(number): "kept" for number in range(1, 7)}, "file": {"quarantined": "truncated_gzip"}}
        return
    assert ended == expected_outcomes(document, bad / name)
    verdicts = [value for value in document.values() if isinstance(value, str)]
    assert log["duplicates"] == verdicts.count("duplicate")
    assert log["ignored"] == verdicts.count("ignored")
    assert (
        log["lines"] == log["kept"] + log["quarantined"] + log["duplicates"] + log["ignored"] + log["pending"]
        or name == "utf16.jsonl"
    )


def test_remarks_of_the_known_answers(shared_data: Path, tmp_path: Path) -> None:
    bad = shared_data / "experience" / "bad"

    def read(name: str) -> list[dict[str, Any]]:
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(bad / name, folder)
        return read_experience(folder, now=NOW).executions.sort("source_line").to_dicts()

    assert [row["duration_ms"] for row in read("nan_numbers.jsonl")] == [None, None, None]
    limits = read("number_limits.jsonl")
    assert (limits[0]["execution_count"], limits[1]["duration_ms"]) == (str(2**70), None)
    assert [row["flags"] for row in read("future_timestamps.jsonl") if row["flags"]] == [["naive_timestamp"]]
    unknown = read("unknown_language.jsonl")
    assert (unknown[0]["language"], unknown[0]["domains"]) == ("brainfuck", [])
    assert [row["language"] for row in unknown[1:]] == ["python", "python"]
    assert [row["outcome"] for row in read("js_sdk_shape.jsonl")] == ["ok"] * 4


@pytest.mark.parametrize("name", OTHERS)
def test_playbooks_are_no_logs(shared_data: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(shared_data / "experience" / "bad" / name, tmp_path)
    ingest = read_experience(tmp_path, now=NOW)
    assert (ingest.executions.height, ingest.quarantine.height) == (0, 0)
    assert ingest.files.select("kind", "ignored").row(0) == ("other", 1)


def test_quarantine_names_place_and_reason_and_holds_no_secret(tmp_path: Path) -> None:
    secret = "e2b" + "_" + "0123456789abcdef" * 2 + "01234567"
    good, bad = line(envelope()), line(envelope(f"key = '{secret}'"))[:-30]
    (tmp_path / "log.jsonl").write_bytes(good + b"\n" + bad + b"\n")
    (row,) = read_experience(tmp_path, now=NOW).quarantine.iter_rows(named=True)
    assert (row["file"], row["line"], row["offset"], row["reason"]) == ("log.jsonl", 2, len(good) + 1, "invalid_json")
    assert "<E2B_API_KEY:1>" in row["text"]
    assert secret not in row["text"] + row["detail"]


def test_a_log_that_is_a_hole_of_terabytes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(line(envelope()) + b"\n")
    with (tmp_path / "hole.jsonl").open("wb") as file:
        file.truncate(4 << 40)
    read = read_experience(tmp_path, now=NOW)
    assert read.quarantine.select("file", "line", "reason").rows() == [("hole.jsonl", 0, "hollow_file")]
    assert read.executions.height == 1


def test_a_missing_folder_or_file_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no experience folder at"):
        read_experience(tmp_path / "nowhere", now=NOW)
    with pytest.raises(InputError, match=r"no such log file: .*gone\.jsonl"):
        read_experience(tmp_path, now=NOW, files=[Path("gone.jsonl")])


def test_an_empty_folder_gives_typed_empty_tables(tmp_path: Path) -> None:
    ingest = read_experience(tmp_path, now=NOW)
    for model, frame in ((Execution, ingest.executions), (Quarantined, ingest.quarantine), (LogFile, ingest.files)):
        assert frame.is_empty()
        assert problems(model, frame) == []
    assert ingest.summary["executions"] == 0


def test_the_folder_of_logs_is_read_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "e2b_logs" / "day").mkdir(parents=True)
    (tmp_path / "e2b_logs" / "day" / "a.jsonl").write_bytes(line(envelope()) + b"\n")
    (tmp_path / "e2b_logs" / ".partial.jsonl").write_bytes(line(envelope(execution_id="hidden")) + b"\n")
    (tmp_path / "outside.jsonl").write_bytes(line(envelope(execution_id="other")) + b"\n")
    (tmp_path / "e2b_logs" / ".trash").mkdir()
    (tmp_path / "e2b_logs" / ".trash" / "b.jsonl").write_bytes(line(envelope(execution_id="thrown away")) + b"\n")
    ingest = read_experience(tmp_path, now=NOW)
    assert ingest.executions["execution_id"].to_list() == ["e1"]
    assert ingest.executions["source_file"].to_list() == ["e2b_logs/day/a.jsonl"]


def test_hidden_folders_of_agents_are_looked_into(tmp_path: Path) -> None:
    for name in (".crush", ".claude-work", ".gptme", ".pip", ".clauderc", ".git", ".chats", ".chatty"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_bytes(line(envelope(execution_id=name)) + b"\n")
    read = read_experience(tmp_path, now=NOW).executions["execution_id"]
    assert sorted(read) == [".chats", ".claude-work", ".crush", ".gptme"]


def test_only_the_given_files_are_read(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_bytes(line(envelope(execution_id=name)) + b"\n")
    assert read_experience(tmp_path, now=NOW, files=[tmp_path / "b.jsonl"]).executions["execution_id"].to_list() == [
        "b"
    ]


def test_each_execution_is_in_the_table_once_whatever_the_files(tmp_path: Path) -> None:
    records = [envelope(f"x = {i}", execution_id=f"e{i}", timestamp=f"2026-10-05T00:00:0{i}Z") for i in range(6)]
    conflicting = envelope("x = 'later'", execution_id="e0", timestamp="2026-10-06T00:00:00Z")
    contents = [
        [records[0], records[1], conflicting],
        [records[1], records[2], records[3]],
        [records[3], *records[4:], records[0]],
    ]
    digests = set()
    for number, order in enumerate(itertools.permutations(range(3))):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, which in zip("abc", order, strict=True):
            data = b"".join(line(record) + b"\n" for record in contents[which])
            (folder / f"{name}.jsonl").write_bytes(data if which else gzip.compress(data))
        ingest = read_experience(folder, now=NOW)
        assert ingest.executions["code"].to_list() == [f"x = {i}" for i in range(6)]
        assert ingest.summary["duplicates"] == 3
        assert ingest.quarantine["reason"].to_list() == ["conflicting_execution_id"]
        digests.add(frame_digest(Execution, ingest.executions))
    assert len(digests) == 1


def test_of_two_executions_at_one_time_neither_names_nor_order_decide(tmp_path: Path) -> None:
    one, other = (
        b"".join(line(envelope(f"print({which}, {n})", execution_id=f"e{n}")) + b"\n" for n in range(12))
        for which in range(2)
    )
    kept = []
    for number, files in enumerate([(one, other), (other, one), (one + other,), (other + one,)]):
        logs, ledger = tmp_path / str(number), tmp_path / f"ledger-{number}"
        logs.mkdir()
        for name, data in zip("ba", files, strict=False):
            (logs / f"{name}.jsonl").write_bytes(data)
            with ingest(logs, now=NOW, processes=1, ledger=ledger) as tables:
                read = tables.load()
        kept.append(read.executions["code"].to_list())
        assert read.quarantine["reason"].to_list() == ["conflicting_execution_id"] * 12
    assert kept == [kept[0]] * 4


def test_the_same_execution_in_another_formatting_is_the_same(tmp_path: Path) -> None:
    record = envelope(execution=executed(stdout="a"))
    other = dict(reversed(record.items())) | {"execution": {"results": [], "logs": {"stdout": ["a"], "stderr": []}}}
    (tmp_path / "log.jsonl").write_bytes(
        line(record) + b"\n" + json.dumps(other, indent=None, separators=(",", ":")).encode() + b"\r\n"
    )
    ingest = read_experience(tmp_path, now=NOW)
    assert (ingest.executions.height, ingest.summary["duplicates"]) == (1, 1)


def test_a_growing_line_waits_and_a_complete_one_does_not(tmp_path: Path) -> None:
    whole, log = line(envelope()), tmp_path / "log.jsonl"
    for length in range(1, len(whole) - 1, 37):
        log.write_bytes(line(envelope(execution_id="e0")) + b"\n" + whole[:length])
        ingest = read_experience(tmp_path, now=NOW)
        assert (ingest.executions.height, ingest.quarantine.height, ingest.summary["pending"]) == (1, 0, 1)
    log.write_bytes(line(envelope(execution_id="e0")) + b"\n" + whole)
    assert read_experience(tmp_path, now=NOW).executions.height == 2


def test_a_torn_last_line_of_a_closed_file_is_quarantined(tmp_path: Path) -> None:
    whole = line(envelope())
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(whole + b"\n" + whole[:50]))
    ingest = read_experience(tmp_path, now=NOW)
    assert ingest.quarantine.select("line", "reason").rows() == [(2, "truncated_line")]


def test_a_log_of_nothing_but_damage_is_still_a_log(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"sandbox_id": "s", "execution_id": "e", "code": \n' * 3)
    assert read_experience(tmp_path, now=NOW).quarantine["reason"].to_list() == ["invalid_json"] * 3


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 400), st.integers(0, 255), st.sampled_from(["set", "cut", "insert", "drop"])),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
    )
)
@settings(
    max_examples=settings.default.max_examples // 4,  # each of several damaged lines: reading a file takes longest
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_damage_never_costs_the_lines_beside_it(tmp_path: Path, damages: list[list[tuple[int, int, str]]]) -> None:
    torn = [damaged(damage) for damage in [*damages, damages[0]]]
    whole = [line(envelope(f"x = {i}", execution_id=f"whole-{i}")) for i in range(len(torn) + 1)]
    lines = [each for pair in itertools.zip_longest(whole, torn) for each in pair if each is not None]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    ingest = read_experience(tmp_path, now=NOW)
    assert {f"whole-{i}" for i in range(len(whole))} <= set(ingest.executions["execution_id"])
    (log,) = ingest.files.iter_rows(named=True)
    assert log["lines"] == log["kept"] + log["quarantined"] + log["duplicates"] + log["ignored"]


def damaged(damage: list[tuple[int, int, str]]) -> bytes:
    """A line after some changes of its bytes, each at a place."""
    torn = bytearray(line(envelope("x = 'é'", execution_id="torn", sandbox_id="elsewhere")))
    for place, byte, how in damage:
        place %= len(torn) + 1
        if how == "insert":
            torn.insert(place, byte)
        elif how == "cut":
            del torn[place:]
        elif place < len(torn):
            torn[place : place + 1] = bytes([byte]) if how == "set" else b""
    return bytes(torn)


def test_both_sides_of_a_repair_are_debug_too(ingest_lines: Callable[..., Ingest]) -> None:
    failing = "def half(x):\n    return x / 0\nassert half(4) == 2"
    error = executed(error=("ZeroDivisionError", "division by zero", "Traceback"))
    ingest = ingest_lines(
        envelope(failing, execution_id="a", timestamp="2026-10-05T00:00:00Z", execution=error),
        envelope(failing.replace("/ 0", "/ 2"), execution_id="b", timestamp="2026-10-05T00:00:01Z"),
        envelope("print(half(8))", execution_id="c", timestamp="2026-10-05T00:00:02Z"),
    )
    assert ingest.executions["domains"].to_list() == [["python", "debug"], ["python", "debug"], ["python"]]


def test_the_recorders_lines_are_read(tmp_path: Path) -> None:
    record = envelope(
        "SELECT 1 AS one",
        language="sql",
        schema_version=1,
        context_id="c",
        agent_id="agent-1",
        tenant="acme",
        task="Select one.",
        messages=[{"role": "user", "content": "other"}],
        licence="MIT",
        source="fleet",
        exception=None,
    )
    (tmp_path / "log.jsonl").write_bytes(line(record) + b"\n")
    (row,) = read_experience(tmp_path, now=NOW).executions.iter_rows(named=True)
    assert (row["agent_id"], row["tenant"], row["task"], row["context_id"]) == ("agent-1", "acme", "Select one.", "c")
    assert row["domains"] == ["sql"]


def test_bullets_come_with_their_execution(tmp_path: Path) -> None:
    logs, ledger = tmp_path / "logs", tmp_path / "ledger"
    logs.mkdir()
    given = {
        "a": envelope("x = 1", execution_id="a", bullet_ids=["calc-00002", "str-00001", "calc-00002"]),
        "b": envelope("x = 2", execution_id="b", bullet_ids=None),
        # another path through the ingest: a sandbox that holds a secret
        "c": envelope("k = 'ghp_" + "a1B2" * 9 + "'", execution_id="c", sandbox_id="other", bullet_ids=["str-00001"]),
        "d": envelope("x = 4", execution_id="d", bullet_ids="str-00001"),
        "e": envelope("x = 5", execution_id="e", bullet_ids=["two\nlines"]),
    }
    (logs / "log.jsonl").write_bytes(b"".join(line(record) + b"\n" for record in given.values()))
    known = {"a": ["calc-00002", "str-00001"], "b": [], "c": ["str-00001"]}
    with ingest(logs, now=NOW, ledger=ledger) as tables:
        read = tables.load()
    assert dict(read.executions.select("execution_id", "bullet_ids").iter_rows()) == known
    assert read.summary["secrets"] == 1
    assert sorted(read.quarantine["reason"]) == ["type:bullet_ids", "value:bullet_ids"]
    (logs / "log.jsonl").unlink()  # what is only remembered, made anew for a newcomer in its sandbox
    (logs / "new.jsonl").write_bytes(line(envelope("x = 6", execution_id="f")) + b"\n")
    with ingest(logs, now=NOW, ledger=ledger) as tables:
        again = tables.load().executions
    assert dict(again.select("execution_id", "bullet_ids").iter_rows()) == known | {"f": []}


def test_the_real_collection_is_read_whole_and_fast(shared_data: Path, real: Ingest) -> None:
    found = real.summary["executions"], real.summary["sandboxes"], real.summary["quarantined"]
    assert found == {30: (8546, 2425, 0), 10: (2906, 806, 0)}[real.summary["logs"]]
    assert problems(Execution, real.executions) == []
    started = time.process_time()
    logs = sorted((shared_data / "experience" / "e2b_logs").iterdir())[:3]
    read_experience(shared_data / "experience", now=NOW, files=logs)
    assert time.process_time() - started < 20  # of 60 s for the whole: these are a tenth of it


def test_most_good_executions_pass_the_default_quality(real: Ingest) -> None:
    good = real.executions.filter(pl.col("outcome") == "ok")
    assert (good["quality"] >= 0.6).mean() > 0.99  # type: ignore[operator]
