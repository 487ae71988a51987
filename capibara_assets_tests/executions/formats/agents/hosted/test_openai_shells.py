"""Shells and patches of OpenAI's Responses API."""

import json
from typing import Any

from capibara_assets.executions.formats.agents.hosted.api_cassettes import READER
from capibara_assets.executions.formats.agents.runs import Edit, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import entries


def told(*output: Any) -> list[Any]:
    return entries(READER, json.dumps({"id": "resp_1", "object": "response", "model": "gpt-5.1", "output": output}))


def shell(*commands: str) -> dict[str, Any]:
    return {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "call_1",
        "status": "completed",
        "action": {"commands": commands},
    }


def ended(*parts: Any) -> dict[str, Any]:
    return {"type": "shell_call_output", "id": "o_1", "call_id": "call_1", "output": parts}


def test_each_command_of_a_call_has_its_own_end() -> None:
    runs = told(
        shell("ls", "pytest -q", "sleep 99"),
        ended(
            {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            {"stdout": "", "stderr": "boom", "outcome": {"type": "exit", "exit_code": 1}},
            {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
        ),
    )
    assert [(run.code, run.success, run.exit_code, run.timed_out, run.call_id) for run in runs] == [
        ("ls", True, 0, False, "call_1"),
        ("pytest -q", False, 1, False, "call_1/1"),
        ("sleep 99", False, None, True, "call_1/2"),
    ]
    assert (runs[1].stderr, runs[1].model) == ("boom", "gpt-5.1")


def test_a_command_without_an_output_is_unanswered() -> None:
    run, missing = told(shell("ls", "pwd"), ended({"stdout": "a", "outcome": {"type": "exit", "exit_code": 0}}))
    assert (run.code, missing) == ("ls", NotRun("unanswered"))


def test_the_local_shell_tells_its_end_only_in_json() -> None:
    call = {"type": "local_shell_call", "call_id": "l1", "action": {"type": "exec", "command": ["bash", "-lc", "make"]}}
    output = {"type": "local_shell_call_output", "call_id": "l1", "output": "no rule\n"}
    (run,) = told(call, output)
    assert (run.code, run.success, run.output) == ("make", None, "no rule\n")
    (run,) = told(call, {**output, "output": json.dumps({"stdout": "", "stderr": "no rule", "exit_code": 2})})
    assert (run.success, run.exit_code, run.stderr) == (False, 2, "no rule")


def test_a_patch_is_an_edit_once_it_was_applied() -> None:
    patch = {
        "type": "apply_patch_call",
        "call_id": "p1",
        "operation": {"type": "update_file", "path": "a.py", "diff": "+y"},
    }
    done = {"type": "apply_patch_call_output", "call_id": "p1", "status": "completed", "output": ""}
    (edit,) = told(patch, done)
    assert isinstance(edit, Edit)
    assert (edit.path, edit.text) == ("a.py", "+y")
    assert told(patch, {**done, "status": "failed"}) == [NotRun("refused")]
    assert told(patch) == [NotRun("unanswered")]
