"""Calls that one document stores twice, with ids and without, count once; what is no copy is kept."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.general.linked_calls import READER
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, NotRun
from capibara_assets_tests.executions.formats.agents.damaged_values import damaged_values
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, runs, survives

Ran = tuple[str, str | None]
MADE: list[Ran] = [("make", "no rule"), ("make all", "built"), ("make", "done")]


def _result(output: str | None, code: int = 0) -> str | None:
    return None if output is None else json.dumps({"output": output, "exit_code": code})


def document(asked: list[Ran], copied: list[Ran], tool: str = "box__execute_bash") -> dict[str, Any]:
    """A trace with its messages and, below them, the same calls by rounds."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Build it."}]
    for number, (command, output) in enumerate(asked):
        call = {"name": tool, "arguments": json.dumps({"command": command})}
        messages.append({"role": "assistant", "tool_calls": [{"id": f"c{number}", "function": call}]})
        if output is not None:
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": _result(output)})
    rounds = [
        {"round": number, "executions": [{"tool": tool, "parameters": {"command": command}, "result": _result(output)}]}
        for number, (command, output) in enumerate(copied)
    ]
    return {"trace": {"messages": messages, "rounds": rounds}}


def _read(value: Any) -> list[tuple[str, str]]:
    return [(run.code, run.output) for run in runs(READER, json.dumps(value))]


@pytest.mark.parametrize("copied", [MADE, MADE[:2], MADE[1:], []])
@pytest.mark.parametrize("rounds_first", [False, True])
def test_calls_that_stand_in_two_lists_count_once(copied: list[Ran], rounds_first: bool) -> None:
    value = document(MADE, copied)
    if rounds_first:
        value["trace"] = dict(reversed(value["trace"].items()))
    assert sorted(_read(value)) == sorted(MADE)


def test_the_copy_that_has_the_answer_counts() -> None:
    """Messages may be cut where the rounds are not."""
    cut: list[Ran] = [MADE[0], (MADE[1][0], None), MADE[2]]
    found = entries(READER, json.dumps(document(cut, MADE)))
    assert [(run.code, run.output) for run in found if isinstance(run, AgentRun)] == MADE
    assert not any(isinstance(one, NotRun) for one in found)


@pytest.mark.parametrize("others", [[("make test", "ok")], [MADE[2], ("ls", "a")], [MADE[1], MADE[0], MADE[1]]])
def test_calls_that_repeat_nothing_or_in_another_order_are_kept(others: list[Ran]) -> None:
    assert sorted(_read(document(MADE, others))) == sorted(MADE + others)


def test_a_second_attempt_that_ends_otherwise_is_no_copy() -> None:
    value = document(MADE, MADE)
    value["trace"]["rounds"][0]["executions"][0]["result"] = _result("no rule", 2)
    assert sorted(_read(value)) == sorted(MADE + MADE)


def test_an_edit_that_stands_twice_counts_once() -> None:
    given = {"command": "create", "path": "a.py", "file_text": "x = 1"}
    call = {"id": "e", "function": {"name": "box__str_replace_editor", "arguments": json.dumps(given)}}
    value = document(MADE, MADE)
    value["trace"]["messages"] += [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "e", "content": "File created."},
    ]
    again = {"tool": "box__str_replace_editor", "parameters": given, "result": "File created."}
    value["trace"]["rounds"].append({"executions": [again]})
    found = entries(READER, json.dumps(value))
    assert [one.path for one in found if isinstance(one, Edit)] == ["a.py"]


def test_nothing_damaged_makes_the_reader_fail() -> None:
    for value in damaged_values(document(MADE, MADE), 100):
        survives(READER, json.dumps(value).encode())
