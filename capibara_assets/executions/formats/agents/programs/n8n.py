"""Executions of n8n's workflows, as its API and its export give them: `workflowData.nodes` and `resultData.runData`.

The code stands in a node's parameters, its outcome under the node's name. Traps: a parameter that begins with `=`
is a template, and with `{{ }}` in it the log does not tell what ran; a node runs several times in a loop.
"""

import json
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.fields import (
    at,
    code_at,
    name_at,
    number,
    objects,
    record,
    text_at,
    word,
)
from capibara_assets.executions.formats.agents.general.tool_names import is_statement
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader, moment

_PARAMETERS = (
    ("command", "bash"), ("jsCode", "javascript"), ("functionCode", "javascript"), ("pythonCode", "python"),
    ("query", "sql"),
)  # fmt: skip
_SHELLS = ("executeCommand", "ssh")


def _executions(document: LogDocument) -> Iterator[dict[str, Any]]:
    rows = objects(record(document.value).get("data")) or objects(document.rows)
    yield from (row for row in rows if isinstance(at(row, "data", "resultData", "runData"), dict))


def _reads(document: LogDocument) -> bool:
    return any(objects(at(row, "workflowData", "nodes")) for row in _executions(document))


def _entries(document: LogDocument) -> Iterator[Entry]:
    for row in _executions(document):
        nodes = {word(node.get("name")): node for node in objects(at(row, "workflowData", "nodes"))}
        runs = [
            (run, nodes.get(name))
            for name, several in record(at(row, "data", "resultData", "runData")).items()
            for run in objects(several)
        ]
        session = name_at(row, "id") or document.digest
        for run, node in sorted(runs, key=lambda each: number(each[0].get("startTime")) or 0.0):
            if (asked := _code(record(node))) is not None:
                yield _entry(session, run, *asked)


def _code(node: dict[str, Any]) -> tuple[str, str] | None:
    """The code in a node, and its language; None: it runs none."""
    parameters, kind = record(node.get("parameters")), text_at(node, "type").rpartition(".")[2]
    for key, language in _PARAMETERS:
        code = word(parameters.get(key))
        if code is None or (key == "command" and kind not in _SHELLS):
            continue
        code = code.removeprefix("=")
        if key != "query" or is_statement(code):
            return code, language
    return None


def _entry(session: str, run: dict[str, Any], code: str, language: str) -> Entry:
    if "{{" in code and language in ("bash", "sql"):
        return NotRun("template", session, code)
    branches = at(run, "data", "main")
    items = [
        record(item.get("json"))
        for branch in (branches if isinstance(branches, list) else ())
        for item in objects(branch)
    ]
    first = items[0] if items else {}
    streams = language == "bash" and "stdout" in first
    printed = "\n".join(json.dumps(item, ensure_ascii=False) for item in items)
    error = record(run.get("error"))
    failed = bool(error) or run.get("executionStatus") == "error"
    exit_code = code_at(first, "exitCode") if streams else None
    well = exit_code in (None, 0) if run.get("executionStatus") == "success" or exit_code is not None else None
    return AgentRun(
        session, language, code, False if failed else well,
        output=text_at(first, "stdout") if streams else printed,
        stderr=text_at(error, "message") or (text_at(first, "stderr") if streams else ""),
        exit_code=exit_code, started=moment(run.get("startTime")), duration_ms=number(run.get("executionTime")),
    )  # fmt: skip


READER = Reader("n8n", (b'"runData"',), _reads, _entries)
