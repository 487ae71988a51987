"""Conversations of Terminus as data sets for training hold them: JSON or XML with `keystrokes`, then the screen.

A row or a list of messages (`conversations`, `messages`; `role` and `content`, or `from` and `value`): the first one
has the task, each of the model's the keystrokes, and the next one the terminal's screen. So a conversation is a
trajectory of ATIF's whose steps are raw content. Rows of one trial, or without a name, are sessions of their own.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import name_at, objects, record, word
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, texts
from capibara_assets.executions.formats.agents.trajectories.atif import trajectory_entries

_LISTS = ("conversations", "conversation", "messages", "chat")
_NAMES = ("trial_name", "trial_id", "session_id", "instance_id", "run_id", "id")
_MODELS = {"assistant", "gpt", "model"}
_ASKS = '"keystrokes"', "<keystrokes"
_SHOWS = "Current terminal state:", "New Terminal Output:", "Current Terminal Screen:"


def reads(document: LogDocument) -> bool:
    """Whether the first conversation asks for keystrokes, and a message shows the terminal."""
    return any(_is_terminus(said) for _, said in list(_conversations(document))[:1])


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands of each conversation, in order, with what the next screen shows of them."""
    if document.value is None:
        yield from document.faults
    seen: Counter[str] = Counter()
    for number, (row, said) in enumerate(_conversations(document)):
        if not _is_terminus(said):
            continue
        name = next((row[key] for key in _NAMES if word(row.get(key))), f"{document.digest}/{number}")
        seen[name] += 1
        session = name if seen[name] == 1 else f"{name}#{seen[name]}"
        yield from trajectory_entries(_trajectory(said, name_at(row, "model")), session)


def _conversations(document: LogDocument) -> Iterator[tuple[dict[str, Any], list[tuple[bool, str]]]]:
    """Each row with its messages: whether the model said it, and what."""
    rows = document.rows
    if rows and all(_who(record(row)) for row in rows):
        rows = [{"messages": rows}]
    for row in map(record, rows):
        listed = next((objects(row[key]) for key in _LISTS if isinstance(row.get(key), list)), [])
        yield (
            row,
            [
                (_who(one) in _MODELS, texts(one.get("content", one.get("value"))))
                for one in listed
                if _who(one) != "system"
            ],
        )


def _who(message: dict[str, Any]) -> str | None:
    return word(message.get("role")) or word(message.get("from"))


def _is_terminus(said: list[tuple[bool, str]]) -> bool:
    asks = any(by_model and any(mark in text for mark in _ASKS) for by_model, text in said)
    return asks and any(not by_model and any(mark in text for mark in _SHOWS) for by_model, text in said)


def _trajectory(said: list[tuple[bool, str]], model: str | None) -> dict[str, Any]:
    """A conversation as ATIF has it."""
    steps: list[dict[str, Any]] = []
    for at, (by_model, text) in enumerate(said):
        if by_model:
            shown = said[at + 1][1] if at + 1 < len(said) and not said[at + 1][0] else None
            results = [] if shown is None else [{"content": shown}]
            steps.append({"source": "agent", "message": text, "observation": {"results": results}})
        elif not any(before for before, _ in said[:at]):
            steps.append({"source": "user", "message": text})
    return {"steps": steps, "agent": {"model_name": model}}


READER = Reader("terminus-chat", (b"keystrokes",), reads, entries)
