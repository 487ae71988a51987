import json

import pytest

from capibara_assets.executions.formats.agents.general.answers import ended_well, read_answer, write_answer
from capibara_assets.executions.formats.agents.general.linked_calls import entries
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument
from capibara_assets.executions.formats.agents.tools.calls import Call


@pytest.mark.parametrize(
    ("text", "well"),
    [
        ("SQL Error: 000904 (42000): invalid identifier", False),
        ('{"result": "SQL Error: no such column"}', False),
        ("SQL failed Phase 1. Your SQL is not correct.", False),
        ("name | n\n-----+---\na    | 1", True),
        ('[{"n": 1}]', True),
        ("(3,)", True),
        ("(1, 'a')\n(2, 'b')\n", True),
        ("(see below)", None),
        ("(1, 'a')\nand more", None),
        ("done", None),
    ],
)
def test_a_database_tells_its_errors_and_its_rows(text: str, well: bool | None) -> None:
    assert ended_well(text, False, "sql") is well


@pytest.mark.parametrize(
    ("text", "language", "success", "output"),
    [
        ("EXECUTION RESULT of [execute_snowflake_sql]:\nSQL Error: 1", "sql", False, "SQL Error: 1"),
        ("EXECUTION RESULT of [execute_snowflake_sql]:\na\n---\n1", "sql", True, "a\n---\n1"),
        ("EXECUTION RESULT of [execute_bash]:\nCommand execution failed", "bash", False, "Command execution failed"),
        ("EXECUTION RESULT of [execute_bash]:\na.py", "bash", None, "a.py"),
    ],
)
def test_a_head_that_names_the_tool_is_no_output(text: str, language: str, success: bool | None, output: str) -> None:
    call = Call("s", "tool", {})
    write_answer(call, read_answer({"content": text}), language == "bash", language=language)
    assert (call.success, call.output) == (success, output)


@pytest.mark.parametrize(
    ("text", "well"), [("error('missing ), unterminated')", False), ("KeyError('a')", False), ("error(3)", True)]
)
def test_an_exception_that_stands_for_the_answer_is_a_failure(text: str, well: bool) -> None:
    assert ended_well(text, True, "python") is well


AGNO = {"args": ["test", "!", "-e", "größe", "a b"]}


@pytest.mark.parametrize(
    ("said", "success"), [("Error: make: *** [a] Error 1", False), ("a: No such file or directory", True), ("", True)]
)
def test_agnos_own_shell_says_of_each_failure_that_it_is_one(said: str, success: bool) -> None:
    assert _agno(AGNO, said) == ("test ! -e größe 'a b'", success)
    assert _agno({"command": "test"}, said) == ("test", False if said.startswith("Error: ") else None)


def _agno(given: dict[str, object], said: str) -> tuple[str, bool | None]:
    """The command and its end of a session of Agno's with one call."""
    function = {"name": "run_shell_command", "arguments": json.dumps(given)}
    asked = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    told = {"tool_call_id": "c1", "tool_name": "run_shell_command", "tool_call_error": False, "result": said}
    document = LogDocument(json.dumps({"session_id": "s", "messages": [asked], "tools": [told]}).encode())
    (run,) = [entry for entry in entries(document) if isinstance(entry, AgentRun)]
    return run.code, run.success


@pytest.mark.parametrize(
    ("text", "failed", "told"),
    [
        ("Error: Command failed (exit code: 2)\nno such", None, (False, 2, "no such", False)),
        ("Error: Command timed out after 5 seconds\nhalf", None, (False, None, "half", True)),
        ("Command terminated by signal SIGKILL.", None, (False, None, "", False)),
        ("no output\n", None, (True, None, "", False)),
        ("Background shell started with ID: 00C\n\nUse job_output.", None, (None, None, None, False)),
        ("Background process started with ID: bash_1", False, (None, None, None, False)),
    ],
)
def test_a_shell_tools_own_words_tell_the_end(
    text: str, failed: bool | None, told: tuple[bool | None, int | None, str | None, bool]
) -> None:
    call = Call("s", "bash", {})
    node = {"content": text} | ({} if failed is None else {"success": not failed, "exitCode": int(failed)})
    write_answer(call, read_answer(node), runs_shell=True)
    output = None if told[2] is None else call.output
    assert (call.success, call.exit_code, output, call.timed_out) == told


@pytest.mark.parametrize(
    ("begun", "asked", "end"),
    [
        ("Background shell ID: 00B", '{"shell_id": "00B"}',
         {"content": "Status: completed\n\nno heap\nExit code 134"}),
        ({"success": True, "output": "Process started with ID: p1", "exitCode": 0, "backgroundProcessId": "p1"},
         {"process_id": "p1"}, {"success": True, "status": "exited", "output": "no heap", "exitCode": 134}),
    ],
    ids=["in words", "in fields"],
)  # fmt: skip
def test_a_command_that_goes_on_ended_as_a_later_call_tells(begun: object, asked: object, end: object) -> None:
    def asks(key: str, name: str, given: object) -> dict[str, object]:
        return {"type": "tool_call", "toolCallId": key, "name": name, "input": given}

    rows = [
        asks("c1", "bash", '{"command": "make"}'),
        {"type": "tool_result", "tool_call_id": "c1", "content": begun},
        asks("c2", "job_output", asked),
        {"type": "tool_result", "tool_call_id": "c2", "content": end},
    ]
    (run,) = [one for one in entries(LogDocument(json.dumps(rows).encode())) if isinstance(one, AgentRun)]
    assert (run.code, run.success, run.exit_code) == ("make", False, 134) and "no heap" in run.output
    (run,) = [one for one in entries(LogDocument(json.dumps(rows[:2]).encode())) if isinstance(one, AgentRun)]
    assert (run.success, run.exit_code) == (None, None)


@pytest.mark.parametrize(
    "node", [{"shell_id": "1", "exit_code": 3}, {"shellId": "1", "exitCode": 3, "background": False}]
)
def test_a_shell_that_is_named_beside_the_end_of_its_command_ended(node: dict[str, object]) -> None:
    call = Call("s", "bash", {})
    write_answer(call, read_answer({"output": "no", **node}), runs_shell=True)
    assert (call.success, call.exit_code) == (False, 3)
