"""What `codex exec --json` prints, in its later and its earlier shape."""

from typing import Any

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, NotRun
from capibara_assets.executions.formats.agents.tools.codex_exec import READER
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, jsonl, reads

THREAD = {"type": "thread.started", "thread_id": "0199a213-81c0-7800-8aa1-bbab2a035a53"}


def command(item_id: str, text: Any, status: str = "in_progress", output: str = "", code: Any = None) -> Any:
    kind = "item.started" if status == "in_progress" else "item.completed"
    item = {"id": item_id, "type": "command_execution", "command": text, "aggregated_output": output}
    return {"type": kind, "item": {**item, "exit_code": code, "status": status}}


def change(item_id: str, *paths: str, status: str = "completed") -> Any:
    changes = [{"path": path, "kind": "update"} for path in paths]
    return {
        "type": "item.completed",
        "item": {"id": item_id, "type": "file_change", "changes": changes, "status": status},
    }


def told(*lines: Any) -> list[Any]:
    return entries(READER, jsonl(THREAD, *lines))


def test_a_command_stands_once_with_its_end_in_the_order_of_its_beginning() -> None:
    first, edit, second = told(
        command("item_1", "bash -lc 'pytest -q tests'"),
        command("item_1", "bash -lc 'pytest -q tests'", "failed", "1 failed\n", 1),
        change("item_2", "/w/a.py"),
        command("item_3", '/bin/zsh -lc "pytest -q tests"', "completed", "1 passed\n", 0),
    )
    session = THREAD["thread_id"]
    assert first == AgentRun(
        session, "bash", "pytest -q tests", False, output="1 failed\n", exit_code=1, call_id="item_1"
    )
    assert edit == Edit(session, "/w/a.py", "update /w/a.py")
    assert (second.code, second.success, second.call_id) == ("pytest -q tests", True, "item_3")


def test_commands_of_windows() -> None:
    powershell = '"C:\\\\Windows\\\\System32\\\\WindowsPowerShell\\\\v1.0\\\\powershell.exe"'
    runs = told(
        command("item_1", f"{powershell} -Command 'Get-Content a.md'", "completed", "a", 0),
        command("item_2", f"{powershell} -NoProfile -Command 'dir'", "completed", "a", 0),
        command("item_3", "cmd.exe /c 'dir /b'", "failed", "no", 1),
    )
    assert [(run.language, run.code, run.success) for run in runs] == [
        ("powershell", "Get-Content a.md", True), ("powershell", "dir", True), ("bash", "dir /b", False),
    ]  # fmt: skip


def test_what_was_declined_or_has_no_end_did_not_run() -> None:
    assert told(
        command("item_1", "rm -rf build", "declined"),
        command("item_2", "sleep 99"),
        change("item_3", "a", status="failed"),
    ) == [NotRun("refused"), NotRun("unanswered"), NotRun("edit_failed")]


def test_a_resumed_thread_counts_its_items_anew() -> None:
    runs = told(command("item_0", "ls", "completed", "a", 0), THREAD, command("item_0", "pwd", "completed", "/", 0))
    assert [(run.code, run.call_id) for run in runs] == [("ls", "item_0"), ("pwd", "2/item_0")]


def test_the_events_of_older_versions() -> None:
    begun = {"type": "exec_command_begin", "call_id": "c1", "command": ["bash", "-lc", "make"], "cwd": "/w"}
    ended = {"type": "exec_command_end", "call_id": "c1", "stdout": "", "stderr": "no rule", "exit_code": 2}
    patch = {"a.py": {"update": {"unified_diff": "@@\n-x\n+y", "move_path": None}}}
    patched = {"type": "patch_apply_begin", "call_id": "p1", "auto_approved": True, "changes": patch}
    done = {"type": "patch_apply_end", "call_id": "p1", "stdout": "Success.", "stderr": "", "success": True}
    lines = [{"model": "gpt-5"}, *({"id": "0", "msg": message} for message in (begun, ended, patched, done))]
    run, edit = entries(READER, jsonl(*lines))
    assert (run.code, run.success, run.exit_code, run.stderr) == ("make", False, 2, "no rule")
    assert (edit.path, edit.text) == ("a.py", "@@\n-x\n+y")


def test_a_rollout_is_none_of_these() -> None:
    assert not reads(READER, jsonl({"type": "event_msg", "payload": {"type": "exec_command_end", "call_id": "c"}}))
    assert not reads(READER, jsonl({"type": "item.completed", "item": {"type": "agent_message", "text": "hi"}}))
