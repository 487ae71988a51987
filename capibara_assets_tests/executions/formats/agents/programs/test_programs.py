"""Programs whose logs have a shape of their own: what ran, how it ended, what the user did not allow."""

import json
from typing import Any

import pytest
import yaml

from capibara_assets.executions.formats.agents.general import run_trees
from capibara_assets.executions.formats.agents.general.tool_names import asked_of
from capibara_assets.executions.formats.agents.hosted import bedrock_traces
from capibara_assets.executions.formats.agents.programs import (
    codex_terminal,
    copilot_chat,
    jupyter_messages,
    taskweaver,
    terminal_screens,
    warp,
)
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun, Reader
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, survives

Told = tuple[str, str, bool | None, str]


def told(reader: Reader, data: bytes) -> list[Told]:
    """Language, code, success and the last word of what each run printed."""
    assert find_reader(LogDocument(data)) is reader
    runs = [one for one in entries(reader, data) if isinstance(one, AgentRun)]
    return [(run.language, run.code, run.success, f"x {run.output}{run.stderr}".split()[-1]) for run in runs]


def refused(reader: Reader, data: bytes) -> list[tuple[str, str | None]]:
    return [(one.kind, one.code) for one in entries(reader, data) if isinstance(one, NotRun)]


# --- TaskWeaver -----------------------------------------------------------------------------------------------------


def post(key: str, **attachments: str) -> dict[str, Any]:
    held = [{"id": f"{key}-{kind}", "type": kind, "content": text} for kind, text in attachments.items()]
    return {"id": key, "message": "", "send_from": "CodeInterpreter", "attachment_list": held}


FAILED = (
    "The execution of the generated python code above has failed\n\n"
    "During execution, the following messages were logged:\n"
)
WENT_WELL = (
    "The execution of the generated python code above has succeeded\n\n"
    "The result of above Python code after execution is:\n"
)
WEAVER: dict[str, Any] = {
    "id": "conv-1",
    "rounds": [
        {
            "user_query": "add up",
            "post_list": [
                {"id": "p0", "message": "add up", "attachment_list": []},
                post("p1", reply_type="python", reply_content="x + 1", execution_status="FAILURE",
                     execution_result=FAILED + "NameError: name 'x' is not defined"),
                post("p2", reply_type="python", reply_content="import os", verification="INCORRECT",
                     execution_status="NONE", execution_result="No code is executed."),
                post("p3", reply_type="text", reply_content="I cannot.", execution_status="NONE"),
                post("p4", reply_type="python", reply_content="x = 1\nx + 1", verification="CORRECT",
                     execution_status="SUCCESS", execution_result=WENT_WELL + "2"),
            ],
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_taskweavers_posts_tell_what_ran_and_what_the_check_refused(form: str) -> None:
    data = (yaml.safe_dump(WEAVER) if form == "yaml" else json.dumps(WEAVER)).encode()
    assert told(taskweaver.READER, data) == [
        ("python", "x + 1", False, "defined"),
        ("python", "x = 1\nx + 1", True, "2"),
    ]
    assert refused(taskweaver.READER, data) == [("refused", "import os")]
    (first, last) = [one for one in entries(taskweaver.READER, data) if isinstance(one, AgentRun)]
    assert (first.session, first.task, last.output) == ("conv-1", "add up", "2")


@pytest.mark.parametrize("text", ["attachment_list: [", "attachment_list: &a [*a]", "- attachment_list", "[" * 9000])
def test_other_yaml_is_no_conversation_of_taskweavers(text: str) -> None:
    assert not taskweaver.READER.reads(LogDocument(text.encode()))


# --- VS Code --------------------------------------------------------------------------------------------------------


def shown(key: str, tool: str, **more: Any) -> dict[str, Any]:
    return {"kind": "toolInvocationSerialized", "toolCallId": key, "toolId": tool, "isConfirmed": {"type": 4}, **more}


def line(command: str, **more: Any) -> dict[str, Any]:
    return {"toolSpecificData": {"kind": "terminal", "commandLine": {"original": command}, **more}}


ENDED = {"terminalCommandOutput": {"text": "one\r\nbroken"}, "terminalCommandState": {"exitCode": 3, "duration": 40}}
QUERY = {"query": "SELECT a FROM t"}
COPILOT: dict[str, Any] = {
    "sessionId": "chat",
    "requests": [
        {
            "message": {"text": "Mend it."},
            "timestamp": 1762771204511,
            "modelId": "m",
            "response": [
                {"value": "Now `rm -r /`."},
                shown("c1", "run_in_terminal", **line("make", **ENDED)),
                shown("c2", "run_in_terminal", **line("make test")),
                shown("c3", "mcp_x_pyRunCode", resultDetails={
                    "input": json.dumps({"codeSnippet": "print(1)"}), "output": [{"value": "1"}], "isError": False,
                }),
                shown("c4", "db_run_query"),
                shown("c5", "copilot_readFile"),
                shown("c6", "run_in_terminal", **line("git push")) | {"isConfirmed": {"type": 0}},
                shown("c7", "copilot_replaceString"),
            ],
            "result": {"metadata": {
                "toolCallRounds": [{"toolCalls": [
                    {"id": "c2__vscode-1", "name": "run_in_terminal", "arguments": '{"command": "make test"}'},
                    {"id": "c4__vscode-1", "name": "db_run_query", "arguments": json.dumps(QUERY)},
                    {"id": "c7__vscode-1", "name": "replace_string_in_file",
                     "arguments": '{"filePath": "a.py", "newString": "b"}'},
                ]}],
                "toolCallResults": {
                    "c2__vscode-1": {"content": [{"value": "2 passed\n\nCommand exited with code 0"}]},
                    "c4__vscode-1": {"content": [{"value": '{"rows": [[7]]}'}]},
                    "c7__vscode-1": {"content": [{"value": "ok"}]},
                },
            }},
        }
    ],
}  # fmt: skip


def test_copilots_chat_is_read_from_what_the_page_shows_and_what_the_model_was_told() -> None:
    data = json.dumps(COPILOT).encode()
    assert set(told(copilot_chat.READER, data)) == {
        ("bash", "make", False, "broken"),
        ("bash", "make test", True, "passed"),
        ("python", "print(1)", True, "1"),
        ("sql", "SELECT a FROM t", True, "[[7]]}"),
    }
    assert refused(copilot_chat.READER, data) == [("refused", "git push")]
    found = entries(copilot_chat.READER, data)
    assert [(one.path, one.text) for one in found if isinstance(one, Edit)] == [("a.py", "b")]
    (run,) = [one for one in found if isinstance(one, AgentRun) and one.code == "make"]
    assert (run.exit_code, run.duration_ms, run.task, run.session, run.model) == (3, 40, "Mend it.", "chat", "m")


def changes(session: dict[str, Any]) -> list[dict[str, Any]]:
    """A chat as VS Code keeps it since 2026: the session as it began, and what changed since."""
    (request,) = session["requests"]
    parts = request["response"]
    began = {**request, "response": [], "result": None}
    return [
        {"kind": 0, "v": {**session, "requests": []}},
        {"kind": 1, "k": ["inputState", "inputText"], "v": "Mend"},
        {"kind": 2, "k": ["requests"], "v": [began]},
        {"kind": 2, "k": ["requests", 0, "response"], "v": [{"kind": "thinking"}, *parts[:3]]},
        {"kind": 2, "k": ["requests", 0, "response"], "i": 2, "v": parts[1:]},
        {"kind": 1, "k": ["requests", 0, "result"], "v": request["result"]},
        {"kind": 1, "k": ["requests", 7, "result"], "v": {"lost": 1}},
        {"kind": 3, "k": ["inputState"]},
        {"kind": 1, "k": ["customTitle"], "v": "Mending"},
    ]


def test_a_chat_that_is_kept_as_changes_is_read_as_the_session_that_they_leave() -> None:
    lines = changes(COPILOT)
    data = jsonl(*lines)
    assert find_reader(LogDocument(data)) is copilot_chat.READER
    assert entries(copilot_chat.READER, data) == entries(copilot_chat.READER, json.dumps(COPILOT).encode())
    whole = LogDocument(data)
    assert list(copilot_chat.READER.entries(whole)) == list(copilot_chat.READER.entries(whole))  # nothing is added up
    hostile = [
        {"kind": kind, "k": path, "v": 1}
        for kind in (1, 2, 3)
        for path in ([], [[]], [{}], [None], ["requests", "x"], [0], ["a"] * 5000, ["requests", 0, "response", 0])
    ]
    survives(copilot_chat.READER, jsonl(*lines, *hostile))


def test_a_terminals_part_with_an_id_of_its_own_is_the_next_call_of_its_command() -> None:
    def shown(key: str, exit_code: int) -> dict[str, Any]:
        terminal = {
            "kind": "terminal",
            "commandLine": {"original": "ls -a", "toolEdited": " ls -a"},
            "terminalCommandState": {"exitCode": exit_code},
            "terminalCommandOutput": {"text": f"{exit_code}\r\n"},
        }
        return {"kind": "toolInvocationSerialized", "toolCallId": key, "toolSpecificData": terminal}

    calls = [
        {"id": f"c{n}__vscode-1", "name": "run_in_terminal", "arguments": '{"command": "ls -a"}'} for n in range(3)
    ]
    said = {call["id"]: {"content": [{"value": "Note: The tool simplified the command."}]} for call in calls}
    metadata = {"toolCallRounds": [{"toolCalls": calls}], "toolCallResults": said}
    parts = [shown("c0", 0), shown("5f0c", 1), shown("77aa", 2)]
    chat = {"requests": [{"response": parts, "result": {"metadata": metadata}}]}
    assert told(copilot_chat.READER, json.dumps(chat).encode()) == [
        ("bash", " ls -a", True, "0"),
        ("bash", " ls -a", False, "1"),
        ("bash", " ls -a", False, "2"),
    ]


# --- LangSmith ------------------------------------------------------------------------------------------------------


def tool_run(key: str, name: str, given: Any, outputs: Any, error: str | None = None) -> dict[str, Any]:
    return {
        "id": key, "trace_id": "t", "run_type": "tool", "name": name, "inputs": given, "outputs": outputs,
        "error": error, "status": "error" if error else "success",
        "start_time": "2026-01-02T10:00:00", "end_time": "2026-01-02T10:00:02",
    }  # fmt: skip


def tool_said(text: str) -> dict[str, Any]:
    return {"output": {"type": "tool", "content": text, "tool_call_id": "c", "status": "success"}}


TREE: dict[str, Any] = {
    "run_type": "chain", "id": "r", "inputs": {"messages": [{"role": "user", "content": "How many?"}]},
    "child_runs": [
        {"run_type": "llm", "id": "l", "outputs": {"tool_calls": [
            {"id": "c", "name": "sql_db_query", "args": {"query": "SELECT a FROM t"}},
        ]}},
        tool_run("1", "sql_db_query_checker", {"input": "{'query': 'SELECT a FROM t'}"}, tool_said("SELECT a FROM t")),
        tool_run("2", "sql_db_query", {"input": "{'query': 'SELECT a FROM t'}"}, tool_said("[(7,)]")),
        tool_run("3", "sql_db_query", {"query": "SELECT b FROM t"}, tool_said("Error: (OperationalError) no b")),
        tool_run("4", "Python_REPL", {"input": "{'query': 'print(1)'}"}, {"output": "1"}),
        tool_run("5", "python_repl", {"input": "{'query': 'open(\\'a\\')'}"}, {"output": "FileNotFoundError(2, 'a')"}),
        tool_run("6", "terminal", {"commands": ["make"]}, None, "ToolException('status 2')"),
        tool_run("7", "search_web", {"input": "{'query': 'SELECT a FROM t'}"}, {"output": "x"}),
        tool_run("8", "write_file", {"file_path": "a.py", "text": "b"}, {"output": "written"}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("flat", [False, True])
def test_run_trees_count_each_tool_once(flat: bool) -> None:
    data = jsonl(TREE | {"child_runs": []}, *TREE["child_runs"]) if flat else json.dumps(TREE).encode()
    assert told(run_trees.READER, data) == [
        ("sql", "SELECT a FROM t", True, "[(7,)]"),
        ("sql", "SELECT b FROM t", False, "b"),
        ("python", "print(1)", True, "1"),
        ("python", "open('a')", False, "'a')"),
        ("bash", "make", False, "2')"),
    ]
    found = entries(run_trees.READER, data)
    assert [one.path for one in found if isinstance(one, Edit)] == ["a.py"]
    assert {one.task for one in found if isinstance(one, AgentRun)} == {"How many?"}


LANGFUSE = [
    {"id": "g", "traceId": "t", "type": "GENERATION", "input": {"messages": [{"role": "user", "content": "What?"}]}},
    {"id": "1", "traceId": "t", "type": "TOOL", "name": "sql_query", "input": {"query": "SELECT a FROM t"},
     "output": "[(7,)]", "level": "DEFAULT", "startTime": "2026-01-02T10:00:00Z", "endTime": "2026-01-02T10:00:01Z"},
    {"id": "2", "traceId": "t", "type": "TOOL", "name": "sql_query", "input": {"query": "SELECT b FROM t"},
     "output": None, "level": "ERROR", "statusMessage": "OperationalError: no such column: b"},
    {"id": "3", "traceId": "t", "type": "TOOL", "name": "web_search", "input": {"query": "SELECT a FROM t"}},
]  # fmt: skip
AGENTS_SDK = [
    {"object": "trace", "id": "t"},
    {"object": "trace.span", "id": "1", "trace_id": "t", "started_at": "2026-01-02T10:00:00Z", "error": None,
     "span_data": {"type": "function", "name": "query_db", "input": '{"sql": "SELECT a FROM t"}', "output": "[(7,)]"}},
    {"object": "trace.span", "id": "2", "trace_id": "t", "span_data": {
        "type": "function", "name": "query_db", "input": '{"sql": "SELECT b FROM t"}', "output": "An error occurred.",
     }, "error": {"message": "Error running tool", "data": {"error": "no such column: b"}}},
]  # fmt: skip


def mlflow_span(key: str, query: str, output: str, code: str) -> dict[str, Any]:
    return {
        "name": "run_query", "context": {"span_id": key, "trace_id": "t"}, "start_time": 1767348000_000000000,
        "end_time": 1767348001_000000000, "status_code": code,
        "events": [{"name": "exception", "attributes": {"exception.message": output}}] if code == "ERROR" else [],
        "attributes": {
            "mlflow.spanType": '"TOOL"', "mlflow.spanInputs": json.dumps({"query": query}),
            "mlflow.spanOutputs": json.dumps(output) if code == "OK" else "null",
        },
    }  # fmt: skip


MLFLOW = {"info": {"request_id": "r"}, "data": {"spans": [
    mlflow_span("1", "SELECT a FROM t", "[(7,)]", "OK"),
    mlflow_span("2", "SELECT b FROM t", "no such column: b", "ERROR"),
]}}  # fmt: skip


@pytest.mark.parametrize("value", [LANGFUSE, AGENTS_SDK, MLFLOW], ids=["langfuse", "agents sdk", "mlflow"])
def test_traces_of_tools_tell_what_came_of_them(value: Any) -> None:
    data = jsonl(*value) if isinstance(value, list) else json.dumps(value).encode()
    assert told(run_trees.READER, data) == [
        ("sql", "SELECT a FROM t", True, "[(7,)]"),
        ("sql", "SELECT b FROM t", False, "b"),
    ]
    (first, _) = entries(run_trees.READER, data)
    assert isinstance(first, AgentRun) and first.started is not None and first.session == "t"


BLOCKS = [
    {"table": "ai_queries", "input": [{"Query": {"text": "mend it"}}]},
    {"table": "blocks", "id": 1, "stylized_command": "\x1b[1mmake\x1b[0m", "exit_code": 2, "did_execute": 1,
     "stylized_output": "no \x1b[31mrule\x1b[0m\r\n", "start_ts": "2026-01-02 10:00:00",
     "completed_ts": "2026-01-02 10:00:01", "ai_metadata": {"conversation_id": "c"}},
    {"table": "blocks", "id": 2, "stylized_command": "rm a", "stylized_output": "", "exit_code": 0, "did_execute": 0},
]  # fmt: skip


def test_warps_blocks() -> None:
    data = jsonl(*BLOCKS)
    assert told(warp.READER, data) == [("bash", "make", False, "rule")]
    assert refused(warp.READER, data) == [("refused", "rm a")]


# --- Bedrock --------------------------------------------------------------------------------------------------------


def trace(number: int, **told: Any) -> dict[str, Any]:
    held = {name: {"traceId": f"t-{number}", **value} for name, value in told.items()}
    return {"sessionId": "s", "eventTime": "2026-01-02T10:00:00Z", "trace": {"orchestrationTrace": held}}


def action(function: str, **arguments: str) -> dict[str, Any]:
    given = [{"name": name, "type": "string", "value": value} for name, value in arguments.items()]
    return {"actionGroupInvocationInput": {"actionGroupName": "G", "function": function, "parameters": given}}


def acted(text: str) -> dict[str, Any]:
    return {"actionGroupInvocationOutput": {"text": text}}


def interpreted(output: str, error: str = "", timeout: bool = False) -> dict[str, Any]:
    ran = {"executionOutput": output, "executionError": error, "executionTimeout": timeout}
    return {"codeInterpreterInvocationOutput": ran}


BEDROCK = [
    trace(0, modelInvocationOutput={"rawResponse": {"content": '{"toolUse": {"name": "G__run_query"}}'}}),
    trace(1, invocationInput=action("run_query", sql="SELECT a FROM t")),
    trace(1, observation=acted('{"ResultSet": {"Rows": [["a"], ["7"]]}}')),
    trace(2, invocationInput=action("run_query", sql="SELECT b FROM t")),
    trace(2, observation=acted('{"error": "no b"}')),
    trace(3, invocationInput={"codeInterpreterInvocationInput": {"code": "print(1)"}}),
    trace(3, observation=interpreted("1\n")),
    trace(4, invocationInput={"codeInterpreterInvocationInput": {"code": "1 / 0"}}),
    trace(4, observation=interpreted("", "ZeroDivisionError: zero")),
    trace(5, invocationInput=action("run_command", command="make")),
    trace(5, observation=acted('{"ResponseCode": 2, "StandardOutputContent": "", "StandardErrorContent": "no rule"}')),
    trace(6, invocationInput=action("create_ticket", body="please make")),
    trace(6, observation=acted("T-1")),
    trace(7, invocationInput={"knowledgeBaseLookupInput": {"text": "SELECT a FROM t"}}),
    trace(8, invocationInput=action("run_command", command="sleep 9")),
]


@pytest.mark.parametrize("as_lines", [False, True])
def test_bedrocks_traces_join_by_trace_id(as_lines: bool) -> None:
    data = jsonl(*BEDROCK) if as_lines else json.dumps(BEDROCK).encode()
    assert told(bedrock_traces.READER, data) == [
        ("sql", "SELECT a FROM t", True, '["7"]]}}'),
        ("sql", "SELECT b FROM t", False, "b"),
        ("python", "print(1)", True, "1"),
        ("python", "1 / 0", False, "zero"),
        ("bash", "make", False, "rule"),
    ]
    assert refused(bedrock_traces.READER, data) == [("unanswered", "sleep 9")]


# --- Jupyter --------------------------------------------------------------------------------------------------------


def message(kind: str, session: str, content: dict[str, Any], parent: str = "", key: str = "") -> dict[str, Any]:
    header = {"msg_id": key or f"{kind}-{parent}", "msg_type": kind, "session": session, "date": "2026-01-02T10:00:00Z"}
    asked = {"msg_id": parent, "session": session} if parent else {}
    return {"header": header, "msg_type": kind, "parent_header": asked, "content": content}


def ask(session: str, key: str, code: str) -> dict[str, Any]:
    return message("execute_request", session, {"code": code, "silent": False}, key=key)


KERNELS = [
    message("kernel_info_reply", "sh", {"language_info": {"name": "bash"}}, "i"),
    ask("py", "1", "print(1)\n2"),
    ask("sh", "2", "make"),
    message("stream", "k", {"name": "stdout", "text": "1\n"}, "1"),
    message("stream", "k", {"name": "stderr", "text": "no rule\n"}, "2"),
    message("execute_result", "k", {"data": {"text/plain": "2"}}, "1"),
    message("execute_reply", "k", {"status": "ok"}, "1"),
    message("execute_reply", "k", {"status": "error", "ename": "", "evalue": "2"}, "2"),
    message("complete_request", "py", {"code": "pri"}, key="3"),
    message("complete_reply", "k", {"status": "ok"}, "3"),
    ask("py", "4", "1 / 0"),
    message(
        "error", "k", {"ename": "ZeroDivisionError", "evalue": "z", "traceback": ["\x1b[31mTrace\x1b[0m", "z"]}, "4"
    ),
    message("execute_reply", "k", {"status": "error", "ename": "ZeroDivisionError", "evalue": "z"}, "4"),
    ask("py", "5", "never()"),
    message("execute_reply", "k", {"status": "aborted"}, "5"),
]


def test_messages_of_two_kernels_are_told_apart() -> None:
    data = jsonl(*KERNELS)
    assert told(jupyter_messages.READER, data) == [
        ("python", "print(1)\n2", True, "2"),
        ("bash", "make", False, "rule"),
        ("python", "1 / 0", False, "z"),
    ]
    assert refused(jupyter_messages.READER, data) == [("cancelled", "never()")]


# --- statements of SQL ----------------------------------------------------------------------------------------------

STATEMENTS = (
    "SELECT 1", "-- all\nselect a, b\nfrom t where a > 2", "select now()", "WITH x AS (SELECT 1) SELECT * FROM x",
    "INSERT OR REPLACE INTO t VALUES (1)", "UPDATE t SET a = 1", "delete from t", "CREATE TEMP TABLE x (a)",
    "/* c */ DROP INDEX i", "PRAGMA table_info(t)", "EXPLAIN QUERY PLAN SELECT 1", "DESCRIBE t;", "SHOW TABLES",
)  # fmt: skip
SENTENCES = (
    "select the best of these", "show me the files", "explain the code", "create a table of contents",
    "describe what it does", "update the docs", "with care", "drop it", "from t select", "insert a line",
    "delete the branch", "truncate all names",
)  # fmt: skip


@pytest.mark.parametrize("tool", ["query", "mcp__postgres__query", "db.execute", "run_query_on_warehouse"])
def test_a_query_is_sql_by_its_own_words(tool: str) -> None:
    for key in ("sql", "query", "statement"):
        assert [text for text in STATEMENTS if asked_of(tool, {key: text}) != ("sql", text, None)] == []
        assert [text for text in SENTENCES if asked_of(tool, {key: text}) is not None] == []
    assert asked_of("search_docs", {"query": "SELECT 1"}) is None and asked_of(tool, {"query": 1}) is None


# --- what terminals show --------------------------------------------------------------------------------------------

CODEX = """OpenAI Codex v0.46.0 (research preview)
--------
workdir: /w
model: m-1
session id: 0199
--------
user
Mend it; then `make`.

exec
bash -lc "cat > a <<'E'
one in /etc
E
make" in /w succeeded in 18ms:
built

again

codex
I would run:

exec no, not this

tool db.query({"sql":"SELECT a FROM t"})
db.query({"sql":"SELECT a FROM t"}) success in 4ms:
{"content": [{"type": "text", "text": "[[7]]"}], "isError": false}

tool docs.search({"query":"SELECT a FROM t"})
docs.search({"query":"SELECT a FROM t"}) success in 4ms:
{"content": [{"type": "text", "text": "none"}]}

exec
bash -lc 'make test' in /w exited 2 in 1.5s:
no rule

tokens used
12
"""


def test_codexs_terminal() -> None:
    data = CODEX.encode()
    assert told(codex_terminal.READER, data) == [
        ("bash", "cat > a <<'E'\none in /etc\nE\nmake", True, "again"),
        ("sql", "SELECT a FROM t", True, "[[7]]"),
        ("bash", "make test", False, "rule"),
    ]
    (first, *_, last) = [one for one in entries(codex_terminal.READER, data) if isinstance(one, AgentRun)]
    assert (first.session, first.task, first.model) == ("0199", "Mend it; then `make`.", "m-1")
    assert (last.exit_code, last.duration_ms) == (2, 1500)


def test_times_that_a_runner_of_jobs_writes_before_each_line_are_no_part_of_it() -> None:
    times = (f"2026-03-04T09:{number // 60:02}:{number % 60:02}.0001370Z" for number in range(3600))
    timed = "".join(f"{at} {line}".rstrip() + "\r\n" for at, line in zip(times, CODEX.split("\n"), strict=False))
    plain = told(codex_terminal.READER, CODEX.encode())
    assert told(codex_terminal.READER, b"\xef\xbb\xbf" + timed.replace("\r\n", "\n").encode()) == plain


EARLIER = """\x1b[2m[2025-08-01T10:00:00]\x1b[0m OpenAI Codex v0.20.0 (research preview)
--------
\x1b[1mworkdir:\x1b[0m /w
\x1b[1mmodel:\x1b[0m m-1
--------
[2025-08-01T10:00:00] \x1b[36mUser instructions:\x1b[0m
Mend it.

[2025-08-01T10:00:01] \x1b[35mexec\x1b[0m \x1b[1mbash -lc 'make in a'\x1b[0m in /w
[2025-08-01T10:00:02] \x1b[31mbash -lc 'make in a' exited 2 in 1.20s:\x1b[0m
\x1b[2mexec make in /w succeeded\x1b[0m
\x1b[2mno rule\x1b[0m

[2025-08-01T10:00:03] \x1b[35mexec\x1b[0m \x1b[1mls\x1b[0m in /w
[2025-08-01T10:00:03] \x1b[32mls succeeded in 8ms:\x1b[0m
\x1b[2ma\x1b[0m
[2025-08-01T10:00:04] codex
Then `exec make in /w`.
[2025-08-01T10:00:04] tokens used: 12
"""


def test_codexs_terminal_as_a_recording_that_ends_in_a_command() -> None:
    begun = "[2025-08-01T10:00:05] \x1b[35mexec\x1b[0m \x1b[1mbash -lc 'cargo publish'\x1b[0m in /w\n"
    shown = EARLIER + begun
    header = {"version": 2, "width": 80, "height": 24}
    events = [[n / 9, "o", f"{line}\r\n"] for n, line in enumerate(shown.split("\n"))]
    data = "\n".join(json.dumps(one) for one in (header, *events)).encode()
    assert told(codex_terminal.READER, data) == told(codex_terminal.READER, EARLIER.encode())
    assert refused(codex_terminal.READER, data) == [("unanswered", "cargo publish")]


def test_codexs_terminal_with_a_duration_that_is_none() -> None:
    damaged = CODEX.replace("succeeded in 18ms:", "succeeded in 1..8ms:")
    assert damaged != CODEX
    assert len(told(codex_terminal.READER, damaged.encode())) == len(told(codex_terminal.READER, CODEX.encode())) - 1


def test_codexs_terminal_in_colours_with_a_time_on_each_line() -> None:
    data = EARLIER.encode()
    assert told(codex_terminal.READER, data) == [("bash", "make in a", False, "rule"), ("bash", "ls", True, "a")]
    (first, last) = [one for one in entries(codex_terminal.READER, data) if isinstance(one, AgentRun)]
    assert (first.exit_code, first.task, first.model) == (2, "Mend it.", "m-1")
    assert first.started is not None and last.started is not None and (last.started - first.started).seconds == 2


CLAUDE = """
> mend it

⏺ I would run Bash(rm) first.

⏺ Bash(cd a &&
      make)
  ⎿  built
     twice

⏺ Read(a.py)
  ⎿  Read 84 lines

⏺ Bash(make test)
  ⎿  Error: Exit code 2
     no rule
     … +6 lines (ctrl+o to expand)

⏺ db - query (MCP)(sql: "SELECT a FROM t")
  ⎿  [{"a": 7}]

⏺ Bash(git push)
  ⎿  Interrupted · What should Claude do instead?

! pwd
  ⎿  /w

⏺ Done.
"""


def test_claudes_export() -> None:
    data = CLAUDE.encode()
    assert told(terminal_screens.READER, data) == [
        ("bash", "cd a &&\nmake", True, "twice"),
        ("bash", "make test", False, "rule"),
        ("sql", "SELECT a FROM t", True, "7}]"),
        ("bash", "pwd", True, "/w"),
    ]
    assert refused(terminal_screens.READER, data) == [("refused", "git push")]


@pytest.mark.parametrize("reader", [codex_terminal.READER, terminal_screens.READER], ids=lambda reader: reader.name)
def test_a_cut_transcript_is_read_as_far_as_it_goes(reader: Reader) -> None:
    text = CODEX + EARLIER if reader is codex_terminal.READER else CLAUDE
    for end in range(0, len(text), 7):
        document = LogDocument(text[:end].encode())
        if reader.reads(document):
            list(reader.entries(document))


@pytest.mark.parametrize(
    ("reader", "value", "as_lines"),
    [
        (copilot_chat.READER, COPILOT, False),
        (run_trees.READER, TREE, False),
        (run_trees.READER, LANGFUSE, True),
        (run_trees.READER, AGENTS_SDK, True),
        (run_trees.READER, MLFLOW, False),
        (warp.READER, BLOCKS, True),
        (bedrock_traces.READER, BEDROCK, True),
        (jupyter_messages.READER, KERNELS, True),
        (taskweaver.READER, WEAVER, False),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_nothing_damaged_makes_a_reader_fail(reader: Reader, value: Any, as_lines: bool) -> None:
    for changed in damaged(json.loads(json.dumps(value))):
        survives(reader, jsonl(*changed) if as_lines else json.dumps(changed).encode())
