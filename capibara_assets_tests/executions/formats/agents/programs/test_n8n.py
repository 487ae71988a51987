"""Executions of n8n's workflows: code in the nodes, outcomes under the nodes' names."""

import json
from typing import Any

from capibara_assets.executions.formats.agents.programs.n8n import READER
from capibara_assets.executions.formats.agents.runs import NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, runs, survives


def node(name: str, kind: str, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "type": f"n8n-nodes-base.{kind}", "parameters": parameters}


def ran(start: int, *items: dict[str, Any], error: str | None = None) -> dict[str, Any]:
    run: dict[str, Any] = {"startTime": 1772618400000 + start, "executionTime": 5, "executionStatus": "success"}
    if error is not None:
        return {**run, "executionStatus": "error", "error": {"message": error}}
    return {**run, "data": {"main": [[{"json": item} for item in items]]}}


NODES = [
    node("Start", "manualTrigger"), node("Disk", "executeCommand", command="df -h"),
    node("Orders", "postgres", operation="executeQuery", query="SELECT count(*) FROM orders"),
    node("Sum", "code", jsCode="return total;"), node("Named", "ssh", command="=ls {{ $json.dir }}"),
    node("Call", "httpRequest", command="no shell", url="x"),
]  # fmt: skip
RUNS = {
    "Start": [ran(0, {})], "Sum": [ran(30, error="total is not defined")],
    "Disk": [ran(10, {"exitCode": 0, "stdout": "66%", "stderr": ""})], "Orders": [ran(20, {"n": 3}, {"n": 4})],
    "Named": [ran(40, {"code": 0})], "Call": [ran(50, {})],
}  # fmt: skip
EXECUTION = {"id": 17, "data": {"resultData": {"runData": RUNS}}, "workflowData": {"nodes": NODES}}


def test_code_and_outcome_are_joined_by_the_nodes_name_in_order_of_time() -> None:
    for data in (json.dumps(EXECUTION), json.dumps({"data": [EXECUTION]}), jsonl(EXECUTION)):
        found = runs(READER, data)
        assert [(run.language, run.code, run.success, run.output, run.stderr) for run in found] == [
            ("bash", "df -h", True, "66%", ""),
            ("sql", "SELECT count(*) FROM orders", True, '{"n": 3}\n{"n": 4}', ""),
            ("javascript", "return total;", False, "", "total is not defined"),
        ]
        assert {(run.session, run.duration_ms) for run in found} == {("17", 5.0)}
        assert NotRun("template") in entries(READER, data)


def test_a_workflow_that_did_not_run_is_no_log_and_nothing_damaged_raises() -> None:
    assert not reads(READER, json.dumps({"nodes": NODES, "runData": {}}))
    for one in damaged(EXECUTION):
        survives(READER, jsonl(one))
