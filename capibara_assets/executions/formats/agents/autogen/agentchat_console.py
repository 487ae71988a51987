"""Reads what the console of AutoGen 0.4 and later (`autogen_agentchat`) prints: in a notebook's cell or a text file.

Each message is headed by its source, from 0.4.8 on by its type too. The code executor runs all blocks of the messages
since its last turn, and answers with their output as it is, or says the exit code where that is not 0 or nothing was
printed. It is known by such words, by the type of its events, or by its name.
"""

import re
from collections.abc import Iterator
from functools import partial

from capibara_assets.executions.formats.agents.hosted.console_dialogues import (
    code_blocks,
    console_reader,
    dialogues,
    plain,
    sections,
)
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, NotRun

_HEADING = re.compile(
    r"^-{10} (?:(?P<kind>[A-Z]\w*(?:Message|Event)) \((?P<typed>[^\s()]+)\)|(?P<source>[A-Za-z_]\w*)) -{10}$",
    re.MULTILINE,
)
_FAILED = re.compile(r"The script ran, then exited with an error \(POSIX exit code: (-?\d{1,9})\)\nIts output was:\n?")
_SILENT = re.compile(r"The script ran but produced no output to console\. The POSIX exit code was: (-?\d{1,9})\.")
_EXECUTOR = re.compile(r"[Cc]ode_executor|[Cc]odeExecutor|[Cc]omputerTerminal|[Cc]omputer_terminal")
_MARKS = (
    b"The script ran", b"CodeExecutionEvent", b"ode_executor", b"odeExecutor", b"omputerTerminal", b"omputer_terminal",
)  # fmt: skip
_SAID = ("TextMessage", "CodeGenerationEvent", "")
_NO_CODE = "No code blocks found in the thread."
_STATISTICS = re.compile(r"^\[Prompt tokens: \d+, Completion tokens: \d+\]\n?", re.MULTILINE)


def is_dialogue(cell_output_text: str) -> bool:
    """Whether console text holds an agent's dialogue in which code was executed."""
    if "---------- " not in cell_output_text or "```" not in cell_output_text:
        return False
    return any(isinstance(entry, AgentRun) for entry in _of_dialogue("", plain(cell_output_text)))


def _of_dialogue(session: str, text: str) -> Iterator[Entry]:
    messages = [
        (heading["kind"] or "", heading["typed"] or heading["source"], _STATISTICS.sub("", said).strip("\n"))
        for heading, said in sections(_HEADING, text)
    ]
    executors = {source for kind, source, said in messages if _is_executor(kind, source, said)}
    task: str | None = None
    waiting: list[tuple[str, str]] = []
    for kind, source, said in messages:
        if kind == "CodeExecutionEvent" or (source in executors and kind in ("TextMessage", "") and waiting):
            if not said.startswith(_NO_CODE):
                yield from _runs(session, waiting, said, task)
            waiting = []
        elif kind in _SAID:
            if source not in executors or kind == "CodeGenerationEvent":
                waiting += code_blocks(said)
            if source == "user":
                task = said or task
    yield from (NotRun("unanswered", session, code) for _, code in waiting)


def _is_executor(kind: str, source: str, said: str) -> bool:
    return kind == "CodeExecutionEvent" or bool(_FAILED.match(said) or _SILENT.match(said) or _EXECUTOR.search(source))


def _runs(session: str, blocks: list[tuple[str, str]], said: str, task: str | None) -> Iterator[AgentRun]:
    """The blocks that were run together, with one answer: a failure is of one of them, and which is not said."""
    silent, failed = _SILENT.match(said), _FAILED.match(said)
    stated = silent or failed
    exit_code = int(stated[1]) if stated else None
    output = "" if silent else said[failed.end() :] if failed else said
    success = exit_code in (0, None)
    last = len(blocks) - 1
    for at, (language, code) in enumerate(blocks):
        alone = at == last and (success or not last)
        yield AgentRun(
            session, language.lower() or "python", code, success if success or not last else None,
            output if at == last else "", exit_code=exit_code if alone else None,
            timed_out=alone and exit_code == 124, task=task,
        )  # fmt: skip


_FOUND = partial(dialogues, is_dialogue=is_dialogue, heading=_HEADING)
READER = console_reader("autogen-agentchat-console", _MARKS, _FOUND, _of_dialogue)
