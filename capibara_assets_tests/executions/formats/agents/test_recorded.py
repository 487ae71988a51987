"""What a reader found becomes executions: identity, time, outcome, and the files that hold them."""

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.executions.formats.agents import readers
from capibara_assets.executions.formats.agents.recorded import agent_records, error_of
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.envelope_reader import ESTIMATED, UNDATED, Recorded
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets.executions.ingest.ingest import Ingest, ingest, read_experience
from capibara_assets.executions.schema import HIDDEN_EXIT, PATCH, SOLVED, UNSOLVED
from capibara_assets_tests.executions.conftest import NOW, envelope, line
from capibara_assets_tests.executions.formats.test_notebooks import code, notebook, stream

NOON = datetime(2026, 10, 5, 12, tzinfo=UTC)


def entries(document: LogDocument) -> Iterator[Entry]:
    yield from document.faults
    for row in document.lines:
        if "patch" in row:
            yield Edit("s", "a.py", row["patch"])
        else:
            started = datetime.fromisoformat(row["at"]) if "at" in row else None
            told = {"call_id": row.get("id"), "solved": row.get("solved"), "model": row.get("model")}
            run = AgentRun("s", row.get("in", "bash"), row["toy"], row.get("ok"), row.get("out", ""), started=started)
            yield replace(run, **told)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader("toy", (b'"toy"',), lambda document: any("toy" in row for row in document.lines), entries)
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, reader))


def log(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def records(*rows: dict[str, Any], now: datetime = NOW) -> list[Recorded]:
    found = agent_records(LogDocument(log(*rows)), now)
    assert found is not None
    return [one for one in found if isinstance(one, Recorded)]


def test_the_outcome_is_what_the_log_states_and_no_pipe_hides() -> None:
    said = [{"toy": "pytest", "ok": True}, {"toy": "pytest | tail", "ok": True}, {"toy": "pytest | tail", "ok": False}]
    found = records(*said, {"toy": "pytest"})
    assert [(one.outcome, HIDDEN_EXIT in one.flags) for one in found] == [
        ("ok", False), ("unknown", True), ("error", False), ("unknown", False),
    ]  # fmt: skip


def test_a_failure_that_is_printed_counts_where_the_log_does_not_tell_how_a_command_ended() -> None:
    failed = {"out": "--- FAIL: TestRing (0.00s)\nFAIL"}
    found = records(
        {"toy": "go test", **failed}, {"toy": "go test | tail", "ok": True, **failed},
        {"toy": "go test", "ok": True, **failed}, {"toy": "grep x go.log | tail", "ok": True, **failed},
    )  # fmt: skip
    assert [(one.outcome, HIDDEN_EXIT in one.flags, one.error_value) for one in found] == [
        ("error", False, None), ("unknown", True, None), ("ok", False, None), ("unknown", True, None),
    ]  # fmt: skip


def test_a_language_has_one_name_whatever_a_log_calls_it() -> None:
    names = ("sh", "Shell ", "zsh", "pwsh", "py", "")
    found = [one.language for name in names for one in records({"toy": "ls", "in": name})]
    assert found == ["bash", "bash", "bash", "powershell", "python", "bash"]
    (hidden,) = records({"toy": "make | tail", "in": "sh", "ok": True})
    assert hidden.outcome == "unknown"


def test_a_verdict_on_the_task_is_a_flag_and_none_is_no_flag() -> None:
    found = records({"toy": "a", "solved": True}, {"toy": "b", "solved": False}, {"toy": "c", "ok": False})
    assert [set(one.flags) - {UNDATED} for one in found] == [{SOLVED}, {UNSOLVED}, set()]


def test_times_are_the_logs_or_between_its_others_or_none() -> None:
    found = records({"toy": "a"}, {"toy": "b", "at": NOON.isoformat()}, {"patch": "+1", "toy": ""}, {"toy": "c"})
    assert [one.timestamp - NOON for one in found] == [timedelta(milliseconds=n) for n in (-1, 0, 1, 2)]
    assert [one.flags for one in found] == [[ESTIMATED], [], [ESTIMATED], [ESTIMATED]]
    assert [(one.flags, one.timestamp.year) for one in records({"toy": "a"}, {"toy": "b"})] == [([UNDATED], 1970)] * 2


def test_a_time_that_is_to_come_is_a_fault_that_keeps_the_code() -> None:
    found = agent_records(LogDocument(log({"toy": "a", "at": "2031-01-01T00:00:00+00:00"})), NOW)
    (fault,) = list(found or ())
    assert isinstance(fault, Fault) and fault.reason == "future_timestamp" and fault.value == ["s", "a"]


def test_one_clock_that_is_years_off_costs_one_execution() -> None:
    rows = [{"toy": str(n), "at": (NOON.replace(year=2099) if n == 1 else NOON).isoformat()} for n in range(3)]
    assert [one.code for one in records(*rows)] == ["0", "2"]


def test_ids_that_no_table_holds_cost_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, log=b'{"toy": "a", "id": "\\ud800"}\n{"toy": "b", "out": "\\udfff"}\n')
    assert sorted(found.executions["code"]) == ["a", "b"]


def test_ids_stay_while_a_log_grows_and_repeated_ones_are_told_apart() -> None:
    rows = [{"toy": "a" * 70_000, "id": "c1"}, {"toy": "b", "id": "c1"}, {"patch": "+1", "toy": ""}, {"toy": "c"}]
    grown = [one.execution_id for one in records(*rows)]
    assert [one.execution_id for one in records(*rows[:2])] == grown[:2]
    assert len(set(grown)) == 4 and records(*rows)[2].language == PATCH


def test_an_edit_belongs_to_the_agent_whose_model_its_session_names() -> None:
    edit, run = records({"patch": "+1", "toy": ""}, {"toy": "a", "model": "m-1"})
    assert run.agent_id is not None and run.agent_id.endswith("/m-1") and edit.agent_id == run.agent_id
    assert [one.agent_id for one in records({"patch": "+1", "toy": ""}, {"toy": "a"})] == [None, None]


def test_two_replays_that_part_at_one_call_are_both_kept(tmp_path: Path) -> None:
    common = [{"toy": "ls", "id": "call-1"}, {"toy": "cat a.py", "id": "call-2"}]
    for name, last in (("one", "edit 3:3"), ("other", "replace 'a' 'b'")):
        (tmp_path / f"{name}.jsonl").write_bytes(log(*common, {"toy": last, "id": "call-2"}))
    read = read_experience(tmp_path, now=NOW)
    assert read.quarantine.height == 0
    assert sorted(read.executions["code"]) == ["cat a.py", "edit 3:3", "ls", "replace 'a' 'b'"]


@pytest.mark.parametrize(
    ("output", "language", "code", "expected"),
    [
        ("x\nTraceback (most recent call last):\n  File 1\nre.PatternError: bad\nbye", "bash", 1,
         ("PatternError", "bad", "Traceback (most recent call last):\n  File 1\nre.PatternError: bad")),
        ("ValueError: no\n", "python", None, ("ValueError", "no", None)),
        ("nothing of the kind", "python", None, ("Error", None, None)),
        ("Code execution failed at line 'f(a)' due to: KeyError: 'a'", "python", None, ("KeyError", "'a'", None)),
        ("Failed Test Case: assert f(1) == 2\n", "python", None, ("Error", "Failed Test Case: assert f(1) == 2", None)),
        ("Error executing action: invalid syntax (<unknown>, line 3)", "python", None,
         ("Error", "invalid syntax (<unknown>, line 3)", None)),
        ("Error executing query: Unknown column 'x' in 'field list'", "sql", None,
         ("Error", "Unknown column 'x' in 'field list'", None)),
        ('ERROR:  relation "x" does not exist\nLINE 1: SELECT', "sql", 1,
         ("Error", 'relation "x" does not exist\nLINE 1: SELECT', None)),
        (" ", "sql", 1, ("CommandExitException", "exit code 1", None)),
        ("KeyError: said by a shell's program", "bash", 2, ("CommandExitException", "exit code 2", None)),
        ("", "bash", None, ("CommandExitException", None, None)),
    ],
)  # fmt: skip
def test_the_error_is_the_last_exception_or_the_exit_code(
    output: str, language: str, code: int | None, expected: tuple[str, str | None, str | None]
) -> None:
    assert error_of(output, language, code) == expected


def read(folder: Path, **files: bytes) -> Ingest:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return read_experience(folder, now=NOW)


def test_a_log_is_told_by_its_content_wherever_and_however_it_lies(tmp_path: Path) -> None:
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    (tmp_path / ".claude" / "projects" / "noname").write_bytes(log({"toy": "hidden"}))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "log").write_bytes(log({"toy": "not looked at"}))
    found = read(tmp_path, packed=gzip.compress(log({"toy": "packed"})), image=b"\x89PNG\0\0" * 99 + b'"toy"\n',
                 notes=b'# "toy"\n', bom=b"\xef\xbb\xbf" + log({"toy": "bom"}).replace(b"\n", b"\r\n"))  # fmt: skip
    assert sorted(found.executions["code"]) == ["bom", "hidden", "packed"]
    assert sorted(found.files.filter(kind="other")["path"]) == ["image", "notes"]
    assert found.quarantine.is_empty()


def test_what_an_agents_tools_return_may_look_like_our_envelopes(tmp_path: Path) -> None:
    row = {"toy": "a", "result": envelope("print(1)"), "sandbox_id": "x", "execution_id": "y"}
    found = read(tmp_path, log=log(row, {"toy": "b"}))
    assert sorted(found.executions["code"]) == ["a", "b"]


def test_a_log_that_grows_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "session"
    whole = log(*({"toy": f"echo {number}", "id": f"c{number}"} for number in range(5)))
    for end in (30, 60, len(whole) - 3, len(whole)):
        path.write_bytes(whole[:end])
        with ingest(tmp_path / "logs", now=NOW, ledger=tmp_path / "ledger", processes=1) as tables:
            read = tables.load()
        assert read.quarantine.is_empty()
        assert len(read.executions) == whole[:end].count(b"\n")
    assert read.executions["execution_id"].n_unique() == 5


def test_a_line_that_is_not_ended_is_said_to_wait_and_a_damaged_one_kept_apart(tmp_path: Path) -> None:
    found = read(tmp_path, log=log({"toy": "a"}) + b'{"torn\n' + log({"toy": "b"}) + b'{"toy": "c')
    assert sorted(found.executions["code"]) == ["a", "b"]
    assert found.quarantine["reason"].to_list() == ["invalid_json"]
    assert found.summary["known"] == {"agent_call:unfinished_line": 1}
    assert NotRun("unfinished_line") == NotRun("unfinished_line", "s", "code")


def test_envelopes_beside_an_agents_log_are_read_as_before(tmp_path: Path) -> None:
    found = read(tmp_path, a=line(envelope("print(1)")) + b"\n", b=log({"toy": "ls"}))
    assert sorted(found.executions["code"]) == ["ls", "print(1)"]


def test_a_session_keeps_its_sandbox_while_its_log_grows_or_is_copied_beside_others(tmp_path: Path) -> None:
    whole = log(*({"toy": f"echo {number}"} for number in range(4)))
    other = log({"toy": "echo 0", "out": "another first run"}, {"toy": "echo 1"})
    lines = whole.splitlines(keepends=True)
    found = read(tmp_path, first=b"".join(lines[:2]), second=b"".join(lines[:3]), third=whole, other=other)
    assert found.executions.height == 6 and found.executions["sandbox_id"].n_unique() == 2
    assert found.quarantine.is_empty() and found.summary["duplicates"] == 5


def test_two_runs_of_one_task_that_begin_alike_are_two_sessions(tmp_path: Path) -> None:
    def trajectory(last: str) -> bytes:
        steps = [("ls\n", "a.py"), ("python a.py\n", "3"), (f"{last}\n", "..")]
        told = [{"action": a, "observation": o, "response": "..", "thought": "", "state": "{}"} for a, o in steps]
        return json.dumps({"environment": "e", "trajectory": told, "history": [], "info": {}}).encode()

    found = read(tmp_path, one=trajectory("cat a.py"), copy=trajectory("cat a.py"), other=trajectory("rm a.py"))
    assert found.executions.height == 6 and found.executions["sandbox_id"].n_unique() == 2
    assert found.quarantine.is_empty() and found.summary["duplicates"] == 3


def test_two_trials_in_texts_that_begin_alike_are_two_sessions(tmp_path: Path) -> None:
    def chat(*commands: str) -> bytes:
        told = "".join(f"#### /run {command}\n\n> out of {command}\n\n" for command in commands)
        return f"# aider chat started at 2026-10-01 10:00:00\n\n{told}".encode()

    found = read(tmp_path, one=chat("ls", "make"), copy=chat("ls", "make"), other=chat("ls", "make test"))
    assert found.executions.height == 4 and found.executions["sandbox_id"].n_unique() == 2
    assert found.quarantine.is_empty() and found.summary["duplicates"] == 2


@pytest.mark.parametrize("later", ["first", "second"])
def test_how_a_command_in_the_background_ended_is_what_counts(tmp_path: Path, later: str) -> None:
    at = {"at": NOON.isoformat(), "id": "c1"}
    running = log({"toy": "make", "id": "c0"}, {"toy": "npm test", **at})
    ended = log({"toy": "make", "id": "c0"}, {"toy": "npm test", "ok": False, "out": "1 failing", **at})
    files = {"first": ended, "second": running} if later == "first" else {"first": running, "second": ended}
    found = read(tmp_path, **files)
    assert sorted(found.executions["outcome"]) == ["error", "unknown"] and found.quarantine.is_empty()


def test_the_order_of_a_session_is_that_of_its_log() -> None:
    back = (NOON - timedelta(minutes=3)).isoformat()
    rows = [{"toy": "a", "id": "z", "at": NOON.isoformat()}, {"toy": "b", "id": "y", "at": NOON.isoformat()},
            {"toy": "c", "id": "x", "at": back}]  # fmt: skip
    found = records(*rows)
    assert [one.code for one in sorted(found, key=lambda one: (one.timestamp, one.execution_id))] == ["a", "b", "c"]
    assert [one.flags for one in found] == [[], [ESTIMATED], [ESTIMATED]]


def test_a_file_name_that_is_no_text_and_nuls_of_a_crash_cost_nothing(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"bad\xffname")).write_bytes(log({"toy": "a"}))
    found = read(tmp_path, crashed=log({"toy": "b"}) + b"\0" * 64 + log({"toy": "c"}),
                 program=b"\x7fELF\2\1\1" + bytes(range(256)) * 9 + b"\0\0\1" * 300)  # fmt: skip
    assert sorted(found.executions["code"]) == ["a", "b", "c"] and found.quarantine.is_empty()
    assert found.files.filter(kind="other")["path"].to_list() == ["program"]


def test_a_cell_whose_commands_end_in_a_pipe_is_no_success(tmp_path: Path) -> None:
    piped, alone = (code(source, stream("1 failed")) for source in ("!pytest -q | tail -n 1", "!pytest -q"))
    found = read(tmp_path, book=json.dumps(notebook(piped, alone)).encode()).executions.sort("timestamp")
    assert found["outcome"].to_list() == ["unknown", "ok"]
    assert [HIDDEN_EXIT in flags for flags in found["flags"].to_list()] == [True, False]


def test_a_log_that_its_reader_fails_on_is_a_fault_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(document: LogDocument) -> Iterator[Entry]:
        yield from entries(document)
        raise KeyError("step")

    broken = Reader("broken", (b'"broken"',), lambda document: b'"broken"' in document.data, fails)
    monkeypatch.setattr(readers, "READERS", (broken, *readers.READERS))
    text = log({"toy": "ls", "broken": 1})
    (fault,) = agent_records(LogDocument(text), NOW) or ()
    assert isinstance(fault, Fault) and fault.reason == "reader_failed" and "broken: KeyError" in fault.detail
    (tmp_path / "broken.jsonl").write_bytes(text)
    (tmp_path / "whole.jsonl").write_bytes(line(envelope(execution_id="whole")) + b"\n")
    found = read_experience(tmp_path, now=NOW)
    assert found.executions["execution_id"].to_list() == ["whole"]
    assert found.quarantine["reason"].to_list() == ["reader_failed"]
