"""What an export of this project tells of an execution beside the fields of its format, and how a reader takes it.

Formats of agents' logs have no place for an outcome, a stream or a licence. An export puts these fields of the table
under `TOLD` where the format allows fields of one's own; a reader that finds them there concludes nothing itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from capibara_assets.executions.formats.agents.fields import number, record
from capibara_assets.executions.formats.agents.runs import AgentRun
from capibara_assets.executions.schema import Outcome

TOLD = "capibara_execution"
STREAMS = ("stdout", "stderr")
TEXTS = (
    "agent_id", "tenant", "context_id", "template_id", "result_text", "error_name", "error_value", "traceback",
    "execution_count", "licence", "source",
)  # fmt: skip
NUMBERS = ("duration_ms", "timeout_s")
LISTS = ("bullet_ids", "flags")


def told_by(value: Any) -> Mapping[str, Any] | None:
    """The value as what an export of this project tells of an execution; None: it is none."""
    told = record(value)
    return told if told.get("outcome") in get_args(Outcome) else None


def as_told(run: AgentRun, told: Mapping[str, Any] | None) -> AgentRun:
    """The run with what is told of it; unchanged where nothing is told."""
    if told is None:
        return run
    success = {"ok": True, "error": False}.get(told["outcome"])
    return replace(run, success=success, exit_code=None, timed_out=told["outcome"] == "timeout", told=told)


def fields_told(told: Mapping[str, Any], clean: Callable[[str], str]) -> dict[str, Any]:
    """The fields of a `Recorded` that are told; a value of another type than the field's counts as not told."""
    found: dict[str, Any] = {"outcome": told["outcome"]}
    for name in (*STREAMS, *TEXTS):
        value = told.get(name)
        if isinstance(value, str):
            found[name] = clean(value)
        elif value is None and name in told and name in TEXTS:
            found[name] = None
    for name in NUMBERS:
        if (size := number(told.get(name))) is not None and size >= 0:
            found[name] = size
    listed = told.get("bullet_ids")
    if isinstance(listed, list) and all(isinstance(each, str) and "\n" not in each for each in listed):
        found["bullet_ids"] = "\n".join(clean(each) for each in listed) or None
    return found


def flags_told(told: Mapping[str, Any]) -> set[str]:
    """The flags that are told."""
    flags = told.get("flags")
    return {flag for flag in flags if isinstance(flag, str)} if isinstance(flags, list) else set()
