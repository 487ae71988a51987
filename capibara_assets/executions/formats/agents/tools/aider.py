"""aider's chat history (`.aider.chat.history.md`): one file for all sessions of a repository, Markdown without fences.

What the user types stands behind `#### `, what aider says behind `> `, what the model answers bare; each piece that
aider writes ends in two spaces, which is how the output of `/run`, `/test`, `/git` and `!` (quoted in its first line
only) ends where the next piece begins. Commands that the model suggests are run after "Run shell command? y", one
`> Running ..` each, without output. Traps: outputs hold headings and quotes of their own; documentation that aider puts
into a message has lines like `#### /run ..`, so only the first line of what was typed is a command; newer versions
leave the output out; an exit status is told only by an error in the text, a suggested command's "exited with status"
and by `/test`, which adds the output to the chat where it failed; no times but the session's, which are no call's.
Some versions quote each line of an output; `/test` alone runs what the line that started aider says (`--test-cmd`).
Editors and hooks trim the two spaces off all that is there yet: then an output ends at the next piece that only aider
writes, and a heading below the model's words is the user's only if it is a command.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.tools.shell_reports import shows_error

_STARTED = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_FIRST = re.compile(r"\s*# aider chat started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$", re.MULTILINE)
_LATER = re.compile(
    r"\n\n# aider chat started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\r?\n\r?\n(?:> |#### )[^\n]*  \r?$", re.MULTILINE
)
_TRIMMED = re.compile(
    r"(?:\A|\n\n)# aider chat started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\r?\n\r?\n(?:> [^\n]*\n){0,9}> Aider v\d"
)
_COMMAND = re.compile(r"(?:/(run|test|git)(?:\s+|\Z)|!)(.*)", re.DOTALL)
_ASKED = re.compile(r"/(?:ask|code|architect|help|context)\s+(.+)", re.DOTALL)
_MODEL = re.compile(r"> (?:Main m|M)odels?: (\S+?),? with ")
_TESTS_BY = re.compile(
    r"> \S*\baider\b.*? --test-cmd[= ](?:\"(?P<double>[^\"]+)\"|'(?P<single>[^']+)'|(?P<word>[^\s\"']+)(?= --|\s*$))"
)
_OFFERED = re.compile(r"> Run shell commands?(?:\(s\))?\? .*?(\w*)\s*")
_ADDED = re.compile(r"> Added \d+ lines? of output to the chat\.")
_NO_OUTPUT = re.compile(
    r"> (?:Add (?:the|command) output to the chat\?|Add [\d.]+k tokens of command output|Added \d+ lines? of)"
)
_STATUS = re.compile(r"> Command '.*' exited with status (-?\d{1,9})\s*")
_APPLIED = re.compile(r"> Applied edit to (.+)")
_BLOCK = re.compile(
    r"^(?P<path>[^\n`<>]+)\n(?P<fence>`{3,}|<source>)[^\n]*\n(?P<text>.*?)\n(?:(?P=fence)|</source>)$", re.M | re.S
)


@dataclass(slots=True)
class _Session:
    """A session and where in it the reader stands."""

    name: str
    model: str | None = None
    test: str | None = None  # the command that `/test` runs
    task: str | None = None
    offered: bool = False
    reply: list[str] = field(default_factory=list)
    answered: bool = False  # the model's words are the last that stand there


def _reads(document: LogDocument) -> bool:
    """A history begins with a session's heading; a cut one has it between blank lines, with aider's lines below."""
    return bool(_FIRST.match(document.text) or _LATER.search(document.text) or _TRIMMED.search(document.text))


def _entries(document: LogDocument) -> Iterator[Entry]:
    lines = document.text.replace("\r\n", "\n").split("\n")
    trimmed = _trimmed(lines)
    session, count, at = _Session(document.digest), 0, 0
    while at < len(lines):
        line = lines[at]
        if started := _STARTED.fullmatch(line):
            session, count = _Session(f"{started[1]}#{count}"), count + 1
        elif _typed(lines, at) or (at in trimmed and _typed_trimmed(lines, at, session.answered)):
            end = next((n for n in range(at, len(lines)) if not lines[n].startswith("####")), len(lines))
            said = "\n".join(row[4:].removeprefix(" ").rstrip() for row in lines[at:end]).strip()
            session.offered, session.reply, session.answered = False, [], False
            if command := _COMMAND.fullmatch(said):
                run, end = _typed_run(session, command, lines, end, at in trimmed)
                yield run
            elif asked := _ASKED.fullmatch(said):
                session.task = asked[1].strip()
            elif said and not said.startswith("/") and not (session.task and session.task in said):
                session.task = said
            at = end
            continue
        elif line.startswith("> "):
            session.answered = False
            yield from _aider_line(session, line, "".join(lines[at + 1 : at + 2]))
        else:
            session.reply.append(line)
            session.answered = session.answered or bool(line.strip() and not lines[at - 1].strip())
        at += 1


def _trimmed(lines: list[str]) -> range:
    """The lines up to the first that ends as aider ends a piece: all, or those from a session's heading on."""
    ended = (n for n, line in enumerate(lines) if line.endswith("  ") and line.startswith((">", "####")))
    end = next(ended, len(lines))
    start = next((n for n in range(end) if _STARTED.fullmatch(lines[n])), end)
    return range(start if end < len(lines) else 0, end)


def _typed(lines: list[str], at: int) -> bool:
    """Whether the user's words begin at a line: below a blank one, and ending as aider ends a piece."""
    line = lines[at]
    return line.startswith("#### ") and line.endswith("  ") and not "".join(lines[max(at - 1, 0) : at]).strip()


def _typed_trimmed(lines: list[str], at: int, answered: bool) -> bool:
    """The same where the ends were trimmed off: a heading of the model's own may stand below its words."""
    if not lines[at].startswith("#### ") or "".join(lines[max(at - 1, 0) : at]).strip():
        return False
    return not answered or re.match(r"#### /(?:run|test|git)\b", lines[at]) is not None


def _typed_run(
    session: _Session, command: re.Match[str], lines: list[str], at: int, trimmed: bool
) -> tuple[AgentRun | NotRun, int]:
    """The run of a command that the user typed, and the line behind its output."""
    kind, code = command[1] or "run", command[2].strip()
    code = code or (session.test or "" if kind == "test" else "")
    if not code:  # the configured command, which the history does not tell
        return NotRun("no_code"), at
    code = f"git {code}" if kind == "git" else code
    at = next((n for n in range(at, len(lines)) if lines[n].strip()), at)  # editors put blank lines below a heading
    output, end = _output_trimmed(lines, at) if trimmed else _output_quoted(lines, at) or _output(lines, at)
    added = kind == "test" and (bool(_ADDED.match("".join(lines[end : end + 1]))) or _echoed(output, lines, end))
    failed = added or shows_error(output)
    return _run(session, code, False if failed else None, output=output), end


def _output(lines: list[str], start: int) -> tuple[str, int]:
    """The output that aider quoted at a line: to the first that ends as its pieces do and has one of them behind."""
    first = "".join(lines[start : start + 1])
    if not first.startswith("> ") or _NO_OUTPUT.match(first):
        return "", start
    for at in range(start, len(lines)):
        if at > start and _typed(lines, at) and re.match(r"#### /(?:run|test|git)\b", lines[at]):
            return "\n".join([first[2:], *lines[start + 1 : at]]).rstrip(), at
        after = "".join(lines[at + 1 : at + 2])
        if (
            lines[at].endswith("  ")
            and lines[at].strip()
            and (not after.strip() or after.startswith(("> ", ">", "####")))
        ):
            return "\n".join([first[2:], *lines[start + 1 : at + 1]]).rstrip(" "), at + 1
    return "\n".join([first[2:], *lines[start + 1 :]]).rstrip(), len(lines)


def _output_quoted(lines: list[str], start: int) -> tuple[str, int] | None:
    """The same where each line is quoted; None: aider ended a piece as it does where it quotes the first line only."""
    end = start
    while end < len(lines) and lines[end].startswith(">") and not _NO_OUTPUT.match(lines[end]):
        if lines[end].endswith("  ") and lines[end].strip() != ">":
            return None
        end += 1
    behind = next((n for n in range(end, len(lines)) if lines[n].strip()), len(lines))
    ends = (
        behind == len(lines)
        or _NO_OUTPUT.match(lines[end])
        or _typed(lines, behind)
        or _STARTED.fullmatch(lines[behind])
    )
    if end == start or not ends:
        return None
    return "\n".join(line[1:].removeprefix(" ") for line in lines[start:end]).rstrip(), end


def _output_trimmed(lines: list[str], start: int) -> tuple[str, int]:
    """The same where the ends were trimmed off: to the user's next words, aider's next, or the output's own echo."""
    first = "".join(lines[start : start + 1])
    if not first.startswith("> ") or _NO_OUTPUT.match(first):
        return "", start
    echo = f"> {first[2:].strip()}"
    for at in range(start + 1, len(lines)):
        line, below_blank = lines[at], not lines[at - 1].strip()
        heading = below_blank and (line.startswith("#### ") or _STARTED.fullmatch(line))
        if heading or _NO_OUTPUT.match(line) or line.rstrip() in (">", echo):
            return "\n".join([first[2:], *lines[start + 1 : at]]).rstrip(), at
    return "\n".join([first[2:], *lines[start + 1 :]]).rstrip(), len(lines)


def _echoed(output: str, lines: list[str], at: int) -> bool:
    """Whether aider quoted the output again, line by line: as it did when it added it to the chat."""
    echo = "".join(lines[at : at + 1])
    return bool(output) and echo.startswith("> ") and echo[2:].strip() == output.split("\n")[0].strip() != ""


def _aider_line(session: _Session, line: str, after: str) -> Iterator[Entry]:
    """What one of aider's own lines tells; `after` is the next one."""
    if model := _MODEL.match(line):
        session.model = model[1]
    elif by := _TESTS_BY.match(line):
        session.test = by["double"] or by["single"] or by["word"]
    elif offered := _OFFERED.fullmatch(line):
        session.offered = offered[1].lower() in ("y", "yes", "a", "all")
        if not session.offered:
            yield NotRun("refused")
        elif not after.startswith("> Running "):
            yield NotRun("unanswered")
    elif session.offered and line.startswith("> Running "):
        status = _STATUS.fullmatch(after)
        code = line.removeprefix("> Running ").rstrip()
        yield _run(session, code, False if status else None, exit_code=int(status[1]) if status else None)
    elif applied := _APPLIED.fullmatch(line):
        path = applied[1].strip()
        blocks = _BLOCK.finditer("\n".join(session.reply))
        yield Edit(session.name, path, "\n".join(b["text"] for b in blocks if b["path"].strip("* :#`") == path))


def _run(
    session: _Session, code: str, success: bool | None, output: str = "", exit_code: int | None = None
) -> AgentRun:
    return AgentRun(
        session=session.name,
        language="bash",
        code=code,
        success=success,
        output=output,
        exit_code=exit_code,
        task=session.task,
        model=session.model,
    )


READER = Reader("aider-chat-history-md", (b"# aider chat started at ",), _reads, _entries)
