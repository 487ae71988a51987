"""Where OpenHands' events stand in a log, and the events of its software agent SDK as those of OpenHands before it.

In the SDK's events (`kind`: "ActionEvent", ..) the call's id joins them, for an `AgentErrorEvent` has no other. Its
terminals were called `execute_bash` and `ExecuteBashAction`, later `terminal` and `TerminalAction`; an observation's
text was `output`, later a list of parts.
"""

from typing import Any

from capibara_assets.executions.formats.agents.fields import at, text_at
from capibara_assets.executions.formats.agents.runs import LogDocument, texts

_KINDS = {
    "ActionEvent",
    "ObservationEvent",
    "MessageEvent",
    "SystemPromptEvent",
    "AgentErrorEvent",
    "UserRejectObservation",
}
_TERMINALS = {"terminal", "execute_bash", "bash", "TerminalAction", "ExecuteBashAction", "BashAction"}
_SOURCES = {"agent", "user", "environment"}
_ACTIONS = {"run", "run_ipython", "message", "system", "read", "write", "edit", "browse", "browse_interactive", "think"}
_ACTIONS |= {"finish", "reject", "delegate", "recall", "change_agent_state", "initialize", "call_tool_mcp", "null"}
_FLAT = ("thought", "wait_for_response", "is_confirmed")
_OBSERVATIONS = {"run", "run_ipython", "edit", "write", "error", "read", "browse", "null", "agent_state_changed"}
_LISTS = ("history", "trajectory", "events", "items")
_EDITORS = {"file_editor", "str_replace_editor", "FileEditorAction", "StrReplaceEditorAction", "apply_patch"}


def is_sdk_event(event: Any) -> bool:
    """Whether an event is one of the SDK's."""
    return text_at(event, "kind") in _KINDS and isinstance(at(event, "source"), str)


def translated(event: dict[str, Any]) -> dict[str, Any]:
    """The event in the earlier shape: an action or an observation with `id`, `cause`, `args` and `extras`."""
    common = {
        "source": event.get("source"),
        "timestamp": event.get("timestamp"),
        "tool_call_metadata": {"tool_call_id": event.get("tool_call_id")},
    }
    kind, call_id = event.get("kind"), event.get("tool_call_id")
    if kind == "MessageEvent":
        content = texts(at(event, "llm_message", "content"))
        return {**common, "action": "message", "args": {"content": content}}
    if kind == "ActionEvent":
        return {**common, "id": call_id, "action": _action(event), "args": at(event, "action") or {}}
    if kind == "ObservationEvent":
        return {**common, "cause": call_id, **_observation(event)}
    if kind == "UserRejectObservation":
        return {
            **common,
            "cause": call_id,
            "observation": "user_rejected",
            "content": text_at(event, "rejection_reason"),
        }
    if kind == "AgentErrorEvent":
        return {**common, "cause": call_id, "observation": "error", "content": text_at(event, "error")}
    return common


def _action(event: dict[str, Any]) -> str:
    names = {text_at(event, "tool_name"), text_at(event, "action", "kind")}
    if names & _TERMINALS:
        return "run"
    return "edit" if names & _EDITORS else "other"


def _observation(event: dict[str, Any]) -> dict[str, Any]:
    found = at(event, "observation")
    content = texts(at(found, "content")) or text_at(found, "output")
    names = {text_at(event, "tool_name"), text_at(found, "kind").replace("Observation", "Action")}
    if names & _EDITORS:
        failed = at(found, "is_error") is True or bool(text_at(found, "error"))
        return {"observation": "error" if failed else "edit", "content": content, "extras": found}
    metadata = at(found, "metadata")
    code = at(found, "exit_code")
    told = {**(metadata if isinstance(metadata, dict) else {}), **({} if code is None else {"exit_code": code})}
    failed = at(found, "is_error") is True
    extras = {"metadata": told, "timed_out": at(found, "timeout") is True}
    return {
        "observation": "run" if names & _TERMINALS else "other",
        "content": content,
        "extras": extras,
        **({"success": False} if failed else {}),
    }


def is_event(event: Any) -> bool:
    """Whether a value is an event, of OpenHands or of the SDK."""
    if not isinstance(event, dict):
        return False
    if is_sdk_event(event):
        return True
    if text_at(event, "action") in _ACTIONS:
        sourced = text_at(event, "source") in _SOURCES and isinstance(event.get("args"), dict)
        return sourced or (_flat(event) and not event.keys().isdisjoint(_FLAT))
    answers = text_at(event, "observation") in _OBSERVATIONS and "content" in event
    return answers and not event.keys().isdisjoint(("extras", "exit_code", "command_id", "code"))


def _flat(event: dict[str, Any]) -> bool:
    name = {"run": "command", "run_ipython": "code"}.get(event["action"], "content")
    return "args" not in event and isinstance(event.get(name), str)


def _events(value: Any) -> list[Any] | None:
    """The events in a list of them or of pairs; None where it is no such list."""
    if not isinstance(value, list):
        return None
    flat = [event for item in value for event in (item if isinstance(item, list) else [item])]
    return flat if any(is_event(event) for event in flat) else None


def _held(record: Any) -> list[Any] | None:
    return next((found for key in _LISTS if (found := _events(at(record, key))) is not None), None)


def histories(document: LogDocument) -> list[tuple[Any, list[Any]]]:
    """The records that hold events, each with its events; a log that is nothing but events is one without a record."""
    events = _events(document.value if isinstance(document.value, list) else document.lines)
    if events is not None:
        return [(None, events)]
    records = [document.value] if isinstance(document.value, dict) else document.lines
    held = [(record, _held(record)) for record in records]
    return [(record, events or []) for record, events in held] if any(events for _, events in held) else []
