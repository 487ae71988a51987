"""AutoGen 0.2's `chat_history`, as programs keep it in JSON: messages with a name, code in fences, results in text.

`[{"content", "role", "name"}, ..]`, also under `chat_history` of a result. A result begins with `exitcode: 1 (execution
failed)`; what ran are the blocks of the last message of another agent that has some. All blocks of a message have one
exit code, so that a failure is of one of them, and which is not said. Roles are the reader's own and tell nothing.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, text_at, word
from capibara_assets.executions.formats.agents.hosted.console_dialogues import code_blocks
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.envelope_reader import language_of

_RESULT = re.compile(r"exitcode: (-?\d{1,9}) \(execution [^)\n]*\)\nCode output:[ \t]*(?:\n|(?=\S)|\Z)")
_NOT_RUN = re.compile(r"unknown language [^\n]*\s*\Z")


def _histories(document: LogDocument) -> list[list[dict[str, Any]]]:
    value = document.value
    rows = [value] if isinstance(value, dict) else objects(value) if isinstance(value, list) else document.lines
    if any("content" in row and "name" in row for row in rows):
        return [rows]
    return [objects(row.get(key)) for row in rows for key in ("chat_history", "messages") if row.get(key)]


def reads(document: LogDocument) -> bool:
    """Whether a result answers a message with code."""
    return any(isinstance(entry, AgentRun) for entry in entries(document))


def entries(document: LogDocument) -> Iterator[Entry]:
    """The blocks that ran, in order."""
    histories = _histories(document)
    for number, messages in enumerate(histories):
        session = document.digest if len(histories) == 1 else f"{document.digest}/{number}"
        task = word(text_at(messages[0], "content")) if messages else None
        asked: tuple[str | None, list[tuple[str, str]]] = (None, [])
        for message in messages:
            said, name = text_at(message, "content"), word(message.get("name"))
            if (result := _RESULT.match(said)) is None:
                blocks = code_blocks(said)
                asked = (name, blocks) if blocks else asked
            elif asked[1] and (name is None or name != asked[0]):
                yield from _runs(asked[1], int(result[1]), said[result.end() :], session, task)
                asked = (None, [])


def _runs(
    blocks: list[tuple[str, str]], exit_code: int, output: str, session: str, task: str | None
) -> Iterator[Entry]:
    if exit_code and _NOT_RUN.search(output):
        yield from (NotRun("refused", session, code) for _, code in blocks)
        return
    for at, (language, code) in enumerate(blocks, 1):
        stated = exit_code == 0 or len(blocks) == 1
        yield AgentRun(
            session,
            language_of(language) if language else "python",
            code,
            exit_code == 0 if stated else None,
            output if at == len(blocks) else "",
            exit_code=exit_code if stated else None,
            timed_out=exit_code != 0 and output.rstrip().endswith("Timeout"),
            task=task,
        )


READER = Reader("autogen-history", (b"exitcode: ",), reads, entries)
