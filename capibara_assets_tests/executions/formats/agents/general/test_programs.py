"""Programs whose logs have a shape of their own: what ran, how it ended, what the user did not allow."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.general import copilot_chat, jupyter_messages, run_trees
from capibara_assets.executions.formats.agents.general.tool_names import asked_of
from capibara_assets.executions.formats.agents.hosted import bedrock_traces
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.tools import claude_export, codex_terminal
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, survives

Told = tuple[str, str, bool | None, str]


def told(reader: Reader, data: bytes) -> list[Told]:
    """Language, code, success and the last word of what each run printed."""
    assert find_reader(LogDocument(data)) is reader
    runs = [one for one in entries(reader, data) if isinstance(one, AgentRun)]
    return [(run.language, run.code, run.success, f"x {run.output}{run.stderr}".split()[-1]) for run in runs]


def refused(reader: Reader, data: bytes) -> list[tuple[str, str | None]]:
    return [(one.kind, one.code) for one in entries(reader, data) if isinstance(one, NotRun)]


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
    assert told(claude_export.READER, data) == [
        ("bash", "cd a &&\nmake", True, "twice"),
        ("bash", "make test", False, "rule"),
        ("sql", "SELECT a FROM t", True, "7}]"),
        ("bash", "pwd", True, "/w"),
    ]
    assert refused(claude_export.READER, data) == [("refused", "git push")]


@pytest.mark.parametrize("reader", [codex_terminal.READER, claude_export.READER], ids=lambda reader: reader.name)
def test_a_cut_transcript_is_read_as_far_as_it_goes(reader: Reader) -> None:
    text = CODEX if reader is codex_terminal.READER else CLAUDE
    for end in range(0, len(text), 7):
        document = LogDocument(text[:end].encode())
        if reader.reads(document):
            list(reader.entries(document))


@pytest.mark.parametrize(
    ("reader", "value", "as_lines"),
    [
        (copilot_chat.READER, COPILOT, False),
        (run_trees.READER, TREE, False),
        (bedrock_traces.READER, BEDROCK, True),
        (jupyter_messages.READER, KERNELS, True),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_nothing_damaged_makes_a_reader_fail(reader: Reader, value: Any, as_lines: bool) -> None:
    for changed in damaged(json.loads(json.dumps(value))):
        survives(reader, jsonl(*changed) if as_lines else json.dumps(changed).encode())
