"""Calls of tools whose answers are told by their places: in the step, in a pair, in the next message."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.general.stepwise_calls import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun, moment
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, runs, survives

ERROR = {"error_type": "AgentExecutionError", "message": "Code execution failed: division by zero"}
REACT = {
    "question": "How many?",
    "start_time": "2026-03-01 10:00:00",
    "intermediate_steps": [
        {"task": "How many?", "system_prompt": "Call tools.", "agent_memory": [{"role": "system", "content": "x"}]},
        {"tool_call": {"tool_name": "code interpreter", "tool_arguments": "print(2)"}, "observation": "\n2"},
        {"tool_call": {"tool_name": "code interpreter", "tool_arguments": "1/0"}, "error": ERROR},
        {"tool_call": {"tool_name": "web search", "tool_arguments": "weather"}, "observation": "cold"},
    ],
}
LANGCHAIN = {
    "input": "Count.",
    "intermediate_steps": [
        [{"tool": "python_repl", "tool_input": "print(1)", "log": "Action: .."}, "1\n"],
        [{"tool": "python_repl", "tool_input": "x", "log": "Action: .."}, "NameError(\"name 'x' is not defined\")"],
        [{"tool": "terminal", "tool_input": {"commands": "ls"}, "log": "Action: .."}, "a.py"],
    ],
    "output": "1",
}
NAMED = [
    {"role": "user", "content": "Count."},
    {"role": "assistant", "function_call": {"name": "run_python", "arguments": '{"code": "print(1)"}'}},
    {"role": "function", "name": "run_python", "content": "1"},
    {
        "role": "assistant",
        "tool_calls": [
            {"function": {"name": "bash", "arguments": {"command": "ls"}}},
            {"function": {"name": "run_python", "arguments": {"code": "2"}}},
        ],
    },
    {"role": "tool", "name": "run_python", "content": "2"},
    {"role": "tool", "name": "bash", "content": "a.py"},
    {"role": "assistant", "function_call": {"name": "bash", "arguments": '{"command": "never"}'}},
    {"role": "assistant", "function_call": {"name": "bash", "arguments": '{"command": "pwd"}'}},
    {"role": "tool", "content": {"stdout": "/w", "exit_code": 0}},
]
EVENTS = [
    {"event": "tool_call", "session_id": "s1", "ts": 1772618400, "name": "bash", "args": {"command": "make"}},
    {"event": "tool_result", "session_id": "s1", "ts": 1772618401, "name": "bash", "result": "no rule", "exit_code": 2},
    {"event": "tool_call", "session_id": "s1", "name": "write_file", "args": {"path": "a.py", "content": "a = 1"}},
    {"event": "tool_result", "session_id": "s1", "name": "write_file", "result": "saved"},
]


def told(found: list[AgentRun]) -> list[tuple[str, str, bool | None, str]]:
    return [(run.language, run.code, run.success, run.output) for run in found]


def test_the_answer_stands_in_the_step_of_its_call() -> None:
    first, second = runs(READER, jsonl(REACT))
    assert told([first]) == [("python", "print(2)", True, "\n2")]
    assert (second.code, second.success, second.task) == ("1/0", False, "How many?")
    assert "division by zero" in second.output + second.stderr
    steps = [{"thought": "..", "action": "python", "action_input": "print(1)", "observation": "1"}]
    assert told(runs(READER, json.dumps(steps))) == [("python", "print(1)", True, "1")]
    steps = [{"action": {"name": "bash", "args": {"command": "ls"}}, "observation": "a.py", "exit_code": 0}]
    assert told(runs(READER, json.dumps(steps))) == [("bash", "ls", True, "a.py")]


def test_the_answer_stands_behind_its_call_in_a_pair() -> None:
    expected = [
        ("python", "print(1)", True, "1\n"),
        ("python", "x", False, "NameError(\"name 'x' is not defined\")"),
        ("bash", "ls", None, "a.py"),
    ]
    assert told(runs(READER, jsonl(LANGCHAIN))) == expected
    held = [[{"lc": 1, "type": "constructor", "kwargs": step}, said] for step, said in LANGCHAIN["intermediate_steps"]]
    assert told(runs(READER, json.dumps({"intermediate_steps": held}))) == expected


def test_the_next_message_answers_the_call_of_the_tool_that_it_names() -> None:
    one, two, listing, never, last = entries(READER, json.dumps(NAMED))
    assert all(isinstance(run, AgentRun) for run in (one, two, listing, last))
    assert told([one, two, listing, last]) == [  # type: ignore[list-item]
        ("python", "print(1)", True, "1"),
        ("python", "2", True, "2"),
        ("bash", "ls", None, "a.py"),
        ("bash", "pwd", True, "/w"),
    ]
    assert never == NotRun("unanswered") and one.task == "Count."  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("answer", "success"),
    [
        ('[10:02:03] [Tool call #2 for \'execute_command\']\n{"error": "no such folder"}', False),
        ('[Tool call]\n{"error": null, "success": true, "output": "a", "return_code": 0}', True),
        ('{"error": "no such user"}', None),  # a command may print that
        ('[Note]\n{"error": "no such folder"}', None),
    ],
)
def test_an_answer_below_a_line_of_the_tools_own(answer: str, success: bool | None) -> None:
    called = {"role": "assistant", "function_call": {"name": "execute_command", "arguments": {"command": "ls"}}}
    (run,) = runs(READER, json.dumps([called, {"role": "tool", "content": answer}]))
    assert run.success is success


def test_events_of_a_session_that_is_named() -> None:
    made, edit = entries(READER, jsonl(*EVENTS))
    assert isinstance(made, AgentRun) and (made.exit_code, made.success, made.session) == (2, False, "s1")
    assert made.started == moment(1772618400)
    assert edit == Edit("s1", "a.py", "a = 1")


@pytest.mark.parametrize(
    ("code", "answer"), [("code", "execution"), ("command", "output"), ("tool_code", "tool_output")]
)
def test_parts_that_say_that_they_are_code(code: str, answer: str) -> None:
    for key in ("role", "type"):
        parts = [
            {key: "text", "content": "So:"},
            {key: code, "content": "x = 1\r\nx", "language": "python"},
            {key: answer, "content": "1"},
        ]
        parts += [
            {key: code, "content": "y", "language": "python"},
            {key: answer, "content": "\x1b[31mNameError\x1b[0m: name 'y' is not defined"},
        ]
        held = {"question": "What is x?", "debug_result": [{"role": "user", "content": "What is x?"}, *parts]}
        found = runs(READER, jsonl(held))
        assert [(run.code, run.success) for run in found] == [("x = 1\r\nx", True), ("y", False)]
        assert {run.task for run in found} == {"What is x?"}
    shell = [{"type": "command", "content": "ls"}, {"type": "output", "content": "a.py"}]
    assert told(runs(READER, json.dumps(shell))) == [("bash", "ls", None, "a.py")]


CELL = {"output": "9\n", "error": None}
RAISES = {"output": "", "error": "Traceback (most recent call last):\n  File \"<string>\", line 1\nKeyError: 'tea'\n"}


@pytest.mark.parametrize("shown", [json.dumps, repr])
@pytest.mark.parametrize(("answer", "success"), [(CELL, True), (RAISES, False), ({**CELL, "seconds": 1}, True)])
def test_a_cell_whose_answer_is_an_object_in_text_ends_as_that_says(
    shown: Callable[[Any], str], answer: dict[str, Any], success: bool
) -> None:
    step = {"role": "tool", "tool_name": "run_code", "tool_input": {"code": "x"}, "tool_output": shown(answer)}
    (run,) = runs(READER, json.dumps({"steps": [step]}))
    assert (run.success, run.output, run.stderr) == (success, answer["output"], answer["error"] or "")


@pytest.mark.parametrize("shown", [json.dumps, repr])
def test_how_a_cell_ended_is_unknown_where_its_answer_is_cut(shown: Callable[[Any], str]) -> None:
    """The error would stand behind the output."""
    answer = shown({"output": "9\n" * 100, "error": None})[:60]
    step = {"tool_name": "run_code", "tool_input": {"code": "x"}, "content": answer, "tool_output": answer}
    (run,) = runs(READER, json.dumps({"steps": [step]}))
    assert (run.success, run.output) == (None, answer)


@pytest.mark.parametrize("printed", ["{'tea': 2, 'error': 0.5}", "{'tea': 2}", "{not an object}"])
def test_an_object_that_the_code_printed_is_its_output(printed: str) -> None:
    step = {"tool_name": "run_code", "tool_input": {"code": "x"}, "tool_output": printed}
    (run,) = runs(READER, json.dumps({"steps": [step]}))
    assert (run.success, run.output) == (True, printed)


def test_rows_that_hold_several_steps_are_sessions_of_their_own() -> None:
    assert len({run.session for run in runs(READER, jsonl(REACT, LANGCHAIN))}) == 2


@pytest.mark.parametrize(
    "value",
    [
        {"tool": "web_search", "tool_input": "print", "observation": "found"},
        {"tool": "python", "tool_input": "print(1)"},  # asked for, and no answer
        {"tools": [{"name": "bash", "parameters": {"type": "object", "properties": {"command": {}}}}], "output": "x"},
        [{"role": "assistant", "content": "x"}, {"role": "tool", "content": "1"}],
        [NAMED[1], {"role": "user", "content": "Stop."}],
        [{"tool": "bash", "input": {"command": "ls"}, "execution_id": "e", "output": "a"}],  # a record of ours
    ],
)
def test_what_answers_no_call_is_no_log(value: Any) -> None:
    assert not reads(READER, json.dumps(value))


def test_a_log_whose_answers_name_ids_is_read_by_them() -> None:
    call = {"id": "c1", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    value = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "a.py"}]
    reader = find_reader(LogDocument(json.dumps(value).encode()))
    assert reader is not None and reader.name == "linked-calls"


@pytest.mark.parametrize("value", [REACT, LANGCHAIN, NAMED, EVENTS], ids=["steps", "pairs", "messages", "events"])
def test_nothing_damaged_makes_the_reader_fail(value: Any) -> None:
    for one in damaged(json.loads(json.dumps(value))):
        survives(READER, json.dumps(one).encode())
