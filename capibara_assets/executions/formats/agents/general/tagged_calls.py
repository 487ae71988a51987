"""Conversations in which calls of tools stand as tags in the text: `<tool_call>{"name", "arguments"}</tool_call>`.

Hermes and Qwen are trained on it; data sets keep it as ShareGPT (`conversations`: `from`, `value`) or as messages
(`role`, `content`). Others write `<function=NAME><parameter=KEY>`: OpenHands for models without tools, SWE-smith,
R2E-Gym, whose steps hold `action` and `observation`. Answers are `<tool_response>` in a later message, of the calls in
their order or by the name they have inside, or the next message, with a head or of role `tool`. Traps: system prompts
explain the tags, and thoughts speak of them; an answer may be any text or JSON.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, of_json, record, word
from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, message_text
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed

_LISTS = ("conversations", "conversation", "messages", "trajectory_steps", "trajectory", "steps")
_CALL = re.compile(
    r"<tool_call>(?!\s*<)(?P<json>.*?)(?:</tool_call>|(?=<tool_call>)|\Z)"
    r"|<function=(?P<name>[\w.-]+)>(?P<given>.*?)(?:</function>|\Z)",
    re.DOTALL,
)
_HEAD = re.compile(r"\s*(?:OBSERVATION:\n?|EXECUTION RESULT of \[[\w.-]+\]:\n?)")
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
            yield list(_messages(row, objects(held)))


def _messages(row: dict[str, Any], held: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The messages in a list, or those that its steps stand for."""
    if task := word(row.get("problem_statement")):
        yield {"role": "user", "content": task}
    for item in held:
        if isinstance(item.get("action"), str) and isinstance(item.get("observation"), str):
            yield {"role": "assistant", "content": item["action"]}
            yield {"role": "tool", "content": item["observation"]}
        else:
            yield item


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
        role, said = str(message.get("from", message.get("role"))), message_text(message)
        answers = _ANSWER.findall(said)
        head = _HEAD.match(said) if waiting and not answers else None
        if role in _MODEL:
            waiting = [_asked(call, session, task) for call in _CALL.finditer(_THOUGHT.sub("", said))]
            made += waiting
        elif head is not None:
            _answer(waiting, said[head.end() :])
        elif answers or role in ("tool", "observation", "function_response"):
            for answer in answers or [said]:
                _answer(waiting, answer)
        elif role in _USER and said.strip():
            task = said.strip()
    yield from ((call, asked) for call, asked in made if asked is not None)


def _asked(call: re.Match[str], session: str, task: str | None) -> tuple[Call, Asked | None]:
    if call["name"] is not None:
        name: Any = call["name"]
        arguments: Any = dict(_parameters(call["given"]))
    else:
        given = record(parsed(call["json"].strip()))
        name, arguments = given.get("name"), given.get("arguments", given.get("parameters"))
    return Call(session, str(name), arguments, task=task), asked_of(name, arguments)


def _parameters(given: str) -> Iterator[tuple[str, str]]:
    for parameter in given.split("<parameter=")[1:]:
        name, _, value = parameter.partition(">")
        yield name, value.partition("</parameter>")[0].removeprefix("\n").removesuffix("\n")


def _answer(waiting: list[tuple[Call, Asked | None]], text: str) -> None:
    """Write an answer into the call that it names, or the first that has none."""
    value = of_json(text, text) if text.startswith(("{", "[")) else text
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


READER = Reader("tagged-calls", (b"<tool_call>", b"<function="), _reads, _entries)
