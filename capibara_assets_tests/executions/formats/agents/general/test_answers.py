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
