"""Reads the dialogues that Biomni prints (CodeAct by tags): in the stdout of a notebook's cell, or as a text file.

LangChain's `pretty_print` heads each message with its kind between two rows of "=". Code stands in the first
`<execute>` of a message, its result in `<observation>` of the next one, which is headed as an AI message too. The
first line names the interpreter (`#!R`, `#!BASH`, `#!CLI`), else it is Python. What raised is shown as an error
without traceback (some forks have one), and all that was printed before is lost; other results are successes.
"""

import re
from collections.abc import Iterator
from functools import partial

from capibara_assets.executions.formats.agents.hosted.api_items import shows_error
from capibara_assets.executions.formats.agents.hosted.console_dialogues import (
    console_reader,
    dialogues,
    plain,
    sections,
)
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, NotRun

_HEADING = re.compile(r"^={10,}(?:\[1m)? (?P<kind>[A-Z][a-z]*) Message (?:\[0m)?={10,}[ \t]*$", re.MULTILINE)
_CODE = re.compile(r"<execute>(.*?)(?:</execute>|\Z)", re.DOTALL)
_RESULT = re.compile(r"\s*<observation>(.*?)(?:</observation>\s*)?\Z", re.DOTALL)
_SHORTENED = re.compile(r"\AThe output is too long to be added to context\.[^\n]*\n")
_FAILED = re.compile(r"(?:Error: |ERROR: |TIMEOUT: |Error (?:running|executing|in) )")
_TIMED_OUT = re.compile(r"(?:ERROR|TIMEOUT): Code execution timed out after ")
# what the program itself says in the user's name
_REMINDERS = (
    "Each response must include thinking process",
    "Execution terminated due to repeated parsing errors",
    "The proposed submission was not approved",
    "Wait... this is not enough to solve the task",
)
_LANGUAGES = {
    "r": ("#!R", "# R code", "# R script"),
    "bash": ("#!BASH", "# Bash script", "#!CLI"),
}


def is_dialogue(cell_output_text: str) -> bool:
    """Whether console text holds an agent's dialogue in which code was executed."""
    if "<execute>" not in cell_output_text or "<observation>" not in cell_output_text:
        return False
    return any(_RESULT.match(said) for _, said in _messages(plain(cell_output_text)))


def _messages(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each message."""
    for heading, said in sections(_HEADING, text):
        yield heading["kind"].lower(), said.strip("\n")


def _of_dialogue(session: str, text: str) -> Iterator[Entry]:
    task: str | None = None
    code: str | None = None
    for kind, said in _messages(text):
        result = _RESULT.match(said)
        if result is not None:
            if code is not None:
                yield _run(session, code, result[1], task)
            code = None
            continue
        if code is not None:
            yield NotRun("unanswered", session, code)
        found = _CODE.search(said) if kind == "ai" else None
        code = found[1] if found is not None else None
        if kind == "human" and not said.lstrip().startswith(_REMINDERS):
            task = said.strip() or task
    if code is not None:
        yield NotRun("unanswered", session, code)


def _run(session: str, code: str, output: str, task: str | None) -> AgentRun:
    code = code.strip("\n") if "\n" in code.strip() else code.strip()
    language = next((name for name, marks in _LANGUAGES.items() if code.lstrip().startswith(marks)), "python")
    shown = _SHORTENED.sub("", output).lstrip()
    failed = _FAILED.match(shown) is not None or shows_error(shown)
    return AgentRun(
        session, language, code, not failed, output, timed_out=_TIMED_OUT.match(shown) is not None, task=task
    )


_FOUND = partial(dialogues, is_dialogue=is_dialogue, heading=_HEADING)
READER = console_reader("codeact-console", (b"<observation>",), _FOUND, _of_dialogue)
