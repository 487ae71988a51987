"""ATIF trajectories: tool calls of Harbor's converters, Terminus' keystrokes, its raw JSON, copies and sub-agents."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun
from capibara_assets.executions.formats.agents.trajectories.atif import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.damaged_values import damaged_values


def document(value: Any) -> LogDocument:
    return LogDocument(json.dumps(value).encode())


def trajectory(*steps: Any, **fields: Any) -> dict[str, Any]:
    agent = {"name": "terminus-2", "version": "2.0", "model_name": "m-1"}
    head = {"schema_version": "ATIF-v1.5", "session_id": "s-1", "agent": agent}
    return {**head, "steps": list(steps), "final_metrics": {"total_steps": len(steps)}, **fields}


def entries(*steps: Any, **fields: Any) -> list[Any]:
    log = document(trajectory(*steps, **fields))
    assert READER.reads(log)
    return list(READER.entries(log))


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call_id": call_id, "function_name": name, "arguments": arguments}


def step(calls: list[Any], *results: Any, **fields: Any) -> dict[str, Any]:
    base = {"step_id": 2, "timestamp": "2025-11-02T10:00:01Z", "source": "agent", "message": "Looking."}
    return {**base, "tool_calls": calls, "observation": {"results": list(results)}, **fields}


USER = {"step_id": 1, "source": "user", "message": "Fix the parser."}


def test_a_call_with_its_result() -> None:
    (run,) = entries(
        USER, step([call("c1", "execute_bash", command="ls")], {"source_call_id": "c1", "content": "a.py\n"})
    )
    assert (run.session, run.language, run.code, run.output) == ("s-1", "bash", "ls", "a.py\n")
    assert (run.call_id, run.task, run.model, run.success) == ("c1", "Fix the parser.", "m-1", None)
    assert run.started is not None and run.started.isoformat() == "2025-11-02T10:00:01+00:00"


@pytest.mark.parametrize(
    ("content", "code", "output"),
    [
        ("a\n[The command completed with exit code 0.]", 0, "a"),
        ("no\n[The command completed with exit code 2.]\n[Current working directory: /app]", 2, "no"),
        ("x\n[Command finished with exit code 1]", 1, "x"),
        ("<returncode>3</returncode>\n<output>\nbad\n</output>", 3, "bad\n"),
        ("Chunk ID: a1\nWall time: 0.1 seconds\nProcess exited with code 4\nOutput:\nno\n", 4, "no\n"),
        ("Exit code: 5\nWall time: 0.2 seconds\nOutput:\nno\n", 5, "no\n"),
        ("Command: x\nDirectory: (root)\nOutput: no\nError: (none)\nExit Code: 6\nSignal: (none)", 6, "no"),
        ('{"returncode": 7, "output": "no", "exception_info": ""}', 7, "no"),
        ('{"failure": {"command": "x", "exitCode": 8, "stdout": "no", "stderr": ""}}', 8, "no"),
        ("no\n<exited with exit code 9>", 9, "no"),
    ],
)
def test_exit_codes_that_agents_write_into_the_content(content: str, code: int, output: str) -> None:
    (run,) = entries(step([call("c", "bash", command="x")], {"source_call_id": "c", "content": content}))
    assert (run.exit_code, run.success, run.output) == (code, code == 0, output)


@pytest.mark.parametrize(
    ("printed", "success"), [("4", True), ("----> 1 1/0\n\nZeroDivisionError: division by zero", False)]
)
def test_a_cell_of_openhands_prints_what_it_raises(printed: str, success: bool) -> None:
    notes = "\n[Jupyter current working directory: /app]\n[Jupyter Python interpreter: /usr/bin/python3]"
    cell = call("c", "execute_ipython_cell", code="x")
    (run,) = entries(step([cell], {"source_call_id": "c", "content": printed + notes}))
    assert (run.success, run.output) == (success, printed)


def test_claude_code_states_failure_in_words_or_beside() -> None:
    said = {"source_call_id": "c", "content": "Exit code 1\nboom\n\n[error] tool reported failure"}
    (run,) = entries(step([call("c", "Bash", command="make")], said))
    assert (run.success, run.exit_code, run.output) == (False, 1, "boom")
    beside = {"source_call_id": "c", "content": "ok", "extra": {"tool_result_is_error": False}}
    (run,) = entries(step([call("c", "Bash", command="make")], beside))
    assert (run.success, run.output) == (True, "ok")


def test_claude_codes_answer_as_it_was_before_conversion() -> None:
    raw = {"type": "tool_result", "tool_use_id": "c", "content": "hi", "is_error": False}
    extra = {"tool_result_metadata": {"tool_use_result": {"stdout": "hi"}, "raw_tool_result": raw}}
    told = {"source_call_id": "c", "content": 'hi\n\n[stdout]\nhi\n[metadata] {"x": 1}', "extra": extra}
    (run,) = entries(step([call("c", "Bash", command="echo hi")], told))
    assert (run.output, run.success) == ("hi", True)


def test_codex_states_the_exit_code_of_each_call() -> None:
    calls = [call("a", "shell", command=["bash", "-lc", "one"]), call("b", "exec_command", cmd="two")]
    told = [{"source_call_id": "a", "content": "1"}, {"source_call_id": "b", "content": "2"}]
    details = {"a": {"metadata": {"exit_code": 0}}, "b": {"metadata": {"exit_code": 1}}}
    first, second = entries(step(calls, *told, extra={"tool_call_details": details}))
    assert (first.code, first.exit_code, second.code, second.exit_code) == ("one", 0, "two", 1)


def test_codex_tells_the_end_of_a_command_later() -> None:
    head = "Chunk ID: a1\nWall time: 1.0 seconds\n"
    begun = {"source_call_id": "a", "content": f"{head}Process running with session ID 7\nOutput:\none\n"}
    ended = {"source_call_id": "b", "content": f"{head}Process exited with code 1\nOutput:\ntwo\n"}
    wait = step([call("b", "write_stdin", session_id=7, chars="")], ended)
    (run,) = entries(step([call("a", "exec_command", cmd="go test")], begun), wait)
    assert (run.exit_code, run.success, run.output) == (1, False, "one\ntwo\n")
    (run,) = entries(step([call("a", "exec_command", cmd="go test")], begun))
    assert (run.exit_code, run.success, run.output) == (None, None, "one\n")


def test_a_command_that_still_runs_has_no_exit_code() -> None:
    told = {"source_call_id": "c", "content": "x\n[The command completed with exit code -1.]"}
    (run,) = entries(step([call("c", "execute_bash", command="sleep 99")], told))
    assert (run.exit_code, run.success) == (None, None)


def test_swe_agents_actions_leave_empty_outputs_out() -> None:
    quiet = {**step([call("a", "swe_agent_action", raw_action="mkdir x")]), "observation": None}
    failed = {"source_call_id": "b", "content": "Your proposed edit has introduced new syntax error(s). Please .."}
    edit = step([call("b", "swe_agent_action", raw_action="edit 1:2\nx\nend_of_edit")], failed)
    end = {**step([call("c", "swe_agent_action", raw_action="submit flag{x}")]), "observation": None}
    first, second = entries(quiet, edit, end)
    assert (first.code, first.output, second.success) == ("mkdir x", "", False)


def test_an_older_mini_swe_agent_has_its_command_in_the_message() -> None:
    told = {"content": "<returncode>1</returncode>\n<output>\nno\n</output>"}
    said = {"source": "agent", "message": "I look.\n\n```bash\nls a\n```", "observation": {"results": [told]}}
    (run,) = entries(USER, said)
    assert (run.code, run.exit_code, run.output) == ("ls a", 1, "no\n")
    assert entries({**said, "observation": {"results": [{"content": "Thanks"}]}}) == []


def test_results_without_ids_follow_the_calls() -> None:
    calls = [call("c1", "bash", command="one"), call("c2", "bash", command="two")]
    first, second = entries(step(calls, {"content": "1"}, {"content": "2"}))
    assert (first.output, second.output) == ("1", "2")


def test_the_same_call_again_with_its_result_is_one() -> None:
    asked = {**step([call("c1", "execute_bash", command="ls")]), "observation": None}
    answered = step([call("c1", "execute_bash", command="ls")], {"source_call_id": "c1", "content": "a"})
    (run,) = entries(asked, answered)
    assert run.output == "a"


def test_a_call_that_a_step_makes_twice_under_one_id_is_one() -> None:
    twice = [call("c1", "bash", command="ls"), call("c1", "bash", command="ls")]
    again = step([call("c1", "bash", command="ls")], {"source_call_id": "c1", "content": "a"})
    (run,) = entries(step(twice), again)
    assert (run.code, run.output) == ("ls", "a")


def test_a_call_without_result_did_not_run() -> None:
    assert entries(step([call("c1", "bash", command="ls")])) == [NotRun("unanswered")]


def test_an_editor_is_no_shell() -> None:
    edit = call("c", "str_replace_editor", command="create", path="/app/a.py", file_text="x = 1\n")
    failed = call("d", "str_replace_editor", command="str_replace", path="/app/a.py", old_str="y", new_str="z")
    found = entries(
        step(
            [edit, call("v", "str_replace_editor", command="view", path="/app")],
            {"source_call_id": "c", "content": "File created"},
        ),
        step([failed], {"source_call_id": "d", "content": "ERROR:\nNo replacement was performed"}),
    )
    assert found == [Edit("s-1", "/app/a.py", "x = 1\n")]


SCREEN = "New Terminal Output:\n\nroot@c0ffee:/app# ls\na.py\nroot@c0ffee:/app# python a.py\nhello\nroot@c0ffee:/app#"


def test_keystrokes_share_one_screen() -> None:
    calls = [
        call("c1", "bash_command", keystrokes="ls\n", duration=0.1),
        call("c2", "bash_command", keystrokes="python a.py\n"),
    ]
    first, second = entries(step(calls, {"content": SCREEN}))
    assert (first.code, first.output, second.code, second.output) == ("ls\n", "a.py", "python a.py\n", "hello")


def test_a_screen_that_cannot_be_split_belongs_to_the_last() -> None:
    calls = [call("c1", "bash_command", keystrokes="clear\n"), call("c2", "bash_command", keystrokes="python a.py\n")]
    first, second = entries(step(calls, {"content": "Current Terminal Screen:\nhello\nroot@c:/app#"}))
    assert (first.output, second.output) == ("", "hello")


def test_keys_are_no_commands() -> None:
    calls = [
        call(f"c{n}", "bash_command", keystrokes=keys)
        for n, keys in enumerate(["C-c", "", "\n", "q", "\x03\n", "pwd\n"])
    ]
    *keys, run = entries(step(calls, {"content": "New Terminal Output:\nroot@c:/app# pwd\n/app\nroot@c:/app#"}))
    assert keys == [NotRun("keystrokes")] * 5 and (run.code, run.output) == ("pwd\n", "/app")


def test_commands_as_json_in_the_message() -> None:
    said = {"analysis": "", "plan": "", "commands": [{"keystrokes": "ls\n", "duration": 0.1}, {"keystrokes": "C-c"}]}
    for message in (json.dumps(said), f"I will look.\n```json\n{json.dumps(said, indent=1)}\n```"):
        raw = {"source": "agent", "message": message, "observation": {"results": [{"content": SCREEN}]}}
        run, key = entries({**USER, "message": "Task Description:\nCount files.\n\nCurrent terminal state:\n#"}, raw)
        assert (run.code, run.output, run.task, key) == (
            "ls\n",
            "a.py\nroot@c0ffee:/app# python a.py\nhello",
            "Count files.",
            NotRun("keystrokes"),
        )


def test_commands_that_could_not_be_parsed_did_not_run() -> None:
    broken = {
        "source": "agent",
        "message": '{"commands": [{"keystrokes": "ls\\n"}], "extra": }',
        "observation": {"results": [{"content": "Previous response had parsing errors:\nERROR: no JSON"}]},
    }
    assert entries(broken) == [NotRun("parsing_error")]


def test_copied_context_is_history_but_names_the_task() -> None:
    old = step([call("c1", "bash", command="ls")], {"source_call_id": "c1", "content": "a"}, is_copied_context=True)
    new = step([call("c2", "bash", command="pwd")], {"source_call_id": "c2", "content": "/app"})
    handoff = {"source": "user", "message": "Here are the answers the other agent provided.\n\nGo on."}
    (run,) = entries({**USER, "is_copied_context": True}, old, handoff, new, session_id="s-1-cont-1")
    assert (run.session, run.code, run.task) == ("s-1-cont-1", "pwd", "Fix the parser.")


def test_sub_agents_within_are_sessions_of_their_own() -> None:
    inner = trajectory(step([call("c1", "bash", command="inner")], {"source_call_id": "c1", "content": ""}))
    outer = step([call("c1", "bash", command="outer")], {"source_call_id": "c1", "content": ""})
    found = entries(outer, subagent_trajectories=[inner])
    assert [(run.code) for run in found] == ["outer", "inner"]
    assert len({run.session for run in found}) == 2


def test_several_trajectories_in_one_file() -> None:
    ran = step([call("c1", "bash", command="ls")], {"source_call_id": "c1", "content": "a"})
    lines = "\n".join(json.dumps(trajectory(ran, session_id=name)) for name in "ab") + '\n{"schema_version": "ATIF\n'
    log = LogDocument(lines.encode())
    assert READER.reads(log)
    first, second, fault = READER.entries(log)
    assert (first.session, second.session) == ("a", "b") and isinstance(fault, Fault)


@pytest.mark.parametrize(
    "value",
    [
        {"schema_version": "1.4", "steps": []},
        {"schema_version": "ATIF-v1.5", "steps": []},
        {"schema_version": "ATIF-v1.5", "title": "a schema", "properties": {}},
        {"name": "about ATIF-v1.5", "sandbox_id": "s", "execution_id": "e"},
        [{"schema_version": "ATIF-v1.5"}],
        {"input": {"schema_version": "ATIF-v1.5", "agent": {}, "steps": [1]}},
    ],
)
def test_what_merely_looks_alike_is_not_read(value: Any) -> None:
    assert not READER.reads(document(value))


def test_damaged_parts_are_told() -> None:
    ran = step([call("c1", "bash", command="ls")], {"source_call_id": "c1", "content": None})
    run, fault = entries(ran, "not a step")
    assert isinstance(run, AgentRun) and isinstance(fault, Fault)


def test_no_damage_raises() -> None:
    calls = [call("c1", "bash_command", keystrokes="ls\n"), call("c2", "bash_command", keystrokes="python a.py\n")]
    edit = call("d", "str_replace_editor", command="create", path="x", file_text="y")
    said = {
        "source": "agent",
        "message": '{"commands": [{"keystrokes": "ls\\n"}]}',
        "observation": {"results": [{"content": "x"}]},
    }
    steps = [
        USER,
        step(calls, {"content": SCREEN, "extra": {"exit_code": 0}}),
        step([edit], {"source_call_id": "d", "content": "ok"}),
        said,
    ]
    for value in damaged_values(trajectory(*steps, subagent_trajectories=[trajectory(USER)])):
        _read_if_known(document(value))


def _read_if_known(made: LogDocument) -> None:
    if READER.reads(made):
        list(READER.entries(made))
