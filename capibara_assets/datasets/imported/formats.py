"""Formats of imported examples: detects a record's format, and converts it to messages or names its fault."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from capibara_assets.datasets.tokens.chat_forms import Message, recover
from capibara_assets.executions.formats.strict_json import SURROGATE, Fault, json_type

Record = Mapping[str, Any]

# Format -> the fields by which a record is recognised
FORMATS: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "messages": ("messages",),
    "conversations": ("conversations",),
    "prompt-completion": ("prompt", "completion"),
    "prompt-response": ("prompt", "response"),
    "alpaca": ("instruction", "output"),
    "question-answer": ("question", "answer"),
    "input-output": ("input", "output"),
}
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
}
LANGUAGES = frozenset({"python", "sql", "javascript", "typescript", "bash", "java"})


@dataclass(frozen=True)
class ParsedRecord:
    """The conversation of one record, with its stated language, licence and source."""

    messages: list[Message]
    format: str
    language: str | None
    licence: str | None
    source: str | None


def parse_record(record: Record, format: str | None = None) -> ParsedRecord:
    """The conversation of one record.

    Args:
        format: a key of FORMATS; None detects it by the record's fields.

    Raises:
        Fault: no_format, ambiguous_format, missing:F, type:F, empty:F, role, turns, unsupported, unrecoverable or
            invalid_unicode; the detail says what was found and what to do.
    """
    name = format or format_of(record)
    for needed in FORMATS[name]:
        if record.get(needed) is None:
            raise Fault(f"missing:{needed}", f"{name} needs the field {needed}; this record has {_fields(record)}")
    messages = checked_turns(_READERS[name](record))
    language = _stated(record, "language")
    return ParsedRecord(
        messages,
        name,
        language if language in LANGUAGES else None,
        _stated(record, "licence") or _stated(record, "license"),
        _stated(record, "source"),
    )


def format_of(record: Record) -> str:
    """The one format whose fields a record has.

    Raises:
        Fault: no_format or ambiguous_format.
    """
    there = {name for name, value in record.items() if value is not None}
    matching = [name for name, fields in FORMATS.items() if there.issuperset(fields)]
    if "alpaca" in matching:
        matching = [name for name in matching if name != "input-output"]
    if not matching:
        if {"chosen", "rejected"} <= there:
            raise Fault("no_format", "a pair of a chosen and a rejected answer: give the chosen one as messages")
        raise Fault("no_format", f"fields are {_fields(record)}: expected those of {', '.join(FORMATS)}")
    if len(matching) > 1:
        raise Fault("ambiguous_format", f"the record is {' and '.join(matching)} at once: say which with --format")
    return matching[0]


def checked_turns(messages: Sequence[Message]) -> list[Message]:
    """The messages without an empty system text.

    Raises:
        Fault: empty:R or turns: expected is an optional system message, then user and assistant in turns.
    """
    kept = [m for m in messages if m["role"] != "system" or m["content"].strip()]
    spoken = kept[1:] if kept and kept[0]["role"] == "system" else kept
    roles = [message["role"] for message in spoken]
    for number, message in enumerate(kept, 1):
        if not message["content"].strip():
            raise Fault(f"empty:{message['role']}", f"message {number} ({message['role']}) is empty")
    if "system" in roles:
        raise Fault("turns", "a system message stands behind the first turn: it belongs before it")
    if "assistant" not in roles:
        raise Fault("turns", "there is no assistant turn, so nothing to learn")
    if roles[0] == "assistant":
        raise Fault("turns", "the assistant speaks first: put the question before it, or leave the turn out")
    for number, (left, right) in enumerate(pairwise(roles), 1):
        if left == right:
            raise Fault("turns", f"turns {number} and {number + 1} are both of the {left}: join them")
    if roles[-1] == "user":
        raise Fault("turns", "the last turn is a question without an answer: leave it out")
    return kept


def _text_format(record: Record) -> list[Message]:
    return recover(_text(record["text"], "text")).messages


def _messages(record: Record) -> list[Message]:
    return _turns(record["messages"], "messages", "role", "content")


def _conversations(record: Record) -> list[Message]:
    turns = record["conversations"]
    named = isinstance(turns, list) and bool(turns) and isinstance(turns[0], dict) and "role" in turns[0]
    messages = _turns(turns, "conversations", *(("role", "content") if named else ("from", "value")))
    return [*_system(record), *messages]


def _prompted(question: str, answer: str) -> Callable[[Record], list[Message]]:
    def read(record: Record) -> list[Message]:
        asked, answered = record[question], record[answer]
        if isinstance(asked, list) and isinstance(answered, list):
            return [*_turns(asked, question, "role", "content"), *_turns(answered, answer, "role", "content")]
        return [
            *_system(record),
            {"role": "user", "content": _text(asked, question)},
            {"role": "assistant", "content": _text(answered, answer)},
        ]

    return read


def _alpaca(record: Record) -> list[Message]:
    question = _text(record["instruction"], "instruction")
    given = record.get("input")
    if given is not None and _text(given, "input").strip():
        question = f"{question}\n\n{_text(given, 'input')}"
    return [
        *_system(record),
        {"role": "user", "content": question},
        {"role": "assistant", "content": _text(record["output"], "output")},
    ]


def _system(record: Record) -> list[Message]:
    for name in ("system", "system_prompt"):
        if record.get(name) is not None:
            return [{"role": "system", "content": _text(record[name], name)}]
    return []


def _turns(value: Any, field: str, role_field: str, content_field: str) -> list[Message]:
    if not isinstance(value, list):
        raise Fault(f"type:{field}", f"expected a list of messages, found {json_type(value)}")
    return [_turn(turn, f"{field}[{index}]", role_field, content_field) for index, turn in enumerate(value)]


def _turn(turn: Any, where: str, role_field: str, content_field: str) -> Message:
    if not isinstance(turn, dict):
        raise Fault(f"type:{where}", f"expected {role_field} and {content_field} in an object, found {json_type(turn)}")
    role = turn.get(role_field)
    if not isinstance(role, str) or role.lower() not in _ROLES:
        known = ", ".join(sorted(_ROLES))
        raise Fault("role", f"{where}.{role_field} is {str(role)[:40]!r}: known are {known}; tools' turns are not")
    if turn.get("tool_calls") or turn.get("function_call"):
        raise Fault("unsupported", f"{where} calls a tool: only text can be trained")
    weight = turn.get("weight", 1)
    if not (weight is None or isinstance(weight, int | float)) or isinstance(weight, bool):
        raise Fault(f"type:{where}.weight", f"expected a number, found {json_type(weight)}")
    if weight is not None and not 0 < weight < math.inf:  # NaN is none
        found = str(weight)[:40]
        raise Fault("unsupported", f"{where} has weight {found}: every assistant turn is trained; leave it out")
    return {"role": _ROLES[role.lower()], "content": _content(turn.get(content_field), f"{where}.{content_field}")}


def _content(value: Any, where: str) -> str:
    """Text, or the joined texts of a list of parts."""
    if isinstance(value, list):
        for part in value:
            if not isinstance(part, dict) or part.get("type", "text") != "text":
                raise Fault("unsupported", f"{where} has a part that is no text")
        return "".join(_text(part.get("text"), f"{where}.text") for part in value)
    return _text(value, where)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Fault(f"type:{where}", f"expected text, found {json_type(value)}")
    return _whole(value, where)


def _whole(text: str, where: str) -> str:
    if (half := SURROGATE.search(text)) is not None:
        raise Fault("invalid_unicode", f"{where} has {half[0]!a}, half of a character: write its text in UTF-8")
    return text


def _stated(record: Record, name: str) -> str | None:
    value = record.get(name)
    text = "" if value is None else _text(value, name)
    return text if text.strip() else None


def _fields(record: Record) -> str:
    names = [SURROGATE.sub("?", name)[:40] for name in record]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") or "none"


_READERS: dict[str, Callable[[Record], list[Message]]] = {
    "text": _text_format,
    "messages": _messages,
    "conversations": _conversations,
    "prompt-completion": _prompted("prompt", "completion"),
    "prompt-response": _prompted("prompt", "response"),
    "alpaca": _alpaca,
    "question-answer": _prompted("question", "answer"),
    "input-output": _prompted("input", "output"),
}
