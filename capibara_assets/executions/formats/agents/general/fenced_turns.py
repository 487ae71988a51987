"""Dialogues in which a model's fenced code is run whole and the next message tells what came of it.

Code-Feedback's (`Execution result: ..`), CodeActInstruct's (`<execute>`, `Observation:`) and those made like them, as
messages (`role`, `content`) or as ShareGPT (`from`, `value`). A message with several blocks of code tells not which was
run; a next message that has no such head is somebody's words.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import word
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, Reader, texts
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.trajectories.tool_calls import objects
from capibara_assets.executions.formats.envelope_reader import language_of

_LISTS = ("messages", "conversations", "conversation", "dialogue", "turns")
_MODEL = ("assistant", "gpt", "model")
_CODE = re.compile(r"^```(\w+)[ \t]*\n(.*?)\n```[ \t]*$|<execute>(.*?)</execute>", re.DOTALL | re.MULTILINE)
_HEAD = re.compile(
    r"\s*(?:\**(?:Code )?Execution (?:result|output|feedback)s?\**|Observation|Execution|Code output|Stdout)"
    r"(?: ?\(?exit ?code:? ?(?P<code>-?\d{1,3})\)?)?:\**[ \t]*\n?",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\s*(`{3,})\w*\n(.*?)\n?\1\s*\Z", re.DOTALL)
_RUN = ("python", "javascript", "typescript", "bash", "sql")


def _runs(document: LogDocument) -> Iterator[AgentRun]:
    for number, row in enumerate(objects(document.rows)):
        held = next((row[key] for key in _LISTS if isinstance(row.get(key), list)), None)
        session, task, asked = f"{document.digest}/{number}", None, None
        for message in objects(held):
            role, said = str(message.get("role", message.get("from"))), _said(message)
            head = _HEAD.match(said)
            if role in _MODEL:
                asked = _asked(said)
            elif asked is not None and head is not None:
                yield _run(session, task, *asked, said[head.end() :], head["code"])
                asked = None
            else:
                task, asked = said.strip() or task, None


def _said(message: dict[str, Any]) -> str:
    return word(message.get("value")) or texts(message.get("content"))


def _asked(said: str) -> tuple[str, str] | None:
    """The language and the code of the only block in a message."""
    blocks = _CODE.findall(said)
    if len(blocks) != 1:
        return None
    name, fenced, executed = blocks[0]
    language, code = ("python", executed.strip("\n")) if executed else (language_of(name), fenced)
    return (language, code) if language in _RUN and code.strip() else None


def _run(session: str, task: str | None, language: str, code: str, printed: str, exit_code: str | None) -> AgentRun:
    fenced = _FENCE.match(printed)
    call = Call(session, "", None, task=task)
    answer = read_answer(fenced[2] if fenced else printed)
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
