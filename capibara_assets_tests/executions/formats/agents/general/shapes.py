"""Small logs of programs that are read by shape, in our own words: a run that fails, an edit, a run that ends well."""

import json
from typing import Any

from capibara_assets_tests.executions.formats.agents.tools.damage import jsonl

FAILS, FIX, WELL, REFUSED = "python tally.py", "total = sum(rows)", "python tally.py --all", "rm -r out"
SAID, PRINTED = "NameError: name 'rows' is not defined", "42 rows"
AT = "2026-03-04T10:00:00Z"


def _args(command: str) -> dict[str, str]:
    return {"command": command}


_CREATE = {"command": "create", "path": "tally.py", "file_text": FIX}
_FILE = {"path": "tally.py", "content": FIX}


def goose() -> bytes:
    def asks(key: str, name: str, given: Any) -> dict[str, Any]:
        call = {"status": "success", "value": {"name": name, "arguments": given}}
        return {
            "role": "assistant",
            "created": 1772618400,
            "content": [{"type": "toolRequest", "id": key, "toolCall": call}],
        }

    def answers(key: str, result: dict[str, Any]) -> dict[str, Any]:
        return {
            "role": "user",
            "created": 1772618401,
            "content": [{"type": "toolResponse", "id": key, "toolResult": result}],
        }

    def shown(text: str) -> dict[str, Any]:
        parts = [{"type": "text", "text": text, "annotations": {"audience": [who]}} for who in ("assistant", "user")]
        return {"status": "success", "value": parts}

    return jsonl(
        {"working_dir": "/w", "description": "Tally"},
        {"role": "user", "created": 1772618399, "content": [{"type": "text", "text": "Mend the tally."}]},
        asks("a", "developer__shell", _args(FAILS)),
        answers("a", shown(SAID)),
        asks("b", "developer__text_editor", {"command": "write", "path": "tally.py", "file_text": FIX}),
        answers("b", shown("written")),
        asks("c", "developer__shell", _args(WELL)),
        answers("c", shown(PRINTED)),
        asks("d", "developer__shell", _args(REFUSED)),
        answers("d", {"status": "error", "error": "The user has declined to run this tool."}),
    )


def kimi() -> bytes:
    def told(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": 1772618400.5, "message": {"type": kind, "payload": payload}}

    def asks(key: str, name: str, given: Any) -> dict[str, Any]:
        return told("ToolCall", type="function", id=key, function={"name": name, "arguments": json.dumps(given)})

    def answers(key: str, error: bool, output: str, message: str) -> dict[str, Any]:
        return told(
            "ToolResult", tool_call_id=key, return_value={"is_error": error, "output": output, "message": message}
        )

    return jsonl(
        {"type": "metadata", "protocol_version": "1.10"},
        told("TurnBegin", user_input="Mend the tally."),
        asks("a", "Shell", _args(FAILS)),
        answers("a", True, SAID, "Command failed with exit code: 1."),
        asks("b", "WriteFile", _FILE),
        answers("b", False, "", "File written."),
        asks("c", "Shell", _args(WELL)),
        answers("c", False, PRINTED, "Command executed successfully."),
        asks("d", "Shell", _args(REFUSED)),
        answers("d", True, "", "The tool call is rejected by the user."),
    )


def kimi_streamed() -> bytes:
    """The same, with a call's arguments as they were streamed, and calls of a sub-agent within its events."""

    def row(kind: str, payload: dict[str, Any], within: str = "") -> dict[str, Any]:
        message: dict[str, Any] = {"type": kind, "payload": payload}
        if within:
            told = {"parent_tool_call_id": within, "subagent_type": "coder", "event": message}
            message = {"type": "SubagentEvent", "payload": told}
        return {"timestamp": 1782200000.5, "message": message}

    def call(key: str, name: str, given: dict[str, Any], error: bool, output: str, said: str, within: str = "") -> Any:
        text = json.dumps(given)
        begun = {"type": "function", "id": key, "function": {"name": name, "arguments": ""}}
        answer = {"tool_call_id": key, "return_value": {"is_error": error, "output": output, "message": said}}
        pieces = [{"arguments_part": text[at : at + 20]} for at in range(0, len(text), 20)]
        return [
            row("ToolCall", begun, within),
            *(row("ToolCallPart", piece, within) for piece in pieces),
            row("ToolResult", answer, within),
        ]

    return jsonl(
        {"type": "metadata", "protocol_version": "1.9"},
        row("TurnBegin", {"user_input": "Mend it."}),
        *call("a", "Shell", _args(FAILS), True, SAID, "Command failed with exit code: 1."),
        *call("b", "WriteFile", _FILE, False, "", "File written.", within="z"),
        *call("c", "Shell", _args(WELL), False, PRINTED, "Command executed successfully.", within="z"),
        *call("d", "Shell", _args(REFUSED), True, "", "The tool call is rejected by the user."),
    )


def cursor() -> bytes:
    def call(key: str, tool: str, given: dict[str, Any], result: dict[str, Any]) -> list[dict[str, Any]]:
        head = {"type": "tool_call", "call_id": key, "session_id": "s-1", "timestamp_ms": 1772618400000}
        return [
            head | {"subtype": "started", "tool_call": {tool: {"args": given}}},
            head | {"subtype": "completed", "tool_call": {tool: {"args": given, "result": result}}},
        ]

    def ended(code: int, stdout: str, stderr: str) -> dict[str, Any]:
        return {"success" if code == 0 else "failure": {"exitCode": code, "stdout": stdout, "stderr": stderr}}

    return jsonl(
        {"type": "system", "subtype": "init", "session_id": "s-1", "model": "m-1"},
        *call("a", "shellToolCall", _args(FAILS), ended(1, "", SAID)),
        *call("b", "writeToolCall", {"path": "tally.py", "fileText": FIX}, {"success": {"linesCreated": 1}}),
        *call("c", "shellToolCall", _args(WELL), ended(0, PRINTED, "")),
        *call("d", "shellToolCall", _args(REFUSED), {"rejected": {"reason": "declined"}}),
    )


def trae() -> bytes:
    def step(key: str, name: str, given: Any, success: bool, result: str, error: str = "") -> dict[str, Any]:
        return {
            "timestamp": AT,
            "tool_calls": [{"call_id": key, "name": name, "arguments": given}],
            "tool_results": [{"call_id": key, "success": success, "result": result, "error": error}],
        }

    steps = [
        step("a", "bash", _args(FAILS), False, "", SAID),
        step(
            "b",
            "str_replace_based_edit_tool",
            {"command": "create", "path": "tally.py", "file_text": FIX},
            True,
            "made",
        ),
        step("c", "bash", _args(WELL), True, PRINTED),
    ]
    asked = [{"timestamp": AT, "response": {"tool_calls": one["tool_calls"]}} for one in steps]
    return json.dumps({"task": "Mend the tally.", "llm_interactions": asked, "agent_steps": steps}).encode()


def copilot() -> bytes:
    def call(key: str, name: str, given: Any, success: bool, content: str) -> list[dict[str, Any]]:
        asked = {"toolCallId": key, "name": name, "arguments": given}
        return [
            {"type": "assistant.message", "timestamp": AT, "data": {"content": "", "toolRequests": [asked]}},
            {
                "type": "tool.execution_start",
                "timestamp": AT,
                "data": {"toolCallId": key, "toolName": name, "arguments": given},
            },
            {"type": "permission.completed", "data": {"toolCallId": key, "result": {"kind": "approved"}}},
            {
                "type": "tool.execution_complete",
                "timestamp": AT,
                "data": {"toolCallId": key, "success": success, "result": {"content": content}},
            },
        ]

    return jsonl(
        {"type": "session.start", "timestamp": AT, "data": {"sessionId": "s-1", "producer": "copilot-agent"}},
        *call("a", "bash", _args(FAILS), True, SAID + "\n<exited with exit code 1>"),
        *call("b", "create", {"path": "tally.py", "file_text": FIX}, True, "Created."),
        *call("c", "bash", _args(WELL), True, PRINTED + "\n<exited with exit code 0>"),
    )


def opencode() -> bytes:
    def part(key: str, tool: str, **state: Any) -> dict[str, Any]:
        return {"type": "tool", "sessionID": "ses_1", "callID": key, "tool": tool, "state": state}

    def ran(command: str, output: str, code: int) -> dict[str, Any]:
        return {
            "status": "completed",
            "input": _args(command),
            "output": output,
            "metadata": {"output": output, "exit": code},
            "time": {"start": 1772618400000, "end": 1772618401000},
        }

    parts = [
        part("a", "bash", **ran(FAILS, SAID, 1)),
        part("b", "write", status="completed", input={"filePath": "tally.py", "content": FIX}, output=""),
        part("c", "bash", **ran(WELL, PRINTED, 0)),
        part("d", "bash", status="error", input=_args(REFUSED), error="Error: The user rejected permission to use it."),
    ]
    info = {"role": "assistant", "sessionID": "ses_1", "modelID": "m-1", "time": {"created": 1772618400000}}
    return json.dumps({"info": {"id": "ses_1"}, "messages": [{"info": info, "parts": parts}]}).encode()


def continue_dev() -> bytes:
    def turn(key: str, name: str, given: Any, status: str, *output: dict[str, str]) -> dict[str, Any]:
        call = {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        state = {"toolCallId": key, "toolCall": call, "status": status, **({"output": list(output)} if output else {})}
        return {"message": {"role": "assistant", "content": "", "toolCalls": [call]}, "toolCallStates": [state]}

    tool = "run_terminal_command"
    history = [
        turn("a", tool, _args(FAILS), "done", {"content": SAID, "status": "Command failed with exit code 1"}),
        turn("b", "create_new_file", {"filepath": "tally.py", "contents": FIX}, "done", {"content": "Created"}),
        turn("c", tool, _args(WELL), "done", {"content": PRINTED, "status": "Command completed"}),
        turn("d", tool, _args(REFUSED), "canceled"),
    ]
    return json.dumps({"sessionId": "s-1", "title": "Tally", "history": history}).encode()


def amazon_q() -> bytes:
    def turn(given: Any, *asked: dict[str, Any]) -> dict[str, Any]:
        return {"user": {"content": given, "timestamp": AT}, "assistant": {"ToolUse": {"tool_uses": list(asked)}}}

    def asks(key: str, name: str, given: Any) -> dict[str, Any]:
        return {"id": key, "name": name, "args": given}

    def ended(key: str, **content: Any) -> dict[str, Any]:
        answer = {"tool_use_id": key, "content": [content], "status": "Success"}
        return {"ToolUseResults": {"tool_use_results": [answer]}}

    def shell(code: str, stdout: str, stderr: str) -> dict[str, Any]:
        return {"exit_status": code, "stdout": stdout, "stderr": stderr}

    history = [
        turn({"Prompt": {"prompt": "Mend the tally."}}, asks("a", "execute_bash", _args(FAILS))),
        turn(
            ended("a", Json=shell("1", "", SAID)),
            asks("b", "fs_write", _CREATE),
        ),
        turn(ended("b", Text=""), asks("c", "execute_bash", _args(WELL))),
        turn(ended("c", Json=shell("0", PRINTED, ""))),
    ]
    return json.dumps({"conversation_id": "s-1", "history": history}).encode()


def autogen_messages() -> bytes:
    def event(kind: str, **more: Any) -> dict[str, Any]:
        return {"source": "coder", "created_at": AT, "type": kind, **more}

    def block(code: str, language: str = "sh") -> dict[str, Any]:
        return event("CodeGenerationEvent", content="", code_blocks=[{"code": code, "language": language}])

    def result(code: int, output: str) -> dict[str, Any]:
        return event("CodeExecutionEvent", result={"exit_code": code, "output": output})

    asked = {"id": "b", "name": "write_file", "arguments": json.dumps(_FILE)}
    answer = {"call_id": "b", "name": "write_file", "content": "", "is_error": False}
    return jsonl(
        event("TextMessage", content="Mend the tally.") | {"source": "user"},
        block(FAILS),
        result(1, SAID),
        event("ToolCallRequestEvent", content=[asked]),
        event("ToolCallExecutionEvent", content=[answer]),
        block(WELL),
        result(0, PRINTED),
    )


def cline_native() -> bytes:
    def asks(key: str, name: str, given: Any) -> dict[str, Any]:
        return {
            "role": "assistant",
            "ts": 1772618400000,
            "content": [{"type": "tool_use", "id": key, "name": name, "input": given}],
        }

    def answers(key: str, head: str, text: str) -> dict[str, Any]:
        part = {
            "type": "tool_result",
            "tool_use_id": key,
            "content": [{"type": "text", "text": f"[{head}] Result:\n{text}"}],
        }
        return {"role": "user", "ts": 1772618401000, "content": [part]}

    run, file = "execute_command", {"path": "tally.py", "content": FIX}
    return json.dumps(
        [
            asks("a", run, _args(FAILS)),
            answers("a", f"{run} for '{FAILS}'", f"Command failed with exit code 1.\nOutput:\n{SAID}"),
            asks("b", "write_to_file", file),
            answers("b", "write_to_file for 'tally.py'", "Saved."),
            asks("c", run, _args(WELL)),
            answers("c", f"{run} for '{WELL}'", f"Command executed successfully (exit code 0).\nOutput:\n{PRINTED}"),
            asks("d", run, _args(REFUSED)),
            answers("d", f"{run} for '{REFUSED}'", "The user denied this operation."),
        ]
    ).encode()


def ai_sdk() -> bytes:
    def part(key: str, tool: str, given: Any, output: Any) -> dict[str, Any]:
        return {
            "type": f"tool-{tool}",
            "toolCallId": key,
            "state": "output-available",
            "input": given,
            "output": output,
        }

    parts = [
        part("a", "bash", _args(FAILS), {"exitCode": 1, "stdout": "", "stderr": SAID}),
        part("b", "writeFile", _FILE, {"ok": True}),
        part("c", "bash", _args(WELL), {"exitCode": 0, "stdout": PRINTED, "stderr": ""}),
    ]
    return json.dumps([{"id": "m1", "role": "assistant", "parts": parts}]).encode()


def function_responses() -> bytes:
    def call(key: str, name: str, given: Any, response: Any) -> list[dict[str, Any]]:
        return [
            {"author": "agent", "content": {"parts": [{"functionCall": {"id": key, "name": name, "args": given}}]}},
            {
                "author": "agent",
                "content": {"parts": [{"functionResponse": {"id": key, "name": name, "response": response}}]},
            },
        ]

    events = [
        *call("a", "run_command", _args(FAILS), {"returncode": 1, "output": SAID}),
        *call("b", "write_file", _FILE, {"result": "written"}),
        *call("c", "run_command", _args(WELL), {"returncode": 0, "output": PRINTED}),
    ]
    return json.dumps({"sessionId": "s-1", "events": events, "tool_calls": 3}).encode()


def bedrock() -> bytes:
    def call(key: str, name: str, given: Any, content: Any, status: str = "success") -> list[dict[str, Any]]:
        return [
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": key, "name": name, "input": given}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": key, "content": [content], "status": status}}]},
        ]

    return json.dumps(
        [
            *call("a", "shell", _args(FAILS), {"json": {"exit_code": 1, "output": SAID}}, "error"),
            *call("b", "file_write", _FILE, {"text": "written"}),
            *call("c", "shell", _args(WELL), {"json": {"exit_code": 0, "output": PRINTED}}),
        ]
    ).encode()


def kimi_code() -> bytes:
    def event(kind: str, **more: Any) -> dict[str, Any]:
        return {"type": "context.append_loop_event", "event": {"type": kind, **more}, "time": 1772618400500}

    def asks(key: str, name: str, given: Any) -> dict[str, Any]:
        return event("tool.call", uuid=key, turnId="0", toolCallId=key, name=name, args=given)

    def answers(key: str, **result: Any) -> dict[str, Any]:
        return event("tool.result", parentUuid=key, toolCallId=key, result=result)

    said = {"role": "user", "content": [{"type": "text", "text": "Mend the tally."}], "toolCalls": []}
    return jsonl(
        {"type": "context.append_message", "message": said, "time": 1772618400000},
        asks("a", "Bash", _args(FAILS)),
        answers("a", output=SAID + "\nCommand failed with exit code: 1.", isError=True),
        asks("b", "Write", _FILE),
        answers("b", output="Wrote 9 bytes"),
        asks("c", "Bash", _args(WELL)),
        answers("c", output=PRINTED),
        asks("d", "Bash", _args(REFUSED)),
        answers("d", output="The tool call is rejected by the user.", isError=True),
    )


def qwen_code() -> bytes:
    def line(kind: str, role: str, part: Any, **more: Any) -> dict[str, Any]:
        about = {"uuid": "u", "parentUuid": None, "sessionId": "s-1", "timestamp": AT, "type": kind, "cwd": "/w"}
        return {**about, "message": {"role": role, "parts": [part]}, **more}

    def call(key: str, name: str, given: Any, output: str) -> list[dict[str, Any]]:
        answer = {"functionResponse": {"id": key, "name": name, "response": {"output": output}}}
        shown = {"callId": key, "status": "success", "resultDisplay": output}
        return [
            line("assistant", "model", {"functionCall": {"id": key, "name": name, "args": given}}),
            line("tool_result", "user", answer, toolCallResult=shown),
        ]

    def report(command: str, output: str, code: int) -> str:
        ended = f"Error: (none)\nExit Code: {code}\nSignal: (none)\nBackground PIDs: (none)\nProcess Group PGID: 81"
        return f"Command: {command}\nDirectory: (root)\nOutput: {output}\n{ended}"

    return jsonl(
        line("user", "user", {"text": "Mend the tally."}),
        *call("a", "run_shell_command", _args(FAILS), report(FAILS, SAID, 1)),
        *call("b", "write_file", {"file_path": "tally.py", "content": FIX}, "Successfully created"),
        *call("c", "run_shell_command", _args(WELL), report(WELL, PRINTED, 0)),
    )


# program: its log; exit codes of the two runs; whether each ended well
SHAPES: dict[str, tuple[bytes, tuple[int | None, int | None], tuple[bool | None, bool | None]]] = {
    "goose": (goose(), (None, None), (None, None)),
    "Kimi CLI": (kimi(), (1, None), (False, True)),
    "Kimi CLI, streamed": (kimi_streamed(), (1, None), (False, True)),
    "Kimi Code": (kimi_code(), (1, None), (False, True)),
    "Cursor": (cursor(), (1, 0), (False, True)),
    "Copilot CLI": (copilot(), (1, 0), (False, True)),
    "opencode": (opencode(), (1, 0), (False, True)),
    "Continue": (continue_dev(), (1, None), (False, True)),
    "Amazon Q": (amazon_q(), (1, 0), (False, True)),
    "AutoGen's messages": (autogen_messages(), (1, 0), (False, True)),
    "Cline": (cline_native(), (1, 0), (False, True)),
    "AI SDK": (ai_sdk(), (1, 0), (False, True)),
    "function responses": (function_responses(), (1, 0), (False, True)),
    "Bedrock": (bedrock(), (1, 0), (False, True)),
    "trae-agent": (trae(), (None, None), (False, True)),
    "Qwen Code": (qwen_code(), (1, 0), (False, True)),
}
