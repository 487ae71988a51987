"""DSPy's prompts as it prints them: each call of a question's trajectory once, however often prompts repeat it."""

import json
import time
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.hosted.dspy_history import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads

SYSTEM = """\x1b[31mSystem message:\x1b[0m

Your input fields are:
1. `question` (str):
All interactions will be structured in the following way, with the appropriate values filled in.

[[ ## question ## ]]
{question}

[[ ## trajectory ## ]]
{trajectory}

[[ ## next_tool_name ## ]]
{next_tool_name}

\x1b[31mUser message:\x1b[0m

"""


def prompt(question: str, *fields: tuple[str, str], then: str = "") -> str:
    told = "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in fields)
    return (
        f"\x1b[34m[2026-01-02T10:00:00]\x1b[0m\n\n{SYSTEM}[[ ## question ## ]]\n{question}\n\n"
        f"[[ ## trajectory ## ]]\n{told}\n\n"
        "Respond with the corresponding output fields, starting with the field `[[ ## next_thought ## ]]`.\n\n\n"
        f"\x1b[31mResponse:\x1b[0m\n\n\x1b[32m[[ ## next_tool_name ## ]]\n{then}\n\n[[ ## completed ## ]]\x1b[0m\n\n"
    )


def step(number: int, tool: str, given: dict[str, Any], seen: str) -> list[tuple[str, str]]:
    told = [("thought", "Look."), ("tool_name", tool), ("tool_args", json.dumps(given)), ("observation", seen)]
    return [(f"{name}_{number}", text) for name, text in told]


FAILED = "Execution error in run_sql: \nTraceback (most recent call last):\nUndefinedColumn: no b"
FIRST = step(0, "run_sql", {"query": "SELECT b FROM t"}, FAILED)
SECOND = step(1, "search_docs", {"query": "SELECT a FROM t"}, "see t")
THIRD = step(2, "run_sql", {"query": "SELECT a FROM t"}, '[{"a": 7}]')
REACT = (
    prompt("How many?", *FIRST, then="search_docs")
    + prompt("How many?", *FIRST, *SECOND, then="run_sql")
    + prompt("How many?", *FIRST, *SECOND, *THIRD, then="finish")
    + prompt("And now?", *step(0, "shell", {"command": "ls"}, "a.csv"), then="finish")
)
CODEACT = prompt(
    "Which?",
    ("generated_code_0", "print(b)"),
    ("observation_0", "Failed to execute the generated code: NameError: ['b']"),
    ("observation_1", "Failed to parse the generated code: Error: Empty code after parsing."),
    ("generated_code_2", "```python\nprint(1)\n```"),
    ("code_output_2", '"1\\n"'),
)


def test_each_call_of_a_trajectory_counts_once() -> None:
    assert find_reader(LogDocument(REACT.encode())) is READER
    runs = [run for run in entries(READER, REACT) if isinstance(run, AgentRun)]
    assert [(run.language, run.code, run.success, run.task) for run in runs] == [
        ("sql", "SELECT b FROM t", False, "How many?"),
        ("sql", "SELECT a FROM t", True, "How many?"),
        ("bash", "ls", None, "And now?"),
    ]


def test_code_counts_as_far_as_it_was_run() -> None:
    runs = [run for run in entries(READER, CODEACT) if isinstance(run, AgentRun)]
    assert [(run.code, run.success, run.output) for run in runs] == [
        ("print(b)", False, "Failed to execute the generated code: NameError: ['b']"),
        ("print(1)", True, "1\n"),
    ]


@pytest.mark.parametrize(
    "text",
    ["see [[ ## trajectory ## ]]", SYSTEM, prompt("Q"), prompt("Q", ("thought_0", "x"), ("tool_name_0", "shell"))],
)
def test_a_prompt_without_a_call_that_ran_is_no_log(text: str) -> None:
    assert not reads(READER, text)


def test_long_trajectories_cost_linear_time() -> None:
    text = prompt(
        "How many?", *(field for number in range(4000) for field in step(number, "shell", {"command": "ls"}, "a"))
    )
    begin = time.monotonic()
    assert sum(isinstance(entry, AgentRun) for entry in entries(READER, text)) == 4000
    assert time.monotonic() - begin < 20
