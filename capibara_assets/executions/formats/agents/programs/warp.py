"""Blocks of the terminal Warp, in its database: `{"stylized_command", "stylized_output", "exit_code", "start_ts"}`.

A block is a command and what the terminal showed of it, with the sequences that colour it. Traps: blocks that the
user typed stand beside those that its agent ran, which `ai_metadata` names; a command that was not executed stands
there with `did_execute` 0.
"""

import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import name_at, record, text_at, whole
from capibara_assets.executions.formats.agents.runs import (
    AgentRun,
    Entry,
    LogDocument,
    NotRun,
    Reader,
    milliseconds,
    moment,
)

_STYLES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


def reads(document: LogDocument) -> bool:
    """Whether a row is a block."""
    return any("stylized_command" in row and "exit_code" in row for row in document.lines)


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands by their times."""
    yield from document.faults
    for row in document.lines:
        command = _plain(text_at(row, "stylized_command")).strip()
        if not command:
            continue
        session = text_at(record(row.get("ai_metadata")), "conversation_id") or document.digest
        if row.get("did_execute") in (0, False):
            yield NotRun("refused", session, command)
            continue
        yield _run(row, command, session)


def _run(row: dict[str, Any], command: str, session: str) -> AgentRun:
    started, code = moment(row.get("start_ts")), whole(row.get("exit_code"))
    return AgentRun(
        session,
        "bash",
        command,
        success=None if code is None else code == 0,
        output=_plain(text_at(row, "stylized_output")),
        exit_code=code,
        call_id=name_at(row, "id"),
        started=started,
        duration_ms=milliseconds(started, moment(row.get("completed_ts"))),
    )


def _plain(text: str) -> str:
    return _STYLES.sub("", text).replace("\r\n", "\n")


READER = Reader("warp", (b'"stylized_command"',), reads, entries)
