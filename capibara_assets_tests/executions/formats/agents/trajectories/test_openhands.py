import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun
from capibara_assets.executions.formats.agents.trajectories.openhands import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.trajectories.damaging import (
    entries,
    is_read,
    runs,
    survives_damage,
)

JUPYTER = "\n[Jupyter current working directory: /workspace]\n[Jupyter Python interpreter: /env/bin/python]"


def _at(number: int) -> dict[str, Any]:
    return {"id": number, "timestamp": f"2025-02-01T00:00:{number:02}.500000"}


def _says(number: int, words: str, source: str = "user") -> dict[str, Any]:
    return {
        **_at(number),
        "source": source,
        "action": "message",
        "args": {"content": words, "wait_for_response": False},
    }


def _run(number: int, command: str, **args: Any) -> dict[str, Any]:
    call = {"tool_call_id": f"toolu_{number}", "model_response": {"model": "claude-3-5", "choices": []}}
    told = {"command": command, "is_input": False, **args}
    return {**_at(number), "source": "agent", "action": "run", "args": told, "tool_call_metadata": call}


def _ran(number: int, cause: int, content: str, code: int, suffix: str = "") -> dict[str, Any]:
    metadata = {"exit_code": code, "suffix": suffix or f"\n[The command completed with exit code {code}.]"}
    extras = {"command": "..", "metadata": metadata}
    told = {"observation": "run", "content": content, "extras": extras, "success": code == 0}
    return {**_at(number), "source": "agent", "cause": cause, **told}


def _cell(number: int, code: str, content: str) -> list[dict[str, Any]]:
    told = {"observation": "run_ipython", "content": content + JUPYTER, "extras": {"code": code}, "success": True}
    return [
        {**_at(number), "source": "agent", "action": "run_ipython", "args": {"code": code}},
        {**_at(number + 1), "source": "agent", "cause": number, **told},
    ]


LOG = [
    _says(0, "Please run the tests."),
    _says(1, "I will.", source="agent"),
    _run(2, "pytest"),
    _ran(3, 2, "1 failed", 1),
    *_cell(4, "1 / 0", "ZeroDivisionError      Traceback (most recent call last)\nCell In[1], line 1"),
    *_cell(6, "print(open('log').read())", "fine"),
]


def test_commands_and_cells_are_joined_with_their_observations() -> None:
    failed, raised, fine = runs(READER, LOG)
    assert (failed.code, failed.language, failed.output) == ("pytest", "bash", "1 failed")
    assert (failed.exit_code, failed.success, failed.call_id) == (1, False, "toolu_2")
    assert failed.started is not None and (failed.started.second, failed.duration_ms) == (2, 1000.0)
    assert (failed.task, failed.model) == ("Please run the tests.", "claude-3-5")
    assert (raised.language, raised.success, raised.exit_code) == ("python", False, None)
    assert (fine.success, fine.output) == (True, "fine")


@pytest.mark.parametrize("named", ["\x1b[0;31mKeyError\x1b[0m: 'a'", "2 rows\nKeyError: 'a'"])
def test_a_cell_that_shows_an_exception_without_its_traceback_failed(named: str) -> None:
    (run,) = runs(READER, _cell(4, "d['a']", named))
    assert run.success is False and run.output == named


def test_several_commands_at_once_are_refused_and_what_was_left_is_named() -> None:
    several = "ERROR: Cannot execute multiple commands at once.\nPlease run each command separately OR .."
    refused, left = entries(READER, [_run(1, "ls\npwd"), _ran(2, 1, several, -1), _run(3, "make")])
    assert isinstance(refused, NotRun) and (refused.kind, refused.code) == ("not_executed", "ls\npwd")
    assert isinstance(left, NotRun) and (left.kind, left.code) == ("unanswered", "make")


def test_a_command_that_still_runs_ends_with_the_answer_to_an_input() -> None:
    running = "\n[The command has no new output after 30 seconds. You may wait longer ..]"
    blocked = '\n[Your command "ls" is NOT executed. The previous command is still running - You CANNOT ..]'
    blocked_run, run, alone, left = entries(
        READER,
        [
            _run(1, "make"),
            _ran(2, 1, "cc a.c\n", -1, running),
            _run(3, "ls"),
            _ran(4, 3, "cc a.c\n", -1, blocked),
            _run(5, ""),
            _ran(6, 5, "[Below is the output of the previous command.]\ncc b.c\n", -1, running),
            _run(7, "C-c", is_input=True),
            _ran(8, 7, "^C", 130),
            _run(9, "y", is_input=True),
            _ran(10, 9, "ERROR: No previous running command to interact with.", -1),
            _run(11, "sleep 99"),
            _ran(12, 11, "", -1, "\n[The command timed out after 60 seconds. You may wait longer ..]"),
        ],
    )
    assert blocked_run == NotRun("not_executed")
    assert isinstance(run, AgentRun) and (run.code, run.exit_code, run.success) == ("make", 130, False)
    assert run.output == "cc a.c\ncc b.c\n^C"
    assert alone == NotRun("nothing_runs")
    assert isinstance(left, AgentRun) and (left.timed_out, left.exit_code, left.success) == (True, None, None)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"observation": "user_rejected", "content": "User rejected the action"}, "rejected"),
        ({"observation": "error", "content": "ERROR: Cannot execute multiple commands at once."}, "refused"),
        ({}, "unanswered"),
    ],
)
def test_what_never_ran(answer: dict[str, str], kind: str) -> None:
    assert entries(READER, [_run(1, "ls"), {**_at(2), "cause": 1, **answer}]) == [NotRun(kind)]
    assert entries(READER, [_run(1, "ls", confirmation_state="rejected")]) == [NotRun("rejected")]


def test_the_runtime_that_gave_no_answer_in_time() -> None:
    late = {
        "observation": "error",
        "content": "Runtime failed to return execute_action before the requested timeout of 9s",
    }
    (run,) = runs(READER, [_run(1, "sleep 99"), {**_at(2), "cause": 1, **late}])
    assert run.timed_out and run.success is False


def test_edits_stand_between_the_runs_and_are_no_commands() -> None:
    def edit(number: int, **args: Any) -> dict[str, Any]:
        return {**_at(number), "source": "agent", "action": "edit", "args": {"path": "/w/a.py", **args}}

    done = {"observation": "edit", "content": "ok", "extras": {"path": "/w/a.py", "new_content": "x = 1\n"}}
    log = [
        edit(1, command="create", file_text="x = 1\n"),
        {**_at(2), "cause": 1, **done},
        edit(3, command="str_replace", old_str="y", new_str="z"),
        {**_at(4), "cause": 3, "observation": "error", "content": "No replacement was performed"},
        _run(5, "python a.py"),
        _ran(6, 5, "", 0),
    ]
    first, run = entries(READER, log)
    assert isinstance(run, AgentRun) and first == Edit(run.session, "/w/a.py", "x = 1\n")


FLAT = {
    "issue": {"number": 5},
    "instruction": "Fix.\n\n# Problem Statement\nAdd a licence\n\nIMPORTANT: never ask",
    "history": [
        {
            "action": "message",
            "content": "# Problem Statement\nAdd a licence\n\nIMPORTANT: ..",
            "wait_for_response": False,
        },
        {"action": "run", "command": "touch LICENSE", "thought": "", "is_confirmed": "confirmed"},
        {
            "observation": "run",
            "command_id": -1,
            "command": "touch LICENSE",
            "exit_code": 0,
            "content": "\r\nroot@a1:/w # ",
        },
        {"action": "run_ipython", "code": "edit_file()", "thought": ""},
        {"observation": "run_ipython", "code": "edit_file()", "content": "[Code executed successfully with no output]"},
        {"action": "message", "content": "Shall I go on?", "wait_for_response": True},
        {"action": "run", "command": "cat LICENSE", "thought": ""},
        {"observation": "run", "command_id": -1, "exit_code": 1, "content": "MIT\r\n\r\nroot@a1:/w # "},
    ],
}


def test_flat_events_without_ids_are_joined_by_order() -> None:
    touched, cell, shown = runs(READER, FLAT)
    assert (touched.session, touched.task, touched.output) == ("5#0", "Add a licence", "")
    assert (touched.exit_code, touched.success, touched.started, touched.call_id) == (0, True, None, None)
    assert (cell.language, cell.success, cell.output) == ("python", True, "")
    assert (shown.output, shown.success, shown.task) == ("MIT\n", False, "Add a licence")


def test_lines_of_an_evaluation_are_sessions_and_pairs_are_events() -> None:
    mid = [
        {"source": "agent", "action": "run", "args": {"command": "ls"}},
        {
            "source": "agent",
            "observation": "run",
            "content": "a",
            "extras": {"command_id": -1, "command": "ls", "exit_code": 0},
        },
    ]
    config = {"llm_config": {"model": "gpt-4o"}}
    lines = [
        FLAT,
        {"instance_id": "repo__1", "history": [mid], "metadata": config},
        {"instance_id": "x", "history": None},
    ]
    data = "\n".join(json.dumps(line) for line in lines) + '\n{"instance_id": \n'
    document = LogDocument(data.encode())
    assert find_reader(document) is READER
    found = list(READER.entries(document))
    assert [entry.session for entry in found if isinstance(entry, AgentRun)] == ["5#0"] * 3 + ["repo__1#1"]
    last = [entry for entry in found if isinstance(entry, AgentRun)][-1]
    assert (last.model, last.success, last.output) == ("gpt-4o", True, "a")
    assert isinstance(found[-1], Fault) and found[-1].reason == "invalid_json"


def test_events_one_a_line() -> None:
    data = "\n".join(json.dumps(event) for event in LOG).encode()
    assert len([entry for entry in READER.entries(LogDocument(data)) if isinstance(entry, AgentRun)]) == 3


def _sdk(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "id": f"e-{len(more)}", "timestamp": "2026-01-05T10:00:00", "source": "agent", **more}


def test_events_of_the_agent_sdk() -> None:
    words = {"role": "user", "content": [{"type": "text", "text": "Print it"}]}
    shell = {"command": "cat x", "is_input": False, "kind": "TerminalAction"}
    shown = {"content": [{"type": "text", "text": "cat: x: ..."}], "exit_code": 1, "kind": "TerminalObservation"}
    old = {"output": "3", "exit_code": 0, "metadata": {"exit_code": 0}, "kind": "ExecuteBashObservation"}
    create = {"command": "create", "path": "/w/x", "file_text": "3", "kind": "FileEditorAction"}
    log = [
        {**_sdk("MessageEvent", llm_message=words), "source": "user"},
        _sdk("ActionEvent", action=shell, tool_name="terminal", tool_call_id="c1", thought=[]),
        _sdk("ObservationEvent", observation=shown, tool_name="terminal", tool_call_id="c1", action_id="e"),
        _sdk("ActionEvent", action=create, tool_name="file_editor", tool_call_id="c2"),
        _sdk(
            "ObservationEvent",
            observation={"kind": "FileEditorObservation"},
            tool_name="file_editor",
            tool_call_id="c2",
        ),
        _sdk("ActionEvent", action={**shell, "kind": "ExecuteBashAction"}, tool_name="execute_bash", tool_call_id="c3"),
        _sdk("ObservationEvent", observation=old, tool_name="execute_bash", tool_call_id="c3"),
        _sdk("ActionEvent", action=shell, tool_name="terminal", tool_call_id="c4"),
        _sdk("UserRejectObservation", rejection_reason="no", tool_name="terminal", tool_call_id="c4"),
        _sdk("ActionEvent", action=shell, tool_name="terminal", tool_call_id="c5"),
        _sdk("AgentErrorEvent", error="Error validating args", tool_name="terminal", tool_call_id="c5"),
    ]
    failed, edit, fine, rejected, refused = entries(READER, log)
    assert isinstance(failed, AgentRun) and (failed.code, failed.exit_code, failed.success) == ("cat x", 1, False)
    assert (failed.output, failed.task, failed.call_id) == ("cat: x: ...", "Print it", "c1")
    assert edit == Edit(failed.session, "/w/x", "3")
    assert isinstance(fine, AgentRun) and (fine.output, fine.success) == ("3", True)
    assert (rejected, refused) == (NotRun("rejected"), NotRun("refused"))


def test_damaged_events_are_told_and_the_others_are_read() -> None:
    fault, no_code, run = entries(READER, [3, {**_run(1, "ls"), "args": {"command": 7}}, *LOG[2:4]])
    assert isinstance(fault, Fault) and fault.value == 3
    assert isinstance(no_code, Fault) and no_code.reason == "no_code"
    assert isinstance(run, AgentRun)


def test_look_alikes_are_not_read() -> None:
    assert not is_read(READER, [{"action": "run", "command": "ls"}, {"action": "stop"}])
    assert not is_read(READER, {"scripts": {"run": "x"}, "items": [{"action": "run", "source": "a.c", "args": ["-c"]}]})
    assert not is_read(READER, {"events": [{"kind": "ActionEvent"}, {"observation": "run"}]})
    envelope = {"sandbox_id": "s", "execution_id": "e", "language": "python", "code": "run()", "action": "run"}
    assert not is_read(READER, envelope)
    assert is_read(READER, [_says(0, "what is 1+1?")])


def test_no_damage_stops_it() -> None:
    survives_damage(READER, LOG)
    survives_damage(READER, FLAT)
