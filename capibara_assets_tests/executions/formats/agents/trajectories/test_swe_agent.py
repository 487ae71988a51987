import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, NotRun
from capibara_assets.executions.formats.agents.trajectories.swe_agent import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.trajectories.damaging import (
    entries,
    is_read,
    runs,
    survives_damage,
)

STATE = json.dumps({"open_file": "/repo/words.py", "working_dir": "/repo"})


def _step(action: str, observation: str, **more: Any) -> dict[str, Any]:
    return {"action": action, "observation": observation, "response": "..", "thought": "..", "state": STATE, **more}


HISTORY = [
    {"role": "system", "content": "SETTING: You are a programmer", "agent": "main"},
    {"role": "user", "content": "Here is a demonstration: ISSUE:\nanother\n\nINSTRUCTIONS: ..", "is_demo": True},
    {"role": "user", "content": "Solve this.\nISSUE:\nwords() counts one too many\n\nINSTRUCTIONS:\nEdit all files."},
]


def _log(*steps: Any, **more: Any) -> dict[str, Any]:
    info = {"exit_status": "submitted", "submission": "diff"}
    return {"environment": "swe_main", "trajectory": list(steps), "history": HISTORY, "info": info, **more}


def test_actions_are_runs_and_only_failures_show() -> None:
    log = _log(
        _step("python words.py\n", "Traceback (most recent call last):\r\n  File ..\r\nKeyError: 'a'"),
        _step("edit 1:1\nreturn n\nend_of_edit\n", "[File: /repo/words.py (9 lines total)]\n1:return n"),
        _step("python words.py\n", "3"),
        _step("submit\n", "diff --git a/words.py"),
    )
    failed, edited, edit, repaired = entries(READER, log)
    assert isinstance(failed, AgentRun) and (failed.code, failed.language) == ("python words.py\n", "bash")
    assert (failed.success, failed.exit_code, failed.task) == (False, None, "words() counts one too many")
    assert "\r" not in failed.output
    assert isinstance(edited, AgentRun) and edited.success is None
    assert edit == Edit(edited.session, "/repo/words.py", "edit 1:1\nreturn n\nend_of_edit\n")
    assert isinstance(repaired, AgentRun) and (repaired.success, repaired.output) == (None, "3")


WINDOW = "[File: /repo/words.py (90 lines total)]\n(6 more lines above)\n7:def words(s):\n8:    n = 1\n9:    return n\n"


@pytest.mark.parametrize(
    ("window", "action", "text"),
    [
        (WINDOW, "edit 8:8\n    n = 0\nend_of_edit\n", "-    n = 1\n+    n = 0"),
        (WINDOW, "edit 8:9\n    return 0\nend_of_edit\n", "-    n = 1\n-    return n\n+    return 0"),
        (WINDOW, "edit 9:10\nx\nend_of_edit\n", "edit 9:10\nx\nend_of_edit\n"),  # line 10 was not shown
        (WINDOW.replace("words.py", "other.py"), "edit 8:8\nx\nend_of_edit\n", "edit 8:8\nx\nend_of_edit\n"),
        ("[File: /repo/words.py (1 lines total)]\n1:\n", "edit 1:1\na = 1\nb = 2\nend_of_edit\n", "a = 1\nb = 2"),
        ("", "str_replace_editor str_replace /repo/a.py --old_str 'x' --new_str 'y\nz'", "-x\n+y\n+z"),
        ("", "str_replace_editor create /repo/a.py --file_text 'it'\\''s\n'", "it's\n"),
    ],
)
def test_an_edit_by_numbers_tells_the_lines_that_the_window_showed(window: str, action: str, text: str) -> None:
    log = _log(_step("open words.py 8", window), _step(action, "[File: /repo/words.py (90 lines total)]\nFile updated"))
    assert [entry.text for entry in entries(READER, log) if isinstance(entry, Edit)] == [text]


def test_the_numbers_of_a_window_before_an_edit_no_longer_hold() -> None:
    after = "[File: /repo/words.py (91 lines total)]\n7:def words(s):\n8:    n = 0\n9:    m = 0\n"
    log = _log(
        _step("open words.py", WINDOW),
        _step("edit 8:8\n    n = 0\n    m = 0\nend_of_edit\n", after),
        _step("edit 9:9\n    m = 1\nend_of_edit\n", after),
    )
    assert [entry.text for entry in entries(READER, log) if isinstance(entry, Edit)][-1] == "-    m = 0\n+    m = 1"


def test_handing_over_to_another_role_runs_nothing() -> None:
    log = _log(
        _step('plan\n{"entry": "Programmer"}\n', "\nIn order to solve this, the manager has planned for several roles"),
        _step("succeed\n", "\n"),
        _step("fail", ""),
        _step("plan --help", "usage: plan"),
    )
    assert [entry.code for entry in entries(READER, log) if isinstance(entry, AgentRun)] == ["plan --help"]


@pytest.mark.parametrize(
    ("action", "observation"),
    [
        ("edit 2:2\nx\nend_of_edit", "Your proposed edit has introduced new syntax error(s). Please understand ..\n"),
        ("file ~/ctf/*", "/root/ctf/*: cannot open `/root/ctf/*' (No such file or directory)"),
        ("pytest -q", "F\n=== 1 failed, 3 passed in 0.1s ==="),
        ("gcc a.c", "a.c:3:5: error: expected ';'"),
        ("frob", "/bin/bash: line 1: frob: command not found"),
        ("open nosuch.py", "File nosuch.py not found"),
    ],
)
def test_failures_that_the_shell_and_the_tools_tell(action: str, observation: str) -> None:
    (run,) = entries(READER, _log(_step(action, observation)))
    assert isinstance(run, AgentRun) and run.success is False


@pytest.mark.parametrize(
    ("action", "observation"),
    [
        ("cat run.log", "started\nTraceback (most recent call last):\nValueError: 1"),
        ("open a.py 3", "[File: /repo/a.py (2 lines total)]\n1:raise KeyError\n2:# Error: no"),
        ("grep -rn 'not found' .", "./a.py: print('x: No such file or directory')"),
        ("pytest -q", "=== 3 passed, 0 failed in 0.1s ==="),
    ],
)
def test_what_a_file_says_is_no_failure_of_the_command_that_shows_it(action: str, observation: str) -> None:
    (run,) = entries(READER, _log(_step(action, observation)))
    assert isinstance(run, AgentRun) and run.success is None


@pytest.mark.parametrize(
    "observation",
    [
        "\nEXECUTION TIMED OUT",
        "The command 'sleep 99' was cancelled because it took more than 30 seconds. Please try ..",
    ],
)
def test_a_timeout(observation: str) -> None:
    (run,) = runs(READER, _log(_step("sleep 99", observation)))
    assert run.timed_out and run.success is False


def test_an_edit_that_says_that_it_was_made_did_not_fail_whatever_its_script_printed() -> None:
    noise = '  File "/root/commands/_split_string", line 17\n    ^\nSyntaxError: no such feature\n'
    made = noise + "[File: /repo/words.py (9 lines total)]\n1:return n\nFile updated. Please review the changes"
    run, edit = entries(READER, _log(_step("edit 1:1\nreturn n\nend_of_edit\n", made)))
    assert isinstance(run, AgentRun) and run.success is None and isinstance(edit, Edit)


@pytest.mark.parametrize(
    ("action", "observation", "success"),
    [
        ("find_file a.py polls\n", "Directory polls not found", False),
        ("edit 1\n", "Usage: edit <start_line>:<end_line>", False),
        ("python reproduce.py\n", "Error: caught it\nScript completed successfully.", None),  # the program's own words
        ("python reproduce.py\n", "COMMAND FAILED TO EXECUTE. RESTARTING PROCESS.", False),
    ],
)
def test_only_tools_refuse_with_the_words_of_tools(action: str, observation: str, success: bool | None) -> None:
    (run,) = runs(READER, _log(_step(action, observation)))
    assert run.success is success


def test_version_1_with_tool_calls_a_state_that_is_an_object_and_steps_that_never_ran() -> None:
    state = {"open_file": "", "working_dir": "/repo"}
    calls = [{"id": "call_1", "function": {"name": "bash", "arguments": '{"command":"ls"}'}, "type": "function"}]
    history = [
        {"role": "user", "content": [{"type": "text", "text": "x <pr_description>\nFix it\n</pr_description>"}]},
        {"role": "assistant", "action": "ls", "tool_calls": calls, "content": ""},
    ]
    config = {"agent": {"model": {"name": "claude-sonnet-4"}}, "problem_statement": {"id": "repo__1"}}
    editing = "str_replace_editor create /repo/b.py --file_text 'print(1)\n'"
    log = _log(
        _step("vim a.py", "", execution_time=0.0, state={}),
        _step("ls", "a.py", execution_time=0.25, state=state),
        _step(editing, "File created successfully at: /repo/b.py", execution_time=0.1, state=state),
        _step("", "", execution_time=0.0, state={}),
        replay_config=json.dumps(config),
    )
    log["history"] = history
    blocked, listed, edit, empty = entries(READER, log)
    assert (blocked, empty) == (NotRun("refused"), NotRun("no_action"))
    assert isinstance(listed, AgentRun) and (listed.duration_ms, listed.call_id) == (250.0, "call_1")
    assert (listed.session, listed.model, listed.task) == ("repo__1", "claude-sonnet-4", "Fix it")
    assert edit == Edit("repo__1", "/repo/b.py", "print(1)\n")


def test_the_editor_of_version_1_is_no_shell_and_its_edits_count() -> None:
    editing = "str_replace_editor str_replace /repo/a.py --old_str '1' --new_str '2'"
    log = _log(
        _step("str_replace_editor view /repo/a.py", "     1\tx = 1"),
        _step(editing, "The file /repo/a.py has been edited."),
        _step(editing, "No replacement was performed, old_str `1` did not appear verbatim in /repo/a.py."),
        _step("str_replace_editor undo_edit /repo/a.py", "Last edit to /repo/a.py undone successfully."),
    )
    edit, failed = entries(READER, log)
    assert isinstance(edit, Edit) and (edit.path, edit.text) == ("/repo/a.py", "-1\n+2")
    assert failed == NotRun("edit_failed")


@pytest.mark.parametrize(
    "observation",
    [
        "Your bash command contained syntax errors and was NOT executed. Please fix it.\n/root/x: line 1",
        "Operation 'nano a.py' is not supported by this environment.",
    ],
)
def test_what_the_environment_did_not_hand_to_the_shell_is_no_run(observation: str) -> None:
    assert entries(READER, _log(_step("if true", observation))) == [NotRun("not_executed")]


def test_attempts_are_sessions_and_the_best_is_not_counted_twice() -> None:
    first, second = _log(_step("ls", "a")), _log(_step("pwd", "/"))
    found = runs(READER, {**second, "attempts": [first, second]})
    assert [run.code for run in found] == ["ls", "pwd"]
    assert len({run.session for run in found}) == 2


def test_damaged_steps_are_told_and_the_others_are_read() -> None:
    fault, other, unanswered, run = entries(READER, _log(7, {"action": ["ls"]}, {"action": "ls"}, _step("pwd", "/")))
    assert isinstance(fault, Fault) and isinstance(other, Fault) and fault.value == 7
    assert unanswered == NotRun("unanswered")
    assert isinstance(run, AgentRun) and run.code == "pwd"


def test_look_alikes_are_not_read() -> None:
    assert not is_read(READER, {"trajectory": [[0.1, 0.2], [0.3, 0.4]], "info": {}})
    assert not is_read(READER, {"trajectory": [{"action": 2, "reward": 1.0, "observation": [0.1]}]})
    assert not is_read(READER, {"name": "trajectory", "history": [], "environment": "node"})
    assert is_read(READER, _log())


def test_no_damage_stops_it() -> None:
    log = _log(_step("python a.py", "3", execution_time=1.5), _step("edit 1:1\nx\nend_of_edit", "ok"))
    survives_damage(READER, {**log, "replay_config": {"agent": {"model": {"name": "m"}}}})
