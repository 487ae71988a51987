"""Sessions as trajectories of ATIF, the Agent Trajectory Interchange Format, version 1.5.

An execution is a step with one call and its result: `bash` with a command, `run_code` with code and its language, and
`edit_file` for an edit. A task is a step of the user's, where it changes.
"""

from collections.abc import Sequence
from typing import Any

from capibara_assets.executions.export.trajectories import Lacks, Row, beside, dated, edited, shown
from capibara_assets.executions.formats.agents.told import TOLD

VERSION = "ATIF-v1.5"
NOT_KNOWN = "unknown"  # the format asks for an agent's name and version


def atif(session: str, rows: Sequence[Row], lacks: Lacks) -> dict[str, Any]:
    """One session as a trajectory."""
    steps: list[dict[str, Any]] = []
    task: str | None = None
    for row in rows:
        edit = edited(row, lacks)
        if edit is None and row["task"] != task:
            task = row["task"]
            steps.append({"source": "user", "message": task or "", "extra": {TOLD: {}}})
        steps.append(_step(row, edit, lacks))
    names = sorted({row["agent_id"] for row in rows if row["agent_id"]})
    return {
        "schema_version": VERSION,
        "session_id": session,
        "agent": {"name": names[0] if len(names) == 1 else NOT_KNOWN, "version": NOT_KNOWN},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {"total_steps": len(steps)},
    }


def _step(row: Row, edit: tuple[str, str] | None, lacks: Lacks) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", "message": ""}
    if (moment := dated(row)) is not None:
        step["timestamp"] = moment
    if edit is not None:
        name, arguments = "edit_file", {"path": edit[0], "patch": edit[1]}
    elif row["language"] == "bash" and row["code"].strip():
        name, arguments = "bash", {"command": row["code"]}
    else:
        name, arguments = "run_code", {"language": row["language"], "code": row["code"]}
    content = "" if edit else shown(row)
    step["tool_calls"] = [{"tool_call_id": row["execution_id"], "function_name": name, "arguments": arguments}]
    step["observation"] = {"results": [{"source_call_id": row["execution_id"], "content": content}]}
    if not edit:
        step["extra"] = {TOLD: beside(row, content, lacks)}
    return step
