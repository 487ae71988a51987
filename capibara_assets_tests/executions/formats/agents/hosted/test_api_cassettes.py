"""Code that model providers executed, out of cassettes and API bodies."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.executions.formats.agents.hosted.api_cassettes import READER
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.strict_json import Fault

Body = dict[str, Any]


def bash(key: str, command: str) -> Body:
    return {"type": "server_tool_use", "id": key, "name": "bash_code_execution", "input": {"command": command}}


def bash_result(key: str, stdout: str = "", stderr: str = "", return_code: object = 0) -> Body:
    result = {"type": "bash_code_execution_result", "stdout": stdout, "stderr": stderr, "return_code": return_code}
    return {"type": "bash_code_execution_tool_result", "tool_use_id": key, "content": {**result, "content": []}}


def tool_error(key: str, code: str, tool: str = "bash_code_execution") -> Body:
    content = {"type": f"{tool}_tool_result_error", "error_code": code}
    return {"type": f"{tool}_tool_result", "tool_use_id": key, "content": content}


def asked(words: str) -> Body:
    return {"role": "user", "content": [{"type": "text", "text": words}]}


def message(*content: Body) -> Body:
    return {"type": "message", "role": "assistant", "model": "claude-x", "content": list(content)}


def interpreted(key: str, code: object, logs: str | None, status: str = "completed") -> Body:
    outputs = None if logs is None else [{"type": "logs", "logs": logs}, {"type": "image", "url": "data:,"}]
    return {"type": "code_interpreter_call", "id": key, "code": code, "outputs": outputs, "status": status}


def gemini(*parts: Body) -> Body:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}}], "modelVersion": "gemini-x"}


def cassette(*pairs: tuple[Any, Any]) -> LogDocument:
    """As pydantic-ai and vcrpy write it; text and bytes become the `body`, objects the `parsed_body`."""

    def side(body: Any, name: str) -> Body:
        if isinstance(body, dict):
            return {"headers": {"accept": ["*/*"]}, "parsed_body": body}
        return {"headers": {}, "body": body if name == "request" else {"string": body}}

    recorded = [
        {name: side(body, name) for name, body in zip(("request", "response"), pair, strict=True)} for pair in pairs
    ]
    return LogDocument(yaml.safe_dump({"interactions": recorded, "version": 1}).encode())


def of(*values: Any) -> LogDocument:
    return LogDocument("\n".join(json.dumps(value) for value in values).encode())


def sse(*events: Body) -> str:
    return "".join(f"event: {e.get('type', 'x')}\ndata: {json.dumps(e)}  \n\n" for e in events) + "data: [DONE]\n\n"


def read(document: LogDocument) -> list[Entry]:
    assert READER.reads(document)
    assert any(mark in document.data for mark in READER.marks)
    return list(READER.entries(document))


def runs(document: LogDocument) -> list[AgentRun]:
    return [entry for entry in read(document) if isinstance(entry, AgentRun)]


def test_a_conversation_counts_each_call_once() -> None:
    first = message(bash("s1", "ls"), bash_result("s1", "a\n"), {"type": "text", "text": "Done"})
    second = message(bash("s2", "cat b"), bash_result("s2", "", "no b\n", 1))
    messages = [asked("List"), first, asked("Show b")]
    request = {"model": "claude-x", "messages": messages}
    document = cassette(({"messages": [asked("List")]}, first), (json.dumps(request), second))
    assert read(document) == [
        AgentRun(
            document.digest, "bash", "ls", True, "a\n", exit_code=0, call_id="s1", task="List", model="claude-x"
        ),
        AgentRun(
            document.digest, "bash", "cat b", False, "", "no b\n", 1, "s2", task="Show b", model="claude-x"
        ),
    ]  # fmt: skip


def test_an_answer_may_come_in_a_later_response() -> None:
    call = message(bash("s1", "make"))
    document = cassette(
        ({"messages": [asked("Build")]}, call), ({"messages": [asked("Build"), call]}, message(bash_result("s1")))
    )
    (run,) = runs(document)
    assert (run.code, run.success, run.task) == ("make", True, "Build")


def test_older_tool_of_anthropic_and_its_errors() -> None:
    def python(key: str) -> Body:
        return {"type": "server_tool_use", "id": key, "name": "code_execution", "input": {"code": f"# {key}"}}

    result = {"type": "code_execution_result", "stdout": "", "stderr": "Traceback", "return_code": 1}
    body = message(
        python("a"), {"type": "code_execution_tool_result", "tool_use_id": "a", "content": result},
        python("b"), tool_error("b", "execution_time_exceeded", "code_execution"),
        python("c"), tool_error("c", "unavailable", "code_execution"),
        python("d"),
        {"type": "server_tool_use", "id": "e", "name": "web_search", "input": {"query": "x"}},
    )  # fmt: skip
    first, second, *rest = read(of(body))
    assert isinstance(first, AgentRun)
    assert isinstance(second, AgentRun)
    assert (first.language, first.success, first.stderr) == ("python", False, "Traceback")
    assert (second.success, second.timed_out, second.exit_code) == (False, True, None)
    assert rest == [NotRun("refused"), NotRun("unanswered")]


def test_files_that_were_written() -> None:
    name = "text_editor_code_execution"

    def call(key: str, **given: str) -> Body:
        return {"type": "server_tool_use", "id": key, "name": name, "input": given}

    def done(key: str) -> Body:
        return {"type": f"{name}_tool_result", "tool_use_id": key, "content": {"type": f"{name}_create_result"}}

    body = message(
        call("a", command="create", path="/tmp/a", file_text="hi"), done("a"),
        call("b", command="str_replace", path="/tmp/a", new_str="ho"), tool_error("b", "unavailable", name),
        call("c", command="view", path="/tmp/a"), done("c"),
    )  # fmt: skip
    document = of(body)
    assert read(document) == [Edit(document.digest, "/tmp/a", "hi"), NotRun("refused")]


@pytest.mark.parametrize(
    ("logs", "status", "success"),
    [
        ("4", "completed", True),
        (None, "completed", None),
        ("4", "incomplete", None),
        ("", "failed", False),
        ("-----\nKeyError  Traceback (most recent call last)\nCell In[1], line 1\n\nKeyError: 'x'", "completed", False),
        ("  Cell In[1], line 1\n    x y\nSyntaxError: invalid syntax", "completed", False),
        ("Traceback (most recent call last) is a heading", "completed", True),
    ],
)
def test_openai_says_success_only_by_its_logs(logs: str | None, status: str, success: bool | None) -> None:
    body = {"object": "response", "model": "gpt-x", "output": [interpreted("ci_1", "f()", logs, status)]}
    document = cassette(({"model": "gpt-x", "input": "Compute"}, body))
    expected = AgentRun(
        document.digest, "python", "f()", success, logs or "", call_id="ci_1", task="Compute", model="gpt-x"
    )
    assert read(document) == [expected]


def test_openai_input_repeats_calls_and_code_may_be_missing() -> None:
    item = interpreted("ci_1", "f()", "1")
    request = {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "Go"}]}, item]}
    first, fault = read(of({"output": [item]}, request, {"output": [interpreted("ci_2", None, None)]}))
    assert isinstance(first, AgentRun)
    assert isinstance(fault, Fault)
    assert fault.reason == "type:code"
    older = {"type": "code_interpreter_call", "id": "ci_3", "code": "g()", "results": [{"type": "logs", "logs": "2"}]}
    (run,) = runs(of({"output": [older]}))
    assert (run.output, run.success) == ("2", True)


def test_lists_of_items_and_results_without_their_text() -> None:
    encrypted = {"type": "encrypted_code_execution_result", "encrypted_stdout": "x", "stderr": "", "return_code": 0}
    body = message(bash("s1", "ls"), {**bash_result("s1"), "content": encrypted})
    (run,) = runs(of({"object": "list", "data": [body]}))
    assert (run.output, run.success, run.exit_code) == ("", True, 0)


@pytest.mark.parametrize(
    "names", [("executableCode", "codeExecutionResult"), ("executable_code", "code_execution_result")]
)
@pytest.mark.parametrize("ids", [{"id": "g1"}, {}])
def test_gemini_with_and_without_ids(names: tuple[str, str], ids: Body) -> None:
    parts = [
        {names[0]: {"language": "PYTHON", "code": "print(1)", **ids}},
        {names[1]: {"outcome": "OUTCOME_OK", "output": "1\n", **ids}},
    ]
    request = {"contents": [{"role": "user", "parts": [{"text": "Print"}]}]}
    history = {"contents": [*request["contents"], {"role": "model", "parts": parts}]}
    document = cassette((request, gemini(*parts)), (history, gemini({"text": "It was 1"})))
    expected = AgentRun(
        document.digest, "python", "print(1)", True, "1\n", call_id=ids.get("id"), task="Print", model="gemini-x"
    )
    assert read(document) == [expected]


@pytest.mark.parametrize(
    ("outcome", "timed_out"), [("OUTCOME_FAILED", False), ("Outcome.OUTCOME_DEADLINE_EXCEEDED", True)]
)
def test_gemini_shows_what_failed_as_stderr(outcome: str, timed_out: bool) -> None:
    failed = {"codeExecutionResult": {"outcome": outcome, "output": "ZeroDivisionError"}}
    (run,) = runs(of(gemini({"executableCode": {"code": "1/0"}}, failed)))
    assert (run.success, run.output, run.stderr, run.timed_out) == (False, "", "ZeroDivisionError", timed_out)


def test_a_repeated_run_without_id_counts_in_each_response() -> None:
    parts = ({"executableCode": {"code": "tick()"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK"}})
    assert len(runs(of(gemini(*parts), gemini(*parts)))) == 2


def test_bedrock() -> None:
    call = {"toolUse": {"name": "nova_code_interpreter", "toolUseId": "t1", "input": {"snippet": "1 * 2"}}}
    said = {"exitCode": 0, "isError": False, "stdOut": "2", "stdErr": ""}
    result = {"toolResult": {"toolUseId": "t1", "status": "success", "content": [{"json": said}]}}
    call["toolUse"]["type"] = "server_tool_use"
    document = cassette(
        (
            {"messages": [{"role": "user", "content": [{"text": "Twice?"}]}]},
            {"output": {"message": {"content": [call, result]}}},
        )
    )
    (run,) = runs(document)
    assert (run.code, run.success, run.output, run.exit_code, run.task) == ("1 * 2", True, "2", 0, "Twice?")


def test_streams_are_put_together() -> None:
    pieces = json.dumps({"command": "echo hi"})
    events: list[Body] = [
        {"type": "message_start", "message": {"model": "claude-x", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {**bash("s1", ""), "input": {}}},
        {"type": "ping"},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": c}}
            for c in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": bash_result("s1", "hi\n")},
    ]
    for document in (cassette(({"messages": [asked("Say")]}, sse(*events))), of(*events)):
        (run,) = runs(document)
        assert (run.code, run.output, run.success, run.model) == ("echo hi", "hi\n", True, "claude-x")
    call = interpreted("ci_1", "f()", "1")
    done = {"type": "response.output_item.done", "item": call}
    completed = {"type": "response.completed", "response": {"model": "gpt-x", "output": [call]}}
    for found in (sse(done, completed), sse(done)):
        assert [run.code for run in runs(cassette(({"model": "m", "input": "Go"}, found)))] == ["f()"]
    first = gemini({"executableCode": {"code": "1"}})
    last = gemini({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "x"}})
    (run,) = runs(cassette(({"contents": []}, sse(first, last).replace("\n", "\r\n"))))
    assert (run.code, run.output) == ("1", "x")


def test_a_damaged_stream() -> None:
    start = {"type": "content_block_start", "index": 0, "content_block": bash("s1", "")}
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"comm'}}
    other = {"type": "content_block_start", "index": 1, "content_block": bash("s2", "ls")}
    found = read(cassette(({}, sse(start, piece, other, {"type": "message_stop"}) + "data: {\n\n")))
    assert [entry.reason for entry in found if isinstance(entry, Fault)] == ["invalid_json"] * 2
    assert found[-1] == NotRun("unanswered")


@pytest.mark.parametrize("wrap", [
    lambda body: [{"messages": []}, body],
    lambda body: {"custom_id": "1", "result": {"type": "succeeded", "message": body}},
    lambda body: {"custom_id": "1", "response": {"status_code": 200, "body": body}},
    lambda body: {"request": {"messages": [asked("Do")]}, "response": body},
    lambda body: {"log": {"entries": [{"response": {"content": {"text": json.dumps(body)}}}]}},
    lambda body: {"version": 1, "interactions": [{"response": {"body": {"string": json.dumps(body)}}}]},
])  # fmt: skip
def test_bodies_in_json(wrap: Any) -> None:
    (run,) = runs(of(wrap(message(bash("s1", "ls"), bash_result("s1", "a")))))
    assert (run.code, run.output) == ("ls", "a")


def test_rubys_cassette() -> None:
    body = {"encoding": "UTF-8", "string": json.dumps(message(bash("s1", "ls"), bash_result("s1")))}
    text = "---\n" + yaml.safe_dump({"http_interactions": [{"response": {"body": body}}], "recorded_with": "VCR 6"})
    assert [run.code for run in runs(LogDocument(text.encode()))] == ["ls"]


def test_a_damaged_cassette_keeps_what_is_whole() -> None:
    whole: list[tuple[Body, Body]] = [
        ({"messages": []}, message(bash(key, key), bash_result(key))) for key in ("s1", "s2", "s3")
    ]
    text = cassette(*whole).text
    damaged = text.replace("command: s2", 'command: "s2')
    found = read(LogDocument(damaged.encode()))
    assert [entry.code for entry in found if isinstance(entry, AgentRun)] == ["s1", "s3"]
    assert [entry.reason for entry in found if isinstance(entry, Fault)] == ["invalid_yaml"]
    assert not READER.reads(LogDocument(b"interactions:\n- " + b"- " * 60000 + b"server_tool_use"))


@pytest.mark.parametrize("document", [
    of(message({"type": "server_tool_use", "id": "w", "name": "web_search", "input": {"query": "server_tool_use"}})),
    of({"name": "server_tool_use", "version": "1", "content": "bash_code_execution"}),
    of({"messages": [{"role": "user", "content": "What is a code_interpreter_call?"}]}),
    of({"sandbox_id": "a", "execution_id": "b", "code": "server_tool_use = 1"}),
    of({"nbformat": 4, "cells": [message(bash("s1", "ls"), bash_result("s1"))]}),
    of({"type": "object", "properties": {"type": {"const": "code_interpreter_call"}}}),
    LogDocument(b"# interactions\n\nserver_tool_use\n"),
    LogDocument(b"interactions:\n  - type: server_tool_use\n    name: bash_code_execution\n"),
    LogDocument(b"interactions: 3\nserver_tool_use: executableCode\n"),
])  # fmt: skip
def test_look_alikes_are_not_read(document: LogDocument) -> None:
    assert not READER.reads(document)


def test_aliases_that_multiply_or_turn_back() -> None:
    laughs = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 40)}]\n" for i in range(1, 6))
    whole = yaml.safe_dump(message(bash("s1", "ls"), bash_result("s1")), default_flow_style=True, width=9999)
    text = f"x0: &x0 {whole}{laughs}interactions:\n- &i {{request: *x5, response: *i}}\n"
    assert [run.code for run in runs(LogDocument(text.encode()))] == ["ls"]


def test_aliases_that_multiply_within_a_body_cost_the_clients_calls_alone() -> None:
    laughs = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 40)}]\n" for i in range(1, 6))
    whole = yaml.safe_dump([bash("s1", "ls"), bash_result("s1")], default_flow_style=True, width=9999).strip()
    body = f"{{type: message, role: assistant, model: [*x5], content: {whole}}}"
    text = f"x0: &x0 [a]\n{laughs}interactions:\n- {{request: {{}}, response: {{parsed_body: {body}}}}}\n"
    assert [run.code for run in runs(LogDocument(text.encode()))] == ["ls"]


_CALL = message(bash("s1", "ls"), bash_result("s1", "a"))
_SCRAPS = st.sampled_from([None, 3, "", "x", [], [None], {}, {"type": "server_tool_use"}, True, -1.5])


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_nothing_raises(data: st.DataObject) -> None:
    bodies = json.loads(json.dumps([
        _CALL, {"output": [interpreted("c", "f()", "1")]}, {"model": "m", "input": [interpreted("d", "f()", "1")]},
        gemini({"executableCode": {"code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}),
    ]))  # fmt: skip
    bodies.append(sse({"type": "content_block_start", "index": 0, "content_block": bash("s9", "x")}))
    for body in bodies[:4]:
        at: Any = body
        while isinstance(at, dict | list) and at:
            field = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not isinstance(at[field], dict | list) or data.draw(st.booleans()):
                at[field] = data.draw(_SCRAPS)
                break
            at = at[field]
    document = of(bodies)
    READER.reads(document)
    assert all(isinstance(entry, AgentRun | Edit | NotRun | Fault) for entry in READER.entries(document))


def test_the_clients_own_tools_count_beside_the_providers_each_once() -> None:
    first = message(
        bash("s1", "ls"),
        bash_result("s1", "a\n"),
        {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "make"}},
    )
    failed = {"type": "tool_result", "tool_use_id": "c1", "content": "no rule\n[exit code: 2]", "is_error": True}
    history = [asked("Build it."), first, {"role": "user", "content": [failed]}]
    second = message(bash("s2", "pwd"), bash_result("s2", "/w\n"))
    traffic = of(
        {"request": {"messages": [asked("Build it.")]}, "response": first},
        {"request": {"messages": history}, "response": second},
        {"request": {"messages": [*history, second]}, "response": message()},
    )
    assert [(run.code, run.success, run.exit_code) for run in runs(traffic)] == [
        ("ls", True, 0), ("make", False, 2), ("pwd", True, 0),
    ]  # fmt: skip
    assert {run.task for run in runs(traffic)} == {"Build it."}


def test_a_stream_that_was_captured_as_it_came() -> None:
    start = {"type": "content_block_start", "index": 0, "content_block": bash("s1", "")}
    pieces = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
        for piece in ('{"comm', 'and": "ls"}')
    ]
    answer = {"type": "content_block_start", "index": 1, "content_block": bash_result("s1", "a.c")}
    events = ({"type": "message_start", "message": {"role": "assistant"}}, start, *pieces, answer)
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    (run,) = runs(LogDocument(text.encode()))
    assert (run.code, run.output, run.success) == ("ls", "a.c", True)


def test_rows_of_a_database_are_of_their_sessions() -> None:
    """As `SQLiteSession` of OpenAI's Agents SDK keeps them: an item a row, sessions side by side, no bodies."""
    command = {"type": "shell_call", "call_id": "c", "action": {"commands": ["df", "ls no"]}}
    parts = [{"stdout": "1", "stderr": "", "outcome": {"type": "exit", "exit_code": code}} for code in (0, 2)]
    own = {"type": "function_call", "name": "exec_command", "call_id": "c", "arguments": '{"command": "ruby -v"}'}
    items = [
        *(("a", asked("Look.")), ("a", command), ("b", own), ("b", interpreted("i", "f()", "1"))),
        *(("b", {"type": "function_call_output", "call_id": "c", "output": "[exit 0]\n3.4"}),),
        *(("a", {"type": "shell_call_output", "call_id": "c", "output": parts}), ("b", command)),
    ]
    rows = [{"id": "x", "created_at": "now"}]
    rows += [{"id": n, "session_id": session, "message_data": item} for n, (session, item) in enumerate(items)]
    document = LogDocument("\n".join(map(json.dumps, rows)).encode())
    found = runs(document)
    assert sorted((run.session, run.code, run.success) for run in found) == [
        *(("a", "df", True), ("a", "ls no", False), ("b", "f()", True), ("b", "ruby -v", True)),
    ]
    assert {run.task for run in found if run.session == "a"} == {"Look."}
    assert [entry for entry in read(document) if isinstance(entry, NotRun)] == [NotRun("unanswered")] * 2
