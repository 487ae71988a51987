"""Run steps of OpenAI's Assistants: one object, lists and pages, lines, and the events of a stream."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.hosted.openai_assistants import READER
from capibara_assets.executions.formats.agents.runs import LogDocument, NotRun
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.damaged_values import damaged_values


def code(call_id: str, text: str, *outputs: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "code_interpreter", "code_interpreter": {"input": text, "outputs": list(outputs)}}


def step(*calls: Any, **fields: Any) -> dict[str, Any]:
    base = {
        "id": "step_1",
        "object": "thread.run.step",
        "created_at": 1717000000,
        "run_id": "run_1",
        "assistant_id": "asst_1",
    }
    base |= {
        "thread_id": "thread_1",
        "type": "tool_calls",
        "status": "completed",
        "completed_at": 1717000004,
        "last_error": None,
    }
    return {**base, "step_details": {"type": "tool_calls", "tool_calls": list(calls)}, **fields}


LOGS = {"type": "logs", "logs": "42"}
IMAGE = {"type": "image", "image": {"file_id": "file_1"}}
ONE = step(code("call_1", "print(42)", LOGS, IMAGE))


def read(value: Any) -> list[Any]:
    made = LogDocument(value if isinstance(value, bytes) else json.dumps(value).encode())
    assert any(mark in made.data for mark in READER.marks) and READER.reads(made)
    return list(READER.entries(made))


def test_one_step() -> None:
    (run,) = read(ONE)
    assert (run.session, run.language, run.code, run.output) == ("thread_1", "python", "print(42)", "42")
    assert (run.call_id, run.success, run.exit_code) == ("call_1", True, None)
    assert run.started is not None and run.started.year == 2024 and run.duration_ms == 4000.0


RAISED = """------------------------------------------------------------
UnicodeDecodeError                        Traceback (most recent call last)
UnicodeDecodeError: 'utf-8' codec can't decode byte 0xdf in position 4"""


def test_what_the_interpreter_printed_tells_an_exception() -> None:
    (run,) = read(step(code("call_1", "open('a')", {"type": "logs", "logs": RAISED})))
    assert run.success is False
    (run,) = read(step(code("call_1", "open('a')", LOGS), status="failed"))
    assert run.success is False


def test_two_calls_of_one_step_share_no_time() -> None:
    first, second = read(step(code("a", "1", LOGS), code("b", "2", LOGS)))
    assert first.duration_ms is second.duration_ms is None


def test_a_list_is_newest_first_and_told_in_order() -> None:
    newer = step(
        code(
            "call_2",
            "1/0",
            {"type": "logs", "logs": "Traceback (most recent call last):\n  ..\nZeroDivisionError: division by zero"},
        ),
        id="step_2",
        created_at=1717000009,
    )
    page = {"object": "list", "data": [newer, ONE], "first_id": "step_2", "last_id": "step_1", "has_more": False}
    for value in (page, [newer, ONE], {"pages": [page]}):
        runs = read(value) if not (isinstance(value, dict) and "pages" in value) else read([page])
        assert [run.call_id for run in runs] == ["call_1", "call_2"] and runs[1].success is False


def test_lines_and_a_damaged_one() -> None:
    *runs, fault = read(
        (json.dumps(ONE) + "\n" + json.dumps(step(code("call_2", "2", LOGS), id="step_2")) + '\n{"id": \n').encode()
    )
    assert [run.code for run in runs] == ["print(42)", "2"] and isinstance(fault, Fault)


def test_a_stream_repeats_a_step_until_it_is_done() -> None:
    begun = step(code("call_1", "print("), status="in_progress", completed_at=None)
    lines = [{"event": "thread.run.step.created", "data": begun}, {"event": "thread.run.step.completed", "data": ONE}]
    (run,) = read("\n".join(map(json.dumps, lines)).encode())
    assert (run.code, run.output) == ("print(42)", "42")
    sent = (
        "".join(f"event: {line['event']}\ndata: {json.dumps(line['data'])}\n\n" for line in lines)
        + "event: done\ndata: [DONE]\n\n"
    )
    (run,) = read(sent.encode())
    assert run.code == "print(42)"


def test_what_did_not_finish() -> None:
    failed = step(
        code("a", "x"), status="failed", last_error={"code": "server_error", "message": "Sorry"}, completed_at=None
    )
    cancelled = step(code("b", "y"), id="s2", status="cancelled")
    running = step(code("c", "z"), id="s3", status="in_progress")
    assert read([failed, cancelled, running]) == [NotRun("failed"), NotRun("cancelled"), NotRun("in_progress")]
    (run,) = read(step(code("a", "x", LOGS), status="expired"))
    assert run.code == "x"


def test_other_calls_and_messages_are_none() -> None:
    message = step(
        step_details={"type": "message_creation", "message_creation": {"message_id": "m"}}, type="message_creation"
    )
    function = step(
        {"id": "f", "type": "function", "function": {"name": "weather", "arguments": "{}", "output": "9"}}, id="s2"
    )
    assert read([message, function]) == []


@pytest.mark.parametrize(
    "value",
    [
        {"object": "thread.run", "id": "run_1"},
        {"object": "thread.run.step.delta", "delta": {"step_details": {}}},
        {"object": "list", "data": [{"object": "model", "id": "thread.run.step"}]},
        {"object": "thread.run.step", "sandbox_id": "s", "execution_id": "e"},
        {"documentation": ONE},
    ],
)
def test_what_merely_looks_alike_is_not_read(value: Any) -> None:
    assert not READER.reads(LogDocument(json.dumps(value).encode()))


def test_no_damage_raises() -> None:
    for value in damaged_values({"object": "list", "data": [ONE, step(code("b", "2", LOGS), id="s2")]}):
        _read_if_known(LogDocument(json.dumps(value).encode()))


def _read_if_known(made: LogDocument) -> None:
    if READER.reads(made):
        list(READER.entries(made))
