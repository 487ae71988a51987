"""Codex's rollouts: what ran and how it ended, in every version's shape, and what merely looks alike."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.agents.tools.codex import READER
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.tools.damaged_lines import damaged_lines

TIME = "2026-04-16T09:34:45.500Z"
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: b.py\n+z\n*** End Patch"


def line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": TIME, "type": kind, "payload": payload}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return line("response_item", type=kind, **fields)


META = line("session_meta", id="s1", cwd="/w", cli_version="0.125.0")
MODEL = line("turn_context", cwd="/w", model="gpt-5.4")


def said(text: str) -> dict[str, Any]:
    return item("message", role="user", content=[{"type": "input_text", "text": text}])


def call(key: str, arguments: Any, name: str = "exec_command") -> dict[str, Any]:
    return item("function_call", name=name, arguments=json.dumps(arguments), call_id=key)


def answer(key: str, output: Any) -> dict[str, Any]:
    return item("function_call_output", call_id=key, output=output)


def header(state: str, output: str = "") -> str:
    return f"Chunk ID: c06b\nWall time: 0.2500 seconds\n{state}\nOriginal token count: 4\nOutput:\n{output}"


def ended(key: str, code: Any, **fields: Any) -> dict[str, Any]:
    event = {
        "type": "exec_command_end",
        "call_id": key,
        "command": ["/bin/zsh", "-lc", "ls"],
        "stdout": "",
        "stderr": "",
    }
    told = {"aggregated_output": "whole\n", "exit_code": code, "duration": {"secs": 1, "nanos": 500000}}
    return line("event_msg", **(event | told | {"status": "completed"} | fields))


def log(*lines: Any) -> LogDocument:
    return LogDocument("\n".join(json.dumps(each) for each in lines).encode())


def read(*lines: Any) -> list[Entry]:
    document = log(*lines)
    assert READER.reads(document)
    return list(READER.entries(document))


def only_run(*lines: Any) -> AgentRun:
    (run,) = read(*lines)
    assert isinstance(run, AgentRun)
    return run


def test_a_run_without_the_header_of_its_answer() -> None:
    run = only_run(
        META,
        item("message", role="developer", content=[{"type": "input_text", "text": "rules"}]),
        said("# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>be good</INSTRUCTIONS>"),
        said("<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"),
        MODEL,
        said("list the files"),
        call("c1", {"cmd": "ls", "yield_time_ms": 1000}),
        answer("c1", header("Process exited with code 0", "a\nOutput:\nb\n")),
    )
    assert run == AgentRun(
        session="s1",
        language="bash",
        code="ls",
        success=True,
        output="a\nOutput:\nb\n",
        exit_code=0,
        call_id="c1",
        started=datetime(2026, 4, 16, 9, 34, 45, 500000, UTC),
        duration_ms=250.0,
        task="list the files",
        model="gpt-5.4",
    )


@pytest.mark.parametrize("order", ["before", "after"])
def test_the_event_is_the_same_run_once_more(order: str) -> None:
    event = [ended("c1", 1)]
    answered = [answer("c1", header("Process exited with code 1", "whol…1 tokens truncated…"))]
    run = only_run(META, call("c1", {"cmd": "ls"}), *(event + answered if order == "before" else answered + event))
    assert (run.output, run.exit_code, run.success, run.duration_ms) == ("whole\n", 1, False, 1000.5)


def test_an_event_alone_is_a_run_and_a_declined_one_is_none() -> None:
    assert read(META, ended("c2", None, status="declined")) == [NotRun("refused")]
    assert only_run(META, ended("c1", 0)).code == "ls"


def test_a_repeated_history_counts_once() -> None:
    lines = [call("c1", {"cmd": "ls"}), answer("c1", header("Process exited with code 0"))]
    parent = line("session_meta", id="s0", cwd="/w")
    assert only_run(META, parent, *lines, line("compacted", replacement_history=lines), *lines).session == "s1"


@pytest.mark.parametrize(
    ("polls", "success", "output"),
    [
        ([], None, "a"),
        (["Process running with session ID 77", "Process exited with code 0"], True, "abb"),
        (["Process exited with code 2"], False, "ab"),
    ],
)
def test_a_command_that_goes_on_ends_with_write_stdin(polls: list[str], success: bool | None, output: str) -> None:
    lines = [call("c1", {"cmd": "make"}), answer("c1", header("Process running with session ID 77", "a"))]
    for number, state in enumerate(polls):
        lines += [
            call(f"w{number}", {"session_id": 77, "chars": ""}, "write_stdin"),
            answer(f"w{number}", header(state, "b")),
        ]
    lines += [call("w9", {"session_id": 77}, "write_stdin"), answer("w9", "write_stdin failed: Unknown process id 77")]
    run = only_run(META, *lines)
    assert (run.success, run.output, run.duration_ms) == (success, output, None)


def test_a_header_may_begin_with_the_command() -> None:
    text = "Command: /bin/zsh -lc 'cat <<E\nE'\n" + header("Process exited with code 3", "x")
    assert only_run(META, call("c1", {"cmd": "x"}), answer("c1", text)).exit_code == 3


def test_shell_command_has_a_header_of_its_own() -> None:
    head = "Exit code: 124\nWall time: 10 seconds\nTotal output lines: 9\nOutput:\n"
    text = head + "command timed out after 10000 milliseconds\n"
    run = only_run(META, call("c1", {"command": "sleep 99"}, "shell_command"), answer("c1", text))
    assert (run.code, run.exit_code, run.timed_out, run.duration_ms) == ("sleep 99", 124, True, 10000)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('exec_command failed for `rm x`: CreateProcess { message: "Rejected(\\"rejected by user\\")" }', "refused"),
        ("exec command rejected by user", "refused"),
        ("approval policy is Never; reject command — you should not ask for escalated permissions", "refused"),
        ("failed to parse function arguments: duplicate field `yield_time_ms`", "invalid_call"),
        ('exec_command failed for `x`: CreateProcess { message: "No such file or directory" }', "not_started"),
    ],
)
def test_what_never_started_is_no_run(text: str, kind: str) -> None:
    assert read(META, call("c1", {"cmd": "rm x"}), answer("c1", text)) == [NotRun(kind)]


def test_no_answer_is_no_run() -> None:
    assert read(META, call("c1", {"cmd": "ls"})) == [NotRun("unanswered")]


def test_what_the_sandbox_or_the_user_stopped_ran() -> None:
    denied = (
        'exec_command failed for `x`: CreateProcess { message: "Sandbox(Denied { output: Output { exit_code: 1'
        + ' } })" }'
    )
    assert only_run(META, call("c1", {"cmd": "x"}), answer("c1", denied)).exit_code == 1
    stopped = only_run(META, call("c1", {"cmd": "x"}), answer("c1", "Wall time: 3.2 seconds\naborted by user"))
    assert (stopped.success, stopped.exit_code) == (None, None)


@pytest.mark.parametrize("shape", ["custom", "function", "words", "heredoc"])
def test_an_applied_patch_is_an_edit_of_each_file(shape: str) -> None:
    asked = {
        "custom": item("custom_tool_call", name="apply_patch", input=PATCH, call_id="c1", status="completed"),
        "function": call("c1", {"input": PATCH}, "apply_patch"),
        "words": call("c1", {"command": ["apply_patch", PATCH]}, "shell"),
        "heredoc": call("c1", {"cmd": f"cd /w && apply_patch <<'EOF'\n{PATCH}\nEOF\n"}),
    }[shape]
    done = json.dumps({"output": "Success. Updated the following files:\nM a.py\n", "metadata": {"exit_code": 0}})
    kind = "custom_tool_call_output" if shape == "custom" else "function_call_output"
    edits = [Edit("s1", "a.py", "*** Update File: a.py\n@@\n-x\n+y"), Edit("s1", "b.py", "*** Add File: b.py\n+z")]
    assert read(META, asked, item(kind, call_id="c1", output=done)) == edits
    assert read(META, asked, item(kind, call_id="c1", output="Success. Updated the following files:\nM a.py")) == edits
    failed = json.dumps({"output": "apply_patch verification failed", "metadata": {"exit_code": 1}})
    assert read(META, asked, item(kind, call_id="c1", output=failed)) == []
    assert read(META, asked, item(kind, call_id="c1", output="patch rejected by user")) == []


def test_a_script_that_applies_a_patch_among_others_is_a_run() -> None:
    code = f"apply_patch <<'EOF'\n{PATCH}\nEOF\npytest"
    assert only_run(META, call("c1", {"cmd": code}), answer("c1", header("Process exited with code 0"))).code == code


def test_older_versions_wrote_bare_items() -> None:
    data = (
        b'{"id": "old-1", "timestamp": "2025-05-07T17:24:21.597Z", "instructions": null, "git": {}}\n'
        b'{"record_type":"state"}\n'
        b'{"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"}]}\n'
        b'{"type":"function_call","name":"shell","arguments":"{\\"command\\":[\\"bash\\",\\"-lc\\",\\"ls\\"]}","call_id":"c1"}\n'
        b'{"type":"function_call_output","call_id":"c1","output":'
        b'"{\\"output\\":\\"a\\",\\"metadata\\":{\\"exit_code\\":0,\\"duration_seconds\\":0.2}}"}\n'
        b'{"type":"local_shell_call","call_id":"c2","status":"completed",'
        b'"action":{"type":"exec","command":["git","log","-n 1"]}}\n'
        b'{"type":"function_call_output","call_id":"c2","output":"{\\"output\\":\\"\\",\\"metadata\\":{\\"exit_code\\":1}}"}\n'
    )
    document = LogDocument(data)
    assert find_reader(document) is READER
    first, second = READER.entries(document)
    assert first == AgentRun("old-1", "bash", "ls", True, "a", "", 0, "c1", duration_ms=200.0, task="fix it")
    assert isinstance(second, AgentRun)
    assert (second.code, second.success) == ("git log '-n 1'", False)


def test_the_first_version_wrote_one_object() -> None:
    def told(output: str, metadata: dict[str, Any]) -> str:
        return json.dumps({"output": output, "metadata": metadata})

    items = [
        said("fix it"),
        call("1", {"command": ["apply_patch", PATCH]}, "shell"),
        answer("1", told("Done!", {"exit_code": 0, "duration_seconds": 0.1})),
        call("2", {"command": ["bash", "-lc", "make"]}, "shell"),
        answer("2", told("bad", {"exit_code": 2, "duration_seconds": 1.5})),
        call("3", {"command": ["git", "push"]}, "shell"),
        answer("3", told("No, don't do that.", {})),
    ]
    about = {"id": "s9", "timestamp": TIME, "instructions": ""}
    text = json.dumps({"session": about, "items": [one["payload"] for one in items]}, indent=2)
    document = LogDocument(text.encode())
    assert find_reader(document) is READER
    edits, runs = list(READER.entries(document))[:2], list(READER.entries(document))[2:]
    assert [edit.path for edit in edits if isinstance(edit, Edit)] == ["a.py", "b.py"]
    (run, refused) = runs
    assert isinstance(run, AgentRun)
    assert (run.session, run.code, run.exit_code, run.duration_ms, run.task) == ("s9", "make", 2, 1500, "fix it")
    assert refused == NotRun("refused") and isinstance(refused, NotRun) and refused.code == "git push"


def test_powershell_and_lists_of_outputs() -> None:
    shell = call("c1", {"command": ["powershell.exe", "-NoProfile", "-Command", "dir"]}, "shell")
    output = [{"type": "input_text", "text": header("Process exited with code 0", "x")}]
    run = only_run(META, shell, answer("c1", output))
    assert (run.language, run.code, run.output) == ("powershell", "dir", "x")


@pytest.mark.parametrize(("shell", "language"), [("powershell", "powershell"), ("cmd", "bash"), ("zsh", "bash")])
def test_commands_have_the_shell_of_the_environment(shell: str, language: str) -> None:
    told = said(f"<environment_context>\n  <cwd>C:\\w</cwd>\n  <shell>{shell}</shell>\n</environment_context>")
    lines = [call("c1", {"cmd": "dir"}), answer("c1", header("Process exited with code 0"))]
    assert only_run(META, told, *lines).language == language
    script = item("custom_tool_call", name="exec", input="await tools.exec_command({cmd: 'dir'})", call_id="c2")
    done = item("custom_tool_call_output", call_id="c2", output="Script completed\nOutput:\n")
    assert only_run(META, told, script, done).language == language
    own = [call("c3", {"cmd": "ls", "shell": "/bin/bash"}), answer("c3", header("Process exited with code 0"))]
    assert only_run(META, told, *own).language == "bash"


def test_the_command_of_cmd() -> None:
    lines = [call("c1", {"command": ["cmd.exe", "/C", "dir", "a b"]}, "shell"), answer("c1", header("Exit code: 0"))]
    run = only_run(META, *lines)
    assert (run.language, run.code) == ("bash", "dir a b")


def test_a_script_that_computes_goes_on_with_wait() -> None:
    asked = item("custom_tool_call", name="exec", input="text(await ready())", call_id="c1")
    text = "Script running with cell ID 4\nWall time 0.1 seconds\nOutput:\na"
    later = "Script failed\nWall time 0.3 seconds\nOutput:\nb"
    lines = [item("custom_tool_call_output", call_id="c1", output=[{"type": "input_text", "text": text}])]
    lines += [call("w1", {"cell_id": "4"}, "wait"), answer("w1", later)]
    run = only_run(META, asked, *lines)
    assert (run.language, run.output, run.success) == ("javascript", "a\nb", False)


@pytest.mark.parametrize("with_event", [False, True])
def test_a_command_that_the_user_typed_counts_once(with_event: bool) -> None:
    told = "<command>\nls\n</command>\n<result>\nExit code: 2\nDuration: 0.0250 seconds\nOutput:\nno\n\n</result>"
    lines = [ended("u1", 2, source="user_shell")] if with_event else []
    run = only_run(META, *lines, said(f"<user_shell_command>\n{told}\n</user_shell_command>"))
    assert (run.code, run.exit_code, run.task) == ("ls", 2, None)


def test_the_request_stands_below_the_editors_context() -> None:
    text = "# Context from my IDE setup:\n## Open tabs:\n- a.py\n\n## My request for Codex:\nfix a.py\n"
    lines = [call("c1", {"cmd": "ls"}), answer("c1", header("Process exited with code 0"))]
    assert only_run(META, line("event_msg", type="user_message", message=text), *lines).task == "fix a.py"


def test_damage_is_a_fault_and_the_rest_is_read() -> None:
    lines = [call("c1", {"cmd": 3}), answer("c1", header("Process exited with code 0"))]
    lines += [call("p1", {"plan": []}, "update_plan"), answer("p1", "Plan updated")]
    lines += [answer("c9", header("Process exited with code 0")), {"timestamp": TIME, "type": "response_item"}]
    more = [call("c2", {"cmd": "ls"}), answer("c2", header("Process exited with code 0"))]
    document = LogDocument(log(*lines).data + b'\n{"timestamp":"2026\n' + log(*more).data)
    found = list(READER.entries(document))
    reasons = [entry.reason for entry in found if isinstance(entry, Fault)]
    assert reasons == ["invalid_json", "missing:call", "type:payload", "type:command"]
    (run,) = [entry for entry in found if isinstance(entry, AgentRun)]
    assert (run.code, run.session) == ("ls", document.digest)


@pytest.mark.parametrize(
    "other",
    [
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c", "instructions": "a dataset"},
        {"type": "session_meta", "payload": "text"},
        {"type": "event_msg", "payload": {"value": 1}},
        {"id": 1, "timestamp": TIME, "instructions": "a dataset of instructions"},
        {"sandbox_id": "s", "execution_id": "e", "record_type": "state", "code": "ls"},
    ],
)
def test_what_merely_looks_alike_is_not_read(other: dict[str, Any]) -> None:
    assert find_reader(log(other, other)) is None


WHOLE = [
    META,
    MODEL,
    said("<user_shell_command><command>ls</command><result>Exit code: 0</result></user_shell_command>"),
    call("c1", {"command": ["bash", "-lc", "make"]}, "shell"),
    answer("c1", header("Process running with session ID 77", "a")),
    call("w1", {"session_id": 77}, "write_stdin"),
    answer("w1", header("Process exited with code 0")),
    ended("c1", 0),
    item("local_shell_call", call_id="c3", action={"command": ["ls"]}),
    item("custom_tool_call", name="apply_patch", input=PATCH, call_id="c4"),
    item("custom_tool_call_output", call_id="c4", output={"content": "Success.", "success": True}),
]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_damage_raises(draw: st.DataObject) -> None:
    document = log(*damaged_lines(WHOLE, draw))
    READER.reads(document)
    list(READER.entries(document))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_damage_of_arguments_raises(draw: st.DataObject) -> None:
    (arguments,) = damaged_lines([{"command": ["bash", "-lc", "x"], "cmd": "y", "shell": "z"}], draw)
    list(READER.entries(log(META, call("c1", arguments), answer("c1", arguments), answer("c1", json.dumps(arguments)))))
