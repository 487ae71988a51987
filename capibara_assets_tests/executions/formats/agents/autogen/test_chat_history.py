"""AutoGen's chat history in JSON: what ran is the code of another agent's message before each result."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.autogen.chat_history import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, reads, survives

FAILED = "exitcode: 1 (execution failed)\nCode output: Traceback (most recent call last):\nValueError: x\n"


def said(name: str, content: str, role: str = "user") -> dict[str, Any]:
    return {"content": content, "role": role, "name": name}


HISTORY = [
    said("user_proxy", "Add them. Reply like ```python\nprint(0)\n```", "assistant"),
    said("assistant", "```python\nint('x')\n```"),
    said("user_proxy", FAILED, "assistant"),
    said("assistant", "First\n```sh\npip install x\n```\nthen\n```python\nprint(3)\n```"),
    said("user_proxy", "exitcode: 0 (execution succeeded)\nCode output: 3\n", "assistant"),
    said("assistant", "```python\nimport time; time.sleep(9)\n```"),
    said("user_proxy", "exitcode: 124 (execution failed)\nCode output: Timeout", "assistant"),
    said("assistant", "```r\nplot(1)\n```"),
    said("user_proxy", "exitcode: 1 (execution failed)\nCode output: \nunknown language r", "assistant"),
    said("assistant", "```python\nprint('never run')\n```\nTERMINATE"),
]


@pytest.mark.parametrize("value", [HISTORY, {"chat_history": HISTORY, "cost": 1}, [{"messages": HISTORY}]])
def test_blocks_have_the_result_behind_them(value: Any) -> None:
    data = json.dumps(value).encode()
    assert find_reader(LogDocument(data)) is READER
    found = entries(READER, data)
    runs = [one for one in found if isinstance(one, AgentRun)]
    assert [(run.language, run.code, run.success, run.timed_out) for run in runs] == [
        ("python", "int('x')", False, False),
        ("bash", "pip install x", True, False),
        ("python", "print(3)", True, False),
        ("python", "import time; time.sleep(9)", False, True),
    ]
    assert [run.output for run in runs][1:3] == ["", "3\n"] and {
        one.kind for one in found if isinstance(one, NotRun)
    } == {"refused"}


def test_of_several_blocks_that_failed_nobody_knows_which() -> None:
    failed = [HISTORY[0], HISTORY[3], said("user_proxy", FAILED)]
    assert [run.success for run in entries(READER, json.dumps(failed)) if isinstance(run, AgentRun)] == [None, None]


@pytest.mark.parametrize(
    "value", [HISTORY[:2], [said("a", FAILED)], [said("a", "```python\nx\n```"), said("a", FAILED)]]
)
def test_a_result_without_code_of_another_is_no_log(value: Any) -> None:
    assert not reads(READER, json.dumps(value))


def test_no_damage_makes_it_fail() -> None:
    for value in damaged(json.loads(json.dumps(HISTORY))):
        survives(READER, json.dumps(value).encode())
