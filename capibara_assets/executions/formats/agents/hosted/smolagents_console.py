"""What smolagents' `CodeAgent` prints by Rich: boxes of code, each followed by its output.

It is saved as a text file, pasted into a Markdown page between fences, or shown in the cells of a notebook.
A run begins with a panel "New run", in which the task stands, and the model in its lower edge; a step with a rule
"Step 1". Code stands between two rules, indented by two blanks and filled up to the terminal's width, of older versions
in a box with the numbers of its lines. Below it: what it printed ("Execution logs:") and its value ("Out: ..", "Out -
Final answer: .."), or what was raised; "[Step 1: Duration ..]" closes a step that ran, so that one without a value has
failed. Traps: lines longer than the terminal are wrapped between words, which only shows where the code does not parse
as it stands; the time is that of the whole step.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from capibara_assets.executions.formats.agents.hosted.console_dialogues import console_reader, dialogues, plain
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, NotRun

_PANEL = re.compile(r"╭─+ New run\b[^\n]*╮\s*$")
_INSIDE = re.compile(r"│ ?(.*)│\s*$")
_EDGE = re.compile(r"╰─+(?: \S+ - (?P<model>\S+) )?─*╯\s*$")
_STEP = re.compile(r"[━─]{3,} Step \d+ [━─]{3,}\s*$")
_CODE = re.compile(r"[ ╭]?─+ Executing (?:parsed|this) code: ─+╮?\s*$")
_BOX_ENDS = re.compile(r"[ ╰]?─{5,}╯?\s*$")
_NUMBERED = re.compile(r"│ +(?P<number>\d+)? ?(?P<code>.*?) *│\s*$")  # a line in a box, or what was wrapped below one
_STEP_ENDS = re.compile(r"\[Step \d+: Duration [\d.]+ seconds")
_HEADING = re.compile("|".join(f"(?:^{part.pattern})" for part in (_PANEL, _STEP, _CODE)), re.MULTILINE)
_LOGS = re.compile(r"\AExecution logs:\n?")
_VALUE = re.compile(r"^Out(?: - Final answer)?: ?", re.MULTILINE)
_RAISED = re.compile(
    r"^(?:Warning to user: )?(?:Code execution failed\b|Code execution exceeded\b|Error in )", re.MULTILINE
)
_NOT_PARSED = "Error in code parsing:"
_TIMED_OUT = "exceeded the maximum execution time"


@dataclass
class _Run:
    """A run while it is read: its task, and the step's code and output so far."""

    session: str
    task: list[str] = field(default_factory=list)
    model: str | None = None
    code: list[str] | None = None
    width: int = 0
    shown: list[str] = field(default_factory=list)

    def step(self, ended: bool) -> Iterator[Entry]:
        """Emit the code and its output at a step's end, or where another step begins."""
        if self.code is None:
            return
        code, text = _joined(self.code, self.width), "\n".join(self.shown).strip("\n")
        self.code, self.shown = None, []
        if not code.strip():
            return
        value = [None, *_VALUE.finditer(text)][-1]
        raised = _RAISED.search(text) if value is None else None
        if value is None and raised is None and not ended:
            yield NotRun("unanswered", self.session, code)
            return
        if value is not None:
            last = text[value.end() :]
            printed, said = text[: value.start()], "" if last.strip() == "None" else last
            output, stderr = _LOGS.sub("", printed).removesuffix("\n") + said, ""
        else:
            cut = raised.start() if raised else len(text) if _LOGS.match(text) else 0
            output, stderr = _LOGS.sub("", text[:cut]), text[cut:]
        task = "\n".join(self.task).strip() or None
        timed_out = _TIMED_OUT in stderr
        yield AgentRun(
            self.session, "python", code, value is not None, output, stderr,
            timed_out=timed_out, task=task, model=self.model,
        )  # fmt: skip


def _joined(lines: list[str], width: int) -> str:
    """The code of a box: as it stands where it parses, else with wrapped lines joined if it does then."""
    shown = whole = "\n".join(lines).strip("\n")
    if not _parses(shown):
        whole = lines[0] if lines else ""
        for above, line in pairwise(lines):
            word = line.split(" ", 1)[0]
            whole += (" " if word and len(above) + 1 + len(word) > width else "\n") + line
    return whole.strip("\n") if _parses(whole) else shown


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def is_dialogue(cell_output_text: str) -> bool:
    """Whether console text holds an agent's run with code."""
    lines = plain(cell_output_text).split("\n") if "Executing " in cell_output_text else []
    return any(_CODE.match(line) for line in lines) and any(_STEP.match(line) or _PANEL.match(line) for line in lines)


def _of_text(session: str, text: str) -> Iterator[Entry]:
    run, runs, inside = _Run(session), 0, ""
    for line in text.split("\n"):
        if inside == "panel":
            words, edge = _INSIDE.match(line), _EDGE.match(line)
            run.task += [words[1].rstrip()] if words else []
            run.model = edge["model"] if edge else run.model
            inside = "panel" if words else ""
        elif inside == "code":
            if _BOX_ENDS.match(line):
                inside = "shown"
            elif run.code is not None and (boxed := _NUMBERED.match(line)):
                if boxed["number"]:
                    run.code.append(boxed["code"])
                elif run.code:
                    run.code[-1] += " " + boxed["code"].lstrip()
            elif run.code is not None:
                run.code.append(line[2:].rstrip())
        elif _PANEL.match(line):
            yield from run.step(ended=True)
            run, runs, inside = _Run(f"{session}/{runs}" if runs else session), runs + 1, "panel"
        elif _CODE.match(line):
            yield from run.step(ended=True)
            run.code, run.width, inside = [], len(line.rstrip()) - 3, "code"
        elif _STEP.match(line) or _STEP_ENDS.match(line):
            yield from run.step(ended=True)
            inside = ""
        elif inside == "shown":
            run.shown.append(line)
        elif line.startswith(_NOT_PARSED):
            yield NotRun("AgentParsingError", run.session)
    yield from run.step(ended=False)


_MARKS = ("━ Step ".encode(), "─ New run".encode(), b"Executing parsed code:", b"Executing this code:")
_FOUND = partial(dialogues, is_dialogue=is_dialogue, heading=_HEADING, pasted=True)
READER = console_reader("smolagents-console", _MARKS, _FOUND, _of_text)
