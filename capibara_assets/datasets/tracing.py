"""Traces of a domain's sessions: the re-executed behaviour of each cell, if it matches the record.

What explanations would tell runs once more, from the code alone that their prompts show.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.explanations import diagnose, explain
from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.executions.replay.traces import Trace, trace_sessions
from capibara_assets.executions.replay.workers import Session

_MOST_CELLS = 60  # of a session: what follows would cost more than it explains


def traced(evidence: Evidence, recipe: DatasetRecipe, *, cache: Path | None = None) -> Evidence:
    """Add traces to the evidence, for the executions of a recipe's tenants.

    Raises:
        InputError: the cache cannot be used.
        IsolationError: workers do not start.
    """
    parts = [part for session in evidence.of_tenants(recipe.tenants).sessions for part in _runnable(session)]
    sessions = [Session(_family(part[0]["language"]), tuple(row["code"] for row in part)) for part in parts]
    by_session = trace_sessions(sessions, cache=cache, memory_mib=recipe.verification.memory_mib)
    traces = {
        row["execution_id"]: trace
        for part, listed in zip(parts, by_session, strict=True)
        for row, trace in zip(part, listed, strict=True)
        if trace is not None and _as_recorded(row, trace)
    }
    ran = replace(evidence, traces=traces)
    own = ran.of_tenants(recipe.tenants)
    asked = list(dict.fromkeys([*explain.sessions_alone(own, recipe), *diagnose.sessions_alone(own)]))
    again = trace_sessions(asked, cache=cache, memory_mib=recipe.verification.memory_mib)
    return replace(ran, alone=dict(zip(asked, again, strict=True)))


def _family(language: str) -> str:
    return "javascript" if language in JAVASCRIPT else language


def _runnable(session: Sequence[Row]) -> list[list[Row]]:
    """The cells of a session in Python and in JavaScript, each up to the first that timed out or held a secret."""
    parts = []
    for family in ("python", "javascript"):
        part: list[Row] = []
        for row in session:
            if _family(row["language"]) != family:
                continue
            if row["outcome"] == "timeout" or row["secrets"] or len(part) == _MOST_CELLS:
                break
            part.append(row)
        if part:
            parts.append(part)
    return parts


def _as_recorded(row: Row, trace: Trace) -> bool:
    """Whether a cell ended as it was recorded, and printed the same.

    The tracer of JavaScript passes over statements that need what is missing here, such as a package; the calls that
    it notes stand for themselves.
    """
    if row["language"] in JAVASCRIPT:
        return True
    error = trace["error"]
    if (row["outcome"] == "ok") != (error is None) or (error is not None and error["name"] != row["error_name"]):
        return False
    return bool(trace["stdout"].strip()[:2000] == row["stdout"].strip()[:2000] and _same_result(row, trace["result"]))


def _same_result(row: Row, value: str | None) -> bool:
    recorded = (row["result_text"] or "").strip()
    if not recorded or "\n" in recorded or value is None:
        return True
    return recorded in (value, value[1:-1])  # a string's text is recorded without its quotes
