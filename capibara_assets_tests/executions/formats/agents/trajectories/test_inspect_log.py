"""Inspect AI's logs: `.json`, `.eval` in both compressions, attachments, epochs, the tool's errors and older shapes."""

import io
import json
import struct
import zipfile
import zlib
from typing import Any

import pytest
import zstandard

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun
from capibara_assets.executions.formats.agents.trajectories.inspect_log import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.damaged_values import damaged_values

EVAL = {"run_id": "R1", "created": "2025-03-01T00:00:00+00:00", "task": "count", "model": "openai/m", "dataset": {}}


def asked(call_id: str, function: str, **arguments: Any) -> dict[str, Any]:
    call = {"id": call_id, "function": function, "arguments": arguments, "type": "function"}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def told(call_id: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id, "function": "bash", **fields}


def sample(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"id": 7, "epoch": 1, "input": "How many files?", "target": "3", "messages": list(messages), **fields}


def log(*samples: Any, **fields: Any) -> dict[str, Any]:
    return {"version": 2, "status": "success", "eval": EVAL, "plan": {}, "samples": list(samples), **fields}


def read(value: Any) -> list[Any]:
    made = LogDocument(value if isinstance(value, bytes) else json.dumps(value, indent=1).encode())
    assert any(mark in made.data for mark in READER.marks) and READER.reads(made)
    return list(READER.entries(made))


def archive(members: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as pack:
        for name, value in members.items():
            pack.writestr(name, json.dumps(value))
    return made.getvalue()


def zstd_archive(members: dict[str, Any]) -> bytes:
    """A ZIP by hand, as `zipfile` before Python 3.14 writes no zstd (method 93)."""
    body, directory = b"", b""
    for name, value in members.items():
        plain, encoded = json.dumps(value).encode(), name.encode()
        packed = zstandard.ZstdCompressor().compress(plain)
        sizes = struct.pack("<HHHIII", 93, 0, 33, zlib.crc32(plain), len(packed), len(plain))
        directory += (
            b"PK\x01\x02\x3f\x03\x3f\x00\x00\x00"
            + sizes
            + struct.pack("<HHHHHII", len(encoded), 0, 0, 0, 0, 0, len(body))
            + encoded
        )
        body += (
            b"PK\x03\x04\x3f\x00\x00\x00" + sizes + struct.pack("<HH", len(encoded), 4) + encoded + b"\0\0\0\0" + packed
        )
    count = len(members)
    return body + directory + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), len(body), 0)


ONE = sample(asked("c1", "bash", cmd="ls | wc -l"), told("c1", "3\n"))


def test_a_call_with_its_answer() -> None:
    (run,) = read(log(ONE))
    assert (run.session, run.language, run.code, run.output) == ("R1/7_epoch_1", "bash", "ls | wc -l", "3\n")
    assert (run.task, run.model, run.call_id, run.success) == ("How many files?", "openai/m", "c1", None)


def test_epochs_are_sessions() -> None:
    runs = read(log(ONE, {**ONE, "epoch": 2}))
    assert [run.session for run in runs] == ["R1/7_epoch_1", "R1/7_epoch_2"]


@pytest.mark.parametrize("pack", [archive, zstd_archive])
def test_an_eval_file(pack: Any) -> None:
    members = {
        "_journal/start.json": {"eval": EVAL},
        "samples/7_epoch_1.json": ONE,
        "_journal/summaries/1.json": [],
        "header.json": {"eval": EVAL},
    }
    (run,) = read(pack(members))
    assert (run.session, run.code, run.output, run.model) == ("R1/7_epoch_1", "ls | wc -l", "3\n", "openai/m")
    del members["header.json"]  # of an evaluation that goes on
    assert read(pack(members)) == [run]


def test_a_samples_id_may_hold_slashes() -> None:
    members = {"_journal/start.json": {"eval": EVAL}, "samples/a/b_epoch_1.json": {**ONE, "id": "a/b"}}
    (run,) = read(archive(members))
    assert run.session == "R1/a/b_epoch_1"


def test_arguments_that_the_model_named_wrong() -> None:
    error = {"type": "parsing", "message": "missing command"}
    assert read(log(sample(asked("c", "bash", wrong="x"), told("c", "", error=error)))) == [NotRun("parsing")]
    (refused,) = read(log(sample(asked("c", "bash", cmd="ls"), told("c", "", error=error))))
    assert isinstance(refused, NotRun) and (refused.session, refused.code) == ("R1/7_epoch_1", "ls")


def test_a_sample_in_chunks() -> None:
    base = "samples/7_epoch_1/"
    shell = {**sample(), "messages": [[0, 3]]}
    first, second = (
        [asked("c1", "python", code="attachment://1"), told("c1", "4")],
        [{"role": "user", "content": "Thanks"}],
    )
    members = {
        "header.json": {"eval": EVAL},
        f"{base}sample.json": shell,
        f"{base}messages/10.json": second,
        f"{base}messages/0.json": first,
    }
    members |= {
        f"{base}attachments/0.json": ["no", "print(2 + 2)"],
        f"{base}events/stats.json": {},
        f"{base}events/0.json": [],
    }
    (run,) = read(archive(members))
    assert (run.language, run.code, run.output, run.session) == ("python", "print(2 + 2)", "4", "R1/7_epoch_1")


def test_a_damaged_eval_file_is_told() -> None:
    whole = zstd_archive(
        {"_journal/start.json": {"eval": EVAL}, "samples/7_epoch_1.json": ONE, "header.json": {"eval": EVAL}}
    )
    (cut,) = read(whole[:-40])
    assert isinstance(cut, Fault)
    at = whole.index(b"samples/7_epoch_1.json") + 40
    (spoilt,) = read(whole[:at] + b"\xff\xff\xff" + whole[at + 3 :])
    assert isinstance(spoilt, Fault)


def test_another_zip_is_not_read() -> None:
    for members in (
        {"word/document.xml": ""},
        {"header.json": {}, "samples.json": []},
        {"samples/a.json": {}, "header.json": []},
    ):
        assert not READER.reads(LogDocument(archive(members)))
    assert not READER.reads(LogDocument(b"PK\x03\x04 and nothing"))


def test_the_tools_errors() -> None:
    kinds = ["timeout", "unicode_decode", "permission", "parsing", "approval", "unknown"]
    messages = [
        part
        for kind in kinds
        for part in (asked(kind, "bash", cmd=kind), told(kind, "", error={"type": kind, "message": "m"}))
    ]
    found = read(log(sample(*messages)))
    assert [run.code for run in found if isinstance(run, AgentRun)] == [
        "timeout",
        "unicode_decode",
        "permission",
        "unknown",
    ]
    assert [run.success for run in found if isinstance(run, AgentRun)] == [False] * 4
    assert found[0].timed_out and found[0].stderr == "m"
    assert NotRun("parsing") in found and NotRun("approval") in found


def test_the_python_tool_prints_what_is_raised() -> None:
    raised = 'Traceback (most recent call last):\n  File "<stdin>", line 1\nZeroDivisionError: division by zero\n'
    found = read(
        log(sample(asked("a", "python", code="1"), told("a", "1"), asked("b", "python", code="1/0"), told("b", raised)))
    )
    assert [run.success for run in found] == [True, False]


def test_the_sandbox_event_states_the_exit_code_and_the_times() -> None:
    tool = {"event": "tool", "timestamp": "2025-03-01T00:00:01+00:00", "completed": "2025-03-01T00:00:03+00:00"}
    tool |= {"id": "c1", "function": "bash", "arguments": {"cmd": "ls 'a b'"}, "result": "no", "working_time": 1.5}
    ran = {"event": "sandbox", "action": "exec", "timestamp": "2025-03-01T00:00:02+00:00", "result": 2}
    ran |= {"cmd": "bash --login -c 'ls '\"'\"'a b'\"'\"''"}
    (run,) = read(log(sample(asked("c1", "bash", cmd="ls 'a b'"), told("c1", "no"), events=[tool, ran])))
    assert (run.exit_code, run.success, run.duration_ms) == (2, False, 2000.0)
    assert run.started is not None and run.started.second == 1
    within = {name: told for name, told in tool.items() if name != "completed"} | {"events": [{"event": "info"}, ran]}
    (run,) = read(log(sample(asked("c1", "bash", cmd="ls 'a b'"), told("c1", "no"), events=[within])))
    assert (run.exit_code, run.success) == (2, False)
    earlier = {**ran, "timestamp": "2025-03-01T00:00:00+00:00"}
    (run,) = read(log(sample(asked("c1", "bash", cmd="ls 'a b'"), told("c1", "no"), events=[tool, earlier])))
    assert (run.exit_code, run.success) == (None, None)
    spans = [earlier | {"span_id": "s1"}, {**earlier, "result": 0, "span_id": "s2"}, tool | {"span_id": "s1"}]
    (run,) = read(log(sample(asked("c1", "bash", cmd="ls 'a b'"), told("c1", "no"), events=spans)))
    assert (run.exit_code, run.success) == (2, False)


def test_calls_that_stand_in_events_alone() -> None:
    inner = {
        "event": "tool",
        "id": "x",
        "function": "python",
        "arguments": {"code": "1/0"},
        "result": "Traceback (most recent call last):\nZeroDivisionError: division by zero\n",
    }
    first, second = read(
        log({**ONE, "events": [inner, {**inner, "id": "c1", "function": "bash", "arguments": {"cmd": "ls | wc -l"}}]})
    )
    assert (first.call_id, second.call_id, second.code, second.success) == ("c1", "x", "1/0", False)


def test_attachments_parts_and_older_shapes() -> None:
    texts = {"0a1b": "print('long')", "0c2d": "long\n"}
    parts = [{"type": "text", "text": "attachment://0c2d"}, {"type": "image", "image": "x"}]
    (run,) = read(log(sample(asked("c", "python", code="attachment://0a1b"), told("c", parts), attachments=texts)))
    assert (run.code, run.output) == ("print('long')", "long\n")
    openai = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}],
    }
    (run,) = read(log(sample(openai, told("c", {"text": "a"}, tool_error="it broke"))))
    assert (run.code, run.output, run.success) == ("ls", "a", False)
    (run,) = read(
        log(
            sample(
                asked("c", "bash", cmd="ls"),
                told("c", "a"),
                input=[{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
            )
        )
    )
    assert run.task == "U"
    (run,) = read(
        log(
            sample(
                asked("c", "bash", cmd="ls"),
                told("c", "attachment://9"),
                transcript={"events": [], "content": {"9": "a"}},
            )
        )
    )
    assert run.output == "a"


def test_chatml_text() -> None:
    chat = "<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\nCount them.<|im_end|>\n"
    (run,) = read(log(sample(asked("c", "bash", cmd="ls"), told("c", "<|im_start|>tool\na\n<|im_end|>"), input=chat)))
    assert (run.task, run.output) == ("Count them.", "a\n")


def test_docents_collection() -> None:
    found = read({"run-1": log(ONE), "run-2": {**log(ONE), "eval": {**EVAL, "run_id": "R2"}}})
    assert [run.session for run in found] == ["R1/7_epoch_1", "R2/7_epoch_1"]


def test_a_session_of_the_shell_and_an_editor() -> None:
    shell = [
        asked("a", "bash_session", action="type_submit", input="make"),
        told("a", "done"),
        asked("b", "bash_session", action="read"),
        told("b", ""),
    ]
    edit = [asked("e", "text_editor", command="create", path="/a.py", file_text="x"), told("e", "New file created")]
    found = read(log(sample(*shell, *edit, asked("n", "bash", cmd="never"))))
    assert found[0].code == "make" and Edit("R1/7_epoch_1", "/a.py", "x") in found and NotRun("unanswered") in found


@pytest.mark.parametrize(
    "value",
    [
        {"eval": "true", "samples": []},
        {"eval": {"metric": 1}, "samples": [{"id": 1, "messages": []}]},
        {"scripts": {"eval": "x"}, "version": 2},
        {"eval": EVAL, "sandbox_id": "s", "execution_id": "e"},
        [log(ONE)],
    ],
)
def test_what_merely_looks_alike_is_not_read(value: Any) -> None:
    assert not READER.reads(LogDocument(json.dumps(value).encode()))


def test_a_log_without_samples_is_read_and_empty() -> None:
    assert read({**log(), "samples": None}) == []


def test_no_damage_raises() -> None:
    tool = {"event": "tool", "timestamp": "2025-03-01T00:00:01", "completed": "2025-03-01T00:00:09"}
    tool |= {"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}, "result": "no"}
    ran = {"event": "sandbox", "action": "exec", "timestamp": "2025-03-01T00:00:02", "result": 2, "cmd": "bash -c ls"}
    parts = [{"type": "text", "text": "attachment://1"}]
    messages = [
        asked("c1", "bash", cmd="ls"),
        told("c1", parts),
        asked("c2", "python", code="1"),
        told("c2", "2", error={"type": "x"}),
    ]
    for value in damaged_values(log(sample(*messages, events=[tool, ran], attachments={"1": "a"}))):
        _read_if_known(LogDocument(json.dumps(value).encode()))


def test_no_damaged_byte_raises() -> None:
    whole = zstd_archive(
        {"_journal/start.json": {"eval": EVAL}, "samples/7_epoch_1.json": ONE, "header.json": {"eval": EVAL}}
    )
    for at in range(0, len(whole), 11):
        _read_if_known(LogDocument(whole[:at] + b"\xff" + whole[at + 1 :]))
        _read_if_known(LogDocument(whole[:at] + whole[at + 2 :]))


def _read_if_known(made: LogDocument) -> None:
    if READER.reads(made):
        list(READER.entries(made))
