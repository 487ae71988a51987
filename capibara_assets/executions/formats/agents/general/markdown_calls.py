"""Sessions exported as Markdown, whichever program wrote them: a line names the tool, blocks hold what went in and out.

The line is a heading or a label (`**Tool: bash**`, `### `bash``, `**Tool Use:** `Bash``); below it stand the arguments
(a block of JSON or of a shell's code, or `**command**: ..`) and the output (a block, also below `**Output:**`, or in the
next turn below `**Tool Result:**`). What is found is read as messages, by `stepwise_calls`. Some exports write each
message as JSON instead, with ids: these are read by `linked_calls`. Traps: an output may hold fences and headings of its
own, so a block ends at the fence behind which the export goes on; a result of JSON holds output and exit code.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from capibara_assets.executions.formats.agents.general import linked_calls, stepwise_calls
from capibara_assets.executions.formats.agents.general.tool_names import asked_of
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})([\w+-]*)[^`\n]*\Z")
_LABELLED = re.compile(r"\s{0,3}(?:#{1,6}\s|\*\*|__|>|<summary>|[-*]\s+\*\*|_)")
_CALLED = re.compile(r"\b(?:tool|function)\b(?:[ _-]?(?:use|call|name|request|invocation|run))?", re.IGNORECASE)
_CODED = re.compile(r"`([A-Za-z][\w.:/-]*)`")
_NAMED = re.compile(r"\W{1,8}([A-Za-z][\w.:/-]*)")
_ANSWER = re.compile(
    r"\W*(?:tool |function |command )?(?:outputs?|results?|responses?|stdout|returned)\b", re.IGNORECASE
)
_GIVEN = re.compile(r"\W*(?:tool |function )?(?:inputs?|arguments?|args|parameters?|params|request)\b", re.IGNORECASE)
_KEY = re.compile(r"\s*[-*]?\s*(?:\*\*|`)(\w+)(?:\*\*|`)?:?(?:\*\*)?:?\s*(?:`(.+)`|(\S.*))?\Z")
_TURN = re.compile(r"\s{0,3}#{1,4}\W*(user|human|you|assistant|agent|model|ai|claude|copilot)\b", re.IGNORECASE)
_USER = ("user", "human", "you")
_SESSION = re.compile(r"(?:session|thread|conversation)[ _]?id\W{1,8}([\w-]{8,64})", re.IGNORECASE)
_HEAD = 3000  # characters in which a session is named
_LONG = 160  # signs of a line that names a tool
_SHELLS = ("bash", "sh", "shell", "zsh", "console", "powershell", "")


def reads(document: LogDocument) -> bool:
    """Whether a call that runs code or edits a file has its answer."""
    if document.value is not None or document.lines:
        return False
    messages = _messages(document)
    return linked_calls.reads(messages) if messages is not None else stepwise_calls.answers(_steps(document.text))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs and edits, in order."""
    messages = _messages(document)
    named = _SESSION.search(document.text[:_HEAD])
    session = named[1] if named else document.digest
    if messages is not None and linked_calls.reads(messages):
        yield from linked_calls.entries(messages)
    else:
        yield from stepwise_calls.steps(_steps(document.text), session)


def _messages(document: LogDocument) -> LogDocument | None:
    """The messages that stand in a text as JSON, each from the begin of a line on; None where none names a call."""
    if b'"tool_use_id"' not in document.data and b'"tool_call_id"' not in document.data:
        return None
    text, found = document.text, list[Any]()
    decoder, end = json.JSONDecoder(strict=False), 0
    for begin in re.finditer(r"^(?=[\[{]\s*$)", text, re.MULTILINE):
        if begin.start() < end:
            continue
        try:
            value, end = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            continue
        found.append(value)
    named = _SESSION.search(text[:_HEAD])
    rows = [{"session_id": named[1]}, *found] if named else found
    return LogDocument(json.dumps(rows).encode("ascii")) if found else None


def _steps(text: str) -> list[dict[str, Any]]:
    """The turns, calls and outputs of a text as messages."""
    lines = text.split("\n")
    calls = [at for at, line in enumerate(lines) if _tool(line) is not None]
    steps: list[dict[str, Any]] = []
    at, ends = 0, set(calls)
    call: dict[str, Any] | None = None
    answers = False
    while at < len(lines):
        line = lines[at]
        fence = _FENCE.match(line)
        if at in ends:
            call, answers = {"name": _tool(line), "arguments": {}}, False
            steps.append({"role": "assistant", "tool_calls": [call]})
        elif fence is not None:
            last = _end(lines, at, fence[1], ends)
            body = "\n".join(lines[at + 1 : last])
            _take(steps, call, fence[2].lower(), body, answers)
            if call is not None and call["arguments"] not in ({}, None):
                answers = True
            at = last
        elif turn := _TURN.match(line):
            steps.append({"role": "user" if turn[1].lower() in _USER else "assistant", "content": ""})
        elif _LABELLED.match(line) and _ANSWER.match(_plain(line)):
            answers = True
        elif call is not None and not answers and not _GIVEN.match(_plain(line)) and (key := _KEY.match(line)):
            _give(call, key[1], key[2] or key[3] or "")
        elif steps and steps[-1].get("role") == "user" and "content" in steps[-1]:
            steps[-1]["content"] = f"{steps[-1]['content']}\n{line}".strip()
        at += 1
    return steps


def _take(steps: list[dict[str, Any]], call: dict[str, Any] | None, language: str, body: str, answers: bool) -> None:
    """Put a block where it belongs: a call's arguments, its output, or nowhere."""
    if call is None:
        return
    value = _parsed(body)
    if not answers:
        last = call.pop("key", None)
        if last is not None:
            call["arguments"][last] = body
        elif isinstance(value, dict):
            call["arguments"] = value
        else:
            command = language in _SHELLS or language == "json"
            call["arguments"] = {"command" if command else "code": body.removeprefix("$ ")}
    elif steps[-1].get("role") != "tool":
        steps.append({"role": "tool", "content": value if isinstance(value, dict) else body})


def _give(call: dict[str, Any], key: str, text: str) -> None:
    """Note an argument that stands as a line; one without a value has it in the block below."""
    if text:
        call["arguments"][key] = text.strip("`")
    else:
        call["key"] = key


def _end(lines: list[str], begin: int, mark: str, calls: set[int]) -> int:
    """The line that closes a block: the first fence behind which the export goes on, else the first, else the end."""
    first = None
    for at in range(begin + 1, len(lines)):
        if at in calls:
            break
        if lines[at].strip() != mark:
            continue
        first = at if first is None else first
        then = next((line for line in lines[at + 1 : at + 5] if line.strip()), "---")
        if (
            _LABELLED.match(then)
            or _FENCE.match(then)
            or then.strip() in ("---", "***", "</details>")
            or then.startswith("<")
        ):
            return at
    return len(lines) - 1 if first is None else first


@cache
def _tool(line: str) -> str | None:
    """The tool that a line names as called; None: it names none."""
    if len(line) > _LONG or not _LABELLED.match(line) or _ANSWER.match(_plain(line)):
        return None
    called = _CALLED.search(line)
    coded = _CODED.search(line)
    if called is None and not (coded and line.lstrip().startswith("#")):
        return None
    named = coded or (_NAMED.match(line, called.end()) if called else None)
    return named[1] if named and _runs(named[1]) else None


def _runs(name: str) -> bool:
    """Whether a tool of this name may run a command or code, or edit a file."""
    return any(asked_of(name, given) for given in ({"command": "x", "code": "x"}, {"path": "x", "content": "x"}))


def _plain(line: str) -> str:
    return re.sub(r"^\s*#{1,6}|[*_>]|</?\w+>", "", line).strip()


def _parsed(body: str) -> Any:
    if not body.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(body, strict=False)
    except (ValueError, RecursionError):
        return None


_MARKS = (b"```", b'"tool_use_id"', b'"tool_call_id"')
READER = Reader("markdown-calls", _MARKS, reads, entries)
