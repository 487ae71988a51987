"""What a tool's answer states of its run: the exit code that agents write into its text, and flags beside it."""

import re
from typing import Any, NamedTuple

from capibara_assets.executions.formats.agents.failures import raised
from capibara_assets.executions.formats.agents.trajectories.prompts import cell_output
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed, shows_error


class Stated(NamedTuple):
    """The output without what the agent's program wrote around it, and how the run went, as far as it is stated."""

    output: str
    exit_code: int | None = None
    success: bool | None = None


_OPENHANDS = re.compile(
    r"\n?\[(?:The command completed|Command finished) with exit code (-?\d+)\.?\](?:\s*\[[^\]\n]*\])*\s*\Z|"
    r"\n?\[The command completed with exit code (-?\d+)\.[^\]]*\](?:\s*\[[^\]\n]*\])*\s*\Z"
)
_MINI = re.compile(r"\A<returncode>(-?\d+)</returncode>\s*(?:<output>\n?(.*?)</output>\s*\Z|(.*))", re.DOTALL)
_CODEX = re.compile(
    r"\A(?:[A-Z][\w ]*: .*\n)*?"
    r"(?:(?:Exit code: |Process exited with code )(-?\d+)|Process running with session ID (\d+))\n"
    r"(?:[A-Z][\w ]*: .*\n)*Output:\n?"
)
_GEMINI = re.compile(r"\A(?:Command: .*(?:\n(?!Directory: ).*)*\nDirectory: .*\n)?Output: ")
_GEMINI_END = re.compile(
    r"(?:\nError: \(none\))?\n(?:Exit Code: (-?\d+|\(none\))|Process Group PGID: \d+)"
    r"(?:\n(?:Signal|Background PIDs|Process Group PGID): .*)*\s*\Z"
)
_CLAUDE = re.compile(r"\AExit code (\d+)\n?")
_COPILOT = re.compile(r"\n?<(?:exited|command with [^<>\n]* exited) with exit code (-?\d+)>\s*\Z")
_CLAUDE_CODE = re.compile(r"^\[exit_code\] (\d+)$", re.MULTILINE)
_CLAUDE_FAILED = "[error] tool reported failure"
_CODES = ("exit_code", "exitCode", "returncode", "return_code")
_FAILED = ("is_error", "tool_result_is_error", "tool_use_is_error")


def stated(content: str, *beside: Any) -> Stated:
    """Reads an answer's text, and the objects that stand beside it, the nearest first."""
    exact = next((answer for extra in beside if (answer := _exact(extra)) is not None), content)
    said = exact.rstrip().removesuffix(_CLAUDE_FAILED)
    failed = len(said) < len(exact.rstrip())
    text, code = _in_text(said.rstrip() if failed else exact)
    flag: bool | None = True if failed else None
    for extra in beside:
        number, says = _in_object(extra, 3)
        code = number if code is None else code
        flag = says if flag is None else flag
    if code is not None:
        return Stated(text, code, code == 0)
    if flag is not None:
        return Stated(text, None, not flag)
    if (printed := cell_output(text)) != text:  # of a cell in OpenHands' Jupyter, which prints what is raised
        return Stated(printed, None, not raised(printed))
    return Stated(text, None, False if shows_error(text) else None)


def running(content: str) -> str | None:
    """The id under which Codex goes on with a command that has not ended; its end comes with a later `write_stdin`."""
    found = _CODEX.match(content)
    return found[2] if found else None


def continued(earlier: str, later: str) -> str:
    """Codex' answer on a command whose output comes in two pieces: how it ended, by the later one."""
    first, second = _CODEX.match(earlier), _CODEX.match(later)
    return later[: second.end()] + earlier[first.end() :] + later[second.end() :] if first and second else earlier


def _in_text(text: str) -> tuple[str, int | None]:
    if found := _OPENHANDS.search(text):
        code = found[1] or found[2]
        return text[: found.start()], None if code == "-1" else _small(code)  # -1: it still runs
    if found := _COPILOT.search(text):
        return text[: found.start()], _small(found[1])
    if found := _MINI.match(text):
        return found[2] if found[2] is not None else found[3], _small(found[1])
    if found := _CODEX.match(text):
        return text[found.end() :], _small(found[1] or "")
    if (found := _GEMINI.match(text)) and (end := _GEMINI_END.search(text, found.end() - 1)):
        return text[found.end() : end.start()], _small(end[1] or "")
    if found := _CLAUDE.match(text):
        return text[found.end() :], _small(found[1])
    if found := _CLAUDE_CODE.search(text):
        return text, _small(found[1])
    return _in_json(parsed(text), text)


def _in_json(whole: Any, text: str) -> tuple[str, int | None]:
    """Of mini-swe-agent, or of Cursor, which puts success or failure around it."""
    if isinstance(whole, dict) and "returncode" in whole and isinstance(whole.get("output"), str):
        return whole["output"], _whole(whole["returncode"])
    for key in ("success", "failure"):
        inner = whole.get(key) if isinstance(whole, dict) else None
        if isinstance(inner, dict) and "exitCode" in inner and isinstance(inner.get("stdout"), str):
            return inner["stdout"], _whole(inner["exitCode"])
    return text, None


def _exact(extra: Any) -> str | None:
    """The answer as Claude Code had it: Harbor's converter adds streams and metadata to its text."""
    for key in ("tool_result_metadata", "raw_tool_result", "content"):
        if not isinstance(extra, dict):
            return None
        extra = extra.get(key)
    return extra if isinstance(extra, str) else None


def _in_object(extra: Any, depth: int) -> tuple[int | None, bool | None]:
    """Exit code and failure that an object states, also in objects within it."""
    if not isinstance(extra, dict) or not depth:
        return None, None
    code = next((found for key in _CODES if (found := _whole(extra.get(key))) is not None), None)
    failed = next((extra[key] for key in _FAILED if isinstance(extra.get(key), bool)), None)
    for value in extra.values():
        if isinstance(value, dict) and (code is None or failed is None):
            inner, says = _in_object(value, depth - 1)
            code, failed = inner if code is None else code, says if failed is None else failed
    return code, failed


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 32 else None


def _small(digits: str) -> int | None:
    try:
        return _whole(int(digits[:20]))
    except ValueError:  # "(none)": a signal ended it
        return None
