"""Events of Claude Code's hooks: what ran, what was edited, and what the event's name says of its end."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun
from capibara_assets.executions.formats.agents.tools.claude_hooks import READER
from capibara_assets_tests.executions.formats.agents.damaged_values import damaged_values
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, jsonl, reads, runs, survives


def event(tool: str, given: Any, name: str = "PostToolUse", **more: Any) -> dict[str, Any]:
    return {"session_id": "s-1", "cwd": "/w", "hook_event_name": name, "tool_name": tool, "tool_input": given, **more}


def ran(command: str, stdout: str = "", stderr: str = "", **more: Any) -> dict[str, Any]:
    told = {"stdout": stdout, "stderr": stderr, "interrupted": False, "isImage": False, **more}
    return event("Bash", {"command": command, "description": "x"}, tool_response=told)


LOG = [
    event("Bash", {"command": "make cups"}, "PreToolUse"),
    ran("make cups", "2 cups", "one is chipped"),
    event("Read", {"file_path": "/w/a"}, tool_response={"type": "text", "file": {}}),
    event("Write", {"file_path": "/w/a", "content": "tea"}, tool_response={"type": "create", "filePath": "/w/a"}),
    event("Bash", {"command": "make tea"}, "PostToolUseFailure", error="Exit code 2\nno water", tool_use_id="t-2"),
    ran("make all", "Error: shown behind a pipe"),
]


@pytest.mark.parametrize("data", [json.dumps(LOG).encode(), jsonl(*LOG), jsonl(*({"event": one} for one in LOG))])
def test_an_event_after_a_tool_states_its_success_and_one_of_a_failure_that(data: bytes) -> None:
    assert find_reader(LogDocument(data)) is READER
    assert [(run.code, run.success, run.exit_code, run.output, run.stderr) for run in runs(READER, data)] == [
        ("make cups", True, None, "2 cups", "one is chipped"),
        ("make tea", False, 2, "no water", ""),
        ("make all", True, None, "Error: shown behind a pipe", ""),
    ]
    assert [one for one in entries(READER, data) if isinstance(one, Edit)] == [Edit("s-1", "/w/a", "tea")]


@pytest.mark.parametrize(
    "last",
    [
        ran("serve", interrupted=True),
        ran("serve", backgroundTaskId="b1"),
        event("Bash", {"command": "serve"}, tool_response="text of another program"),
        event("Bash", {"command": "serve"}, "PostToolUseFailure", error="", is_interrupt=True),
    ],
)
def test_an_end_that_is_not_told_is_unknown(last: dict[str, Any]) -> None:
    run = runs(READER, jsonl(*LOG, last))[-1]
    assert (run.code, run.success) == ("serve", None)


def test_a_refused_call_did_not_run_and_times_stand_around_events() -> None:
    refused = event("Bash", {"command": "rm a"}, "PostToolUseFailure", error="The user doesn't want to proceed")
    rows = [{"timestamp": "2026-03-04T10:00:00Z", "payload": one} for one in [*LOG, refused]]
    found = entries(READER, jsonl(*rows))
    assert [(one.kind, one.code) for one in found if isinstance(one, NotRun)] == [("refused", "rm a")]
    assert all(one.started is not None for one in found if isinstance(one, AgentRun))


@pytest.mark.parametrize(
    "value",
    [
        [LOG[0]],
        [event("Bash", {"command": "ls"}, tool_response="a.py")],
        [event("Bash", {"command": "ls"}, tool_response={"stdout": "", "stderr": ""})],
        {"hooks": {"PostToolUse": []}, "hook_event_name": "x"},
    ],
)
def test_events_without_what_claude_code_answers_are_not_read_as_its(value: Any) -> None:
    assert not reads(READER, json.dumps(value))


def test_nothing_damaged_makes_the_reader_fail() -> None:
    for value in damaged_values(LOG):
        survives(READER, json.dumps(value).encode())
