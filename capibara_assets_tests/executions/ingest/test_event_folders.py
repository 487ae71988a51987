"""Sessions of OpenHands whose events are a file each: a folder of them is one log, and one session."""

import json
import os
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.executions.ingest.ingest import ingest
from capibara_assets_tests.executions.conftest import NOW, envelope, line

SESSION = "0f8fad5bd9cb469fa16570867728950e"


def said(number: int, words: str) -> dict[str, Any]:
    args = {"content": words, "wait_for_response": False}
    return {"id": number, "timestamp": when(number), "source": "user", "action": "message", "args": args}


def when(number: int) -> str:
    return f"2026-02-01T00:{number // 60:02}:{number % 60:02}.500000"


def ran(number: int, command: str, output: str, code: int) -> list[dict[str, Any]]:
    extras = {"command": command, "metadata": {"exit_code": code}}
    common = {"source": "agent", "timestamp": when(number)}
    return [
        {"id": number, **common, "action": "run", "args": {"command": command, "is_input": False}},
        {"id": number + 1, **common, "cause": number, "observation": "run", "content": output, "extras": extras},
    ]


def keep(folder: Path, events: list[dict[str, Any]], name: str = "{}.json", **layout: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for event in events:
        (folder / name.format(event["id"])).write_text(json.dumps(event, **layout), "utf-8")


def read(folder: Path, ledger: Path | None = None) -> tuple[int, pl.DataFrame, list[str], dict[str, Any]]:
    with ingest(folder, now=NOW, processes=1, ledger=ledger) as tables:
        found = tables.load()
        assert found.quarantine.is_empty()
        return tables.lines_read, found.executions.sort("timestamp"), found.files["path"].to_list(), found.summary


def test_actions_and_observations_of_a_folder_are_one_session_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    events = [said(0, "Make the tests pass."), *ran(1, "pytest", "1 failed", 1), *ran(9, "pytest -q", "2 passed", 0)]
    keep(tmp_path / "sessions" / SESSION / "events", events)
    keep(tmp_path / "sessions" / "other" / "events", [said(0, "List."), *ran(1, "ls", "a", 0)])
    (tmp_path / "sessions" / SESSION / "metadata.json").write_text('{"title": "Tests"}', "utf-8")
    _, executions, files, _ = read(tmp_path)
    ours = executions.filter(pl.col("code").str.starts_with("pytest"))
    assert ours["code"].to_list() == ["pytest", "pytest -q"]  # 10.json comes after 9.json, not after 1.json
    assert ours["outcome"].to_list() == ["error", "ok"] and ours["task"].to_list() == ["Make the tests pass."] * 2
    assert ours["sandbox_id"].n_unique() == 1 and executions["sandbox_id"].n_unique() == 2
    assert f"sessions/{SESSION}/events" in files and f"sessions/{SESSION}/metadata.json" in files


def test_the_events_of_the_agent_sdk_are_joined_alike_and_may_stand_over_several_lines(tmp_path: Path) -> None:
    call = {"source": "agent", "timestamp": when(1), "tool_call_id": "call_1", "tool_name": "terminal"}
    action = {"id": 1, "kind": "ActionEvent", **call, "action": {"kind": "TerminalAction", "command": "make"}}
    told = {"kind": "TerminalObservation", "content": [{"type": "text", "text": "built"}], "exit_code": 0}
    answer = {"id": 2, "kind": "ObservationEvent", **call, "source": "environment", "observation": told}
    keep(tmp_path / "events", [action, answer], f"event-{{:05}}-{SESSION}.json", indent=2)
    _, executions, _, _ = read(tmp_path / "events")  # also where it is the folder of logs itself
    assert executions.select("code", "stdout", "outcome").rows() == [("make", "built", "ok")]


def test_a_session_grows_by_files_and_is_read_again_only_then(tmp_path: Path) -> None:
    folder, ledger = tmp_path / "logs" / "events", tmp_path / "ledger"
    keep(folder, [said(0, "Build it."), *ran(1, "make", "failed", 2)])
    first = read(tmp_path / "logs", ledger)
    assert read(tmp_path / "logs", ledger)[0] == 0
    keep(folder, ran(3, "make all", "built", 0))
    (folder / "5.json").write_text('{"id": 5, "acti', "utf-8")  # is being written
    lines, executions, _, summary = read(tmp_path / "logs", ledger)
    assert lines > 0 and executions["code"].to_list() == ["make", "make all"]
    assert set(executions["sandbox_id"]) == set(first[1]["sandbox_id"])
    assert summary["known"]["agent_call:unfinished_line"] == 1
    (folder / "2.json").write_text((folder / "2.json").read_text("utf-8").replace("failed", "broken"), "utf-8")
    assert read(tmp_path / "logs", ledger)[1]["stdout"].to_list()[-1] == "built"


def test_pages_of_copies_beside_a_folder_of_events_are_left_out(tmp_path: Path) -> None:
    events = [said(0, "List."), *ran(1, "ls", "a", 0)]
    keep(tmp_path / "events", events)
    (tmp_path / "event_cache").mkdir()
    (tmp_path / "event_cache" / "0-25.json").write_text(json.dumps(events), "utf-8")
    assert read(tmp_path)[1]["code"].to_list() == ["ls"]


def test_numbered_files_of_another_kind_stay_logs_of_their_own(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.json").write_bytes(line(envelope("x = 1", execution_id=f"e{number}")))
    _, executions, files, _ = read(tmp_path)
    assert executions.height == 2 and sorted(files) == ["0.json", "1.json"]


def test_a_pipe_with_the_name_of_an_event_is_waited_for_by_nobody(tmp_path: Path) -> None:
    keep(tmp_path / "events", [said(0, "List."), *ran(1, "ls", "a", 0)])
    os.mkfifo(tmp_path / "events" / "3.json")
    (tmp_path / "alone").mkdir()
    os.mkfifo(tmp_path / "alone" / "0.json")
    assert read(tmp_path)[1]["code"].to_list() == ["ls"]
