"""Sessions of the pi coding agent: results, what the user typed, branches, damage and look-alikes."""

from typing import Any

import pytest

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, NotRun, moment
from capibara_assets.executions.formats.agents.tools.pi import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, runs, survives

HEAD = {"type": "session", "version": 3, "id": "s-1", "timestamp": "2026-01-02T10:00:00.000Z", "cwd": "/w"}


def message(role: str, at: str = "2026-01-02T10:01:00.000Z", **fields: Any) -> dict[str, Any]:
    return {"type": "message", "id": "e", "parentId": None, "timestamp": at, "message": {"role": role, **fields}}


def call(call_id: str, name: str = "bash", at: str = "2026-01-02T10:01:00.000Z", **arguments: Any) -> dict[str, Any]:
    part = {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}
    return message("assistant", at, content=[{"type": "thinking", "thinking": "hm"}, part], model="m-1")


def result(call_id: str, text: str, error: Any = False, name: str = "bash", **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return message("toolResult", toolCallId=call_id, toolName=name, content=content, isError=error, **fields)


USER = message("user", content=[{"type": "text", "text": "Count the files."}])


def outcome(text: str, error: Any = False, **fields: Any) -> Any:
    log = jsonl(HEAD, USER, call("c", command="ls"), result("c", text, error, **fields))
    (entry,) = entries(READER, log)
    return entry


def test_a_run_has_all_that_the_log_tells() -> None:
    assert outcome("a\nb") == AgentRun(
        session="s-1",
        language="bash",
        code="ls",
        success=True,
        output="a\nb",
        call_id="c",
        started=moment("2026-01-02T10:01:00Z"),
        task="Count the files.",
        model="m-1",
    )


@pytest.mark.parametrize(
    ("text", "error", "success", "code", "output", "timed_out"),
    [
        ("no\n\nCommand exited with code 2", True, False, 2, "no", False),
        ("Command exited with code 1", True, False, 1, "", False),
        ("half\n\nCommand timed out after 5 seconds", True, False, None, "half", True),
        ("half\n\nCommand aborted", True, False, None, "half", False),
        ("it says\nCommand exited with code 3", False, True, None, "it says\nCommand exited with code 3", False),
        ("(no output)", False, True, None, "", False),
        ("odd", "unknown", None, None, "odd", False),
        ("weird failure", True, False, None, "weird failure", False),
    ],
)
def test_outcomes(text: str, error: Any, success: bool, code: int, output: str, timed_out: bool) -> None:
    run = outcome(text, error)
    assert (run.success, run.exit_code, run.output, run.timed_out) == (success, code, output, timed_out)


def test_what_never_ran() -> None:
    assert outcome("Blocked by user", True) == NotRun("refused")
    (left,) = entries(READER, jsonl(HEAD, call("c", command="ls")))
    assert isinstance(left, NotRun) and (left.kind, left.session, left.code) == ("unanswered", "s-1", "ls")


def test_openclaw_tells_more_in_details() -> None:
    log = jsonl(
        HEAD,
        call("1", "exec", command="a"),
        call("2", "exec", command="b"),
        call("3", "exec", command="c"),
        call("4", "exec", command="d"),
        result("1", "x", name="exec", details={"status": "completed", "exitCode": 0, "durationMs": 12}),
        result("2", "x\n\n(Command exited with code 4)", name="exec", details={"status": "completed", "exitCode": 4}),
        result("3", "Command still running (session z, pid 1).", name="exec", details={"status": "running"}),
        result("4", '{"status": "error", "tool": "exec", "error": "bad\\n\\nCommand exited with code 6"}', True),
    )
    found = [(run.success, run.exit_code, run.duration_ms, run.output[:5]) for run in runs(READER, log)]
    assert found == [(True, 0, 12.0, "x"), (False, 4, None, "x"), (None, None, None, "Comma"), (False, 6, None, "bad")]


@pytest.mark.parametrize("polled", ["running", "completed"])
def test_openclaw_tells_the_end_of_what_goes_on_in_a_later_poll(polled: str) -> None:
    on = {"status": "running", "sessionId": "brisk-lake"}
    ended = {"status": polled, "sessionId": "brisk-lake", **({"exitCode": 3} if polled == "completed" else {})}
    log = jsonl(
        HEAD,
        call("1", "exec", command="make"),
        result("1", "Command still running", name="exec", details=on),
        call("2", "process", action="poll", sessionId="brisk-lake"),
        result("2", "built half\n\nProcess exited with code 3.", name="process", details=ended),
    )
    (run,) = runs(READER, log)
    told = (None, None) if polled == "running" else (False, 3)
    assert (run.success, run.exit_code) == told
    assert run.output == ("Command still running" if polled == "running" else "built half")


def test_commands_that_the_user_typed() -> None:
    typed = {"command": "git st", "output": "nothing", "exitCode": 1, "cancelled": False}
    stopped = {"command": "top", "output": "", "exitCode": None, "cancelled": True}
    found = runs(READER, jsonl(HEAD, message("bashExecution", **typed), message("bashExecution", **stopped)))
    assert [(run.code, run.success, run.exit_code) for run in found] == [("git st", False, 1), ("top", None, None)]


def test_edits_stand_in_order_between_runs_and_failed_ones_do_not() -> None:
    log = jsonl(
        HEAD,
        call("1", command="ls"),
        call("2", "write", path="a.py", content="x = 1\n"),
        call("3", "edit", path="b.py", oldText="x", newText="y"),
        call("4", "edit", path="c.py", oldText="x", newText="y"),
        call("5", command="pwd"),
        result("1", ""),
        result("2", "written", name="write"),
        result("3", "edited", name="edit", details={"diff": "-x\n+y"}),
        result("4", "Could not find the exact text", True, name="edit"),
        result("5", "/w"),
    )
    found = [entry if isinstance(entry, Edit) else getattr(entry, "code", entry) for entry in entries(READER, log)]
    assert found == ["ls", Edit("s-1", "a.py", "x = 1\n"), Edit("s-1", "b.py", "-x\n+y"), "pwd"]


def test_copies_in_a_branch_keep_the_name_of_the_session_they_are_of() -> None:
    head = {**HEAD, "parentSession": "/home/u/.pi/agent/sessions/--w--/2026-01-02T09-00-00_s-0.jsonl"}
    log = jsonl(
        head,
        call("1", at="2026-01-02T09:30:00.000Z", command="old"),
        result("1", ""),
        call("2", at="2026-01-02T10:30:00.000Z", command="new"),
        result("2", ""),
    )
    assert [(run.session, run.code) for run in runs(READER, log)] == [("s-0", "old"), ("s-1", "new")]


def test_the_first_version_names_the_model_in_its_header() -> None:
    head = {"type": "session", "id": "s", "timestamp": "2025-11-20T10:00:00Z", "cwd": "/", "modelId": "m-0"}
    typed = message("bashExecution", command="ls", output="", exitCode=0)
    assert [run.model for run in runs(READER, jsonl(head, typed))] == ["m-0"]
    (run,) = runs(READER, jsonl({**head, "modelId": 3}, {"type": "model_change", "modelId": "m-2"}, typed))
    assert run.model == "m-2"


def test_damaged_lines_are_faults() -> None:
    log = jsonl(HEAD) + b'{"type": "message", "mess\n' + jsonl({"type": "message", "message": 3}, call("1"), USER)
    found = entries(READER, log)
    assert [entry.reason for entry in found if isinstance(entry, Fault)] == [
        "invalid_json",
        "invalid_message",
        "no_code",
    ]


def test_a_lost_header_does_not_matter() -> None:
    (run,) = runs(READER, jsonl(call("1", command="ls"), result("1", "x")))
    assert run.code == "ls" and run.session


def test_nothing_fails() -> None:
    log = [
        HEAD,
        USER,
        call("1", command="ls"),
        result("1", "no\n\nCommand exited with code 1", True, details={"exitCode": 1}),
    ]
    log += [call("2", "edit", path="p", edits=[{"newText": "n"}]), result("2", "", details={"diff": "d"})]
    log += [message("bashExecution", command="ls", output="", exitCode=0)]
    for records in damaged(log):
        survives(READER, jsonl(*records))


@pytest.mark.parametrize(
    "data",
    [
        b'{"type": "session", "id": 4}\n',
        b'{"type": "session", "id": "a", "version": 2}\n{"type": "click", "at": 3}\n',
        b'{"session": "a", "sandbox_id": "s", "execution_id": "e", "code": "1"}\n',
        b'{"type": "user", "sessionId": "a", "message": {"role": "user", "content": "session"}}\n',
        b'{"name": "session", "version": "1.0.0", "scripts": {"session": "node"}}',
        b'# "session"\n',
    ],
)
def test_look_alikes(data: bytes) -> None:
    assert not reads(READER, data)
