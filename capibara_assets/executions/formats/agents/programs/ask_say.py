"""`ui_messages.json` of Cline and the programs made from it (Roo Code, Kilo Code): what was asked and said, in order.

`{"ts", "type": "ask" | "say", "ask": "command" | "tool" | "use_mcp_server", "say": "command" | "command_output" |
"tool" | "mcp_server_response", "text"}`; the text of a tool is JSON. Output follows its command in one or several
messages; newer versions ask about it (`ask: command_output`) or tell it in the next request alone. Traps: exit codes
stand in the text of that request (`[execute_command for '..'] Result:`), newer versions say none there; nothing says
how an edit ended; a message that is `partial` stands again when it is whole; the same command may stand as `ask`
and as `say`; what the user did not answer with yes shows as feedback and no output.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import of_json, record, text_at
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import asked_of
from capibara_assets.executions.formats.agents.runs import Edit, Entry, LogDocument, NotRun, Reader, moment
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.strict_json import Fault

_EDITS = {"appliedDiff", "newFileCreated", "editedExistingFile", "insertContent", "searchAndReplace", "batchDiff"}
_SILENT = {
    "api_req_finished",
    "reasoning",
    "checkpoint_saved",
    "command_output",
    "shell_integration_warning",
    "mcp_server_request_started",
}
_APPROVAL = "REQ_APP"  # Cline's mark behind a command that needs the user's approval
_RESULT = re.compile(r"\[execute_command for '(?P<command>.*?)'\] Result:\s*(?P<told>.*)", re.DOTALL)
_EXIT = re.compile(r"(?:\A|[.\n] ?)Exit code: (-?\d{1,9})(?:\n|\Z)")
_DONE = re.compile(r"Command executed\.(?:\s*\nOutput:\n(?P<output>.*))?", re.DOTALL)  # without its exit code
_DENIED = re.compile(r"The user (?:denied|rejected|declined)\b")


def reads(document: LogDocument) -> bool:
    """Whether it is a list of such messages with a command or a tool."""
    return any(
        _kind(message) in ("command", "command_output", "tool", "use_mcp_server") for message in _messages(document)
    )


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands and edits in order."""
    task, found = None, list[Call | Edit]()
    running: Call | None = None
    last: tuple[str, str] | None = None  # the command or tool that was asked for and may be said once more
    for message in _messages(document):
        kind, text = _kind(message), text_at(message, "text")
        text = text.removesuffix(_APPROVAL) if kind == "command" else text
        if message.get("partial") is True and kind in ("command", "tool"):
            continue
        if (
            kind in ("text", "task", "user_feedback")
            and message.get("type") == "say"
            and (task is None or kind != "text")
        ):
            task = text.strip() or task
        if kind == "command":
            if last == (kind, text) and message.get("type") == "say":
                continue
            running = Call(document.digest, "bash", text, started=moment(message.get("ts")), task=task)
            found.append(running)
            last = kind, text
        elif kind == "use_mcp_server" and message.get("type") == "ask":
            tool = record(of_json(text))
            asked = asked_of(tool.get("toolName"), tool.get("arguments"))
            last, running = (kind, text), None
            if asked is not None and asked.path is None:
                running = Call(
                    document.digest, asked.language, asked.text, started=moment(message.get("ts")), task=task
                )
                found.append(running)
        elif kind == "mcp_server_response" and running is not None:
            write_answer(running, read_answer(text), runs_shell=False, language=running.name)
            running = None
        elif kind == "api_req_started" and found and isinstance(found[-1], Call):
            _write_end(found[-1], text_at(record(of_json(text)), "request"))
        elif kind == "command_output" and running is not None and (text or message.get("type") == "say"):
            running.not_run = None
            if not running.output.endswith(text):  # the same may stand as `ask` and as `say`
                running.output = text if text.startswith(running.output) else f"{running.output}\n{text}"
        elif kind == "tool" and last != (kind, text):
            last = kind, text
            found += _edits(document, text)
        elif kind not in _SILENT and kind not in ("command", "command_output", "tool"):
            last, running = None, running if kind == "text" else None
    for one in found:
        if isinstance(one, Edit):
            yield one
        elif one.not_run is not None:
            yield NotRun(one.not_run, one.session, one.arguments)
        elif not one.arguments.strip():
            yield Fault("no_code", "a command without text", one.output)
        else:
            yield one.run(one.name, one.arguments)


def _write_end(call: Call, request: str) -> None:
    """Write how a command ended, which stands in the answer that the model was sent next."""
    told = _RESULT.match(request)
    if told is None or told["command"].strip() != str(call.arguments).strip():
        return
    said = told["told"]
    if call.not_run is not None and _DENIED.match(said):
        call.not_run = "refused"
    elif exit_code := _EXIT.search(said.split("\nOutput:", 1)[0] + "\n"):
        call.not_run, call.exit_code = None, int(exit_code[1])
        call.success = call.exit_code == 0
    elif (done := _DONE.match(said)) is not None:
        call.not_run, call.output = None, call.output or done["output"] or ""


def _messages(document: LogDocument) -> list[dict[str, Any]]:
    value = document.value if isinstance(document.value, list) else []
    return [one for one in value if isinstance(one, dict) and "ts" in one and one.get("type") in ("ask", "say")]


def _kind(message: dict[str, Any]) -> str:
    return text_at(message, str(message.get("type")))


def _edits(document: LogDocument, text: str) -> Iterator[Edit]:
    tool = record(of_json(text))
    if str(tool.get("tool")) in _EDITS:
        new = next((tool[name] for name in ("diff", "content", "replace") if text_at(tool, name)), "")
        yield Edit(document.digest, text_at(tool, "path"), new)


READER = Reader("cline-ui", (b'"ask"', b'"say"'), reads, entries)
