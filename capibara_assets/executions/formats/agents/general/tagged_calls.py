"""Conversations in which calls of tools stand as tags in the text: `<tool_call>{"name", "arguments"}</tool_call>`.

Hermes and Qwen are trained on it; data sets keep it as ShareGPT (`conversations`: `from`, `value`) or as messages
(`role`, `content`). Answers are `<tool_response>` in a later message, of the calls in their order or by the name they
have inside. Traps: system prompts explain the tags, and thoughts speak of them; an answer may be any text or JSON.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import record, word
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, texts
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.trajectories.tool_calls import objects, parsed

_LISTS = ("conversations", "conversation", "messages")
_ANSWER = re.compile(r"<tool_response>\s*(.*?)\s*(?:</tool_response>|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<(think|thinking|scratch_pad)>.*?(?:</\1>|\Z)", re.DOTALL)
_MODEL = ("gpt", "assistant", "model", "function_call")
_USER = ("human", "user")


def _conversations(document: LogDocument) -> Iterator[list[dict[str, Any]]]:
    rows = document.rows
    if any(isinstance(row, dict) and ("value" in row or "content" in row) for row in rows):
        yield objects(rows)  # the messages themselves
        return
    for row in objects(rows):
        held = next((row[key] for key in _LISTS if isinstance(row.get(key), list)), None)
        if held is not None:
            yield objects(held)


def _entries(document: LogDocument) -> Iterator[Entry]:
    if document.value is None:
        yield from document.faults
    for number, messages in enumerate(_conversations(document)):
        for call, asked in _calls(messages, f"{document.digest}/{number}"):
            yield entry_of(call, asked)


def _calls(messages: list[dict[str, Any]], session: str) -> Iterator[tuple[Call, Asked]]:
    """The calls that run code or edit, in order, with what their answers say."""
    made: list[tuple[Call, Asked | None]] = []
    waiting: list[tuple[Call, Asked | None]] = []
    task: str | None = None
    for message in messages:
        role, said = str(message.get("from", message.get("role"))), _said(message)
        answers = _ANSWER.findall(said)
        if role in _MODEL:
            waiting = [
                _asked(tagged.partition("</tool_call>")[0].strip(), session, task)
                for tagged in _THOUGHT.sub("", said).split("<tool_call>")[1:]
            ]
            made += waiting
        elif answers or role in ("tool", "observation", "function_response"):
            for answer in answers or [said]:
                _answer(waiting, answer)
        elif role in _USER and said.strip():
            task = said.strip()
    yield from ((call, asked) for call, asked in made if asked is not None)


def _said(message: dict[str, Any]) -> str:
    return word(message.get("value")) or texts(message.get("content"))


def _asked(text: str, session: str, task: str | None) -> tuple[Call, Asked | None]:
    given = parsed(text)
    name, arguments = record(given).get("name"), record(given).get("arguments", record(given).get("parameters"))
    return Call(session, str(name), arguments, task=task), asked_of(name, arguments)


def _answer(waiting: list[tuple[Call, Asked | None]], text: str) -> None:
    """Write an answer into the call that it names, or the first that has none."""
    value: Any = text
    if text.startswith(("{", "[")):
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            value = text
    open_calls = [(call, asked) for call, asked in waiting if call.not_run == "unanswered"]
    named = [one for one in open_calls if isinstance(value, dict) and one[0].name == value.get("name")]
    if open_calls:
        call, asked = (named or open_calls)[0]
        shell = asked is not None and asked.path is None
        write_answer(call, read_answer(value), shell, language=asked.language if asked else "")


def _reads(document: LogDocument) -> bool:
    return any(
        call.not_run != "unanswered"
        for messages in _conversations(document)
        for call, _ in _calls(messages, document.digest)
    )


READER = Reader("tagged-calls", (b"<tool_call>",), _reads, _entries)
