"""What agents' shell tools write around a command's output: exit codes, headers, refusals, errors in the text."""

import re
from typing import NamedTuple

from capibara_assets.executions.formats.agents.fields import of_json

_REFUSED = re.compile(
    r"(?:\[Request interrupted by user|The user doesn't want to (?:proceed|take this action)|<tool_use_error>"
    r"|Permission to use \S+ .{0,2000}?(?:denied|granted)|Claude requested permissions to"
    r"|exec_command failed(?: for |: Rejected)|exec denied\b|exec command rejected by user"
    r"|User (?:rejected|denied|declined) |Blocked by user"
    r"|(?:Command|Tool|Call) (?:is |was )?(?:blocked|refused|forbidden) by (?:the )?\w*policy\b"
    r"|Tool execution (?:was )?(?:blocked|denied)|Tool \S+ not found\s*\Z|Validation failed for tool "
    r"|Operation aborted\s*\Z|Skipped due to queued user message|Working directory does not exist: "
    r"|\[Operation Cancelled\]|Command injection detected: |Command was cancelled by user before it could start)",
    re.DOTALL,
)
_CLAUDE = re.compile(r"Exit code (-?\d{1,9})(?:\n|\Z)")
_CODEX = re.compile(
    r"(?:Command: (?P<command>[^\n]*(?:\n(?!Chunk ID: |Exit code: |Wall time: )[^\n]*){0,2000})\n)?"
    r"(?:Chunk ID: \S+\n)?(?:Exit code: (?P<first>-?\d{1,9})\n)?"
    r"Wall time: (?P<seconds>\d{1,9}(?:\.\d+)?) ?s(?:econds?)?\n"
    r"(?:Process exited with code (?P<code>-?\d{1,9})\n|Process running with session ID \S+\n)?"
    r"(?:Original token count: \d+\n)?(?:Total output lines: \d+\n)?(?:Output:(?:\n|\Z))"
)
_CURSOR = re.compile(
    r"Exit code: (?P<code>-?\d{1,9})\s+Command output:\s+"
    r"(?:(?P<fence>`{3,})[a-z]*\n(?P<output>.*?)\n?(?P=fence)(?=\s*(?:\Z|Command completed)))?"
    r"(?:\s*Command completed in (?P<ms>\d{1,12}) ?ms)?",
    re.DOTALL,
)
_GEMINI_HEAD = re.compile(r"(?:Command: .*?\n(?=Directory: ))?(?:Directory: [^\n]*\n)?(?:Output|Stdout): ", re.DOTALL)
_GEMINI_FIELD = re.compile(r"\n(Stderr|Error|Exit Code|Signal|Background PIDs|Process Group PGID): ?([^\n]*)(?=\n|\Z)")
_EMPTY = ("", "(empty)", "(none)", "null")
_NO_SIGNAL = (*_EMPTY, "0")  # which some terminals report of a command that no signal ended
_PYTEST = re.compile(r"^=+ .*\b\d+ (?:failed|errors?)\b.* =+\s*$", re.MULTILINE)
_ERROR_TEXT = re.compile(
    r"^(?:E  +)?Traceback \(most recent call last\):|^FAILED \(|^npm ERR!"
    r"|^\S*sh: .*(?:not found|No such file|syntax error|denied)|: command not found\s*$"
    r"|^error(?:\[E\d+\])?: |^fatal: |^\w*(?:Error|Exception): .*\Z",
    re.MULTILINE,
)


class Report(NamedTuple):
    """A command's outcome as its tool's text tells it; `stated` where the text has the tool's own header or footer."""

    output: str
    exit_code: int | None = None
    success: bool | None = None
    duration_ms: float | None = None
    stderr: str = ""
    stated: bool = False
    timed_out: bool = False


def refused(text: str) -> bool:
    """Whether a tool's answer says that the command was refused or cancelled before it started."""
    return bool(_REFUSED.match(text.lstrip()))


def shows_error(output: str) -> bool:
    """Whether a program's output, without any exit code beside it, ends in or reports an error of its own."""
    return bool(_PYTEST.search(output) or _ERROR_TEXT.search(output))


def read_report(text: str) -> Report:
    """The outcome that a shell tool's text tells, whichever of the known agents wrote it."""
    if text.startswith('{"output":'):
        return _codex_json(text)
    if claude := _CLAUDE.match(text):
        code = int(claude[1])
        if code:  # Claude Code writes this line above failures only
            return Report(text[claude.end() :], code, False, stated=True)
    if codex := _CODEX.match(text):
        stated = codex["first"] or codex["code"]
        exit_code = None if stated is None else int(stated)
        success = None if exit_code is None else exit_code == 0
        return Report(text[codex.end() :], exit_code, success, float(codex["seconds"]) * 1000, stated=True)
    if cursor := _CURSOR.match(text):
        code = int(cursor["code"])
        output = text[cursor.end() :] if cursor["output"] is None else cursor["output"]
        took = None if cursor["ms"] is None else float(cursor["ms"])
        return Report(output, code, code == 0, took, stated=True)
    return gemini_report(text)


def _codex_json(text: str) -> Report:
    """The outcome in `{"output": .., "metadata": {"exit_code": .., "duration_seconds": ..}}`, Codex's first form."""
    value = of_json(text, {})
    output, told = value.get("output"), value.get("metadata")
    if not isinstance(output, str) or not isinstance(told, dict):
        return Report(text)
    code, took = told.get("exit_code"), told.get("duration_seconds")
    exit_code = code if isinstance(code, int) and not isinstance(code, bool) else None
    duration = took * 1000.0 if isinstance(took, int | float) else None
    return Report(output, exit_code, None if exit_code is None else exit_code == 0, duration, stated=True)


def gemini_report(text: str) -> Report:
    """The outcome in `Output: ..` with `Error:`, `Exit Code:`, `Signal:` lines after it, as Gemini CLI writes it.

    Newer versions write the exit code only where it is not 0; a long output loses the head, but not the last lines.
    """
    head = _GEMINI_HEAD.match(text)
    found, end = _last_fields(text)
    whole = "Process Group PGID" in found or ("Exit Code" in found and "Signal" in found)
    if not found or not (whole or head):
        return Report(text)
    output = text[head.end() if head else 0 : max(end, head.end() if head else 0)]
    if head and head[0].endswith("Stdout: "):
        output, _, found["Stderr"] = output.partition("\nStderr: ")
    said = [found[key] for key in ("Stderr", "Error") if found.get(key) not in (None, *_EMPTY)]
    code = found.get("Exit Code", "")
    exit_code = int(code) if re.fullmatch(r"-?\d{1,9}", code) else None
    killed = found.get("Signal", "") not in _NO_SIGNAL
    failed = bool(exit_code) or killed or found.get("Error", "") not in _EMPTY
    return Report("" if output in _EMPTY else output, exit_code, not failed, stderr="\n".join(said), stated=True)


def _last_fields(text: str) -> tuple[dict[str, str], int]:
    """The lines of fields that end a report, and where they begin: the output may hold such lines too."""
    found: dict[str, str] = {}
    end = len(text.rstrip("\n"))
    for field in reversed(list(_GEMINI_FIELD.finditer(text))):
        if field.end() != end or field[1] in found:
            break
        found[field[1]] = field[2].strip()
        end = field.start()
    return found, end
