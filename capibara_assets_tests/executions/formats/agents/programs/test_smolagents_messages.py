"""smolagents' memory as messages: calls as Python writes them, observations, errors."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.programs.smolagents_messages import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument, NotRun
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.damaged_values import damaged_values
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, jsonl, reads, runs, survives

ADVICE = "\nNow let's retry: take care not to repeat previous errors! If you have retried several times, stop.\n"


def message(role: str, text: str, plain: bool = False) -> dict[str, Any]:
    return {"role": role, "content": text if plain else [{"type": "text", "text": text}], "tool_calls": None}


def calling(*calls: tuple[str, Any, str]) -> dict[str, Any]:
    shown = [
        {"id": key, "type": "function", "function": {"name": name, "arguments": given}} for name, given, key in calls
    ]
    return message("tool-call", f"Calling tools:\n{shown}")


def python(code: str, key: str = "call_1") -> dict[str, Any]:
    return calling(("python_interpreter", code, key))


def observed(text: str) -> dict[str, Any]:
    return message("tool-response", f"Observation:\n{text}")


def raised(key: str, text: str) -> dict[str, Any]:
    return message("tool-response", f"Call id: {key}\nError:\n{text}{ADVICE}")


BEGUN = [message("system", "Write code.\nObservation: 3"), message("user", "New task:\nCount the cups.")]
RUN = [
    *BEGUN,
    message("assistant", "Thought: count.\n<code>\nprint(len('cups'))\n</code>"),
    python("print(len('cups'))"),
    observed("Execution logs:\n4\nLast output from code snippet:\nNone"),
    message("assistant", "No code"),
    message("tool-response", f"Error:\nError in code parsing:\nYour code snippet is invalid{ADVICE}"),
    python("print(1)\n1/0", "call_3"),
    observed("Execution logs:\n1\n"),
    raised("call_3", "Code execution failed at line '1/0' due to: ZeroDivisionError: division by zero"),
    python("final_answer('4')", "call_4"),
    observed("Execution logs:\nLast output from code snippet:\n4"),
]


def row(messages: list[Any]) -> dict[str, Any]:
    return {"model_id": "some-model", "question": "Count.", "intermediate_steps": messages, "answer": "4"}


def test_codes_with_what_they_printed_and_raised() -> None:
    first, second, third = runs(READER, jsonl(row(RUN)))
    assert (first.code, first.success, first.output, first.stderr) == ("print(len('cups'))", True, "4\n", "")
    assert (second.code, second.success, second.output) == ("print(1)\n1/0", False, "1\n")
    assert second.stderr == "Code execution failed at line '1/0' due to: ZeroDivisionError: division by zero"
    assert (third.code, third.success, third.output) == ("final_answer('4')", True, "4")
    assert (first.task, first.model, first.call_id) == ("Count the cups.", "some-model", "call_1")


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(RUN).encode(),
        jsonl(*RUN),
        json.dumps({"messages": RUN}).encode(),
        jsonl(*({**one, "role": "MessageRole." + one["role"].upper().replace("-", "_")} for one in RUN)),
        jsonl(*(message(one["role"], one["content"][0]["text"], plain=True) for one in RUN)),
    ],
)
def test_other_ways_to_store_the_messages(data: bytes) -> None:
    assert find_reader(LogDocument(data)) is READER
    assert [run.success for run in runs(READER, data)] == [True, False, True]


def test_each_row_is_a_session() -> None:
    found = runs(READER, jsonl(row(RUN), row([*BEGUN, message("assistant", "4")]), row(RUN)))
    assert len(found) == 6 and len({run.session for run in found}) == 2


def test_calls_without_an_answer_of_their_own_and_of_other_tools() -> None:
    other = raised("call_9", "Code execution failed")
    calls = [python("x = 1"), other, calling(("web_search", {"query": "cups"}, "call_2")), observed("none")]
    found = entries(READER, jsonl(row([*RUN, *calls])))
    assert [(one.kind, one.code) for one in found if isinstance(one, NotRun)] == [("unanswered", "x = 1")]
    assert len([one for one in found if isinstance(one, AgentRun)]) == 3


def test_of_several_calls_in_one_message_no_output_is_told() -> None:
    both = calling(("python_interpreter", "a", "call_1"), ("python_interpreter", {"code": "b"}, "call_2"))
    found = runs(READER, jsonl(row([*BEGUN, both, observed("Execution logs:\n1\n")])))
    assert [(run.code, run.success, run.output) for run in found] == [("a", None, ""), ("b", None, "")]


def test_a_call_that_is_cut_is_kept_apart() -> None:
    cut = message("tool-call", "Calling tools:\n[{'id': 'call_1', 'type")
    (fault,) = (one for one in entries(READER, jsonl(row([*RUN, cut]))) if isinstance(one, Fault))
    assert fault.reason == "invalid_calls"


def test_what_speaks_of_calls_is_no_log() -> None:
    assert not reads(READER, jsonl(message("assistant", "Calling tools:\n[]"), message("tool-call", "x")))


def test_nothing_damaged_makes_the_reader_fail() -> None:
    for value in damaged_values(row(RUN)):
        survives(READER, json.dumps(value).encode())
