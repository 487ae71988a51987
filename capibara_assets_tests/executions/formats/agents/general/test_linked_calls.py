"""Logs of programs without a reader of their own, read by shape: what ran, what was edited, what nobody told."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.general.linked_calls import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.general.shapes import (
    FAILS,
    FIX,
    PRINTED,
    REFUSED,
    SAID,
    SHAPES,
    WELL,
)
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, runs, survives

Change = Callable[[Any], Any]


def parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return list(map(json.loads, data.splitlines()))


def written(value: Any, as_lines: bool) -> bytes:
    return jsonl(*value) if as_lines else json.dumps(value).encode()


def read(data: bytes) -> list[Entry]:
    document = LogDocument(data)
    reader = find_reader(document)
    assert reader is not None
    return list(reader.entries(document))


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in sorted(value, reverse=True)}
    return list(map(reordered, value)) if isinstance(value, list) else value


def widened(value: Any) -> Any:
    if isinstance(value, dict):
        return {**{key: widened(inner) for key, inner in value.items()}, "x_later": {"a": [1, None]}}
    return list(map(widened, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("program", SHAPES)
@pytest.mark.parametrize("change", [None, reordered, widened])
def test_runs_and_edits_are_read_in_order_with_what_the_log_tells(program: str, change: Change | None) -> None:
    data, exit_codes, outcomes = SHAPES[program]
    if change is not None:
        data = written(change(parsed(data)), as_lines=data.count(b"\n") > 1)
    found = [entry for entry in read(data) if not isinstance(entry, NotRun)]
    failed, edit, well = found
    assert isinstance(failed, AgentRun) and isinstance(edit, Edit) and isinstance(well, AgentRun)
    assert (failed.code, failed.language, well.code) == (FAILS, "bash", WELL)
    assert (failed.exit_code, well.exit_code) == exit_codes
    assert (failed.success, well.success) == outcomes
    assert SAID in failed.output + failed.stderr and well.output.strip() == PRINTED and not well.stderr
    assert edit.path == "tally.py" and FIX in edit.text
    assert len({failed.session, edit.session, well.session}) == 1
    refused = [entry for entry in read(data) if isinstance(entry, NotRun)]
    assert [(entry.kind, entry.code) for entry in refused] == ([("refused", REFUSED)] if refused else [])


@pytest.mark.parametrize("program", SHAPES)
def test_nothing_damaged_makes_the_reader_fail(program: str) -> None:
    data = SHAPES[program][0]
    reader = find_reader(LogDocument(data))
    assert reader is not None
    as_lines = data.count(b"\n") > 1
    for value in damaged(parsed(data)):
        survives(reader, written(value, as_lines))


def call(key: str, command: str) -> dict[str, Any]:
    asked = {"id": key, "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}
    return {"role": "assistant", "tool_calls": [asked]}


def answer(key: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": key, "content": content, **more}


def test_a_history_that_is_sent_again_counts_once_and_an_id_that_is_used_again_twice() -> None:
    first = [call("1", "ls"), answer("1", "a.py")]
    assert [run.code for run in runs(READER, jsonl(*first, *first, call("1", "pwd"), answer("1", "/w")))] == [
        "ls",
        "pwd",
    ]


def test_conversations_in_one_file_keep_their_calls_apart() -> None:
    rows = [
        {"messages": [{"role": "user", "content": task}, call("1", "ls"), answer("1", said)]}
        for task, said in (("One.", "a"), ("Two.", "b"))
    ]
    found = runs(READER, jsonl(*rows))
    assert [(run.task, run.output) for run in found] == [("One.", "a"), ("Two.", "b")]
    assert len({run.session for run in found}) == 2


def test_a_tool_that_returned_says_nothing_of_its_commands_end() -> None:
    (run,) = runs(READER, jsonl(call("1", "make"), answer("1", "built", status="success", success=True)))
    assert (run.success, run.exit_code) == (None, None)


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        ("a\n[exit code: 3]", 3, "a"),
        ("a\nExit code: 0", 0, "a"),
        ("exit code: 1\na", 1, "a"),
        ("a\nCommand failed with exit code 2.", 2, "a"),
        ("a\nCommand exited with code 1", 1, "a"),
        ('{"stdout": "a", "exit_code": 4}', 4, "a"),
        ("The exit code of b is 3 in the docs", None, "The exit code of b is 3 in the docs"),
    ],
)
def test_an_exit_code_in_the_tools_words_counts_where_it_ends_the_text(
    text: str, code: int | None, output: str
) -> None:
    (run,) = runs(READER, jsonl(call("1", "make"), answer("1", text)))
    assert (run.exit_code, run.output) == (code, output)
    assert run.success == (None if code is None else code == 0)


def test_an_exit_code_that_the_command_itself_prints_is_its_output() -> None:
    (run,) = runs(READER, jsonl(call("1", "make; echo exit code: $?"), answer("1", "exit code: 2")))
    assert (run.exit_code, run.success, run.output) == (None, None, "exit code: 2")


@pytest.mark.parametrize("said", ["The user denied access to the repository", "Permission denied (publickey)."])
def test_what_a_program_prints_of_users_and_denials_is_no_refusal(said: str) -> None:
    (run,) = runs(READER, jsonl(call("1", "git push"), answer("1", said)))
    assert run.output == said


@pytest.mark.parametrize(
    "said",
    [
        "The user has declined to run this tool.",
        "Command was cancelled by the user",
        "Error: Request cancelled by user",
        "Permission to run tool denied by user",
        "Tool execution canceled by user",
        "Permission denied",
        "Python code execution cancelled by the user. Input: n.",
        "Command blocked by policy: 'rm' requires approval",
        "<system>ERROR: The tool call is rejected by the user.</system>",
    ],
)
def test_a_call_that_a_user_declined_did_not_run(said: str) -> None:
    rows = [call("1", "ls"), answer("1", "a"), call("2", "rm -r out"), answer("2", said)]
    assert [entry for entry in entries(READER, jsonl(*rows)) if isinstance(entry, NotRun)] == [NotRun("refused")]


def test_what_describes_a_tool_is_no_call_of_it() -> None:
    shell = {"name": "run_shell", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}
    (run,) = entries(READER, jsonl({"tools": [shell], "messages": [call("1", "ls"), answer("1", "a")]}))
    assert isinstance(run, AgentRun)


def test_a_shell_that_is_started_anew_runs_nothing() -> None:
    restart = {"tool_calls": [{"id": "2", "name": "bash", "arguments": {"restart": True}}]}
    (run,) = entries(READER, jsonl(call("1", "ls"), answer("1", "a"), restart, answer("2", "restarted")))
    assert isinstance(run, AgentRun)


def test_an_edit_that_failed_and_a_call_that_nobody_answered_are_counted() -> None:
    edit = {"id": "2", "name": "edit_file", "arguments": {"path": "a", "new_string": "b"}}
    rows = [
        call("1", "ls"),
        answer("1", ""),
        {"tool_calls": [edit]},
        answer("2", "no match", is_error=True),
        call("3", "pwd"),
    ]
    assert [entry.kind for entry in entries(READER, jsonl(*rows)) if isinstance(entry, NotRun)] == [
        "edit_failed",
        "unanswered",
    ]


def test_a_damaged_line_is_kept_apart_and_a_call_without_a_command_too() -> None:
    empty = {"tool_calls": [{"id": "2", "name": "bash", "arguments": {}}]}
    data = jsonl(call("1", "ls"), answer("1", "a"), empty) + b'{"torn\n' + jsonl({"role": "user", "content": "Go on."})
    faults = [entry.reason for entry in entries(READER, data) if isinstance(entry, Fault)]
    assert faults == ["invalid_json", "no_code"]


@pytest.mark.parametrize(
    "rows",
    [
        [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Run `ls`."}],
        [call("1", "ls")],
        [{"tool_calls": [{"id": "1", "name": "get_weather", "arguments": {"city": "Bonn"}}]}, answer("1", "rain")],
        [{"resourceSpans": []}, call("1", "ls"), answer("1", "a")],
    ],
)
def test_chat_calls_of_other_tools_and_other_formats_are_none(rows: list[Any]) -> None:
    assert not reads(READER, jsonl(*rows))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Execute", {"command": "ls"}, ("bash", "ls")),
        ("run", {"cmd": "ls"}, ("bash", "ls")),
        ("run", {"code": "puts 1", "language": "ruby"}, ("ruby", "puts 1")),
        ("runJavaScript", {"code": "1 + 1"}, ("javascript", "1 + 1")),
        ("invokePowerShell", {"command": "ls"}, ("powershell", "ls")),
    ],
)
def test_what_a_tool_runs_is_told_by_its_name_and_by_what_it_is_given(
    name: str, arguments: dict[str, Any], expected: tuple[str, str]
) -> None:
    asked = {"tool_calls": [{"id": "1", "name": name, "arguments": arguments}]}
    (run,) = runs(READER, jsonl(asked, answer("1", "a")))
    assert (run.language, run.code) == expected


@pytest.mark.parametrize("arguments", [{"name": "tests"}, {"query": "ls"}, {"code": "x"}])
def test_a_tool_that_only_says_that_it_runs_something_runs_no_shell(arguments: dict[str, Any]) -> None:
    asked = {"tool_calls": [{"id": "1", "name": "run", "arguments": arguments}]}
    assert not reads(READER, jsonl(asked, answer("1", "a")))


@pytest.mark.parametrize(
    ("text", "success", "code", "output"),
    [
        ('Command "zig build" failed with exit code 1.\n\n```\nno\n```', False, 1, "no"),
        ("<system>Command executed successfully.</system>\ndone", True, None, "done"),
        ("<system>ERROR: Command failed with exit code: 3.</system>\nno", False, 3, "no"),
        ("no output\n\n<cwd>/w</cwd>", True, None, ""),
        ("no output", True, None, ""),
        ("no\n\nExit code 1\n\n<cwd>/w</cwd>", False, 1, "no\n"),
        ("half\nCommand was aborted before completion\n\n<cwd>/w</cwd>", None, None, None),
        ("a\n<command with id: 7 exited with exit code 4, output ended>", False, 4, "a"),
        ("a\n<shellId: 0 completed with exit code 0>", True, 0, "a"),
        ("Command executed successfully.", True, None, ""),
        ("$ zig build\n[exit 1]\nno", False, 1, "no"),
        ("exit status 0\ndone", True, 0, "done"),
        ("done\n[exit 3]", False, 3, "done"),
        (
            "Execution Summary:\nTotal commands: 1\nSuccessful: 0\nFailed: 1\n\nCommand: zig build\nStatus: error\n"
            "Exit Code: 4\nOutput: a\nError: b",
            *(False, 4, "a"),
        ),
    ],
)
def test_words_that_a_shells_tool_puts_around_the_output(
    text: str, success: bool | None, code: int | None, output: str | None
) -> None:
    (run,) = runs(READER, jsonl(call("1", "zig build"), answer("1", text)))
    assert (run.success, run.exit_code) == (success, code)
    assert output is None or run.output == output


@pytest.mark.parametrize(
    "text",
    [
        'Command "zig build" timed out. Output captured before timeout:\n\n```\nhalf\n```',
        "<system>ERROR: Command killed by timeout (60s)</system>",
        "half\n\n<bash_metadata>\nbash tool terminated command after exceeding timeout 9 ms\n</bash_metadata>",
    ],
)
def test_words_of_a_command_that_took_too_long(text: str) -> None:
    (run,) = runs(READER, jsonl(call("1", "zig build"), answer("1", text)))
    assert run.timed_out and run.success is False and "imeout" not in run.output


def test_a_cancelled_command_ran_where_it_printed_something() -> None:
    rows = [
        call("1", "a"),
        answer("1", "running 3 tests", status="cancelled"),
        call("2", "b"),
        answer("2", "", status="cancelled"),
    ]
    found = entries(READER, jsonl(*rows))
    assert [(type(one), one.code) for one in found if isinstance(one, AgentRun | NotRun)] == [
        (AgentRun, "a"),
        (NotRun, "b"),
    ]


def test_a_command_in_the_background_has_what_later_calls_read_of_it() -> None:
    def asks(key: str, name: str, **arguments: Any) -> dict[str, Any]:
        return {"tool_calls": [{"id": key, "name": name, "arguments": arguments}]}

    rows = [
        asks("1", "bash", command="serve", mode="async", shellId="s"),
        answer("1", "<command started in background with shellId: s>"),
        asks("2", "read_bash", shellId="s"), answer("2", "one\n"),
        asks("3", "read_bash", shellId="other"), answer("3", "not its own"),
        asks("4", "read_bash", shellId="s"),
        answer("4", "two\n<command with id: s exited with exit code 1, output ended>"),
    ]  # fmt: skip
    (run,) = runs(READER, jsonl(*rows))
    assert (run.code, run.output, run.exit_code, run.success) == ("serve", "one\ntwo", 1, False)


@pytest.mark.parametrize(
    ("part", "success", "said"),
    [
        ({"state": "output-available", "output": {"result": "9"}}, True, "9"),
        ({"state": "output-error", "errorText": "ReferenceError: x is not defined"}, False, "ReferenceError"),
    ],
)
def test_parts_of_the_ai_sdk_state_how_code_ended(part: dict[str, Any], success: bool, said: str) -> None:
    held = {"type": "tool-runJavaScript", "toolCallId": "1", "input": {"code": "x"}, **part}
    (run,) = runs(READER, jsonl({"role": "assistant", "parts": [held]}))
    assert run.success is success and said in run.output + run.stderr
    assert part["state"] not in run.output  # a status is no output


@pytest.mark.parametrize(
    ("error", "stdout", "success"),
    [
        (None, ["4\n", "2\n"], True),
        ({"name": "NameError", "value": "x", "traceback": "Traceback: x"}, [], False),
    ],
)
def test_a_cell_whose_result_is_json_in_text_ends_as_that_says(error: Any, stdout: list[str], success: bool) -> None:
    told = json.dumps({"results": [], "logs": {"stdout": stdout, "stderr": []}, "error": error})
    (run,) = runs(READER, jsonl(
        {"tool_call": {"name": "run_code", "arguments": {"code": "x", "language": "python"}, "tool_call_id": "1"}},
        {"message_type": "tool_return_message", "tool_call_id": "1", "tool_return": told, "status": "success",
         "stdout": None},
    ))  # fmt: skip
    assert run.success is success and run.output == "".join(stdout)
    assert run.stderr == ("" if error is None else error["traceback"])


@pytest.mark.parametrize("code", [0, 3])
def test_structured_content_tells_the_exit_code_and_no_text_twice(code: int) -> None:
    content = [{"type": "text", "text": "said\n\nand more"}]
    result = {"content": content, "structuredContent": {"stdout": "said", "stderr": "", "exit_code": code}}
    (run,) = runs(READER, jsonl(
        {"type": "tool_use", "id": "1", "name": "shell", "input": {"command": "x"}},
        {"type": "tool_result", "tool_use_id": "1", "content": result},
    ))  # fmt: skip
    assert (run.exit_code, run.success, run.output) == (code, code == 0, "said")


def gemini(*, ids: bool = True) -> list[dict[str, Any]]:
    """A history that Gemini CLI saved: calls have no id, and an answer's id is its own."""

    def asks(name: str, **given: str) -> dict[str, Any]:
        return {"functionCall": {"name": name, "args": given}}

    def told(number: int, name: str, text: str) -> dict[str, Any]:
        own = {"id": f"{name}-{number}"} if ids else {}
        return {"functionResponse": {**own, "name": name, "response": {"output": text}}}

    shell = "run_shell_command"
    return [
        {"role": "user", "parts": [{"text": "Build it."}]},
        {
            "role": "model",
            "parts": [asks(shell, command="make"), asks("read_file", path="a"), asks(shell, command="ls")],
        },
        {
            "role": "user",
            "parts": [
                told(1, shell, "Output: no rule\nExit Code: 2\nProcess Group PGID: 7"),
                told(2, "read_file", "text"),
                told(3, shell, "Output: a\nProcess Group PGID: 8"),
            ],
        },
        {"role": "model", "parts": [asks(shell, command="never answered"), asks("read_file", path="b")]},
        {"role": "user", "parts": [told(4, "read_file", "text")]},
        {"role": "model", "parts": [asks(shell, command="make test")]},
        {"role": "user", "parts": [told(5, shell, "Output: ok\nProcess Group PGID: 9")]},
    ]


@pytest.mark.parametrize("as_lines", [False, True])
@pytest.mark.parametrize("ids", [False, True])
def test_an_answer_that_names_its_tool_is_of_that_turns_first_call_of_it(as_lines: bool, ids: bool) -> None:
    found = read(written(gemini(ids=ids), as_lines))
    assert [(one.code, one.success, one.output.strip()) for one in found if isinstance(one, AgentRun)] == [
        ("make", False, "no rule"),
        ("ls", True, "a"),
        ("make test", True, "ok"),
    ]
    assert [(one.kind, one.code) for one in found if isinstance(one, NotRun)] == [("unanswered", "never answered")]


def test_a_history_without_ids_that_is_sent_again_counts_once() -> None:
    """Each request holds all before it; the same command twice in one history ran twice."""
    whole = gemini(ids=False)
    whole += [*whole[-2:], {"role": "user", "parts": [{"text": "Thanks."}]}]
    requests = [{"contents": whole[:n]} for n in range(1, len(whole) + 1)]
    once = [run.code for run in runs(READER, jsonl({"contents": whole}, {"contents": [{"role": "user", "parts": []}]}))]
    assert once == ["make", "ls", "make test", "make test"]
    assert [run.code for run in runs(READER, jsonl(*requests))] == once


@pytest.mark.parametrize(("failed", "success"), [(False, True), (True, False)])
def test_anthropics_managed_agents_state_each_failure(failed: bool, success: bool) -> None:
    rows = [
        {"raw": {"type": "agent.tool_use", "id": "sevt_1", "name": "bash", "input": {"command": "make"}}},
        {"raw": {"type": "agent.tool_result", "id": "sevt_2", "tool_use_id": "sevt_1", "is_error": failed,
                 "content": [{"type": "text", "text": "built"}]}},
    ]  # fmt: skip
    (run,) = runs(READER, jsonl(*rows))
    assert (run.code, run.success, run.output) == ("make", success, "built")


@pytest.mark.parametrize(
    ("given", "result", "success"),
    [
        ({}, {"output": "built"}, True),
        ({}, {"output": "no rule", "isError": True}, False),
        ({"run_in_background": True}, {"output": "task_id: bash-1"}, None),
        ({}, {"message": "no output is told"}, None),
    ],
)
def test_kimi_code_states_each_failure(given: Any, result: Any, success: bool | None) -> None:
    rows = [
        {"event": {"type": "tool.call", "toolCallId": "Bash_0", "name": "Bash", "args": {"command": "make", **given}}},
        {"event": {"type": "tool.result", "toolCallId": "Bash_0", "result": result}},
    ]
    (run,) = runs(READER, jsonl(*rows))
    assert (run.code, run.success) == ("make", success)


def test_a_tool_that_raised_is_told_by_its_input() -> None:
    """LangGraph's event of the error names no call; the SDK of OpenAI's agents gives its words to the model."""
    raised = {
        "event": "on_tool_error",
        "name": "bash",
        "data": {"error": "TimeoutExpired(9)", "input": {"command": "a"}},
    }
    (run,) = runs(READER, jsonl({**call("1", "a"), "name": "bash", "arguments": {"command": "a"}}, raised))
    assert run.success is False and "TimeoutExpired" in run.output + run.stderr
    said = "An error occurred while running the tool. Please try again. Error: Command 'b' timed out after 60 seconds"
    (run,) = runs(READER, jsonl(call("1", "b"), answer("1", said)))
    assert (run.success, run.timed_out) == (False, True)


@pytest.mark.parametrize(
    ("said", "success"), [("success=True output='2\\n'", True), ('success=False output="it\'s"', False)]
)
def test_a_result_that_states_its_success_as_text(said: str, success: bool) -> None:
    asked = {"id": "1", "name": "CodeExecutor", "arguments": json.dumps({"code": "f()"})}
    (run,) = runs(READER, jsonl(asked, answer("1", said, is_error=False)))
    assert (run.success, run.output) == (success, "2\n" if success else "it's")
