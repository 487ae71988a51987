"""What Claude Code's `/export` writes: the conversation as its terminal shows it, plain text.

`⏺ Bash(command)` and, indented below `⎿`, its output; `! command` is what the user ran. Traps: a command of several
lines is indented as the terminal shows it; `Error: Exit code N` stands in the output's first line; output that was
folded (`… +6 lines`) is not whole; text that begins with the same dot is the assistant's; an edit is shown with numbers
of lines, not as it was given, and is counted alone.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import Asked
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.tools.calls import Call

_DOTS, _CORNER = "⏺●", "⎿"
_MARKS = tuple(f"{dot} Bash(".encode() for dot in _DOTS)
_BLOCK = re.compile(rf"^(?:[{_DOTS}] |[>❯] |! )", re.MULTILINE)
_CALL = re.compile(
    rf"[{_DOTS}] (?P<tool>Bash|[\w .-]+ \(MCP\))\((?P<given>.*?)\)[ \t]*\n\s*{_CORNER}[ \xa0]*", re.DOTALL
)
_USERS = re.compile(rf"! (?P<given>[^\n]+)\n\s*{_CORNER}[ \xa0]*")
_QUERY = re.compile(r'(?:^|, )(?:sql|query|statement): "(.*?)"(?=, \w+: |\Z)', re.DOTALL)
_FAILED = re.compile(r"Error: Exit code (\d{1,9})(?:\n|\Z)")
_STOPPED = re.compile(r"(?:Interrupted\b|User (?:rejected|declined)|Error: The user|No \(tell Claude)")
_FOLDED = re.compile(r"\n?… \+\d+ lines?[^\n]*\Z")
_NOTHING = "(No content)"


def reads(document: LogDocument) -> bool:
    """Whether a command stands with an output below it."""
    return any(_CALL.match(block) for block in _blocks(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands and queries in order."""
    task: str | None = None
    for block in _blocks(document):
        if block.startswith((">", "❯")):
            task = block[2:].strip() or task
            continue
        users = _USERS.match(block)
        told = _CALL.match(block) or users
        asked = _asked(told) if told is not None else None
        if told is None or asked is None:
            continue
        call = Call(document.digest, asked.language, asked.text, task=task)
        output = _unindented(block[told.end() :])
        if _STOPPED.match(output):
            yield NotRun("refused", call.session, asked.text)
            continue
        _answered(call, asked, output)
        yield call.run(asked.language, asked.text)


def _answered(call: Call, asked: Asked, output: str) -> None:
    output = _FOLDED.sub("", output)
    if failed := _FAILED.match(output):
        call.not_run, call.exit_code = None, int(failed[1])
        call.success, call.output = call.exit_code == 0, output[failed.end() :]
        return
    answer = read_answer("" if output == _NOTHING else output)
    write_answer(call, answer, runs_shell=False, language=asked.language)
    if asked.language == "bash" and call.success is None and call.not_run is None:
        call.success = True  # of a failure it shows the exit code


def _asked(told: re.Match[str]) -> Asked | None:
    given = told["given"]
    if "tool" not in told.re.groupindex or told["tool"] == "Bash":
        return Asked("bash", _unindented(given))
    query = _QUERY.search(given)
    return Asked("sql", _unindented(query[1])) if query is not None and "query" in told["tool"] + given[:9] else None


def _blocks(document: LogDocument) -> Iterator[str]:
    """What stands from one mark to the next at a line's begin."""
    text = document.text.replace("\r\n", "\n")
    starts = [found.start() for found in _BLOCK.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        yield text[start:end]


def _unindented(text: str) -> str:
    """Lines without the indent that the terminal gave all but the first."""
    first, *others = text.rstrip().split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    return "\n".join([first, *(line[indent:] for line in others)])


READER = Reader("claude-export", _MARKS, reads, entries)
