"""What a coding agent shows in its terminal, kept as text: a mark, the call, and below it a tree of its output.

Claude Code (also as its `/export` writes it): `⏺ Bash(command)` and, indented below `⎿`, the output; `! command` is
what the user ran. Codex: `• Ran command`, `│` before the command's further lines, `└` before the output. Kimi CLI:
`• Used Shell (command)`. Gemini CLI and Qwen Code: `✓  Shell command (what for)` in a box above the output. Traps: text
that begins with the same dot is the agent's; a row that was too long goes on in the next; output that was folded
(`… +6 lines`) is not whole, nor is a command with `…` in it; an edit is shown with numbers of lines, not as it was
given, and is counted alone; a terminal that was drawn again shows the same calls once more. Claude Code shows the exit
code of a failure, the others show none.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import Asked
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.cell_outputs import strip_ansi

_DOTS, _CORNER = "⏺●", "⎿"
_MARKS = (*(f"{dot} Bash(" for dot in _DOTS), "• Ran ", "• You ran ", "• Used Shell (", "• Used Bash (")
_BOXES = tuple(f"│ {sign}  Shell " for sign in "✓✔x✗-")
_BLOCK = re.compile(rf"^(?:[{_DOTS}•■✔✗✻›>❯!] |  Bash\(|─| ?╭| ?│ [✓✔x✗⊷o?-]  \w)", re.MULTILINE)
_CALL = re.compile(
    rf"(?:[{_DOTS}] | {{2}}(?=Bash))(?P<tool>Bash|[\w .-]+ \(MCP\))\((?P<given>.*?)\)[ \t]*\n\s*{_CORNER}[ \xa0]*",
    re.DOTALL,
)
_USERS = re.compile(rf"! (?P<given>[^\n]+)\n\s*{_CORNER}[ \xa0]*")
_RAN = re.compile(
    r"• (?:(?:Ran|You ran) (?P<given>[^\n]+(?:\n {2}│[^\n]*)*)"
    r"|Used (?:Shell|Bash) \((?P<used>[^\n]+)\)[ \t]*(?=\n {2}))"
    r"(?P<tree>(?:\n {2}└ ?[^\n]*)?)(?P<rest>(?:(?:\n[ \t]*)*\n {4}[^\n]*)*)"
)
_BOX = re.compile(r" ?│ (?P<how>[✓✔x✗-])  Shell (?P<given>[^\n]+)│[ \t]*(?P<rest>(?:\n ?│[^\n]*│[ \t]*)*)")
_ABOUT = re.compile(r"(?: \[(?:in|current working directory) [^\]\n]{0,300}\])?(?: \([A-Z][^()\n]{0,300}\))?\Z")
_QUERY = re.compile(r'(?:^|, )(?:sql|query|statement): "(.*?)"(?=, \w+: |\Z)', re.DOTALL)
_FAILED = re.compile(r"Error: Exit code (\d{1,9})(?:\n|\Z)")
_STOPPED = re.compile(
    r"(?:Interrupted\b|User (?:rejected|declined)|Error: The user|No \(tell Claude|exec command rejected by user)"
)
_FOLDED = re.compile(r"\n?… \+\d+ lines?[^\n]*\Z")
_WAITS = re.compile(r"(?:Waiting|Running)…[^\n]*(?:\n|\Z)|\(timeout [^)\n]*\)\s*\Z")
_CORNERS = re.compile(rf"\n\s*{_CORNER}[ \xa0]*")
_BEHIND = re.compile(r"Running in (?:the )?background\b")
_NOTHING = ("(No content)", "(no output)")
_CANCELLED = "User rejected"
_PROMPTS = ("> ", "❯ ", "› ")
_SAID = re.compile(rf"[{_DOTS}•] (?!\w+\()(?:(?!.*\(ctrl\+o)[^\n]+(?:\n|\Z))+")  # the first paragraph
_OPTION, _ENDS = re.compile(r" --?\w"), (".", ":", "!", "?", "…")  # of a command, and of a sentence
_BLANKS = re.compile(r"\s+")
_NARROW = 60  # columns of the narrowest screen
_REDRAWN = 100  # letters of the agent's words around a call, at least, that stand twice where it is shown again


@dataclass(slots=True)
class _Shown:
    """What stands from one mark to the next: a call's rows and output, or words."""

    letters: str  # are the same however wide the screen was
    tool: str = ""  # none: words
    rows: tuple[str, ...] = ()
    indent: int = 0  # of all rows but the first
    before: int = 0  # columns that stand before the first row's text
    output: str = ""
    ended: bool = True  # the output is that of the end
    failed: bool = False
    exits: bool = False  # a failure would show its exit code
    sure: bool = True  # has what only a call has below it
    says: bool = False  # it is the agent's words


def reads(document: LogDocument) -> bool:
    """Whether a command stands with an output below it."""
    return any(one.tool and one.sure for one in map(_shown, _blocks(_text(document))))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands and queries in order."""
    text = _text(document)
    shown = _once([_shown(block) for block in _blocks(text)])
    calls = [one for one in shown if one.tool]
    broken = any(row and not row.startswith(" " * one.indent) for one in calls for row in one.rows[1:])
    rows = [len(row) for one in calls for row in _rows(one, broken)]
    width = max(_NARROW, *rows, *(() if broken else map(len, map(str.rstrip, text.split("\n")))))
    programs = {_program(one) for one in calls if one.sure}
    task: str | None = None
    for one in shown:
        if not one.tool:
            task = one.output or task
        elif (_runs(one) or _program(one) in programs) and (asked := _asked(one, width, broken)):
            call = Call(document.digest, asked.language, asked.text, task=task)
            if _STOPPED.match(one.output):
                yield NotRun("refused", call.session, asked.text)
                continue
            _answered(call, asked, one)
            yield call.run(asked.language, asked.text)


def _text(document: LogDocument) -> str:
    return strip_ansi(document.text.replace("\r\n", "\n"))


def _blocks(text: str) -> Iterator[str]:
    """What stands from one mark to the next at a line's begin."""
    starts = [found.start() for found in _BLOCK.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        yield text[start:end]


def _shown(block: str) -> _Shown:
    if told := _CALL.match(block) or _USERS.match(block):
        parts = [_unindented(part) for part in _CORNERS.split(block[told.end() :])]
        left = [part for part in parts if not _WAITS.match(part)]
        ended = bool(left) and not _BEHIND.match(left[0])
        output = "\n".join(left) if left else _WAITS.sub("", parts[0])
        tool = told["tool"] if "tool" in told.re.groupindex else "Bash"
        rows = tuple(told["given"].split("\n"))
        found = _Shown("", tool, rows, 6, told.start("given"), output, ended, exits=ended)
    elif told := _RAN.match(block):
        given = told["given"] or told["used"]
        rows = tuple(row.replace("  │", "   ", 1).rstrip() if at else row for at, row in enumerate(given.split("\n")))
        output = "\n".join(line[4:] for line in (told["tree"] + told["rest"]).split("\n")).strip("\n")
        sure = bool(told["tree"] or rows[1:])
        found = _Shown("", "Bash", rows, 4, told.start("given" if told["given"] else "used"), output, sure=sure)
    elif told := _BOX.match(block):
        inside = [line.strip().strip("│").removeprefix(" ").rstrip() for line in told["rest"].split("\n")]
        output = _CANCELLED if told["how"] == "-" else "\n".join(inside).strip("\n")
        failed = told["how"] in "x✗"
        given = _ABOUT.sub("", told["given"].rstrip(), count=1)
        found = _Shown("", "Bash", (given,), 0, told.start("given"), output, failed=failed)
    else:
        prompt = block[2:].strip() if block.startswith(_PROMPTS) else ""
        said = _SAID.match(block)
        return _Shown(_BLANKS.sub("", said[0] if said else ""), output=prompt, says=said is not None)
    found.letters = _BLANKS.sub("", "$" + "".join(found.rows))
    return found


def _once(shown: list[_Shown]) -> list[_Shown]:
    """What is shown without the calls that stand there once more, between the same words of the agent.

    Of two, the earlier one stays, with what the later one tells of its end.
    """
    above, below = _words(shown), _words(shown[::-1])[::-1]
    kept, known = list[_Shown](), dict[str, int]()
    for at, one in enumerate(shown):
        first = known.get(one.letters) if one.tool else None
        known[one.letters] = at
        around = [] if first is None else [(side[at], side[first]) for side in (above, below)]
        twice = sum(len(said.letters) for said, before in around if said == before and said is not before)
        if first is None or twice < _REDRAWN:
            kept.append(one)
            continue
        earlier = shown[first]
        if one.ended and not earlier.ended:
            earlier.output, earlier.ended, earlier.exits = one.output, True, one.exits
        shown[at] = earlier
    return kept


def _words(shown: list[_Shown]) -> list[_Shown]:
    """What the agent said last before each."""
    found, last = list[_Shown](), _Shown("")
    for one in shown:
        found.append(last)
        last = one if one.says else last
    return found


def _runs(one: _Shown) -> bool:
    """Whether it is a call by itself: a sentence of the agent's may begin as one does."""
    return one.sure or bool(one.output or (_OPTION.search(one.rows[0]) and not one.rows[0].endswith(_ENDS)))


def _program(one: _Shown) -> str:
    return one.rows[0].split(" ", 1)[0]


def _rows(one: _Shown, broken: bool) -> list[str]:
    """The rows of a call as the program wrote them: what is less indented continues one that the terminal broke."""
    found = [" " * one.before + one.rows[0]]
    for row in one.rows[1:]:
        if broken and not row.startswith(" " * one.indent):
            found[-1] += row
        else:
            found.append(row)
    return found


def _code(one: _Shown, width: int, broken: bool) -> str:
    """The command: a row is a line of it, unless its first word had no room in the row above."""
    whole, *others = _rows(one, broken)
    end, last, whole = len(whole), whole.rsplit(" ", 1)[-1], whole[one.before :]
    for row in others:
        text = row[one.indent :]
        word = text.split(" ", 1)[0]
        full = end >= width - 1  # what had no room may begin with a blank, or be the rest of a word
        if full and (not word or one.indent + len(last) + len(word) > width):
            pass
        else:
            whole += " " if word and end + 1 + len(word) > width else "\n"
        whole += text
        end, last = len(row), row.rsplit(" ", 1)[-1]
    return whole


def _answered(call: Call, asked: Asked, one: _Shown) -> None:
    output = _FOLDED.sub("", one.output)
    if failed := _FAILED.match(output):
        call.not_run, call.exit_code = None, int(failed[1])
        call.success, call.output = call.exit_code == 0, output[failed.end() :]
        return
    answer = read_answer("" if output in _NOTHING else output)
    answer.failed = one.failed or None
    write_answer(call, answer, runs_shell=False, language=asked.language)
    if one.exits and asked.language == "bash" and call.success is None and call.not_run is None:
        call.success = True


def _asked(one: _Shown, width: int, broken: bool) -> Asked | None:
    code = _code(one, width, broken)
    if one.tool == "Bash":
        return Asked("bash", code)
    query = _QUERY.search(code)
    return Asked("sql", query[1]) if query is not None and "query" in one.tool + code[:9] else None


def _unindented(text: str) -> str:
    """Lines without the indent that the terminal gave all but the first."""
    first, *others = text.rstrip().split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    return "\n".join([first, *(line[indent:] for line in others)])


READER = Reader("terminal-screens", tuple(mark.encode() for mark in (*_MARKS, *_BOXES)), reads, entries)
