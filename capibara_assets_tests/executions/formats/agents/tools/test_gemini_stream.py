"""What `gemini --output-format stream-json` prints: ends that are told, ends that are not, and calls that never ran."""

from typing import Any

import pytest

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, NotRun, moment
from capibara_assets.executions.formats.agents.tools.gemini_stream import READER
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, jsonl, reads

INIT = {"type": "init", "timestamp": "2025-10-10T12:00:00.000Z", "session_id": "s-1", "model": "gemini-2.5-flash"}
ASKED = {"type": "message", "role": "user", "content": "Run the tests."}
AT = "2025-10-10T12:00:02.000Z"


def use(tool_id: str, name: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "tool_use", "timestamp": AT, "tool_name": name, "tool_id": tool_id, "parameters": parameters}


def result(tool_id: str, output: str, status: str = "success", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_id": tool_id, "status": status, "output": output, **more}


def told(*lines: Any) -> list[Any]:
    return entries(READER, jsonl(INIT, ASKED, *lines))


def test_a_command_has_all_that_the_stream_tells() -> None:
    report = "Command: npm test\nDirectory: (root)\nOutput: 1 failing\nError: (none)\nExit Code: 1\nSignal: (none)"
    assert told(use("t1", "run_shell_command", command="npm test"), result("t1", report)) == [
        AgentRun(
            "s-1", "bash", "npm test", False, output="1 failing", exit_code=1, call_id="t1", started=moment(AT),
            task="Run the tests.", model="gemini-2.5-flash",
        )
    ]  # fmt: skip


def test_a_tool_that_returned_says_nothing_of_its_commands_end() -> None:
    (run,) = told(use("t1", "run_shell_command", command="npm test"), result("t1", "3 passing"))
    assert (run.success, run.exit_code, run.output) == (None, None, "3 passing")


@pytest.mark.parametrize(
    ("shown", "success", "exit_code"),
    [
        ("", True, None),
        ("Command exited with code: 3", False, 3),
        ("Command terminated by signal: SIGKILL", False, None),
        ("Command failed: spawn bash ENOENT", False, None),
        ("it said: Command exited with code: 3", None, None),
    ],
)
def test_what_is_shown_of_a_command_that_printed_nothing_is_its_end(
    shown: str, success: bool | None, exit_code: int | None
) -> None:
    (run,) = told(use("t1", "run_shell_command", command="make"), result("t1", shown))
    assert (run.success, run.exit_code) == (success, exit_code)
    (silent,) = told(use("t1", "run_shell_command", command="make"), {"type": "tool_result", "tool_id": "t1"})
    assert silent == NotRun("unanswered")


def test_edits_stand_in_the_order_of_the_calls_and_only_if_they_were_made() -> None:
    assert told(
        use("t1", "replace", file_path="a.js", old_string="a", new_string="b"), result("t1", ""),
        use("t2", "write_file", file_path="b.js", content="1"), result("t2", "", "error", error={"type": "X"}),
    ) == [Edit("s-1", "a.js", "-a\n+b"), NotRun("edit_failed")]  # fmt: skip


def test_what_a_policy_denied_or_nobody_answered_did_not_run() -> None:
    denied = {"type": "POLICY_VIOLATION", "message": "denied"}
    assert told(
        use("t1", "run_shell_command", command="git push"), result("t1", "", "error", error=denied),
        use("t2", "run_shell_command", command="ls"),
    ) == [NotRun("refused"), NotRun("unanswered")]  # fmt: skip


def test_other_streams_of_events_are_none() -> None:
    assert not reads(READER, jsonl({"type": "system", "subtype": "init", "session_id": "s", "model": "m"}))
    assert not reads(READER, jsonl({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}))
