"""The Agent Data Protocol: actions and their observations, with ids and, before version 1.3, without."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun
from capibara_assets.executions.formats.agents.trajectories.adp import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.damaged_values import damaged_values


def trajectory(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"schema_version": "1.5.0", "id": "t-1", "content": list(content), "details": {}, **fields}


def entries(*content: Any, **fields: Any) -> list[Any]:
    log = LogDocument(json.dumps(trajectory(*content, **fields)).encode())
    assert find_reader(log) is READER
    return list(READER.entries(log))


def said(content: Any, source: str = "environment", call: str | None = None, **fields: Any) -> dict[str, Any]:
    base = {"class_": "text_observation", "content": content, "name": None, "source": source}
    return base | ({"tool_call_id": call} if call else {}) | fields


def code(text: str, language: str = "python", call: str | None = None) -> dict[str, Any]:
    base = {"class_": "code_action", "language": language, "content": text, "description": "Try it."}
    return base | ({"tool_call_id": call} if call else {})


def api(function: str, call: str | None = None, **kwargs: Any) -> dict[str, Any]:
    base = {"class_": "api_action", "function": function, "kwargs": kwargs, "description": None}
    return base | ({"tool_call_id": call} if call else {})


ASKED = said("Count the herons.", "user")
DONE = {"class_": "message_action", "content": "There are 7.", "description": None}


def test_an_action_with_its_result_by_id() -> None:
    first, second = entries(
        ASKED, code("a = 7", call="c1"), code("ls", "sh", "c2"), said("b.txt\n", call="c2"), said("", call="c1"), DONE
    )
    assert (first.language, first.code, first.output, first.call_id) == ("python", "a = 7", "", "c1")
    assert (second.language, second.code, second.output, second.task) == ("bash", "ls", "b.txt\n", "Count the herons.")
    assert (first.session, first.success, first.started, first.model) == ("t-1", None, None, None)


def test_without_ids_the_result_is_what_stands_behind_whoever_says_it() -> None:
    found = entries(
        ASKED, code("1 / 0"), said("Traceback (most recent call last):\nZeroDivisionError: division by zero", "user"),
        said("Now the storks.", "user"), code("a"), code("b"), said("3"), code("c"), DONE,
    )  # fmt: skip
    assert [type(one) for one in found] == [AgentRun, NotRun, AgentRun, NotRun]
    assert (found[0].success, found[0].task, found[2].code, found[2].output, found[2].task) == (
        False, "Count the herons.", "b", "3", "Now the storks.",
    )  # fmt: skip
    assert (found[1].kind, found[1].code, found[3].code) == ("unanswered", "a", "c")


def test_tools_are_told_by_their_names() -> None:
    found = entries(
        ASKED,
        api("str_replace_editor", "c1", command="view", path="a.py"), said("1 x", call="c1"),
        api("str_replace_editor", "c2", command="create", path="a.py", file_text="x = 1\n"), said("ok", call="c2"),
        api("execute_bash", "c3", command="make"), said("no\n[The command completed with exit code 2.]", call="c3"),
        api("run_code", "c4", language="sql", code="SELECT 7"), said("7", call="c4"),
        api("search", "c5", query="herons"), said("none", call="c5"),
        api("edit_file", "c6", path="b.py", patch="y"), said("ERROR: no such file", call="c6"),
    )  # fmt: skip
    assert found[0] == Edit("t-1", "a.py", "x = 1\n") and len(found) == 3
    assert (found[1].code, found[1].exit_code, found[1].success, found[1].output) == ("make", 2, False, "no")
    assert (found[2].language, found[2].code) == ("sql", "SELECT 7")


def test_episodes_of_mint_end_with_the_steps_left() -> None:
    tail = "\nYou have 3 steps left and 2 chances to propose solution left."
    first, second = entries(ASKED, code("x = 1\nx"), said(f"Out[1]: 1{tail}"), code("y"), said(
        f"Traceback (most recent call last)\nNameError: name 'y' is not defined{tail}"))  # fmt: skip
    assert (first.output, first.success, second.success) == ("Out[1]: 1", True, False)


@pytest.mark.parametrize("write", [json.dumps, lambda found: "\n".join(map(json.dumps, found))])
def test_lists_and_lines_of_trajectories(write: Any) -> None:
    made = [trajectory(ASKED, code(str(number)), said("ok"), id=name) for number, name in enumerate(("a", "b", "a"))]
    found = list(READER.entries(LogDocument(write(made).encode())))
    assert [(one.session, one.code) for one in found] == [("a", "0"), ("b", "1"), ("a/2", "2")]


def test_a_trajectory_without_items_beside_others_costs_them_nothing() -> None:
    made = [trajectory(ASKED, code("1"), said("ok")), trajectory("torn", id="t-2"), trajectory(id="t-3")]
    run, *faults = READER.entries(LogDocument(json.dumps(made).encode()))
    assert run.code == "1" and len(faults) == 2


def test_what_is_none_is_not_read() -> None:
    for other in (
        {"id": "x", "content": [{"type": "text", "text": "text_observation"}]},
        {"id": "x", "content": []},
        {"content": [ASKED]},
        [1],
    ):
        assert not READER.reads(LogDocument(json.dumps(other).encode()))


def test_damage_is_named_and_never_raises() -> None:
    run, fault = entries(ASKED, code("x", call="c"), said("1", call="c"), "torn")
    assert isinstance(fault, Fault) and fault.reason == "not_an_item" and run.code == "x"
    whole = [
        trajectory(ASKED, code("x", call="c"), said("1", call="c"), api("bash", "d", command="ls"), said("", call="d"))
    ]
    for value in damaged_values(whole):
        log = LogDocument(json.dumps(value).encode())
        if READER.reads(log):
            list(READER.entries(log))
