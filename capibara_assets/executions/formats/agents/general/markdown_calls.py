"""Sessions exported as Markdown, whichever program wrote them: a line names the tool, blocks hold what went in and out.

The line is a heading or a label (`**Tool: bash**`, `### `bash``, `**Tool Use:** `Bash``, `Tool use: **Bash**`). Below
stand arguments (a block of JSON or of a shell's code, `**command**: ..`, `$ ls`, or `ls` in quotes) and the output: a
block, also below `Output:`, or behind `Tool Response:` up to a rule or heading. Calls of a turn whose results stand in
the next are answered in their order, whatever they do. What is found is read as messages, by `stepwise_calls`. Some
exports write each message as JSON with ids instead: these are read by `linked_calls`. Trap: an output may hold fences
and headings of its own, so a block ends at the fence behind which the export goes on.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.executions.formats.agents.general import linked_calls, stepwise_calls
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed

_FENCE = re.compile(r"( *)(`{3,}|~{3,})([\w+-]*)[^`\n]*\Z")
_LABELLED = re.compile(r"\s{0,3}(?:#{1,6}\s|\*\*|__|>|<summary>|[-*]\s+\*\*|_)")
_CALLED = re.compile(r"\b(?:tool|function)\b(?:[ _-]?(?:use|call|name|request|invocation|run))?", re.IGNORECASE)
_USES = re.compile(r"Tool (?:use|call): (?:\*\*|`)([\w.:-]+)(?:\*\*|`)", re.IGNORECASE)
_CODED = re.compile(r"`([A-Za-z][\w.:/-]*)`")
_NAMED = re.compile(r"\W{1,8}([A-Za-z][\w.:/-]*)")
_ANSWER = re.compile(r"(?:tool |function |command )?(?:outputs?|results?|responses?|stdout)\b", re.IGNORECASE)
_GIVEN = re.compile(r"(?:tool |function )?(?:inputs?|arguments?|args|parameters?|params|request)\b", re.IGNORECASE)
_KEY = re.compile(r"\s*(?:[-*]\s+)?(?:\*\*|`)(\w+):?(?:\*\*|`):?\s*(?:`(.+)`|(\S.*))?\Z")
_TURN = re.compile(
    r"(?:\s{0,3}#{1,4}\W*|_\*\*)(user|human|you|assistant|agent|model|ai|claude|copilot)\b", re.IGNORECASE
)
_MARKUP = re.compile(r"^\s*#{1,6}|[*_>`]|</?\w+>|^\s*[-]\s")
_GOES_ON = re.compile(
    r"\s{0,3}(?:#{1,6}\s|\*\*|__|---\s*\Z|\*\*\*\s*\Z|</?\w|_\w|(?:Output|Result|Error):)|\s*(?:`|~{3}|\$ )"
)
_ENDS = re.compile(r" *(?:`{3}|~{3}|</?details>|---\s*\Z)")  # a command that stands without a fence
_PLAIN = ("output:", "result:", "error:")  # labels without a mark
_FAILS = {"result:": False, "error:": True}  # of which one stands below each call
_USER = ("user", "human", "you")
_SESSION = re.compile(
    r"(?:(?:session|thread|conversation)[ _]?id\W{1,8}|<!-- [\w ]{1,40} session )([\w-]{8,64})", re.IGNORECASE
)
_HEAD = 3000  # characters in which a session is named
_INNER = 400  # lines at most between a block's first fence and its last
_LONG = 160  # signs of a line that names a tool
_SHELLS = ("bash", "sh", "shell", "zsh", "console", "powershell", "")


def reads(document: LogDocument) -> bool:
    """Whether a call that runs code or edits a file has its answer."""
    if document.value is not None or document.lines:
        return False
    messages = _messages(document)
    if messages is not None and linked_calls.reads(messages):
        return True
    return stepwise_calls.answers(_steps(document.text))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs and edits, in order."""
    messages = _messages(document)
    if messages is not None and linked_calls.reads(messages):
        yield from linked_calls.entries(messages)
    else:
        yield from stepwise_calls.steps(_steps(document.text), _session(document) or document.digest)


def _session(document: LogDocument) -> str | None:
    named = _SESSION.search(document.text[:_HEAD])
    return named[1] if named else None


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
    session = _session(document)
    rows = [{"session_id": session}, *found] if session else found
    return LogDocument(json.dumps(rows).encode("ascii")) if found else None


def _steps(text: str) -> list[dict[str, Any]]:
    """The turns, calls and outputs of a text as messages."""
    return _Export(text.split("\n")).steps()


@dataclass(slots=True)
class _Called:
    """A call, as far as it was read."""

    name: str
    turn: int
    given: dict[str, Any] = field(default_factory=dict)
    key: str | None = None  # of the argument whose value is the next block
    output: Any = None
    failed: bool | None = None  # as the label of its output says


class _Export:
    """The lines of an export, read once from first to last."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._heads = {at: name for at, line in enumerate(lines) if (name := _tool(line)) and self._is_followed(at)}
        self._turn, self._read = 0, list[_Called | list[str]]()  # a call, or the lines that a user said
        self._call: _Called | None = None  # the last
        self._waiting = deque[_Called]()  # calls of the last turn that had any
        self._answers = False  # an output follows
        self._failed: bool | None = None  # of a failure, as its label says

    def steps(self) -> list[dict[str, Any]]:
        """What was said and called as messages, each call with its output."""
        at = 0
        while at < len(self._lines):
            at = self._line(at)
        found: list[dict[str, Any]] = []
        for one in self._read:
            if isinstance(one, list):
                found.append({"role": "user", "content": "\n".join(one).strip()})
            elif one.given:
                found.append({"role": "assistant", "tool_calls": [{"name": one.name, "arguments": one.given}]})
                told = {} if one.failed is None else {"is_error": one.failed}
                found += [] if one.output is None else [{"role": "tool", "content": one.output, **told}]
        return found

    def _is_followed(self, at: int) -> bool:
        """Whether an export goes on behind a line as behind one that names a tool."""
        return bool(_GOES_ON.match(next((line for line in self._lines[at + 1 : at + 5] if line.strip()), "")))

    def _line(self, at: int) -> int:
        """Read what begins at a line; the line to go on with."""
        line, call = self._lines[at], None if self._answers else self._call
        bare = call if call is not None and call.turn == self._turn and not call.given else None
        plain = _MARKUP.sub("", line).strip()
        if at in self._heads:
            self._begin(_Called(self._heads[at], self._turn))
        elif (turn := _TURN.match(line)) is not None:
            self._turn, self._answers = self._turn + 1, False
            if turn[1].lower() in _USER:
                self._read.append([])
        elif plain.lower() in _PLAIN or (_LABELLED.match(line) and len(line) < _LONG and _ANSWER.match(plain)):
            self._answers, self._failed = True, _FAILS.get(plain.lower())
            if line.lstrip().startswith("#"):
                return self._plain_output(at + 1)
        elif (fence := _FENCE.match(line)) is not None:
            end = self._end(at, fence[2])
            self._block(fence[3].lower(), _dedented(self._lines[at + 1 : end], fence[1]))
            return end if end in self._heads else end + 1
        elif bare is not None and line[:2] == "$ ":
            below = range(at + 1, len(self._lines))
            end = next((n for n in below if n in self._heads or _ENDS.match(self._lines[n])), at + 1)
            bare.given = {"command": "\n".join([line[2:], *self._lines[at + 1 : end]]).rstrip()}
            return end
        elif bare is not None and line[:1] == "`":
            below = range(at, min(at + _INNER, len(self._lines)))
            end = next((n for n in below if self._lines[n].rstrip().endswith("`")), at)
            bare.given = {"command": "\n".join(self._lines[at : end + 1]).strip().strip("`")}
            return end + 1
        elif call is not None and not _GIVEN.match(plain) and (key := _KEY.match(line)):
            if key[2] or key[3]:
                call.given[key[1]] = (key[2] or key[3]).strip("`")
            else:
                call.key = key[1]
        elif self._read and isinstance(said := self._read[-1], list):
            said.append(line)
        return at + 1

    def _begin(self, call: _Called) -> None:
        if self._call is not None and self._call.turn != call.turn:
            self._waiting.clear()
        self._call, self._answers, self._failed = call, False, None
        self._read.append(call)
        self._waiting.append(call)

    def _block(self, language: str, body: str) -> None:
        """Put a block where it belongs: a call's arguments, its output, or nowhere."""
        call, value = self._call, parsed(body)
        if call is None:
            return
        if self._answers or call.turn != self._turn or (call.given and call.key is None):
            self._answer(value if isinstance(value, dict) else body)
        elif call.key is not None:
            call.given[call.key], call.key = body, None
        elif isinstance(value, dict):
            call.given = value
        else:
            call.given = {"command" if language in (*_SHELLS, "json") else "code": body.removeprefix("$ ")}

    def _answer(self, output: Any) -> None:
        """Note an output: of the call right above it, or of the first call of the turn before that waits for one."""
        call = self._call
        if call is not None and call.turn != self._turn:
            while self._waiting and self._waiting[0].output is not None:
                self._waiting.popleft()
            call = self._waiting[0] if self._waiting else None
        if call is not None and call.output is None:
            call.output, call.failed = output, self._failed
        self._answers, self._failed = False, None

    def _plain_output(self, at: int) -> int:
        """Read an output without a fence below a heading; nothing is read where a fence follows."""
        first = next((n for n in range(at, len(self._lines)) if self._lines[n].strip()), len(self._lines))
        if first == len(self._lines) or _FENCE.match(self._lines[first]):
            return at
        end = next((n for n in range(first, len(self._lines)) if self._is_end(n)), len(self._lines))
        self._answer("\n".join(self._lines[first:end]).strip("\n"))
        return end

    def _is_end(self, at: int) -> bool:
        """Whether an output without a fence ends above a line: a turn, a call, or a rule above either."""
        line = self._lines[at]
        if at in self._heads or _TURN.match(line):
            return True
        then = next((n for n in range(at + 1, min(at + 5, len(self._lines))) if self._lines[n].strip()), None)
        goes_on = then is None or then in self._heads or _TURN.match(self._lines[then])
        return line.strip() == "---" and bool(goes_on)

    def _end(self, begin: int, mark: str) -> int:
        """The line that closes a block: the first fence behind which the export goes on, else the first, or a call."""
        first = None
        for at in range(begin + 1, len(self._lines)):
            if at in self._heads or (first is not None and at - first > _INNER):
                return at if first is None else first
            if self._lines[at].strip() == mark:
                first = at if first is None else first
                then = next((line for line in self._lines[at + 1 : at + 5] if line.strip()), "---")
                if _GOES_ON.match(then):
                    return at
        return len(self._lines) if first is None else first


def _dedented(lines: list[str], indent: str) -> str:
    """A block's lines without its fence's indent; where some lack it, it is only the first that has it."""
    if not all(line.startswith(indent) for line in lines if line.strip()):
        lines = [line.removeprefix(indent) if n == 0 else line for n, line in enumerate(lines)]
        return "\n".join(lines)
    return "\n".join(line.removeprefix(indent) for line in lines)


def _tool(line: str) -> str | None:
    """The tool that a line names as called; None: it names none."""
    if (used := _USES.match(line)) is not None:
        return used[1]
    if len(line) > _LONG or not _LABELLED.match(line) or _ANSWER.match(_MARKUP.sub("", line).strip()):
        return None
    called, coded = _CALLED.search(line), _CODED.search(line)
    if called is None and not (coded and line.lstrip().startswith("#")):
        return None
    named = coded or (_NAMED.match(line, called.end()) if called else None)
    return named[1] if named else None


_MARKS = (b"```", b'"tool_use_id"', b'"tool_call_id"')
READER = Reader("markdown-calls", _MARKS, reads, entries)
