"""What answers a call of a tool, in the shapes that programs use: texts, streams, flags of failure, exit codes.

A flag that says that the tool returned says nothing of how a command ended; where a program's flag does, its reader
says so. An exit code counts as a field of its own, or in the words that a shell tool puts around the output.
"""

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from capibara_assets.executions.formats.agents.failures import raised
from capibara_assets.executions.formats.agents.fields import at, code_at, record, says_not_run, word
from capibara_assets.executions.formats.agents.literals import literal
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.shell_frames import read_fence, read_frame, read_line, read_remark
from capibara_assets.executions.formats.agents.tools.shell_reports import Report, refused
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed
from capibara_assets.executions.formats.cell_outputs import strip_ansi

_EXITS = (
    "exit_code",
    "exitCode",
    "exitCodeV2",
    "ResponseCode",
    "exit",
    "returncode",
    "return_code",
    "returnCode",
    "exit_status",
    "exitStatus",
)
_OUTPUTS = (
    "content", "output", "result", "results", "text", "value", "toolResult", "tool_result", "return_value", "response",
    "aggregated_output", "logs", "data", "Json", "json", "Text", "state", "metadata", "extras", "success", "failure",
    "error", "errorText", "message", "detailedContent", "stdout", "interleavedOutput", "outcome", "rawOutput", "run",
    "tool_output", "error_details", "StandardOutputContent", "executionOutput", "structuredContent", "tool_return",
)  # fmt: skip
_TABLE = ("columns", "rows", "records")  # of a database's answer
_BESIDE = (
    "metadata",
    "extras",
    "outcome",
    "detailedContent",
    "interleavedOutput",
    "message",
    "structuredContent",
)  # no output by themselves
_NO_TEXTS = ("stdout", "outcome", "interleavedOutput", "detailedContent", "state")  # read apart, or a status
_SAY = ("error", "rejected", "approved", "executed")  # an object in text that says how a call ended has one of these
_CELLS = ("python", "javascript", "typescript", "r")
_OF_CELL = {"logs", "stdout", "output"}  # what a cell's answer has beside its error
_TOOLS_HEAD = re.compile(r"(?:\[[^\]\n]{1,60}\] ?){0,3}\[Tool call\b[^\]\n]{0,80}\]\s*\n(?=\{)", re.IGNORECASE)
_BEGINS_CELL = re.compile(r"""\s*\{\s*(["'])output\1:""")
_FAILED = {"error", "errored", "failed", "failure"}
_RETURNED = {"success", "succeeded", "completed", "ok", "done"}
_NOT_RUN = {"rejected", "denied", "declined", "canceled", "cancelled", "skipped", "refused", "aborted"}
_CUT = {"canceled", "cancelled", "aborted"}
_WAITS = {
    "pending",
    "running",
    "in_progress",
    "started",
    "generated",
    "generating",
    "calling",
    "streaming",
    "input-streaming",
}
_NOTES = re.compile(
    r"(?<!\s)(?:\s*\n(?:<(\w+)>[^\n<]*</\1>|\[(?:Current|Python) [^\n\]]*\]))+\s*\Z"
)  # of a shell, behind its output
_SYSTEM = re.compile(r"\s*<system>([^<]*)</system>\s*?(?:\n|\Z)")  # what the tool says, above the output
_STATED = re.compile(r"success=(True|False) output=(['\"].*['\"])\s*\Z", re.DOTALL)
_STREAMS = re.compile(
    r"stdout:(?: Empty\.[^\n]*\n|\n(?P<out>.*?)(?:\n|\Z))(?:stderr:\n(?P<err>.*?))?\s*\Z", re.DOTALL
)  # LibreChat's
_WRAPPED = re.compile(r'\{"status": "(?:OK|Failed)", "message": "')  # Letta's
_STATUS = re.compile(r"(?:exit (?:code|status): ?)?(-?\d{1,9})\s*\Z")
_SAYS_NO = re.compile(
    r"(?:Error: )?(?:The )?(?:user|tool call was|tool use was|tool execution was|command was|operation was|call was"
    r"|action was)[^\n]{0,40}?"
    r"(?:rejected|denied|declined|refused|cancel+ed|chose to disallow|skipped)"
    r"|The tool call is rejected|Tool (?:\S+ )?(?:rejected|denied)|Permission (?:to run tool )?denied by user"
    r"|Rejected by user",
    re.IGNORECASE,
)
ANSWER_HEAD = re.compile(r"\s*\[(?P<tool>\w+)(?: for '.*?')?\] Result:\s*", re.DOTALL)  # of Cline and its forks
_DENIED = re.compile(  # of a tool that was not run, in words that no program prints
    r"(?:Error: )?The user (?:has )?(?:declined|denied|rejected|refused|cancel+ed|skipped)(?: to run)? (?:this|the)"
    r" (?:tool|operation|command|call|action)\b"
    r"|\w+ (?:code )?execution cancell?ed by (?:the )?user\b"
    r"|(?:Error: )?Request cancell?ed by (?:the )?user\b"
    r"|Permission to run (?:this |the )?tool (?:was )?denied by (?:the )?user\b"
    r"|(?:The )?(?:tool|command|operation)(?: use| call| execution)? (?:was )?"
    r"(?:rejected|denied|declined|cancel+ed|skipped) by (?:the )?user\b"
    r"|(?:Error: )?request to call tool denied\b"  # Letta's
    r"|Permission denied\Z",  # Crush's, of a whole answer; a shell names itself or the file before these words
    re.IGNORECASE,
)
_TOOL_RAISED = re.compile(
    r"An error occurred while running the tool\. Please try again\. Error: "
)  # OpenAI's Agents SDK
_TIMED_OUT = re.compile(rf"(?:{_TOOL_RAISED.pattern})?(?:Error: )?Command (?:'[^\n]*' )?timed out after ")
_SQL_FAILS = re.compile(
    r"\s*+(?:\W*+(?:SQL ?|Query |Database )?Error\b[^\n]{0,40}?:|ERROR\b|\(?[\w.]*(?:Error|Exception)\)?[:(]"
    r"|Query failed|Failed to (?:execute|run)|Runtime error near|Parse error near|SQL failed\b)",
    re.IGNORECASE,
)
_ROWS = re.compile(  # JSON, Python's lists of tuples, tuples line by line, or a head above a rule
    r"\s*(?:\[\s*(?:[\[({]|\])|\{\s*[\"']|(?:\([^\n,]*,[^\n]*\)[ \t]*(?:\n+|\Z))+\Z"
    r"|[^\n]+\n[-+| ]*-{3,}[-+| ]*(?:\n|\Z))"
)
_RESULT_HEAD = re.compile(r"EXECUTION RESULT of \[\w+\]:\n")  # of Spider-Agent
_ONLY_RESULT = re.compile(r"\s*\{\s*\"result\"\s*:\s*\"")  # of a tool of Google's ADK
_PYTHON_FAILS = re.compile(  # the exception, as `repr` writes it; words of Agno's and DSPy's
    r"\s*(?:\w*(?:Error|Exception)\(|error\(['\"]).*\)\s*\Z|Error running python code: "
    r"|Failed to (?:execute|parse) the generated code: ",
    re.DOTALL,
)
_LAST_RAISED = re.compile(  # of a traceback that was cut, or left out
    r"(?:\A|\n)[ \t]{0,4}(?:[A-Za-z_]\w{0,40}\.){0,9}[A-Z]\w{0,40}(?:Error|Exception)(?:: [^\n]*)?\s*\Z"
)
_JAVASCRIPT_FAILS = re.compile(r"^(?:Uncaught )?\w*Error: [^\n]*(?:\n    at |\s*\Z)", re.MULTILINE)
_NOTHING = "no output"  # Crush's words for a command that printed nothing, its end included
_SHELLS = (
    "shell_id",
    "shellId",
    "backgroundProcessId",
    "background_process_id",
    "backgroundTaskId",
    "bash_id",
    "bashId",
)
_GOES_ON = re.compile(r"Background (?:shell|process|task|command)\b[^\n:]{0,20} ID: ?([\w.-]{1,60})", re.IGNORECASE)
_TOOL_FAILED = "The tool execution failed with the following error:"
_DEPTH = 6
_TAIL = 300  # characters that an exit code may stand in


@dataclass(slots=True)
class ToolAnswer:
    """What the fields of an answer say, wherever in it they stand; None: nothing says it."""

    texts: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # what the tool says of the call, beside its output
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    failed: bool | None = None
    well: bool | None = None  # a flag `success`
    returned: bool = False  # a status says that the tool came to its end
    not_run: bool = False
    cut: bool = False  # it was cancelled: before it began, unless it printed something
    waits: bool = False
    timed_out: bool = False
    shell: str | None = None  # where the command goes on, in the background

    @property
    def output(self) -> str:
        """The standard output, or the text, once where it stands twice."""
        return self.stdout if self.stdout is not None else "\n".join(dict.fromkeys(self.texts))


def is_answered(node: dict[str, Any]) -> bool:
    """Whether an object that asks for something also holds an answer."""
    state = node.get("state")
    if isinstance(state, dict):
        return str(state.get("status")) not in _WAITS
    refused_call = str(node.get("status")).lower() in _NOT_RUN
    return refused_call or any(
        node.get(key) is not None for key in ("result", "output", "toolResult", "tool_result", "results", "errorText")
    )


def states_failures(call: Call, node: Any) -> bool:
    """Whether an answer states each failure of a shell's command, so that what it does not state went well.

    Those of Claude Code, of Anthropic's managed agents, of Kimi Code and of Agno's own shell do.
    """
    if not isinstance(node, dict):
        return False
    if call.name == "run_shell_command" and "tool_call_error" in node:
        return isinstance(at(parsed(call.arguments), "args"), list)
    if node.get("type") == "tool.result" and call.name == "Bash":
        begun = record(call.arguments).get("run_in_background") is True  # the answer is not of its end
        return isinstance(at(node, "result", "output"), str) and not begun
    told = node.get("type") == "tool_result" or "is_error" in node
    return (told and call.name == "Bash") or (node.get("type") == "agent.tool_result" and call.name == "bash")


def read_answer(value: Any) -> ToolAnswer:
    """What an answer says."""
    found = ToolAnswer()
    _collect(value, found, _DEPTH)
    return found


def write_answer(
    call: Call, answer: ToolAnswer, runs_shell: bool, trusts_success: bool = False, language: str = ""
) -> None:
    """Write what an answer says into its call.

    Args:
        runs_shell: the call ran a shell's command, whose tool may have written its end into the text.
        trusts_success: the program's flag `success` tells of the command, not of the tool alone.
        language: of the code that it ran; SQL, Python and JavaScript print their errors.
    """
    if answer.waits:
        return
    if answer.exit_code is None and (told := _structured(answer, runs_shell, language)) is not None:
        answer = told
    text, tells_failures = answer.output, False
    if runs_shell and (head := _SYSTEM.match(text)):
        answer.failed = head[1].startswith("ERROR: ") or answer.failed
        answer.said.append(head[1].removeprefix("ERROR: "))
        text = text[head.end() :]
    if runs_shell and (notes := _NOTES.search(text, max(len(text) - _TAIL, 0))):
        text = text[: notes.start()]
        tells_failures = "\n<cwd>" in notes[0]  # Crush's, which writes an exit code above it where it is not 0
    if runs_shell and text.strip() == _NOTHING and (tells_failures or call.name == "bash"):
        text, tells_failures = "", True
    if head := _RESULT_HEAD.match(text):
        text = text[head.end() :]
        answer.failed = True if runs_shell and text == "Command execution failed" else answer.failed
    if head := ANSWER_HEAD.match(text):
        text = text[head.end() :]
        answer.failed = True if text.startswith(_TOOL_FAILED) else answer.failed
    answer.failed = True if _TOOL_RAISED.match(text) else answer.failed
    say = [*answer.said, text]
    began = answer.cut and runs_shell and bool(text.strip())
    if (answer.not_run and not began) or (
        answer.exit_code is None and any(_refuses(each, answer.failed is True) for each in say)
    ):
        call.not_run = "refused"
        return
    call.not_run = None
    call.output, call.stderr, call.exit_code = text, answer.stderr or "", answer.exit_code
    if answer.failed and not (call.output or call.stderr):
        call.stderr = "\n".join(answer.said)  # an error that is all that came of it
    call.timed_out = answer.timed_out or (runs_shell and answer.failed is True and bool(_TIMED_OUT.match(text)))
    if runs_shell and call.exit_code is None:
        _end_in_words(call, answer, text)
        if tells_failures and call.exit_code is None and call.success is None:
            call.success = None if "aborted before completion" in call.output[-_TAIL:] else True
    if runs_shell and answer.failed is not True and (goes_on := _GOES_ON.search(text[:_TAIL])):
        answer.shell = answer.shell or goes_on[1]
    if runs_shell and answer.shell and not answer.failed:  # what is known is how it began
        call.exit_code = call.success = None
    elif call.exit_code is not None:
        call.success = call.exit_code == 0
    elif answer.failed:
        call.success = False
    elif call.success is None and trusts_success and (answer.well or answer.failed is False):
        call.success = True
    if call.success is None and not answer.shell:
        returned = answer.returned or answer.well is True or answer.failed is False
        call.success = ended_well(call.output + call.stderr, returned, language)


def go_on(call: Call, answer: ToolAnswer) -> None:
    """Add what a command in the background printed since, and its end, to its call."""
    before = call.output
    if not answer.failed and not answer.waits:
        write_answer(call, answer, runs_shell=True)
        call.output = before + call.output


def ended_well(text: str, returned: bool, language: str) -> bool | None:
    """How code ended that an interpreter or a database ran; None: nothing tells it.

    Args:
        returned: the tool says that it returned.

    A shell's tool returns well whatever its command did; these print their errors. So what they printed decides, and
    what is no error is well where the tool says that it returned, or where it printed rows.
    """
    match language:
        case "sql":
            if _ONLY_RESULT.match(text) and isinstance(said := at(_object(text), "result"), str):
                text = said
            failed = _SQL_FAILS.match(text) is not None
        case "python":
            plain = strip_ansi(text)
            failed = raised(text) or _PYTHON_FAILS.match(plain) is not None or _LAST_RAISED.search(plain) is not None
        case "javascript":
            failed = _JAVASCRIPT_FAILS.search(text) is not None
        case _:
            return None
    return False if failed else True if returned or (language == "sql" and _ROWS.match(text)) else None


def _refuses(said: str, failed: bool) -> bool:
    """Whether words say that nothing ran; what a program prints of users and denials counts as an error's alone."""
    return refused(said) or bool(_DENIED.match(said.lstrip()) or (failed and _SAYS_NO.match(said.lstrip())))


def _structured(answer: ToolAnswer, runs_shell: bool, language: str) -> ToolAnswer | None:
    """What an answer says that is an object in text: how a command or a cell ended; None: it is none.

    As JSON, such as E2B's, or as Python's `repr` of it. What was cut off may have told an error: nothing tells the end.
    """
    text, cell = answer.output, language in _CELLS
    if head := _TOOLS_HEAD.match(text):  # above what is the tool's own
        text = text[head.end() :]
    if stated := _STATED.match(text):  # AutoGen's `CodeResult`
        return read_answer({"success": stated[1] == "True", "output": literal(stated[2]) or ""})
    if streams := _STREAMS.match(text):
        return ToolAnswer([], stdout=streams["out"] or "", stderr=streams["err"] or "", returned=not streams["err"])
    if not text.lstrip().startswith("{"):
        return None
    if _WRAPPED.match(text) and (outer := _object(text)) is not None:
        failed = True if outer["status"] == "Failed" else answer.failed
        inner = replace(answer, texts=[str(outer.get("message"))], returned=not failed, failed=failed)
        return _structured(inner, runs_shell, language) or inner
    told = _object(text) if any(f"{mark}{key}{mark}" in text for key in (*_EXITS, *_SAY) for mark in "\"'") else None
    if told is None:
        cut = replace(answer, returned=False, well=None, failed=answer.failed or None)
        return cut if cell and _BEGINS_CELL.match(text) else None
    cell = cell and "error" in told and not _OF_CELL.isdisjoint(told)
    found = read_answer(told) if cell or head or "stdout" in told or "output" in told or says_not_run(told) else None
    if found is None or not (cell or found.not_run or (runs_shell and (head or found.exit_code is not None))):
        return None
    found.returned = found.returned or not told.get("error")
    return found


def _object(text: str) -> dict[str, Any] | None:
    """The object that a text is, as JSON or as Python's `repr`; None: it is none."""
    try:
        told = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        told = literal(text)
    return told if isinstance(told, dict) and all(isinstance(key, str) for key in told) else None


def _end_in_words(call: Call, answer: ToolAnswer, text: str) -> None:
    """Write what a shell tool's words, around the output and beside it, say of the command's end."""
    report = read_frame(text)
    if report is None and call.name == "terminal" and answer.failed is False:
        inner = read_fence(text)  # of Zed, which puts words around failures only
        report = None if inner is None else Report(inner, success=True)
    if report is not None:
        _write_report(call, report)
        return
    for said in answer.said:
        if remark := read_remark(said):
            _write_report(call, remark._replace(output=call.output))
    if call.exit_code is None and "$?" not in str(call.arguments) and (report := read_line(text)):
        _write_report(call, report)  # unless the command itself prints an exit code
        call.in_words = True


def _write_report(call: Call, report: Report) -> None:
    call.output, call.stderr = report.output, report.stderr or call.stderr
    call.exit_code = report.exit_code if report.exit_code is not None else call.exit_code
    call.success = report.success if report.success is not None else call.success
    call.duration_ms = report.duration_ms if report.duration_ms is not None else call.duration_ms
    call.timed_out = call.timed_out or report.timed_out


def _collect(value: Any, found: ToolAnswer, depth: int) -> None:
    if isinstance(value, str):
        found.texts.append(value)
    elif isinstance(value, list) and depth:
        for part in value:
            audience = part.get("annotations", {}) if isinstance(part, dict) else {}
            only_user = isinstance(audience, dict) and audience.get("audience") == ["user"] and found.texts
            if not only_user:  # the same once more, as it was shown to the user
                _collect(part, found, depth - 1)
    elif isinstance(value, dict) and depth:
        _flags(value, found)
        if rows := {name: value[name] for name in _TABLE if isinstance(value.get(name), list)}:
            found.texts.append(json.dumps(rows, ensure_ascii=False))
        for key in _OUTPUTS:
            inner = value.get(key)
            if key in ("message", "error", "errorText") and isinstance(inner, str):
                found.said.append(inner)
                if key != "message" and inner.strip():
                    found.stderr = found.stderr or inner
            elif isinstance(inner, str) and key in _NO_TEXTS:
                continue
            elif key in ("content", "result", "output") and _are_rows(inner):
                found.texts.append(json.dumps(inner, ensure_ascii=False))
            elif isinstance(inner, dict | list) or (isinstance(inner, str) and key not in _BESIDE):
                before = list(found.texts)
                _collect(inner, found, depth - 1)
                if key in _BESIDE and not isinstance(inner, str):
                    found.texts = before


def _are_rows(value: Any) -> bool:
    """Whether a list holds objects that are no parts of a message: what a tool returned."""
    parts = ("text", "type", "value", "content", "json", "toolResult", "output", "data", "Text", "Json", "result")
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) and bool(row) and not any(name in row for name in parts) for row in value)
    )


def _flags(value: dict[str, Any], found: ToolAnswer) -> None:
    for key in _EXITS:
        code = code_at(value, key)
        if code is None and isinstance(value.get(key), str) and (told := _STATUS.match(value[key])):
            code = int(told[1])
        found.exit_code = code if found.exit_code is None else found.exit_code
    for key in ("is_error", "isError", "tool_call_error"):
        if isinstance(value.get(key), bool):
            found.failed = value[key]
    if "tool_call_error" in value and str(value.get("content", value.get("result"))).startswith(
        "Error: "
    ):  # Agno's shell: what failed
        found.failed = True
    if isinstance(value.get("success"), bool):
        found.well = value["success"]
        found.failed = True if value["success"] is False else found.failed
    if value.get("background") is not False and value.get("status") not in ("exited", "completed"):
        ended = value.get("background") is not True and any(key in value for key in _EXITS)
        # a shell that is named beside the end of its command is none in the background, unless its name says so
        keys = [key for key in _SHELLS if not ended or key.startswith("background")]
        found.shell = found.shell or next((value[key] for key in keys if word(value.get(key))), None)
    state = value.get("state")  # of the AI SDK
    found.failed = True if state == "output-error" else found.failed
    found.returned = found.returned or state == "output-available"
    found.not_run = found.not_run or state == "output-denied"
    status = value.get("status")
    if isinstance(status, str):
        found.failed = True if status.lower() in _FAILED else found.failed
        found.returned = found.returned or status.lower() in _RETURNED
        kind = re.split("[-_ ]", status.lower(), maxsplit=1)[0]
        found.not_run = found.not_run or kind in _NOT_RUN
        found.cut = found.cut or kind in _CUT
        found.waits = found.waits or status.lower() in _WAITS
        if " " in status:  # words, such as "Command failed with exit code 2"
            found.said.append(status)
    if str(value.get("outcome")).lower() in _NOT_RUN or says_not_run(value):
        found.not_run = True
    if value.get("part_kind") == "retry-prompt":  # of Pydantic AI: the model is asked to mend its call
        found.failed = True
    if isinstance(value.get("failure"), dict):
        found.failed = True
    if any(isinstance(value.get(key), dict) for key in ("rejected", "permissionDenied")):
        found.not_run = True
    error = value.get("error")
    if isinstance(error, dict) or (isinstance(error, str) and error.strip()):
        found.failed = True if found.well is None else found.failed
    if isinstance(error, dict) and isinstance(error.get("traceback"), str) and not found.stderr:
        found.stderr = error["traceback"]
    for key, name in (("stdout", "stdout"), ("stderr", "stderr"), ("StandardErrorContent", "stderr")):
        stream = value.get(key)
        if isinstance(stream, list) and all(isinstance(part, str) for part in stream):
            stream = "".join(stream)
        if isinstance(stream, str) and (stream or not getattr(found, name)):
            setattr(found, name, stream)
    found.timed_out = found.timed_out or value.get("timed_out") is True or value.get("timedOut") is True
