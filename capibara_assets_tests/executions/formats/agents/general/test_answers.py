import pytest

from capibara_assets.executions.formats.agents.general.answers import ended_well, read_answer, write_answer
from capibara_assets.executions.formats.agents.tools.calls import Call


@pytest.mark.parametrize(
    ("text", "well"),
    [
        ("SQL Error: 000904 (42000): invalid identifier", False),
        ('{"result": "SQL Error: no such column"}', False),
        ("SQL failed Phase 1. Your SQL is not correct.", False),
        ("name | n\n-----+---\na    | 1", True),
        ('[{"n": 1}]', True),
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
