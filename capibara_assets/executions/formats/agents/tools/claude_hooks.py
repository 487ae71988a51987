"""Events of Claude Code's hooks, kept by a hook that writes its input to a file: a JSON array, or an event a line.

`PostToolUse` comes after a tool that completed successfully only: a command that failed has an event of its own,
`PostToolUseFailure`, which older versions lack. So the event states the outcome that it has no field for, as long as
`tool_response` is the object that Claude Code gives ({stdout, stderr, interrupted}): other programs took over the names
of the events, not their meaning. An event may stand within an object that adds a time. `PreToolUse` says nothing of
what became of a call.
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import objects, record, text_at, word
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader, first_moment
from capibara_assets.executions.formats.agents.tools import claude_calls
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.claude_calls import Streams

_AFTER, _FAILED = "PostToolUse", "PostToolUseFailure"
_WITHIN = ("event", "payload", "data", "input", "hook")  # what a hook of one's own puts the event under
_TIMES = ("timestamp", "ts", "time", "logged_at")


def _events(document: LogDocument) -> Iterator[tuple[dict[str, Any], Any]]:
    """The events of tools that Claude Code has, each with its time."""
    for row in objects(document.rows):
        held = next((row[key] for key in _WITHIN if "hook_event_name" in record(row.get(key))), row)
        name = held.get("tool_name")
        known = isinstance(name, str) and (name in claude_calls.COMMANDS or name in claude_calls.EDITS)
        if known and held.get("hook_event_name") in (_AFTER, _FAILED):
            yield held, first_moment(one.get(key) for one in (held, row) for key in _TIMES)


def _streams(event: dict[str, Any]) -> Streams | None:
    """The streams of a command that Claude Code ran; None: the answer is none of its own."""
    told = record(event.get("tool_response"))
    stdout, stderr = told.get("stdout"), told.get("stderr")
    if isinstance(stdout, str) and isinstance(stderr, str) and isinstance(told.get("interrupted"), bool):
        return Streams(stdout, stderr)
    return None


def _reads(document: LogDocument) -> bool:
    return any(
        event["hook_event_name"] == _AFTER and event["tool_name"] == "Bash" and _streams(event) is not None
        for event, _ in _events(document)
    )


def _entries(document: LogDocument) -> Iterator[Entry]:
    if document.value is None:
        yield from document.faults
    for event, at in _events(document):
        session = word(event.get("session_id")) or document.digest
        call = Call(session, event["tool_name"], event.get("tool_input"), word(event.get("tool_use_id")), at)
        _write(call, event)
        yield from claude_calls.entries_of(call)


def _write(call: Call, event: dict[str, Any]) -> None:
    """Write what an event says into its call."""
    told, streams = record(event.get("tool_response")), _streams(event)
    if event["hook_event_name"] == _FAILED:
        claude_calls.answer(call, text_at(event, "error"), failed=True)
    else:
        claude_calls.answer(call, "", failed=False, streams=streams)
    unknown = call.name in claude_calls.COMMANDS and streams is None and event["hook_event_name"] == _AFTER
    if unknown or told.get("interrupted") is True or event.get("is_interrupt") is True:
        call.success = None
    if word(told.get("backgroundTaskId")):
        claude_calls.to_background(call)


READER = Reader("claude-hooks", (b'"hook_event_name"',), _reads, _entries)
