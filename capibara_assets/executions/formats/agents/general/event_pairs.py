"""Events of a sandbox or a service of one's own: one tells what begins to run, a later one with its id how it ended.

`{"event": "started", "command_id": "7", "command": ..}`, then `{"event": "finished", "command_id": "7", "exit_code": 0,
..}`, with pieces of its output as events between (`{"command_id": "7", "stream": "stdout", "text": ..}`). JSON lines.
The events of an id make one record, which `code_and_outcome` reads. A record that never ended is no run; ids count
within the session that the events name.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from capibara_assets.executions.formats.agents.fields import name_at, word
from capibara_assets.executions.formats.agents.general import code_and_outcome
from capibara_assets.executions.formats.agents.general.code_and_outcome import CODE_KEYS, LANGUAGES, SESSIONS, TOLD
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, NotRun, Reader

_IDS = (
    "execution_id", "executionId", "exec_id", "execId", "command_id", "commandId", "cell_id", "cellId", "call_id",
    "callId", "job_id", "jobId", "process_id", "processId", "request_id", "requestId", "run_id", "runId", "id", "pid",
)  # fmt: skip
_PIECES = ("text", "data", "chunk", "line", "output", "content")
_STREAMS = ("stdout", "stderr")
_MARKED = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "stream", "stdout")
_HELD = 100_000  # records that may wait for their end


def reads(document: LogDocument) -> bool:
    """Whether the events of one id at least tell code and how it ended."""
    ended, _ = _records(document)
    return bool(ended.lines) and code_and_outcome.READER.reads(ended)


def entries(document: LogDocument) -> Iterator[Entry]:
    """The runs in the order of their beginnings, then what never ended."""
    yield from document.faults
    ended, waiting = _records(document)
    yield from code_and_outcome.READER.entries(ended)
    for record in waiting:
        code = next((record[key] for key in CODE_KEYS if word(record.get(key))), None)
        yield NotRun("unanswered", name_at(record, "session_id") or document.digest, code)


@lru_cache(maxsize=1)
def _records(document: LogDocument) -> tuple[LogDocument, list[dict[str, Any]]]:
    """The records that ended, as a document of their own, and those that did not."""
    begun: dict[tuple[str, ...], dict[str, Any]] = {}
    order: list[dict[str, Any]] = []
    ended = set[int]()
    for row in document.lines:
        session = next((name for key in SESSIONS if key not in _IDS and (name := name_at(row, key))), "")
        idents = [(session, key, name) for key in _IDS if (name := name_at(row, key))]
        if not idents or "execution" in row:
            continue
        if any(word(row.get(key)) for key in CODE_KEYS):
            if len(begun) < _HELD and row.keys().isdisjoint(TOLD):
                begun[idents[0]] = record = {**row, "session_id": session or document.digest}
                order.append(record)
            continue
        found = next((ident for ident in idents if ident in begun), None)
        if found is None:
            continue
        record = begun[found]
        if row.get("stream") in _STREAMS:
            piece = next((row[key] for key in _PIECES if isinstance(row.get(key), str)), "")
            record[row["stream"]] = str(record.get(row["stream"], "")) + piece
        elif not row.keys().isdisjoint(TOLD):
            told = {key: value for key, value in row.items() if key in TOLD or key not in record}
            record.update({key: value for key, value in told.items() if value not in (None, "") or key not in record})
            ended.add(id(record))
            del begun[found]
    rows = [_record(one) for one in order if id(one) in ended]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return LogDocument(text.encode()), [one for one in order if id(one) not in ended]


def _record(events: dict[str, Any]) -> dict[str, Any]:
    """What `code_and_outcome` reads: without ids, with both streams where what ran is code or printed something."""
    row = {key: value for key, value in events.items() if key not in _IDS}
    says = any(word(row.get(key)) for key in LANGUAGES) or any(stream in row for stream in _STREAMS)
    return {**dict.fromkeys(_STREAMS, ""), **row} if says else row


READER = Reader("event-pairs", tuple(f'"{name}"'.encode() for name in _MARKED), reads, entries)
