"""Antigravity's transcripts: commands, also in the background, edits, and what other steps stand in between."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun, moment
from capibara_assets.executions.formats.agents.tools.antigravity import READER
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, runs, survives

AT, LATER = "2026-05-01T10:00:00Z", "2026-05-01T10:00:09Z"
HEAD = f"Created At: {LATER}\nCompleted At: {LATER}\n"
WELL = f"{HEAD}\n\t\t\t\tThe command completed successfully.\n\t\t\t\tOutput:\n\t\t\t\t"
SILENT = f"{HEAD}\n\t\t\t\tThe command completed successfully.\n\t\t\tStdout:\n\t\t\t\n\t\t\tStderr:\n\t\t\t\n"
BADLY = f"{HEAD}\n\t\t\t\tThe command failed with exit code: 127\n\t\t\t\tOutput:\n\t\t\t\t"
BEHIND = "Tool is running as a background task with task id: s/task-7\nTask Description: make"
REMINDER = {"step_index": 9, "type": "EPHEMERAL_MESSAGE", "status": "DONE", "content": "be brief"}


def step(kind: str, content: str, status: str = "DONE") -> dict[str, Any]:
    return {"step_index": 1, "source": "MODEL", "type": kind, "status": status, "created_at": LATER, "content": content}


def calls(*asked: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    tool_calls = [{"name": name, "args": args} for name, args in asked]
    return {"step_index": 0, "type": "PLANNER_RESPONSE", "created_at": AT, "tool_calls": tool_calls}


def command(text: str, cwd: str = "/w") -> tuple[str, dict[str, Any]]:
    return "run_command", {"CommandLine": text, "Cwd": cwd, "WaitMsBeforeAsync": 500, "toolAction": "Building"}


ASKED = step(
    "USER_INPUT",
    "<USER_REQUEST>\nbuild it\n</USER_REQUEST>\n<USER_SETTINGS_CHANGE>\nThe user changed setting `Model Selection` from"
    " None to Some Model 1.5 (High). No need to comment on this.\n</USER_SETTINGS_CHANGE>",
)


def test_a_command_has_all_that_its_steps_tell() -> None:
    document = LogDocument(
        jsonl(ASKED, calls(command("make")), REMINDER, step("RUN_COMMAND", BADLY + "no rule\n\tto make it\n\n"))
    )
    assert find_reader(document) is READER
    assert list(READER.entries(document)) == [
        AgentRun(
            document.digest, "bash", "make", False, output="no rule\n\tto make it\n", exit_code=127,
            started=moment(LATER), task="build it", model="Some Model 1.5 (High)",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "success", "output"),
    [
        (WELL + "built\n", True, "built"),
        (SILENT, True, ""),
        (SILENT.replace("Stdout:\n\t\t\t", "Stdout:\n\t\t\tbuilt"), True, "built"),
        (HEAD + "\nwhat it printed", None, "what it printed"),
        (f"Created At: {LATER}\n{BEHIND}", None, ""),
    ],
)
def test_how_a_command_ended(content: str, success: bool | None, output: str) -> None:
    (run,) = runs(READER, jsonl(calls(command("make")), step("RUN_COMMAND", content)))
    assert (run.success, run.output, run.stderr, run.exit_code) == (success, output, "", None)


def test_a_later_step_tells_how_a_command_in_the_background_ended() -> None:
    begun = [calls(command("make")), step("RUN_COMMAND", f"Created At: {LATER}\n{BEHIND}", "RUNNING")]
    looked = step("GENERIC", f"{HEAD}Task: s/task-7\nStatus: RUNNING\nLog: /l\nLog output:\nhalf")
    end = (
        f'[Message] sender=s/task-7 content=Task id "s/task-7" finished with result:\n\n{BADLY.removeprefix(HEAD)}no\n'
    )
    lines = [*begun, calls(("manage_task", {"Action": "status", "TaskId": "s/task-7"})), looked]
    (run,) = runs(READER, jsonl(*lines))
    assert (run.success, run.output) == (None, "half")
    (run,) = runs(READER, jsonl(*lines, step("SYSTEM_MESSAGE", end), looked))
    assert (run.success, run.output, run.exit_code) == (False, "no", 127)
    (run,) = runs(READER, jsonl(*begun, step("SYSTEM_MESSAGE", end.replace("task-7", "task-8"))))
    assert run.success is None


def test_the_steps_of_calls_stand_in_their_order() -> None:
    edit = "write_to_file", {"TargetFile": "/w/a.py", "CodeContent": "x = 1\n"}
    found = entries(
        READER,
        jsonl(
            calls(command("make"), edit, ("view_file", {"AbsolutePath": "/w/b"}), command("make test")),
            step("CODE_ACTION", f"{HEAD}Created file file:///w/a.py with requested content."),
            step("VIEW_FILE", "a"),
            step("RUN_COMMAND", WELL + "a"),
            step("RUN_COMMAND", BADLY + "b"),
        ),
    )
    assert [(run.code, run.success) for run in found if isinstance(run, AgentRun)] == [
        ("make", True),
        ("make test", False),
    ]
    assert [edit[1:] for edit in found if isinstance(edit, Edit)] == [("/w/a.py", "x = 1\n")]


def test_edits_have_the_patch_that_was_made() -> None:
    patch = "[diff_block_start]\n@@\n-x\n+y\n[diff_block_end]"
    made = f"{HEAD}The following changes were made by the tool to: /w/a.py.\n{patch}"
    chunks = {"TargetFile": "/w/a.py", "ReplacementChunks": [{"ReplacementContent": "y"}, {"ReplacementContent": "z"}]}
    asked = calls(("multi_replace_file_content", chunks))
    (edit,) = entries(READER, jsonl(asked, step("CODE_ACTION", made)))
    assert isinstance(edit, Edit) and edit[1:] == ("/w/a.py", "@@\n-x\n+y")
    (edit,) = entries(READER, jsonl(asked, step("CODE_ACTION", made.partition("[")[0])))
    assert isinstance(edit, Edit) and edit.text == "y\nz"
    assert entries(READER, jsonl(asked, step("CODE_ACTION", "target content not found"))) == [NotRun("edit_failed")]


def test_what_was_cancelled_or_has_no_step_did_not_run() -> None:
    lines = [calls(command("rm x")), step("RUN_COMMAND", HEAD, "CANCELED"), calls(command("ls")), calls(command("pwd"))]
    lines += [step("RUN_COMMAND", WELL + "/w")]
    found = entries(READER, jsonl(*lines))
    assert found[:2] == [NotRun("refused"), NotRun("unanswered")]
    assert [run.code for run in found if isinstance(run, AgentRun)] == ["pwd"]


def test_arguments_may_be_json_inside_json_and_of_windows() -> None:
    inner = {name: json.dumps(value) for name, value in command('dir "a b"', "C:\\w")[1].items()}
    for args in (inner, json.dumps(command('dir "a b"', "c:/w")[1])):
        asked = calls(("run_command", args))  # type: ignore[arg-type]
        (run,) = runs(READER, jsonl(asked, step("RUN_COMMAND", SILENT)))
        assert (run.language, run.code) == ("powershell", 'dir "a b"')
    (run,) = runs(READER, jsonl(calls(command('"a b"')), step("RUN_COMMAND", SILENT)))
    assert (run.language, run.code) == ("bash", '"a b"')


def test_what_merely_looks_alike_is_not_read() -> None:
    assert not reads(READER, jsonl({"type": "PLANNER_RESPONSE", "content": "a plan"}))
    assert not reads(READER, jsonl({"step_index": 1, "type": "PLANNER_RESPONSE", "tool_calls": []}))


def test_no_damage_raises() -> None:
    edit = "replace_file_content", {"TargetFile": "/w/a.py", "ReplacementContent": "y"}
    whole = [ASKED, calls(command("make"), edit), step("RUN_COMMAND", BEHIND), step("CODE_ACTION", "Created file a")]
    for lines in damaged(whole):
        survives(READER, jsonl(*lines))
