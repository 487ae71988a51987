"""Sessions whose events (OpenHands) or messages and their parts (opencode) are a file each: one log, one session."""

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

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


OLD, NEW = "project/home/storage/session/part/ses_1/{}", "storage/part/{}"


def opencode(folder: Path, layout: str, number: int, role: str, *parts: dict[str, Any]) -> None:
    """Write a message as opencode does; times are milliseconds."""
    message, told = f"msg_{number:04}", {"sessionID": "ses_1", "role": role, "time": {"created": 1_772_618_400_000}}
    held = folder / layout.format(message)
    place = held.parents[1 if layout == NEW else 2] / "message" / "ses_1"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{message}.json").write_text(json.dumps({"id": message, **told}, indent=2), "utf-8")
    held.mkdir(parents=True)
    for at, part in enumerate(parts):
        whole = {"id": f"prt_{number:04}{at}", "messageID": message, "sessionID": "ses_1", **part}
        (held / f"prt_{number:04}{at}.json").write_text(json.dumps(whole, indent=2), "utf-8")


def tool(number: int, name: str, output: str, code: int | None = None, **given: Any) -> dict[str, Any]:
    begun = 1_772_618_400_000 + number * 1000
    state = {"status": "completed", "input": given, "output": output, "time": {"start": begun, "end": begun + 500}}
    if code is not None:
        state["metadata"] = {"output": output, "exit": code}
    return {"type": "tool", "callID": f"call_{number}", "tool": name, "state": state}


@pytest.mark.parametrize("layout", [OLD, NEW])
def test_messages_and_their_parts_are_one_log_of_their_session(tmp_path: Path, layout: str) -> None:
    opencode(tmp_path, layout, 1, "user", {"type": "text", "text": "Make the tests pass."})
    opencode(tmp_path, layout, 2, "assistant", tool(1, "bash", "1 failed", 1, command="pytest"))
    opencode(tmp_path, layout, 3, "assistant", tool(2, "write", "", filePath="a.py", content="a = 1"))
    opencode(tmp_path, layout, 10, "assistant", tool(3, "bash", "1 passed", 0, command="pytest -q"))
    _, executions, files, _ = read(tmp_path)
    assert executions["code"].to_list() == ["pytest", "a.py\na = 1", "pytest -q"]
    assert executions["outcome"].to_list() == ["error", "unknown", "ok"]
    assert executions["sandbox_id"].n_unique() == 1
    assert set(executions["task"]) == {"Make the tests pass."}
    assert [file.rpartition("/")[2] for file in files] == ["ses_1"]


def test_a_part_that_is_added_or_changes_is_read(tmp_path: Path) -> None:
    logs, ledger = tmp_path / "logs", tmp_path / "ledger"
    opencode(logs, NEW, 1, "assistant", tool(1, "bash", "1 failed", 1, command="pytest"))
    assert read(logs, ledger)[1]["code"].to_list() == ["pytest"]
    assert read(logs, ledger)[0] == 0
    part = {
        "id": "prt_00011",
        "messageID": "msg_0001",
        "sessionID": "ses_1",
        **tool(2, "bash", "ok", 0, command="make"),
    }
    path = logs / "storage/part/msg_0001/prt_00011.json"
    path.write_text(json.dumps(part)[:-9], "utf-8")  # is being written
    assert read(logs, ledger)[1]["code"].to_list()[:1] == ["pytest"]
    path.write_text(json.dumps(part), "utf-8")
    assert read(logs, ledger)[1]["code"].to_list() == ["pytest", "make"]


def test_parts_beside_no_messages_are_logs_of_their_own(tmp_path: Path) -> None:
    opencode(tmp_path, NEW, 1, "assistant", tool(1, "bash", "1 failed", 1, command="pytest"))
    (tmp_path / "storage/message/ses_1/msg_0001.json").unlink()
    _, executions, files, _ = read(tmp_path)
    assert executions["code"].to_list() == ["pytest"] and files == ["storage/part/msg_0001/prt_00010.json"]


def test_messages_that_are_numbered_files_are_one_log(tmp_path: Path) -> None:
    """As Strands Agents keep a session: a call and its result are two messages."""
    call = {"toolUse": {"toolUseId": "t1", "name": "shell", "input": {"command": "wc -l n.txt"}}}
    answer = {"toolResult": {"toolUseId": "t1", "status": "success", "content": [{"text": "exit code: 0\n14 n.txt"}]}}
    said = [("user", {"text": "How long is it?"}), ("assistant", call), ("user", answer)]
    folder = tmp_path / "logs" / "session_s1" / "agents" / "agent_default"
    for number in range(11, -1, -1):
        role, content = said[number % 3] if number < 3 else ("assistant", {"text": "14"})
        message = {"message": {"role": role, "content": [content]}, "message_id": number, "created_at": when(number)}
        (folder / "messages").mkdir(parents=True, exist_ok=True)
        (folder / "messages" / f"message_{number}.json").write_text(json.dumps(message, indent=2))
    (folder / "agent.json").write_text(json.dumps({"agent_id": "default", "state": {}}))
    with ingest(tmp_path / "logs", now=NOW, processes=1) as tables:
        read = tables.load()
    assert read.executions.select("code", "stdout", "outcome").rows() == [("wc -l n.txt", "14 n.txt", "ok")]
    assert "session_s1/agents/agent_default/messages" in list(read.files["path"])
