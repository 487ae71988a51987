"""OpenHands' (OpenDevin's) events: a JSON list, `history` in the lines of an evaluation's `output.jsonl`, JSON lines.

`{"id": 5, "timestamp", "source": "agent", "action": "run", "args": {"command"}, "tool_call_metadata"}` is answered by
`{"id": 6, "cause": 5, "observation": "run", "content", "extras": {"metadata": {"exit_code", "suffix"}}}`; Python is
`run_ipython` with `code`. Until 2024 `extras.exit_code`; before, flat and without ids and sources: `{"action": "run",
"command"}`, `{"observation": "run", "exit_code", "content"}`, joined by order; some histories are lists of pairs.
Traps: exit code -1 means that the command still runs: its end comes with the answer to an empty command or to one typed
into it (`is_input`, "C-c"), while another command is NOT executed; IPython has no exit code, but Jupyter always prints
an exception; times have no zone; an `edit` has a `command` ("create") that is no shell's; `tool_call_metadata` repeats
the model's whole answer; older contents end in the shell's prompt.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from capibara_assets.executions.formats.agents.edit_texts import replacement
from capibara_assets.executions.formats.agents.failures import raised
from capibara_assets.executions.formats.agents.fields import at, code_at, name_at, text_at
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader, moment
from capibara_assets.executions.formats.agents.trajectories.openhands_events import histories, is_sdk_event, translated
from capibara_assets.executions.formats.agents.trajectories.prompts import cell_output, task_in, terminal_output
from capibara_assets.executions.formats.strict_json import Fault

_CODE = {"run": ("command", "bash"), "run_ipython": ("code", "python")}
_EDITS = ("edit", "write")
_KEYS = {"ctrl+c", "ctrl+d", "ctrl+z", "C-c", "C-d", "C-z"}
_GO_ON = "Please continue working on the task"  # the evaluations' words in a user's place
_SEVERAL = "ERROR: Cannot execute multiple commands at once."
_CONTINUED = "[Below is the output of the previous command.]\n"
_TIMES_OUT = {
    "run": ("timed out after", "before the requested timeout"),
    "run_ipython": ("[Execution timed out (", "before the requested timeout"),
}


def _reads(document: LogDocument) -> bool:
    return bool(histories(document))


@dataclass
class _Call:
    """An action that waits for its observation."""

    event: dict[str, Any]
    name: str
    code: str
    task: str | None
    typed: bool  # into a command that runs


@dataclass
class _Session:
    name: str
    model: str | None
    task: str | None = None
    pending: dict[str, _Call] = field(default_factory=dict)
    running: AgentRun | None = None  # its end has not been seen

    def stopped(self) -> Iterator[AgentRun]:
        if self.running:
            yield self.running
        self.running = None


def _argument(event: dict[str, Any], name: str) -> Any:
    return at(event, "args", name) if isinstance(event.get("args"), dict) else event.get(name)


def _act(session: _Session, event: dict[str, Any], number: int) -> Iterator[Entry]:
    name, key = event["action"], name_at(event, "id") or f"#{number}"
    if name in _CODE:
        code = _argument(event, _CODE[name][0])
        if not isinstance(code, str):
            yield Fault("no_code", f"event {number}: expected a {name} action with text", event)
        elif "rejected" in (_argument(event, "confirmation_state"), _argument(event, "is_confirmed")):
            yield NotRun("rejected", code=code)
        else:
            typed = _argument(event, "is_input") in (True, "true") or not code.strip()
            typed = typed or (session.running is not None and code.strip() in _KEYS)
            session.pending[key] = _Call(event, name, code, session.task, typed)
    elif name in _EDITS:
        session.pending[key] = _Call(event, "edit", "", session.task, False)
    elif name == "message":
        source = event.get("source")
        by_user = source == "user" if source else not session.task or _argument(event, "wait_for_response") is False
        words = _argument(event, "content")
        if by_user and isinstance(words, str) and not words.startswith(_GO_ON):
            session.task = task_in(words) or session.task


def _asked(session: _Session, event: dict[str, Any]) -> _Call | None:
    """The action that an observation answers: its cause, or without ids the first that waits and fits."""
    cause, name = name_at(event, "cause"), event["observation"]
    if cause is not None:
        return session.pending.pop(cause, None)
    for key, call in session.pending.items():
        same = key.startswith("#") or call.code in (event.get("command"), text_at(event, "extras", "command") or None)
        if same and (call.name == name or name in ("error", "user_rejected")):
            return session.pending.pop(key)
    return None


def _exit_code(event: dict[str, Any]) -> int | None:
    places = (("extras", "metadata", "exit_code"), ("extras", "exit_code"), ("exit_code",))
    return next((code for place in places if (code := code_at(event, *place)) is not None), None)


def _times_out(call: _Call, event: dict[str, Any]) -> bool:
    end = (text_at(event, "content") + text_at(event, "extras", "metadata", "suffix"))[-400:]
    return any(words in end for words in _TIMES_OUT[call.name])


def _ran(session: _Session, call: _Call, event: dict[str, Any]) -> AgentRun:
    content = text_at(event, "content").removeprefix(_CONTINUED)
    stated = _exit_code(event) if call.name == "run" else None
    exit_code = None if stated == -1 else stated
    timed_out = at(event, "extras", "timed_out") is True or _times_out(call, event)
    success: bool | None = None if exit_code is None else exit_code == 0
    if call.name == "run_ipython":
        success = not (timed_out or raised(cell_output(content)))
    elif stated is None:
        success = False if timed_out or event.get("success") is False else None
    started, ended = moment(call.event.get("timestamp")), moment(event.get("timestamp"))
    took = (ended - started).total_seconds() * 1000 if started and ended else -1
    return AgentRun(
        session=session.name,
        language=_CODE[call.name][1],
        code=call.code,
        success=success,
        output=terminal_output(content, call.code) if call.name == "run" else cell_output(content),
        exit_code=exit_code,
        call_id=name_at(call.event, "tool_call_metadata", "tool_call_id") or name_at(call.event, "id"),
        started=started,
        duration_ms=took if took >= 0 else None,
        timed_out=timed_out and exit_code in (None, 124, 130),
        task=call.task,
        model=text_at(call.event, "tool_call_metadata", "model_response", "model") or session.model,
    )


def _edited(session: _Session, call: _Call, event: dict[str, Any]) -> Iterator[Edit]:
    extras = at(event, "extras")
    path = text_at(extras, "path") or name_at(call.event, "args", "path") or name_at(call.event, "path") or ""
    asked = [_argument(call.event, name) for name in ("file_text", "content", "patch", "new_str")]
    both = replacement({name: _argument(call.event, name) for name in ("old_str", "new_str")})
    told = [both, text_at(extras, "diff"), text_at(extras, "new_content"), *asked]
    text = next((text for text in told if isinstance(text, str) and text), "")
    looks = _argument(call.event, "command") in ("view", "undo_edit")
    if text and not looks and not text_at(event, "content").startswith("ERROR:"):
        yield Edit(session.name, path, text)


def _continued(session: _Session, call: _Call, event: dict[str, Any]) -> Iterator[Entry]:
    """The answer to a command that only waits for the running one or types into it."""
    if session.running is None:
        yield NotRun("nothing_runs")
        return
    more = _ran(session, replace(call, code=session.running.code), event)
    session.running = replace(
        session.running,
        output=session.running.output + more.output,
        exit_code=more.exit_code,
        success=more.success,
        timed_out=more.timed_out,
        duration_ms=None,
    )
    if more.exit_code is not None:
        yield from session.stopped()


def _observe(session: _Session, event: dict[str, Any]) -> Iterator[Entry]:
    call = _asked(session, event)
    if call is None:
        return
    name, told = event["observation"], text_at(event, "content") + text_at(event, "extras", "metadata", "suffix")
    if call.name == "edit":
        yield from _edited(session, call, event) if name in _EDITS else ()
    elif name == "user_rejected" or (name == "error" and not _times_out(call, event)):
        yield NotRun("rejected" if name == "user_rejected" else "refused", code=call.code)
    elif "is NOT executed. The previous command is still running" in told or told.startswith(_SEVERAL):
        yield NotRun("not_executed", code=call.code)
    elif call.typed:
        yield from _continued(session, call, event)
    elif name in (call.name, "error"):
        yield from session.stopped()
        run = _ran(session, call, event)
        if call.name == "run" and _exit_code(event) == -1:
            session.running = run
        else:
            yield run
    else:
        yield NotRun("unanswered", code=call.code)


def _walk(session: _Session, events: list[Any]) -> Iterator[Entry]:
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            yield Fault("not_an_event", f"event {number}: expected an object", event)
            continue
        known = translated(event) if is_sdk_event(event) else event
        if isinstance(known.get("action"), str):
            yield from _act(session, known, number)
        elif isinstance(known.get("observation"), str):
            yield from _observe(session, known)
    yield from session.stopped()
    yield from (NotRun("unanswered", code=call.code) for call in session.pending.values() if call.name != "edit")


def _entries(document: LogDocument) -> Iterator[Entry]:
    for number, (record, events) in enumerate(histories(document)):
        name = name_at(record, "instance_id") or name_at(record, "issue", "number") or document.digest
        model = text_at(record, "metadata", "llm_config", "model") or text_at(record, "metadata", "llm", "model")
        session = _Session(f"{name}#{number}" if record is not None else name, model or None)
        session.task = task_in(text_at(record, "instruction"))
        yield from _walk(session, events)
    if not isinstance(document.value, dict | list):
        yield from document.faults


READER = Reader("openhands", (b'"run"', b'"run_ipython"', b'"wait_for_response"', b'"ActionEvent"'), _reads, _entries)
