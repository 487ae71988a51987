"""gptme's `conversation.jsonl`: tools are called in the text of a message, and answered by one of role `system`.

A call is a fence whose first word is the tool (`shell`, `ipython`, `save PATH`, ..), a line `@shell(id): {..}`, or XML
(`<tool-use><shell>..`, `<invoke name="shell">..`). The answer says what was done (`Ran command: ..`), then the streams,
each in a fence of its name or, of one line, in back quotes. Traps: other fences are only shown; long commands stand cut
in the answer, and whole ones there are what ran (the user may have changed them); a `Return code` stands below failures
(older versions: below each command); an answer names its call by `call_id` in the second form alone, else the calls of
a message are answered in order.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from capibara_assets.executions.formats.agents.failures import raised
from capibara_assets.executions.formats.agents.fields import record, text_at, word
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader, moment

TOOLS = {
    "shell": "bash", "ipython": "python", "py": "python", "python": "python",
    "save": "patch", "append": "patch", "patch": "patch", "morph": "patch",
}  # fmt: skip
_OPEN = re.compile(r"(`{3,})([^\n`]*)\Z")
_CALLED = re.compile(r"^@([\w.]+)\(([\w\-:.]+)\):\s*(?=\{)", re.MULTILINE)
_TAG = re.compile(
    rf'<tool-use>\s*<(?P<tool>{"|".join(TOOLS)})(?P<given>[^>]*)>|<invoke name="(?P<invoked>\w+)"(?P<also>[^>]*)>'
)
_ATTRIBUTE = re.compile(r'\b\w+="([^"]*)"')
_RAN = re.compile(
    r"(?P<head>Ran (?:allowlisted )?command|Command timed out(?: \(after [^\n)]*\))?|Command interrupted)"
    r":(?: `(?P<line>[^\n]*)`(?=\n|\Z)|\n(?P<fence>`{3,})bash\n(?P<lines>.*?)\n(?P=fence)(?=\n|\Z))",
    re.DOTALL,
)
_CODE = re.compile(
    r"\n?(?:Return code: |Process interrupted \(return code: |Process exited with code )(-?\d{1,9})\)?\s*\Z"
)
_NOTHING = re.compile(r"\s*(?:No output(?: before (?:timeout|interruption))?)?\s*\Z")
_EXECUTED = re.compile(r"Executed code block(?: \([\w ]+\))?\.")
_EXCEPTION = re.compile(r"^Exception during execution on line \d+:\n  .*", re.MULTILINE | re.DOTALL)
_EDITED = re.compile(r"(?:Saved to|Appended to|Patch successfully applied to) ")
_UNEDITED = re.compile(
    r"Error executing tool '(?:save|append|patch|morph)|(?:Error during execution: )?Patch failed"
    r"|(?:Save|Append) aborted"
)
_BROKE = re.compile(r"Error executing tool '(?:shell|i?python)': |(?:Error during execution: )?Shell error: ")
_REFUSED = ("Execution declined", "Declined by user", "Aborted, user chose", "Operation aborted", "Command denied: ")
CUT = re.compile(r"\.\.\. \(\d+ lines?\)\Z")  # ends a command that an answer shows the first lines of
_STREAM = re.compile(r"(`{3,})(stdout|stderr|result|)\Z")
_THOUGHTS = ("think", "thinking")
_STOPPED = "Interrupted by user"


class Asked(NamedTuple):
    """A call of a tool that runs code or edits a file (language `patch`)."""

    language: str
    text: str
    path: str = ""
    key: str | None = None
    task: str | None = None
    started: datetime | None = None
    model: str | None = None


def _is_answer(row: dict[str, Any]) -> bool:
    said = text_at(row, "content")
    return row.get("role") == "system" and bool(_RAN.match(said) or _EXECUTED.match(said))


def _reads(document: LogDocument) -> bool:
    return any(_is_answer(row) for row in document.lines)


def _entries(document: LogDocument) -> Iterator[Entry]:
    yield from document.faults
    asked: list[Asked] = []
    task: str | None = None
    for row in document.lines:
        said, role = text_at(row, "content"), row.get("role")
        if role == "user":
            task = said.strip() or task
        elif role == "assistant":
            yield from (NotRun("unanswered", document.digest, call.text) for call in asked)
            model = word(record(row.get("metadata")).get("model"))
            asked = [
                call._replace(task=task, started=moment(row.get("timestamp")), model=model) for call in calls_in(said)
            ]
        elif role == "system" and (found := _answered(asked, row, said)) is not None:
            yield entry_of_answer(found, said, document.digest)
            asked = [call for call in asked if call is not found] if not said.startswith(_STOPPED) else []
    yield from (NotRun("unanswered", document.digest, call.text) for call in asked)


def _answered(asked: list[Asked], row: dict[str, Any], said: str) -> Asked | None:
    """The call that a message answers: the one it names, or the next of its kind; None: it answers none."""
    if (key := word(row.get("call_id"))) and (named := next((call for call in asked if call.key == key), None)):
        return named
    if ran := _RAN.match(said):
        shown = ran["line"] if ran["line"] is not None else ran["lines"]
        alone = Asked("bash", shown, started=moment(row.get("timestamp")))  # of the user, or of a message that was cut
        return next((call for call in asked if call.language == "bash"), None if CUT.search(shown) else alone)
    for kind, tells in (("python", _EXECUTED), ("patch", _EDITED), ("patch", _UNEDITED)):
        if tells.match(said):
            return next((call for call in asked if call.language == kind), None)
    other = said.startswith((*_REFUSED, _STOPPED)) or _BROKE.match(said)
    return asked[0] if other and asked else None


def entry_of_answer(call: Asked, said: str, session: str) -> Entry:
    """What a call did, as its answer says."""
    if said.startswith((*_REFUSED, _STOPPED)):
        return NotRun("refused", session, call.text)
    if call.language == "patch":
        return Edit(session, call.path, call.text) if _EDITED.match(said) else NotRun("edit_failed", session)
    ran, executed = _RAN.match(said), _EXECUTED.match(said)
    rest = said[(ran or executed).end() :] if ran or executed else ""  # type: ignore[union-attr]
    code = _CODE.search(rest)
    rest = rest[: code.start()] if code else rest
    exception = _EXCEPTION.search(rest) if executed else None
    rest = rest[: exception.start()] if exception else rest
    output, errors = _streams(rest)
    errors += (exception[0] if exception else "") if ran or executed else said
    head = ran["head"] if ran else ""
    if ran and ran["line"] and not CUT.search(ran["line"]):
        call = call._replace(text=ran["line"])
    exit_code = int(code[1]) if code else 0 if head.startswith("Ran") else None
    success: bool | None = exit_code == 0 if exit_code is not None else not (exception or raised(output + errors))
    if head.startswith("Command") or not (ran or executed):
        success = None if head == "Command interrupted" else False
    return AgentRun(
        session, call.language, call.text, success, output, errors, exit_code,
        call_id=call.key, started=call.started, timed_out=head.startswith("Command timed out"), task=call.task,
        model=call.model,
    )  # fmt: skip


def _streams(text: str) -> tuple[str, str]:
    """Standard output and error: in fences of these names, in back quotes, or as they are.

    What is in a fence may hold lines like its end: it ends where a stream, the result or nothing follows.
    """
    lines = [line.rstrip("\r") for line in text.split("\n")]
    ends: dict[str, list[int]] = {}
    after = ""  # the next line that is not blank
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number].strip()
        if line and not line.strip("`") and (not after or after.startswith("Result:") or _STREAM.match(after)):
            ends.setdefault(line, []).append(number)
        after = line or after
    said: dict[str, list[str]] = {"stdout": [], "stderr": [], "": []}
    number = 0
    while number < len(lines):
        opened = _STREAM.match(lines[number])
        closing = ends.get(opened[1], []) if opened else []
        while closing and closing[-1] <= number:
            closing.pop()
        if opened and closing:
            said["stderr" if opened[2] == "stderr" else "stdout"] += lines[number + 1 : closing[-1]]
            number = closing[-1]
        else:
            said[""].append(re.sub(r"^(?:Result:|`(.*)`)$", r"\1", lines[number]))
        number += 1
    plain = "\n".join(said[""])
    output, errors = ("".join(f"{line}\n" for line in said[name]) for name in ("stdout", "stderr"))
    return output or ("" if _NOTHING.match(plain) else plain.strip("\n")), errors


def _parts(text: str) -> Iterator[tuple[str | None, str]]:
    """The fences in a text with the words behind their back quotes, and what stands between them (None).

    A fence ends at one of its length without a word behind it; one with a word opens another within it.
    """
    plain: list[str] = []
    inner: list[str] = []
    opened: list[str] = []
    info = ""
    for line in text.split("\n"):
        fence = _OPEN.match(line.rstrip())
        if not opened:
            if fence:
                yield None, "\n".join(plain)
                plain, inner, info, opened = [], [], fence[2].strip(), [fence[1]]
            else:
                plain.append(line)
            continue
        if fence and fence[2].strip() and len(fence[1]) <= len(opened[-1]):
            opened.append(fence[1])
        elif fence and not fence[2].strip() and len(fence[1]) >= len(opened[-1]):
            opened.pop()
            if not opened:
                yield info, "\n".join(inner)
                continue
        inner.append(line)
    if opened:  # never closed: what stands in it is still what was said
        yield info, "\n".join(inner)
    yield None, "\n".join(plain)


def calls_in(said: str, tools: Mapping[str, str] = TOOLS) -> list[Asked]:
    """The calls of tools in a message, in the order in which they are made.

    Args:
        said: the message.
        tools: the languages of the fences that are calls, by their first words.
    """
    calls = []
    for info, text in _parts(_without_thoughts(said)):
        tool, _, path = (info or "").partition(" ")
        if info is None:
            calls += [*_by_name(text), *_in_xml(text)]
        elif (language := tools.get(tool)) and text.strip():
            calls.append(Asked(language, text, path.strip()))
    return calls


def _by_name(text: str) -> Iterator[Asked]:
    for called in _CALLED.finditer(text):
        try:
            given, _ = json.JSONDecoder(strict=False).raw_decode(text, called.end())
        except (ValueError, RecursionError):
            continue
        code = next((given[name] for name in ("command", "code", "patch", "content") if word(given.get(name))), None)
        if code is not None and (language := TOOLS.get(called[1])):
            yield Asked(language, code, text_at(given, "path"), called[2])


def _in_xml(text: str) -> Iterator[Asked]:
    at = 0
    while found := _TAG.search(text, at):
        tool = found["tool"] or found["invoked"]
        end = text.find(f"</{found['tool'] or 'invoke'}>", found.end())
        if end < 0:  # nor is any later one closed
            return
        code = html.unescape(text[found.end() : end].strip())
        given = _ATTRIBUTE.search(found["given"] or found["also"] or "")
        if code and (language := TOOLS.get(tool)):
            yield Asked(language, code, html.unescape(given[1]) if given else "")
        at = end


def _without_thoughts(said: str) -> str:
    for tag in _THOUGHTS:
        kept, _, rest = said.partition(f"<{tag}>")
        parts = [kept]
        while rest:
            thought, closed, rest = rest.partition(f"</{tag}>")
            if not closed:
                parts.append(f"<{tag}>{thought}")  # only spoken of
            said, _, rest = rest.partition(f"<{tag}>")
            parts.append(said)
        said = "".join(parts)
    return said


READER = Reader("gptme", (b"Ran command:", b"Ran allowlisted command:", b"Executed code block"), _reads, _entries)
