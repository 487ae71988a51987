"""What `codex exec --json` prints, kept as a file: events of a thread, a line each.

`{"type": "item.started" | "item.completed", "item": {"type": "command_execution", "command", "aggregated_output",
"exit_code", "status"}}` below a line `thread.started`; versions before 0.44 printed `{"id", "msg": {"type":
"exec_command_begin" | "exec_command_end", "call_id", ..}}`. Traps: a command is one text, of the words that were run
(`bash -lc 'ls'`); ids of items begin anew with each `codex exec resume`; `status: failed` also says that the exit code
was not 0; a change of files has their names, and its text in the old shape only; the prompt stands nowhere.
"""

from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import record, text_at, whole, word
from capibara_assets.executions.formats.agents.runs import Edit, Entry, LogDocument, NotRun, Reader, texts
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.tools.codex_calls import command_of, typed_command
from capibara_assets.executions.formats.strict_json import Fault

_ITEMS = ("item.started", "item.updated", "item.completed")
_MESSAGES = ("exec_command_begin", "exec_command_end", "patch_apply_begin", "patch_apply_end")
_ENDED = ("completed", "failed")


def reads(document: LogDocument) -> bool:
    """Whether a line is an event of a thread of Codex."""
    return any(
        (line.get("type") == "thread.started" and word(line.get("thread_id")))
        or (line.get("type") in _ITEMS and text_at(line, "item", "type") == "command_execution")
        or (text_at(line, "msg", "type") in _MESSAGES and text_at(line, "msg", "call_id"))
        for line in document.lines
    )


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands and changes of files in the order in which they began."""
    yield from document.faults
    session, thread = document.digest, 0
    found: dict[tuple[int, str], Call | list[Entry]] = {}
    for number, line in enumerate(document.lines):
        if line.get("type") == "thread.started":
            session, thread = word(line.get("thread_id")) or session, thread + 1
        item = _item(line)
        if item is None:
            continue
        key = thread, word(item.get("id")) or f"#{number}"
        if item["type"] == "file_change":
            known = found.get(key)
            found[key] = list(_changes(session, item, known if isinstance(known, list) else []))
        else:
            known = found.get(key)
            call = known if isinstance(known, Call) else Call(session, "exec", item.get("command"))
            call.id = key[1] if thread <= 1 else f"{thread}/{key[1]}"
            found[key] = call
            _ended(call, item)
    for made in found.values():
        yield from [_entry(made)] if isinstance(made, Call) else made


def _item(line: dict[str, Any]) -> dict[str, Any] | None:
    """The command or change of files in a line, in the later shape."""
    message = record(line.get("msg"))
    if line.get("type") in _ITEMS:
        item = record(line.get("item"))
        done = line["type"] == "item.completed"
        changed = item.get("type") == "file_change" and done
        return item if item.get("type") == "command_execution" or changed else None
    if message.get("type") in ("patch_apply_begin", "patch_apply_end"):
        status = "failed" if message.get("success") is False else "completed"
        return {
            "type": "file_change",
            "id": message.get("call_id"),
            "changes": message.get("changes"),
            "status": status,
        }
    if message.get("type") not in ("exec_command_begin", "exec_command_end"):
        return None
    begins = message["type"] == "exec_command_begin"
    output = text_at(message, "aggregated_output") or text_at(message, "stdout")
    return {
        "type": "command_execution",
        "id": message.get("call_id"),
        "status": "in_progress" if begins else "completed",
        "aggregated_output": output,
        "stderr": "" if text_at(message, "aggregated_output") else message.get("stderr"),
        "exit_code": message.get("exit_code"),
        **({"command": message.get("command")} if begins else {}),
    }


def _ended(call: Call, item: dict[str, Any]) -> None:
    status, code = item.get("status"), whole(item.get("exit_code"))
    if status == "declined":
        call.not_run = "refused"
    elif status in _ENDED or code is not None:
        call.not_run, call.exit_code = None, code
        call.success = code == 0 if code is not None else False if status == "failed" else None
        call.output, call.stderr = texts(item.get("aggregated_output")), texts(item.get("stderr"))


def _entry(call: Call) -> Entry:
    given = call.arguments
    command = typed_command(given) if isinstance(given, str) else command_of({"command": given})
    if call.not_run is not None:
        return NotRun(call.not_run, call.session, command.code if command else None)
    if command is None:
        return Fault("type:command", "a command that is no text", call.arguments)
    return call.run(*command)


def _changes(session: str, item: dict[str, Any], known: list[Entry]) -> Iterator[Entry]:
    """The edits of a change of files, of which `known` were told before; a kind and a name may be all that is told."""
    changes = item.get("changes")
    if item.get("status") == "failed":
        yield NotRun("edit_failed", session)
    elif known and not changes:
        yield from known
    elif isinstance(changes, dict):
        for path, change in changes.items():
            told = [record(change), *map(record, record(change).values())]
            found = (one.get(name) for one in told for name in ("unified_diff", "content"))
            yield Edit(session, path, next((text for text in found if isinstance(text, str)), ""))
    else:
        for change in changes if isinstance(changes, list) else []:
            path = text_at(change, "path")
            yield Edit(session, path, text_at(change, "diff") or f"{text_at(change, 'kind') or 'update'} {path}")


READER = Reader("codex-exec", (b'"thread.started"', b'"command_execution"', b'"exec_command_begin"'), reads, entries)
