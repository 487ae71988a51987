"""Dialogues in which a model's fenced code is run whole, its output in the next message or the next block.

Code-Feedback's (`Execution result: ..`), CodeActInstruct's (`<execute>`, `Observation:`), AutoGen's histories
(`exitcode: 0 (..)`, `Code output:`) and those made like them, as messages (`role`, `content`) or as ShareGPT (`from`,
`value`). A message with several blocks of code tells not which was
run; a next message that has no such head is somebody's words. Where an interpreter wrote into the answer itself (ToRA
and its like: a block of code, then one of `output`), the answer may be a message, or any text of a row.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, word
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, Reader, message_text
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.shell_frames import read_fence
from capibara_assets.executions.formats.envelope_reader import language_of

_LISTS = ("history", "messages", "conversations", "conversation", "dialogue", "turns")
_MODEL = ("assistant", "gpt", "model")
_OPENS = re.compile(r"```(\w+)[ \t]*")
_HEAD = re.compile(
    r"\s*(?:exitcode: (?P<ended>-?\d{1,3}) \([^)\n]{1,40}\)\nCode output"
    r"|\**(?:Code )?Execution (?:result|output|feedback)s?\**|Observation|Execution|Code output|Stdout)"
    r"(?: ?\(?exit ?code:? ?(?P<code>-?\d{1,3})\)?)?:\**[ \t]*\n?",
    re.IGNORECASE,
)
_RUN = ("python", "javascript", "typescript", "bash", "sql")
_PRINTED = "output"  # the language of a block that the interpreter wrote
_TASKS = ("question", "problem", "task", "prompt", "instruction")


def _runs(document: LogDocument) -> Iterator[AgentRun]:
    for number, row in enumerate(objects(document.rows)):
        held = next((row[key] for key in _LISTS if isinstance(row.get(key), list)), None)
        session, task, asked = f"{document.digest}/{number}", None, None
        if not held:
            task = next((row[key] for key in _TASKS if word(row.get(key))), None)
            texts = dict.fromkeys(text for text in _texts(row) if f"```{_PRINTED}" in text)
            yield from (_run(session, task, *ran, None) for text in texts for ran in _interleaved(text))
        for message in objects(held):
            role, said = str(message.get("role", message.get("from"))), message_text(message)
            head, named = _HEAD.match(said), word(message.get("name")) is not None  # the role is then of one's view
            if asked is not None and head is not None and (named or role not in _MODEL):
                yield _run(session, task, *asked, said[head.end() :], head["ended"] or head["code"])
                asked = None
            elif role in _MODEL or (named and "```" in said):
                yield from (_run(session, task, *ran, None) for ran in _interleaved(said))
                asked = _asked(said)
            else:
                task, asked = said.strip() or task, None


def _asked(said: str) -> tuple[str, str] | None:
    """The language and the code of the only block in a message."""
    blocks = list(_blocks(said))
    if len(blocks) != 1:
        return None
    language, code = blocks[0]
    return (language, code) if language in _RUN and code.strip() else None


def _texts(row: dict[str, Any]) -> Iterator[str]:
    """The texts of a row, and those in its lists."""
    for value in row.values():
        yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def _interleaved(said: str) -> Iterator[tuple[str, str, str]]:
    """Language, code and output of each block of code that one of output follows."""
    if f"```{_PRINTED}" in said:
        for (language, code), (then, printed) in itertools.pairwise(_blocks(said)):
            if language in _RUN and code.strip() and then == _PRINTED:
                yield language, code, printed


def _blocks(said: str) -> Iterator[tuple[str, str]]:
    """The blocks that are closed, fenced or tagged: line by line, since many that are not cost no more."""
    opened, kept = "", list[str]()
    for line in said.split("\n"):
        if opened and line.rstrip(" \t") == "```":
            yield language_of(opened), "\n".join(kept)
            opened = ""
        elif opened:
            kept.append(line)
        elif fence := _OPENS.fullmatch(line):
            opened, kept = fence[1], []
    for part in said.split("<execute>")[1:]:
        code, closed, _ = part.partition("</execute>")
        if closed:
            yield "python", code.strip("\n")


def _run(session: str, task: str | None, language: str, code: str, printed: str, exit_code: str | None) -> AgentRun:
    fenced = read_fence(printed)
    call = Call(session, "", None, task=task)
    answer = read_answer(printed if fenced is None else fenced)
    answer.returned, answer.exit_code = True, None if exit_code is None else int(exit_code)
    write_answer(call, answer, language == "bash", language=language)
    call.not_run = None
    return call.run(language, code)


def _reads(document: LogDocument) -> bool:
    return next(_runs(document), None) is not None


def _entries(document: LogDocument) -> Iterator[Entry]:
    if document.value is None:
        yield from document.faults
    yield from _runs(document)


READER = Reader("fenced-turns", (b"```", b"<execute>"), _reads, _entries)
