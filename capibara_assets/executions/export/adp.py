"""Sessions as trajectories of the Agent Data Protocol, version 1.5: actions, each with the observation that answers it.

An execution is a `code_action` in a language that the protocol knows, else an `api_action` of a tool `run_code`; an
edit is one of `edit_file`. A task is an observation from the user, where it changes. The protocol allows fields of
one's own in `details` alone, so what it has no place for stands there by `tool_call_id`.
"""

from collections.abc import Sequence
from typing import Any

from capibara_assets.executions.export.trajectories import Lacks, Row, beside, dated, edited, shown
from capibara_assets.executions.formats.agents.told import TOLD

VERSION = "1.5.0"
LANGUAGES = frozenset(
    ("python", "javascript", "typescript", "sql", "bash", "r", "java", "go", "rust", "ruby", "cpp", "c")
)


def adp(session: str, rows: Sequence[Row], lacks: Lacks) -> dict[str, Any]:
    """One session as a trajectory."""
    content: list[dict[str, Any]] = []
    told: dict[str, Any] = {}
    task: str | None = None
    for row in rows:
        call, edit = row["execution_id"], edited(row, lacks)
        if edit is None and row["task"] != task:
            task = row["task"]
            content.append({"class_": "text_observation", "content": task or "", "name": None, "source": "user"})
        printed = "" if edit else shown(row)
        content.append({"tool_call_id": call, **_action(row, edit)})
        content.append(
            {
                "tool_call_id": call,
                "class_": "text_observation",
                "content": printed,
                "name": None,
                "source": "environment",
            }
        )
        if not edit:
            told[call] = beside(row, printed, lacks)
            if (moment := dated(row)) is not None:
                told[call]["timestamp"] = moment
                lacks.beside["timestamp"] += 1
    languages = sorted({item["language"] for item in content if item["class_"] == "code_action"})
    return {
        "schema_version": VERSION,
        "id": session,
        "content": content,
        **({"available_code_languages": languages} if languages else {}),
        "details": {TOLD: told},
    }


def _action(row: Row, edit: tuple[str, str] | None) -> dict[str, Any]:
    if edit is not None:
        return _call("edit_file", path=edit[0], patch=edit[1])
    if row["language"] in LANGUAGES:
        return {"class_": "code_action", "language": row["language"], "content": row["code"], "description": None}
    return _call("run_code", language=row["language"], code=row["code"])


def _call(function: str, **arguments: str) -> dict[str, Any]:
    return {"class_": "api_action", "function": function, "kwargs": arguments, "description": None}
