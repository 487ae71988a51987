"""Log records of OpenTelemetry: a call and its answer in one event, in the words of each program."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun
from capibara_assets.executions.formats.agents.wire.otlp_logs import READER
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets_tests.executions.conftest import NOW
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, survives

SENT = 1783000008185852160


def event(name: str, at: int = SENT, **told: Any) -> dict[str, Any]:
    kinds = {bool: "boolValue", int: "intValue", str: "stringValue"}
    told = {key.replace("__", "."): value for key, value in {"event__name": name, **told}.items()}
    listed = [{"key": key, "value": {kinds[type(value)]: value}} for key, value in told.items()]
    return {"timeUnixNano": str(at), "body": {"stringValue": ""}, "attributes": listed}


def request(*events: dict[str, Any], **resource: str) -> dict[str, Any]:
    shared = [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in resource.items()]
    scopes = [{"scope": {"name": "events"}, "logRecords": list(events)}]
    return {"resourceLogs": [{"resource": {"attributes": shared}, "scopeLogs": scopes}]}


def claude(key: str, command: str, success: str, **told: Any) -> dict[str, Any]:
    given = json.dumps({"bash_command": command.split()[0], "full_command": command, "timeout": 1000})
    return event("tool_result", session__id="s-1", tool_name="Bash", tool_use_id=key, success=success,
                 duration_ms="911", tool_parameters=given, **told)  # fmt: skip


def codex(key: str, name: str, given: str, success: str, output: str) -> dict[str, Any]:
    return event("codex.tool_result", conversation__id="c-1", model="m", tool_name=name, call_id=key,
                 arguments=given, success=success, output=output, duration_ms="5")  # fmt: skip


def gemini(command: str, success: bool, **told: Any) -> dict[str, Any]:
    given = json.dumps({"command": command, "description": "d"})
    return event("gemini_cli.tool_call", function_name="run_shell_command", function_args=given, success=success,
                 duration_ms=7, **{"session.id": "g-1"}, **told)  # fmt: skip


EXITED = "Chunk ID: 1\nWall time: 0.4 seconds\nProcess exited with code {}\nOutput:\n{}"
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n+b\n*** End Patch"
LINES = [
    request(event("user_prompt", session__id="s-1", prompt="<REDACTED>"), service__name="claude-code"),
    request(
        event("tool_decision", session__id="s-1", tool_name="Bash", decision="accept"),
        claude("t1", "pnpm test -- --run", "false", error="Exit code 3"),
        event("tool_result", session__id="s-1", tool_name="Read", success="true", duration_ms="1"),
        claude("t2", "pnpm install", "true"),
    ),
    request(
        codex("k1", "exec_command", '{"cmd": "mypy src"}', "false", EXITED.format(1, "1 error\n")),
        codex("k2", "apply_patch", PATCH, "true", "Success. Updated the following files:\nM a.py\n"),
        codex("k3", "exec_command", '{"cmd": "mypy src"}', "true", EXITED.format(0, "ok\n")),
        codex("k4", "exec_command", '{"cmd": "curl x"}', "false", 'exec_command failed: Rejected("rejected by user")'),
        codex("k5", "update_plan", '{"plan": []}', "true", "Plan updated"),
    ),
    request(
        gemini("make", True),
        gemini("make x", False, error="Exit code: 2"),
        gemini("rm -r x", False, decision="reject"),
    ),
]


def told(data: bytes) -> list[tuple[str, str, bool | None, int | None, str]]:
    assert find_reader(LogDocument(data)) is READER
    runs = [one for one in entries(READER, data) if isinstance(one, AgentRun)]
    return [(run.session, run.code, run.success, run.exit_code, run.output) for run in runs]


@pytest.mark.parametrize("data", [jsonl(*LINES), json.dumps(LINES).encode()], ids=["lines", "a list"])
def test_what_ran_is_told_by_one_event_a_call(data: bytes) -> None:
    assert told(data) == [
        ("s-1", "pnpm test -- --run", False, 3, ""),
        ("s-1", "pnpm install", True, None, ""),
        ("c-1", "mypy src", False, 1, "1 error\n"),
        ("c-1", "mypy src", True, 0, "ok\n"),
        ("g-1", "make", None, None, ""),  # whose tool succeeds however its command ends
        ("g-1", "make x", False, 2, ""),
    ]
    found = entries(READER, data)
    assert [(one.path, one.text) for one in found if isinstance(one, Edit)] == [
        ("", PATCH)
    ]  # the patch names its files
    assert [(one.kind, one.code) for one in found if isinstance(one, NotRun)] == [
        ("refused", "curl x"),
        ("refused", "rm -r x"),
    ]
    first = next(one for one in found if isinstance(one, AgentRun))
    assert first.started is not None and first.started.isoformat() == "2026-07-02T13:46:48.185852+00:00"
    assert (first.duration_ms, first.call_id, first.model) == (911, "t1", None)


def test_a_record_as_the_sdk_writes_it_is_read_without_its_request() -> None:
    attributes = {"event.name": "gemini_cli.tool_call", "function_name": "run_shell_command", "session.id": "g"}
    given = {"function_args": '{"command": "ls"}', "success": False, "error": "no"}
    row = {"hrTime": [1783000008, 1], "attributes": attributes | given}
    assert told(jsonl(row)) == [("g", "ls", False, None, "")]


@pytest.mark.parametrize(
    "rows",
    [
        [request(event("tool_result", tool_name="Read", tool_parameters="{}"))],
        [request(event("http.request", tool_name="Bash", tool_parameters='{"command": "ls"}'))],
        [{"event.name": "tool_result", "tool_name": "Bash"}],
    ],
)
def test_events_without_code_are_no_log(rows: list[dict[str, Any]]) -> None:
    assert not reads(READER, jsonl(*rows))


def test_no_damage_raises() -> None:
    for data in damaged(jsonl(*LINES)):
        survives(READER, data)


def test_the_file_is_read_as_any_log_is(tmp_path: Any) -> None:
    (tmp_path / "logs.jsonl").write_bytes(jsonl(*LINES))
    read = read_experience(tmp_path, now=NOW)
    assert read.executions.height == 7 and not read.quarantine.height  # six runs and an edit
